"""The tests column of docs/explanation/reliability.md, from the marker `fault` on the tests."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "reliability.md"
#: How a row of the page begins.
_ROW = "| `"


class FaultTest(NamedTuple):
    """A test that holds a row of the page. tier: "" if at least one of its cases is in the fast tier."""

    fault: str
    tier: str
    file: Path
    name: str


def fault_tests() -> list[FaultTest]:
    """All tests marked `@pytest.mark.fault("KEY")`, the fast ones first. Nothing is imported."""
    found = list[FaultTest]()
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if "mark.fault(" in text:
            found += _marked(file, ast.parse(text))
    return sorted(found, key=lambda test: test.tier != "")


def faults() -> dict[str, list[str]]:
    """The cells of each row of the page, by its key."""
    rows = [_cells(line) for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(_ROW)]
    return {_key(row): row for row in rows}


def with_faults() -> str:
    """The page with the tests of each row in its last cell."""
    held = dict[str, list[str]]()
    for test in fault_tests():
        link = f"[{test.name}]({os.path.relpath(test.file, PAGE.parent)})"
        held.setdefault(test.fault, []).append(f"{link} ({test.tier})" if test.tier else link)
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if line.startswith(_ROW):
            cells = _cells(line)
            lines[number] = f"| {' | '.join([*cells[:-1], ', '.join(held.get(_key(cells), []))])} |"
    return "\n".join(lines) + "\n"


def _key(cells: list[str]) -> str:
    return cells[0].strip("`")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" |")]


def _marked(file: Path, tree: ast.Module) -> Iterator[FaultTest]:
    tier = _tier_of_file(file, tree)
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            marks = {ast.unparse(mark): mark for mark in function.decorator_list}
            own = "slow" if "pytest.mark.slow" in marks else tier
            for mark in marks.values():
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.fault":
                    yield from (FaultTest(ast.literal_eval(key), own, file, function.name) for key in mark.args)


def _tier_of_file(file: Path, tree: ast.Module) -> str:
    """The tier of all tests of a file: from the table in tests/conftest.py, or the file's `pytestmark`."""
    place = file.relative_to(ROOT / "tests").as_posix()
    of_folder = next((tier for start, tier in _tiers().items() if place.startswith(start)), "")
    return of_folder or ("slow" if "pytest.mark.slow" in _assigned(tree, "pytestmark") else "")


@cache
def _tiers() -> dict[str, str]:
    """The tiers of folders and files, as tests/conftest.py has them."""
    conftest = ast.parse((ROOT / "tests" / "conftest.py").read_text(encoding="utf-8"))
    return ast.literal_eval(_assigned(conftest, "TIERS"))


def _assigned(tree: ast.Module, name: str) -> str:
    """The source of what a module assigns to a name; "" if it does not."""
    for line in tree.body:
        if isinstance(line, ast.Assign) and any(ast.unparse(target) == name for target in line.targets):
            return ast.unparse(line.value)
    return ""
