"""Shared code of the suites of a plugin's contract."""

from __future__ import annotations

import copy
import random
import re
import sys
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from workbench.spec import declaration_of


def name_of(thing: Any) -> str:
    """The name of a class, a function or an object's class, for messages."""
    return str(getattr(thing, "__name__", None) or type(thing).__name__)


def assert_documented(thing: Any, what: str) -> None:
    """A class or function has a docstring of its own."""
    documented = thing if isinstance(thing, type) or hasattr(thing, "__code__") else type(thing)
    assert vars(documented).get("__doc__") or getattr(documented, "__doc__", None), f"{what} needs a docstring"


def assert_declares_powers(thing: Any, what: str, settings: Collection[str] | None = None) -> None:
    """A class or function says what it may do besides asking models. settings: that it has, where these are known."""
    powers = declaration_of(thing)
    assert powers is not None, (
        f"{what} does not say what it may do, so no file that is not trusted may use it: write `powers = {{}}` if no "
        "setting leads to Python, programs, addresses, paths or variables, else what by setting "
        "(workbench.spec.powers), or for a function, @declares(...). A class that adds settings says it anew"
    )
    if settings is not None and isinstance(powers, Mapping):
        unknown = sorted({*powers} - {*settings})
        assert not unknown, f"{what} declares the powers of '{unknown[0]}', which is no setting of it"


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
