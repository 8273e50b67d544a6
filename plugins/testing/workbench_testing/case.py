"""Shared code of the suites of a plugin's contract."""

from __future__ import annotations

import copy
import random
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from workbench.errors import SpecError
from workbench.spec import Consent, guard, unguard


def name_of(thing: Any) -> str:
    """The name of a class, a function or an object's class, for messages."""
    return str(getattr(thing, "__name__", None) or type(thing).__name__)


def assert_documented(thing: Any, what: str) -> None:
    """A class or function has a docstring of its own."""
    documented = thing if isinstance(thing, type) or hasattr(thing, "__code__") else type(thing)
    assert vars(documented).get("__doc__") or getattr(documented, "__doc__", None), f"{what} needs a docstring"


#: Events of Python's audit (`sys.addaudithook`) that a file must not cause without passing a door.
_ACTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "socket.connect")
_seen: list[list[str]] = []


def _note(event: str, given: tuple[Any, ...]) -> None:
    ours = any(place in str(given) for place in (sys.executable, sys.base_prefix))  # the sandbox is a Python of ours
    if _seen and event in _ACTS and not ours:
        _seen[-1].append(f"{event}: {given[0] or given[1]!r:.200}")


@cache
def _listen() -> None:
    sys.addaudithook(_note)


@contextmanager
def through_doors(what: str) -> Generator[None]:
    """The block, made from a file that nobody was asked about, starts no program and connects nowhere without passing a
    door of `workbench.spec`, which refuses it."""
    _listen()
    _seen.append(seen := [])
    guard(Consent(Path.cwd()))
    try:
        with suppress(SpecError):
            yield
    finally:
        unguard()
        _seen.pop()
    assert not seen, (
        f"{what} passes no door before it acts ({seen[0] if seen else ''}): call start_program, connect or load_python "
        "(workbench.spec) where it is made, and with now=True where it acts"
    )


@contextmanager
def seeded(seed: int) -> Generator[None]:
    """The global random states of Python and numpy at a seed, and as they were afterwards."""
    import numpy

    state, numpy_state = random.getstate(), numpy.random.get_state()
    random.seed(seed)
    numpy.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
        numpy.random.set_state(numpy_state)


@contextmanager
def unchanged(remedy: str, **values: Any) -> Generator[None]:
    """The block changes none of the values. Raises AssertionError with the name of one that it did."""
    before = {name: copy.deepcopy(value) for name, value in values.items()}
    yield
    for name, value in values.items():
        assert value == before[name], f"it changed {name.replace('_', ' ')}: {remedy}"


def checks_in(module: str) -> list[Callable[[Any], None]]:
    """The checks of a suite, in their order: the functions of its module that are named `check_` and what they check.
    The one named after the kind alone, e.g. `check_node`, runs them."""
    return [thing for name, thing in vars(sys.modules[module]).items() if re.match("check_[a-z]+_", name)]


def run_all(checks: list[Callable[[Any], None]], case: Any) -> None:
    """Run every check on a case. Raises the first AssertionError."""
    for check in checks:
        check(case)
