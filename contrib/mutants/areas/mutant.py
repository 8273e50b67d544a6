"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A change of `old` into `new` in a file. tests: files or node ids for pytest. why: what is wrong then."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str

    @property
    def name(self) -> str:
        return f"{self.file}: {self.why}"


def changes_of(file: str, tests: str | tuple[str, ...], *changes: tuple[str, str, str]) -> list[Mutant]:
    """Mutants of one file with the same tests, from (old, new, why)."""
    names = (tests,) if isinstance(tests, str) else tests
    return [Mutant(file, old, new, names, why) for old, new, why in changes]


def nodes_of(file: str, *names: str) -> tuple[str, ...]:
    """Some tests of a file."""
    return tuple(f"{file}::{name}" for name in names)
