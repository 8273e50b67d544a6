"""What the suites of a plugin's contract share."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any


def name_of(thing: Any) -> str:
    """The name of a class, a function or an object's class, for messages."""
    return str(getattr(thing, "__name__", None) or type(thing).__name__)


def assert_documented(thing: Any, what: str) -> None:
    """A class or function has a docstring of its own."""
    documented = thing if isinstance(thing, type) or hasattr(thing, "__code__") else type(thing)
    assert vars(documented).get("__doc__") or getattr(documented, "__doc__", None), f"{what} needs a docstring"


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


def run_all(checks: list[Callable[[Any], None]], case: Any) -> None:
    """Run every check on a case. Raises the first AssertionError."""
    for check in checks:
        check(case)
