"""How `predict` reads answers, retrieves demos, and uses the adapters of DSPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.node_runs import run

from workbench.lm import Response


@pytest.mark.parametrize(
    ("answer", "finish", "wanted"),
    [
        ("Yes.", "stop", ("yes", {})),
        ("I would say no, really", "stop", ("no", {"fallback": 1})),
        ("maybe", "stop", "unparsed"),
        ("", "empty", "empty"),
        ("label: no", "length", ("no", {"cut": 1})),
    ],
)
def test_answers_are_read_or_fail_by_kind(answer: str, finish: str, wanted: Any, tmp_path: Path) -> None:
    outcome, _, _ = run(
        {"p": {"predict": "text -> label: Literal['yes', 'no']"}},
        {"text": "x"},
        tmp_path,
        lambda r: Response(answer, finish),
    )
    if isinstance(wanted, str):
        assert outcome.failure == wanted
    else:
        assert (outcome.prediction["label"], outcome.trace.spans[0].notes) == wanted


def test_retrieve_shows_the_nearest_demos_and_never_the_input_itself(tmp_path: Path) -> None:
    demos = [
        {"text": "red apple pie", "label": "yes"},
        {"text": "blue car", "label": "no"},
        {"text": "red apple", "label": "yes"},
    ]
    nodes = {"p": {"predict": "text -> label: Literal['yes', 'no']", "demos": demos, "retrieve": 1}}
    _, lm, _ = run(nodes, {"text": "red apple"}, tmp_path)
    shown = [m["content"] for m in lm.requests[0].messages if m["role"] == "user"]
    assert shown == ["text: red apple pie\nlabel:", "text: red apple\nlabel:"]


@pytest.mark.parametrize("adapter", ["chat", "json", "xml"])
def test_adapters_of_dspy_round_trip(adapter: str, tmp_path: Path) -> None:
    said = {
        "chat": "[[ ## label ## ]]\nno\n\n[[ ## completed ## ]]",
        "json": '{"label": "no"}',
        "xml": "<label>no</label>",
    }
    nodes = {"p": {"predict": "text -> label: Literal['yes', 'no']", "adapter": adapter}}
    outcome, _, _ = run(nodes, {"text": "x"}, tmp_path, lambda r: said[adapter])
    assert outcome.prediction == {"label": "no"} and not outcome.trace.spans[0].notes
