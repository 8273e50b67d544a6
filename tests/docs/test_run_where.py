"""One section says what of training was run where; no other sentence of its pages may say so, and contradict it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "plugins/training/workbench_training/README.md"
PAGES = [
    README,
    ROOT / "docs/how-to/vllm.md",
    ROOT / "docs/how-to/train.md",
    ROOT / "plugins/training/workbench_hf/README.md",
]
TITLE = "What was run where"
_SAID = re.compile(
    r"(?i)\b(?:was|were|is|are|has|have|been)\s+(?:not|never)(?:\s+been)?\s+(?:run|tested)\b|"
    r"\bnothing\b[^.|]{0,40}\b(?:was|were|been)\s+run\b|\bnever\s+(?:been\s+)?run\b"
)


def outside(text: str) -> str:
    """A page without its section on what was run where."""
    return re.sub(rf"(?ms)^## {TITLE}$.*?(?=^## |\Z)", "", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + "/" + page.name)
def test_no_other_section_says_what_was_not_run(page: Path) -> None:
    found = [m.group(0) for m in _SAID.finditer(outside(page.read_text(encoding="utf-8")))]
    assert not found, f"{page}: say it in the section `{TITLE}`: {found}"


def test_the_section_is_there_once_and_agrees_with_the_benchmarks() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count(f"## {TITLE}\n") == 1
    benchmarks = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    section = text.split(f"## {TITLE}\n")[1].split("\n## ")[0]
    assert "on an H100 all of 28 checks" in benchmarks and "an H100" in section and "28 of 28 checks" in section


@pytest.mark.parametrize(
    "said",
    [
        "Nothing here was run on a GPU.",
        "vLLM itself was not run with it.",
        "It has not been run on a GPU.",
        "were never run",
    ],
)
def test_a_sentence_that_says_so_is_found(said: str) -> None:
    assert _SAID.search(said) and _SAID.search(outside(f"## A\n{said}\n## {TITLE}\n{said}\n## B\n"))
    assert not _SAID.search(outside(f"## {TITLE}\n{said}\n## B\n"))
