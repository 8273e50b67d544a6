"""A generator that notes its passes, for tests of batches."""

from __future__ import annotations

from typing import Any

from tests.helpers.tiny_lm import make_model, make_tokenizer
from workbench_engine.generation import Generator


class CountingGenerator(Generator):
    """Notes (rows, tokens) of each pass. Answers end at their length alone."""

    def __init__(self, model: Any | None = None):
        super().__init__(model or make_model(2, positions=256), make_tokenizer())
        self.ends = set()
        self.passes: list[tuple[int, int]] = []

    def _logits(self, ids: Any, mask: Any, *more: Any) -> Any:
        self.passes.append(tuple(ids.shape))
        return super()._logits(ids, mask, *more)

    @property
    def steps(self) -> list[int]:
        """The rows of each step of decoding."""
        return [rows for rows, width in self.passes if width == 1]
