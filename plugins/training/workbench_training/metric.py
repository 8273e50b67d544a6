"""The metric `tool_n1`: the rule of the reward of that name, for sealed rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.task import Example, Score
from workbench_training.rewards import tool_n1


class ToolN1:
    """1 if the answer thinks and its last tool_call block names exactly the wanted calls (Tool-N1, arXiv
    2505.00024)."""

    def __init__(self, field: str, target: str | None = None):
        self.field, self.target = field, target or field

    def __call__(self, example: Example, prediction: Mapping[str, Any], trace: Any) -> Score:
        given, wanted = _with_thoughts(str(prediction[self.field]), trace), example[self.target]
        return Score(1.0) if tool_n1(given, wanted) else Score(0.0, f"expected {wanted}, got {given[:200]}")


def _with_thoughts(given: str, trace: Any) -> str:
    """The answer that an output is the end of: thoughts are taken off before a node reads it."""
    for call in reversed(trace.calls if trace else ()):
        said = call.response
        whole = f"<think>{said.thoughts}</think>{said.text}" if said.thoughts else said.text
        if whole.rstrip().endswith(given.strip()):
            return whole
    return given
