"""The pages on reliability and security name tests for what they promise, and each is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from docs.writers.faults import fault_tests, faults

DOCS = Path(__file__).parents[2] / "docs"
LINK = re.compile(r"\[([^\]]+)\]\(([^)]*tests/[^)]+\.py)\)")


def rows(page: Path) -> list[list[str]]:
    """The cells of each row of the first table of a page, without its head."""
    lines = page.read_text(encoding="utf-8").splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith("| ---"))
    found = []
    for line in lines[begin + 1 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def functions_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")}


def test_every_fault_has_a_fast_test_and_every_marker_names_a_fault() -> None:
    """`docs/generate.py --check` holds that the page names the tests that are marked."""
    rows, marked = list(faults()), fault_tests()
    assert len(rows) > 20
    assert {test.fault for test in marked} <= {*rows}
    assert {test.fault for test in marked if not test.tier} >= {*rows}


def test_a_test_of_another_tier_is_marked_so() -> None:
    tiers = {test.name: test.tier for test in fault_tests()}
    assert tiers["test_random_kills_change_nothing"] == "slow"
    assert tiers["test_a_strangers_record_moves_nothing_and_is_dropped"] == "training"
    assert tiers["test_many_calls_leave_no_memory_descriptors_or_threads"] == ""


def test_every_file_of_tests_that_the_page_on_security_names_has_tests() -> None:
    links = LINK.findall((DOCS / "security.md").read_text(encoding="utf-8"))
    assert len(links) > 15
    for name, place in links:
        file = (DOCS / place).resolve()
        assert functions_in(file), place
        assert name == file.name or name in functions_in(file), f"{name} is not in {place}"


def test_what_a_source_may_not_do_is_held_by_a_named_test() -> None:
    for source, _, may_not in rows(DOCS / "security.md"):
        assert LINK.findall(may_not), f"{source}: no test is named"


def test_every_paragraph_of_what_is_promised_names_its_test() -> None:
    page = (DOCS / "security.md").read_text(encoding="utf-8")
    promised = page.partition("## Trust")[2].partition("## Attacks")[0]
    text = re.sub(r"```.*?```|^## .*$", "", promised, flags=re.DOTALL | re.MULTILINE)
    paragraphs = re.split(r"\n\n+", text.replace(":\n\n- ", ":\n- "))  # a list belongs to what introduces it
    missing = [one for one in paragraphs if one.strip() and not LINK.findall(one)]
    assert not missing, missing
