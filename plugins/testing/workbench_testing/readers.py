"""Checks of a dataset reader's contract. Each reads files and raises AssertionError with a remedy."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.base.hashing import digest
from workbench.errors import SpecError
from workbench_testing.case import (
    assert_documented,
    checks_in,
    name_of,
    run_all,
    seeded,
    through_doors,
    unchanged,
)


@dataclass(frozen=True)
class ReaderCase:
    """A reader, a file that it can read, and a broken one.

    Args:
        read: called as read(location, options).
        suffix: of its files, e.g. "csv".
        good: the content of a file with at least one row.
        broken: the content of a file with one fault.
        line: on which the fault is, from 1; None for a format without lines.
        options: that it needs.
    """

    read: Callable[[str, Mapping[str, Any]], Any]
    suffix: str
    good: bytes
    broken: bytes
    line: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def check_reader(
    read: Callable[..., Any], suffix: str, good: bytes, broken: bytes, line: int | None = None, **more: Any
) -> None:
    """Run all checks on a reader; the arguments are those of ReaderCase. Raises AssertionError that says what to
    fix."""
    run_all(reader_checks(), ReaderCase(read, suffix, good, broken, line, **more))


def reader_checks() -> list[Callable[[ReaderCase], None]]:
    """All checks, for `pytest.mark.parametrize`."""
    return checks_in(__name__)


@contextmanager
def _file(case: ReaderCase, content: bytes) -> Generator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"rows.{case.suffix}"
        path.write_bytes(content)
        yield path


def _rows(case: ReaderCase) -> Any:
    with _file(case, case.good) as path:
        found = case.read(str(path), dict(case.options))
        return [*found] if isinstance(found, Iterable) and not isinstance(found, Mapping) else found


def check_reader_is_documented(case: ReaderCase) -> None:
    """It says what it reads, and its options."""
    assert_documented(case.read, name_of(case.read))


def check_reader_passes_doors(case: ReaderCase) -> None:
    """Nothing acts for a file that nobody was asked about."""
    with through_doors(name_of(case.read)):
        _rows(case)


def check_reader_gives_rows(case: ReaderCase) -> None:
    """A list of dicts, or an iterator that makes them one at a time. Field names are texts, values JSON, for a row is
    hashed and stored."""
    rows = _rows(case)
    assert isinstance(rows, list) and rows, f"{name_of(case.read)} must return the rows, not {rows!r:.80}"
    for number, row in enumerate(rows, 1):
        assert isinstance(row, dict), f"{name_of(case.read)}: row {number} must be a dict, not {row!r:.80}"
        wrong = [name for name in row if not isinstance(name, str)]
        assert not wrong, f"{name_of(case.read)}: a field's name must be a text, not {wrong[0]!r}"
        try:
            digest(row)
        except (TypeError, ValueError) as error:
            raise AssertionError(f"{name_of(case.read)}: row {number} holds what is not JSON: {error}") from error
        assert not _no_json(row), f"{name_of(case.read)}: row {number} holds what is not JSON: {_no_json(row)[0]!r}"


def _no_json(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [wrong for inner in value.values() for wrong in _no_json(inner)]
    if isinstance(value, list):
        return [wrong for inner in value for wrong in _no_json(inner)]
    fine = value is None or isinstance(value, str | int) or (isinstance(value, float) and abs(value) < float("inf"))
    return [] if fine else [value]


def check_reader_is_deterministic(case: ReaderCase) -> None:
    """The same file gives the same rows in the same order: the split rests on it."""
    found = []
    for seed in range(5):
        with seeded(seed):
            found.append(_rows(case))
    assert all(rows == found[0] for rows in found), (
        f"{name_of(case.read)} gives other rows when it reads the file again: do not shuffle, and do not iterate over "
        "sets; the split is drawn by data: {seed: ...}"
    )


def check_reader_names_the_line(case: ReaderCase) -> None:
    """A broken file is refused with SpecError(file=, line=, hint=): users have thousands of lines."""
    with _file(case, case.broken) as path:
        error = _refusal(case, str(path), case.options, "a broken file")
        assert error.file == str(path), (
            f"{name_of(case.read)}: the error names the file {error.file!r}: raise SpecError(..., file=location)"
        )
        assert case.line is None or error.line == case.line, (
            f"{name_of(case.read)} names line {error.line}, the fault is on line {case.line}: "
            "raise SpecError(..., line=number), counted from 1"
        )
        assert error.hint, f"{name_of(case.read)}: say what to write instead: SpecError(..., hint=...)"


def _refusal(case: ReaderCase, location: str, options: Mapping[str, Any], what: str, allowed: int = -1) -> SpecError:
    """The error of a reader, or one of no rows where that many are allowed."""
    try:
        rows = [*case.read(location, dict(options))]
        if len(rows) == allowed:
            return SpecError("there are no rows")
    except SpecError as error:
        return error
    except Exception as error:
        raise AssertionError(
            f"{name_of(case.read)} raised {type(error).__name__} for {what}: {error}. Raise SpecError"
        ) from error
    raise AssertionError(f"{name_of(case.read)} read {what} as {len(rows)} rows: raise SpecError")


def check_reader_refuses_what_it_cannot_read(case: ReaderCase) -> None:
    """No file, and bytes that are no text are refused with SpecError. An empty one is, too, or it has no rows."""
    with _file(case, b"") as path:
        _refusal(case, str(path.with_name(f"absent.{case.suffix}")), case.options, "a file that is not there")
        _refusal(case, str(path), case.options, "an empty file", 0)
    with _file(case, b"\xff\xfe\x00\x80\n" * 3) as path:
        _refusal(case, str(path), case.options, "bytes that are no text")


def check_reader_refuses_unknown_options(case: ReaderCase) -> None:
    """A mistyped option is refused, not ignored."""
    with _file(case, case.good) as path:
        _refusal(case, str(path), {**case.options, "no_such_option": 1}, "an unknown option")


def check_reader_leaves_file_and_options_unchanged(case: ReaderCase) -> None:
    """It writes nothing, and the options are those of the workflow file."""
    with _file(case, case.good) as path:
        options = dict(case.options)
        with unchanged("copy them before you change them", options=options):
            list(case.read(str(path), options))
        assert path.read_bytes() == case.good, f"{name_of(case.read)} changed the file"
        assert list(path.parent.iterdir()) == [path], f"{name_of(case.read)} left files beside the one it read"
