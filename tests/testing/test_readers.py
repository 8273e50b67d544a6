"""`check_reader`: each check finds the fault that it is about, and no other check does (friction 30)."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.conformance import broken

from workbench.errors import SpecError
from workbench_testing import ReaderCase, check_reader, reader_checks

GOOD, BROKEN, LINE = b"a=1\nb=2\nc=3\n", b"a=1\nb=2\nc\n", 3


def read(location: str, options: Any) -> Any:
    """Lines of the form name=value. No options."""
    if options:
        raise SpecError(f"no option '{min(options)}'", file=location, hint="It has none.")
    try:
        text = Path(location).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot be read: {error}", file=location) from None
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.partition("=")
        if not equals:
            raise SpecError("no =", file=location, line=number, hint="Write name=value.")
        rows.append({"name": name, "value": value})
    if not rows:
        raise SpecError("there are no rows", file=location, hint="Write name=value.")
    return rows


def undocumented(location, options):
    return read(location, options)


def gives_tuples(location, options):
    """Values that JSON does not have."""
    return [{**row, "both": (1, 2)} for row in read(location, options)]


def shuffles(location, options):
    """In a random order."""
    rows = read(location, options)
    random.shuffle(rows)
    return rows


def names_no_line(location, options):
    """Loses the line of a fault."""
    try:
        return read(location, options)
    except SpecError as error:
        error.line = None
        raise


def gives_no_hint(location, options):
    """Loses the hint."""
    try:
        return read(location, options)
    except SpecError as error:
        error.hint = None
        raise


def raises_of_the_system(location, options):
    """Does not look whether there is a file."""
    Path(location).read_bytes()
    return read(location, options)


def ignores_options(location, options):
    """Any option is taken."""
    return read(location, {})


def eats_options(location, options):
    """Clears the options of the workflow file."""
    options.pop("separator", None)
    return read(location, options)


def leaves_files(location, options):
    """Keeps an index beside the file."""
    rows = read(location, options)
    Path(location).with_suffix(".index").write_text("x")
    return rows


def test_a_reader_that_keeps_its_contract_passes() -> None:
    check_reader(read, "txt", GOOD, BROKEN, LINE)


def asks_a_program(location, options):
    """Has a program read it."""
    subprocess.run(["true"])
    return read(location, options)


@pytest.mark.parametrize(
    ("reader", "check", "said"),
    [
        (undocumented, "is_documented", "docstring"),
        (asks_a_program, "passes_doors", "passes no door before it acts"),
        (gives_tuples, "gives_rows", "what is not JSON: (1, 2)"),
        (shuffles, "is_deterministic", "do not shuffle"),
        (names_no_line, "names_the_line", "names line None, the fault is on line 3"),
        (gives_no_hint, "names_the_line", "what to write instead"),
        (raises_of_the_system, "refuses_what_it_cannot_read", "raised FileNotFoundError for a file that is not there"),
        (ignores_options, "refuses_unknown_options", "read an unknown option as 3 rows"),
        (eats_options, "leaves_file_and_options_unchanged", "it changed options"),
        (leaves_files, "leaves_file_and_options_unchanged", "left files beside"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_is_found_by_its_check_alone(reader: Any, check: str, said: str) -> None:
    options = {"separator": "="} if reader is eats_options else {}
    found = broken(reader_checks(), ReaderCase(reader, "txt", GOOD, BROKEN, LINE, options))
    assert list(found) == [f"check_reader_{check}"], found
    assert said in found[f"check_reader_{check}"]
