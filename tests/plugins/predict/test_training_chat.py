"""Worked examples as chats: what fine-tuning learns from is what the node asks, and an answer that it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script, make_workflow, run_rows

ROW = {"text": "my bill\nis wrong", "why": "it names a bill", "label": "billing"}


@pytest.mark.parametrize("adapter", ["plain", "chat", "json", "xml"])
def test_a_worked_example_is_what_the_node_asks_and_reads(tmp_path: Path, adapter: str) -> None:
    if adapter != "plain":
        pytest.importorskip("dspy")
    predict = {
        "predict": "text -> why, label: Literal['billing', 'other']",
        "instructions": "Sort.",
        "adapter": adapter,
        "demos": [{"text": "t", "why": "w", "label": "other"}],
    }
    workflow = make_workflow({"sort": predict}, tmp_path)
    chat = workflow.enabled_nodes["sort"].training_chat(ROW)
    assert chat is not None and chat[-1]["role"] == "assistant"
    script = Script(lambda request: chat[-1]["content"])
    outcome = run_rows(workflow, [ROW], script, tmp_path / "a.db")[0]
    assert [dict(m) for m in script.requests[0].messages] == chat[:-1]
    assert {k: outcome.prediction[k] for k in ("why", "label")} == {"why": ROW["why"], "label": "billing"}
    assert not outcome.trace.spans[0].notes  # read at its place, not out of prose


def test_where_an_output_has_no_label_there_is_no_worked_example(tmp_path: Path) -> None:
    nodes: dict[str, Any] = {"sort": {"predict": "text -> label", "reasoning": True}, "a": {"agent": "text -> label"}}
    made = make_workflow(nodes, tmp_path).enabled_nodes
    assert made["sort"].training_chat({"text": "t", "label": "x"}) is None  # no reasoning
    assert made["a"].training_chat({"text": "t", "label": "x"}) is None
    assert made["sort"].training_chat({"text": "t", "reasoning": "r", "label": "x"}) is not None
