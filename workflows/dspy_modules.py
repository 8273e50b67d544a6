"""A DSPy module, as a node of dspy_module.yaml."""

from __future__ import annotations

from typing import Any

import dspy

LABELS = ("billing", "technical", "shipping", "returns", "account")


class Sorter(dspy.Module):
    """Sorts a ticket. What the model says beside the labels is an error of this row."""

    signature = "text -> label"

    def __init__(self) -> None:
        super().__init__()
        self.sort = dspy.Predict("text -> label", max_tokens=8, stop=["\n"])

    def forward(self, text: str) -> Any:
        said = str(self.sort(text=text).label).lower()
        return dspy.Prediction(label=next((label for label in LABELS if label in said), said))
