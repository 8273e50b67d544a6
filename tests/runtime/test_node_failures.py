"""What a node does wrong is a failure of its example; what concerns the whole run ends the run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted_nodes import DOES, giving, outcome, raising

from workbench.errors import BudgetSpent, LMError, NodeError, PluginError, ServerDead, SpecError, StoreError


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ValueError("bad input"), "code", "node 'n': ValueError: bad input"),
        (NodeError("unparsed", "no label"), "unparsed", "node 'n': no label"),
        (NodeError("tool", "inner", node="n.deep"), "tool", "node 'n.deep': inner"),
        (LMError("too_long", "9000 tokens"), "too_long", "node 'n': 9000 tokens"),
        (TimeoutError("slow"), "code", "node 'n': TimeoutError: slow"),
        (SystemExit(3), "code", "node 'n': SystemExit: 3"),
        (asyncio.CancelledError("a stream inside was closed"), "code", "node 'n': CancelledError: a stream"),
        (RecursionError("deep"), "code", "RecursionError"),
        (PluginError("wrong"), "code", "PluginError: wrong"),
    ],
)
def test_what_a_node_raises_is_a_failure_of_its_example(
    error: BaseException, kind: str, words: str, tmp_path: Path
) -> None:
    DOES["raise"] = raising(error)
    found = outcome(tmp_path, {"n": {"planted": "raise"}})
    assert found.failure == kind and words in (found.message or "")
    assert found.trace.spans[0].error is not None and found.trace.spans[0].error.startswith(kind)


@pytest.mark.parametrize("value", [None, ["a"], "text", 3])
def test_what_is_no_mapping_is_a_failure_too(value: Any, tmp_path: Path) -> None:
    DOES["give"] = giving(value)
    found = outcome(tmp_path, {"n": {"planted": "give", "writes": ["y"]}})
    assert found.failure == "code" and type(value).__name__ in (found.message or "")


@pytest.mark.parametrize(
    "error",
    [BudgetSpent("calls", 1, 2), StoreError("full"), ServerDead("gone"), LMError("auth", "401"), SpecError("no price")],
)
def test_what_concerns_the_whole_run_is_no_failure_of_an_example(error: Exception, tmp_path: Path) -> None:
    DOES["raise"] = raising(error)
    with pytest.raises(type(error)):
        outcome(tmp_path, {"n": {"planted": "raise", "optional": True}})


def test_a_field_that_is_not_there_is_named(tmp_path: Path) -> None:
    DOES["give"] = giving({})
    found = outcome(tmp_path, {"n": {"planted": "give", "reads": ["question"]}}, {"text": "a", "label": "b"})
    assert found.failure == "data" and "no field 'question'; it has: text, label" in (found.message or "")
    later = {"a": {"planted": "give", "writes": ["y"]}, "b": {"planted": "give", "reads": ["y"]}}
    assert outcome(tmp_path, later).failure == "upstream", "a node that leaves an output out"
    both = {"a": {"planted": "give", "writes": ["y"]}, "b": {"planted": "give", "reads": ["z", "y"]}}
    assert outcome(tmp_path, both).failure == "data", "of the row, whatever else comes from a node"
