"""What a candidate changes, as it is told: against what held before, with the models that were asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workbench.spec import lm_spec
from workbench.workflow import Workflow, list_changes

SMALL = lm_spec({"model": "openai/small", "api_base": "http://h/v1", "price": {"input": 0.15, "output": 0.6}})
BIG = {"model": "openai/big", "api_base": "http://h/v1", "price": {"input": 1.5, "output": 6}}
NODE: dict[str, Any] = {"kind": "predict", "signature": "text -> label"}


def told(old: dict[str, Any], new: dict[str, Any], **trees: Any) -> dict[str, tuple[Any, Any]]:
    before = Workflow({"nodes": {"sort": {**NODE, **old}}}, Path())
    after = Workflow({"nodes": {"sort": {**NODE, **new}}, **trees}, Path())
    return {address: (a, b) for address, a, b in list_changes(before, after, SMALL)}


PRICE = {"price.input": (0.15, 1.5), "price.output": (0.6, 6.0)}


@pytest.mark.parametrize(
    ("patch", "prefix", "more"),
    [
        ({"lm": BIG}, "lm", PRICE),
        ({"lm": "openai/big"}, "lm", {name: (old, None) for name, (old, _) in PRICE.items()}),
        ({"node": {"lm": BIG}}, "nodes.sort.lm", PRICE),
        ({"lm": {"model": "openai/small", "temperature": 0.5}}, "lm", {"temperature": (None, 0.5)}),
    ],
    ids=["the model", "by name", "of a node", "a setting"],
)
def test_u10_a_change_of_the_model_is_told_with_the_old_one(patch: Any, prefix: str, more: Any) -> None:
    found = told({}, patch.pop("node", {}), **patch)
    if "temperature" not in more:
        more = {"model": ("openai/small", "openai/big"), **more}
    assert found == {f"{prefix}.{name}": change for name, change in more.items()}


def test_u10_what_is_empty_on_both_sides_is_no_change() -> None:
    assert told({"predictors": {}}, {}) == told({}, {"demos": []}) == told({"demos": []}, {"demos": None}) == {}
    assert told({"demos": [{"a": 1}]}, {"demos": []}) == {"nodes.sort.demos": ([{"a": 1}], [])}


def test_u10_a_node_may_be_called_lm() -> None:
    before, after = (Workflow({"nodes": {"lm": {**NODE, "instructions": text}}}, Path()) for text in "ab")
    assert list_changes(before, after, SMALL) == [("nodes.lm.instructions", "a", "b")]
