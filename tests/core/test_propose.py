"""What proposers share: which prompts were in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.scripted import run_node

from workbench.data import Example
from workbench.evaluate import Result
from workbench.lm import Request
from workbench.propose import prompt_in_use

LONG = "Read the text to its end, and then give the one word that it is about."


def results(node: dict[str, Any], folder: Path, text: str = "some text") -> list[Result]:
    def say(request: Request) -> str:
        return "Mend it." if "Review the answer" in str(request.messages[0]["content"]) else "yes"

    outcome, _ = run_node(node, {"text": text}, folder, say)
    assert outcome.failure is None, outcome.message
    return [Result(Example("0", {"text": text}), 0.0, trace=outcome.trace)]


@pytest.mark.parametrize("prompt", [LONG, f"  {LONG}\nAnd more.", "Answer.", ""])
def test_a_prompt_that_was_shown_is_in_use(prompt: str, tmp_path: Path) -> None:
    found = results({"predict": "text -> answer", "instructions": prompt}, tmp_path)
    assert prompt_in_use("nodes.n.instructions", prompt, found) == "n"
    assert prompt_in_use("nodes.other.instructions", prompt, found) is None


@pytest.mark.parametrize("prompt", [LONG, "Answer.", "text"])
def test_a_short_prompt_is_not_found_within_a_line(prompt: str, tmp_path: Path) -> None:
    node = {"predict": "text -> answer", "instructions": "Answer. In one word."}
    found = results(node, tmp_path, text="No text? Answer. Then go.")
    assert prompt_in_use("nodes.n.instructions", prompt, found) is None


def test_what_improves_an_answer_is_in_use_below_its_node(tmp_path: Path) -> None:
    of = {"predict": "text -> answer", "instructions": "Answer."}
    node = {"reflect": of, "rounds": 1, "improve": "Mend all of it."}
    found = results(node, tmp_path)
    assert prompt_in_use("nodes.n.improve", "Mend all of it.", found) == "n"
    assert prompt_in_use("nodes.n.of.instructions", "Answer.", found) == "n.of"
    node["rounds"] = 0
    assert prompt_in_use("nodes.n.improve", "Mend all of it.", results(node, tmp_path)) is None


def test_an_empty_judge_of_a_vote_is_not_in_use(tmp_path: Path) -> None:
    node = {"ensemble": {"predict": "text -> answer", "instructions": "Answer."}, "samples": 2, "judge": ""}
    assert prompt_in_use("nodes.n.judge", "", results(node, tmp_path)) is None
