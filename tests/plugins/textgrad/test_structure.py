"""The optimizer `textgrad` and the graph: optional nodes that it switches, edits that a proposer chooses."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.helpers.planted import LABELS
from tests.helpers.sqlite import connect
from tests.helpers.textgrad_runs import GRADIENT, ONE, REWRITE, asked, run, text_of

from workbench.lm import Request
from workbench_textgrad.optimizer import TextGrad


def messages(folder: Path) -> list[str]:
    """What the optimizer told of its course."""
    with closing(connect(folder / "run.db")) as db:
        return [
            json.loads(d)["message"] for (d,) in db.execute("select data from events where kind = 'optimizer_told'")
        ]


def test_an_optional_node_that_spoils_the_answer_is_switched_off(tmp_path: Path) -> None:
    nodes = {
        **ONE,
        "polish": {
            "predict": f"label, text -> label: Literal{list(LABELS)}",
            "instructions": "Polish.",
            "optional": True,
        },
    }

    def say(request: Request) -> str:
        text = text_of(request)
        if GRADIENT in text:
            return "step: remove" if "The step 'polish'" in text else "step: none"
        if not text.rstrip().endswith("label:"):
            return "wrong"
        right = text.split("-thing")[0][-1]
        return "d" if "Polish." in text else right

    report, script = run(tmp_path, nodes, say)
    assert report.winner.get("nodes.polish.enabled") is False and report.best["test"]["score"] == 1.0
    assert not asked(script, GRADIENT, "sort") and not asked(script, REWRITE)


@pytest.mark.parametrize(("helps", "on"), [(True, True), (False, False)])
def test_a_node_that_is_off_comes_on_only_if_the_same_batch_gains(helps: bool, on: bool, tmp_path: Path) -> None:
    nodes = {
        **ONE,
        "mend": {
            "predict": f"label, text -> label: Literal{list(LABELS)}",
            "instructions": "Mend.",
            "optional": True,
            "enabled": False,
        },
    }

    def say(request: Request) -> str:
        text = text_of(request)
        if "Its final outputs" in text:
            return "All is wrong.\nenable: mend"
        if not text.rstrip().endswith("label:"):
            return "step: none"
        return text.split("-thing")[0][-1] if "Mend." in text and helps else "a"

    report, script = run(tmp_path, nodes, say, steps=3)
    assert report.winner.get("nodes.mend.enabled") is on
    offered = asked(script, "switched off:\nThe step 'mend'")
    assert len(offered) == len(asked(script, "Its final outputs")) == (1 if on else 3), "it stays off until it pays"


EDIT = '{"edit": "insert", "node": "nodes.sort", "field": "hint", "instructions": "Find the letter."}'


@pytest.mark.parametrize(("helps", "kept"), [(True, True), (False, False)])
def test_an_edit_of_the_structure_is_kept_only_if_the_same_batch_gains(helps: bool, kept: bool, tmp_path: Path) -> None:
    """A hint before the answer is what is missing; wordings change nothing."""

    def say(request: Request) -> str:
        text = text_of(request)
        if "You improve the structure" in text:
            assert "All is wrong" in text and "- insert: " in text and "- ensemble" not in text
            return f"Let me see.\n{EDIT}"
        if "Its final outputs" in text:
            return "All is wrong."
        if GRADIENT in text:
            return "step: none\ninputs: none"
        right = text.split("-thing")[0][-1]
        if text.rstrip().endswith("hint:"):
            return f"it is {right}" if helps else "no idea"
        return right if f"it is {right}" in text else "e"

    report, script = run(tmp_path, ONE, say, steps=3, edits=["insert", "remove"])
    assert ("hint" in report.winner.get("nodes.sort.signature")) is kept
    assert report.best["test"]["score"] == (1.0 if kept else None), "a workflow that stays as it was is not tested"
    offered = asked(script, "You improve the structure")
    assert len(offered) == (1 if kept else 3)
    assert kept or ("insert nodes.sort field=hint" in offered[1] and "0.00 -> 0.00 on a batch" in offered[1])


def test_what_was_written_for_a_prompt_that_an_edit_takes_away_is_lost_with_it(tmp_path: Path) -> None:
    nodes = {
        "hint": {"predict": "text -> hint", "instructions": "Mislead."},
        "sort": {"predict": f"text, hint -> label: Literal{list(LABELS)}", "instructions": "Sort it."},
    }

    def say(request: Request) -> str:
        text = text_of(request)
        if "You improve the structure" in text:
            return '{"edit": "remove", "node": "nodes.hint"}'
        if "Its final outputs" in text:
            return "All is wrong."
        if GRADIENT in text:
            return "step: other words\ninputs: the hint misleads"
        if "between <prompt>" in text:
            return "<prompt>\nOther words.\n</prompt>"
        if text.rstrip().endswith("hint:"):
            return "no"
        return "e" if "hint: no" in text else text.split("-thing")[0][-1]

    report, _ = run(tmp_path, nodes, say, steps=1, edits=["remove"])
    assert list(report.winner.nodes) == ["sort"] and report.best["test"]["score"] == 1.0
    assert report.winner.get("nodes.sort.instructions") == "Other words.", "what is still there takes its own"


def editing(edit: Callable[[str], str]) -> Callable[[Request], str]:
    """All answers are wrong, no step is blamed, and the proposer of edits says what a function of its request says."""

    def say(request: Request) -> str:
        text = text_of(request)
        if "You improve the structure" in text:
            return edit(text)
        if "Its final outputs" in text:
            return "All is wrong."
        return "step: none" if GRADIENT in text else "e"

    return say


def test_an_edit_that_is_refused_is_told_and_costs_nothing_but_the_question(tmp_path: Path) -> None:
    wrong = EDIT.replace("nodes.sort", "nodes.none")
    say = editing(lambda text: wrong if "refused" not in text else "none")
    report, script = run(tmp_path, ONE, say, steps=3, edits=["insert"])
    assert list(report.winner.nodes) == list(ONE)
    told = asked(script, "You improve the structure")
    assert len(told) == 3 and "refused: there is no node" in told[1]
    assert [m.split(" 'nodes")[0] for m in messages(tmp_path)] == ["edit refused: there is no node"], (
        "`none` is an answer"
    )
    with pytest.raises(ValidationError, match="there is no edit 'insrt'.*Did you mean 'insert'"):
        TextGrad.model_validate({"edits": ["insrt"]})


def test_an_answer_in_which_no_edit_can_be_read_is_told(tmp_path: Path) -> None:
    run(tmp_path, ONE, editing(lambda text: "Put a hint before the answer."), steps=1, edits=["insert"])
    assert messages(tmp_path) == ["no edit could be read in: 'Put a hint before the answer.'"]
