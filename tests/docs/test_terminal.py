"""The picture of the terminal shows what the command prints."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def terminal() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "contrib" / "terminal.py"))


def lasting(text: str) -> list[str]:
    """The lines without the name of the run, and without seconds, which are others each time."""
    text = re.sub(r"\b[0-9a-f]{8}\b", "RUN", text)
    text = re.sub(r"\d+\.\d s\b", "SECONDS", text)
    return re.sub(r"(\(n=200\) .* )[\d.]+ +(\d+)$", r"\1 SECONDS \2", text, flags=re.MULTILINE).splitlines()


def test_a_picture_has_the_text_that_was_drawn(terminal: dict[str, Any]) -> None:
    text = 'one  two\n\x1b[1mthree\x1b[0m <four> & "five"\n    six'
    drawn = terminal["text_of"](terminal["draw"](text))
    assert drawn.splitlines()[1:] == ["one  two", 'three <four> & "five"', "    six"]
    assert "http" not in re.sub(r'xmlns="[^"]*"|<!--.*?-->', "", terminal["draw"](text)), "nothing is loaded"


@pytest.mark.slow
def test_the_picture_of_the_tutorial_shows_what_the_quickstart_prints(terminal: dict[str, Any], tmp_path: Path) -> None:
    shown = terminal["text_of"](terminal["PICTURE"].read_text(encoding="utf-8"))
    printed = terminal["printed"](tmp_path)
    assert lasting(shown) == lasting(f"$ {terminal['COMMAND']}\n" + re.sub(r"\x1b\[[\d;]*m", "", printed))
