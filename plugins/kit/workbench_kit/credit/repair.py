"""Replacements for a step when a recorded run is rerun with that step changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.base.hashing import digest
from workbench.lm import Response
from workbench.spec import LMSpec

#: A step of a run: the order of its span (`Span.order`) and the number of its call there, from 1; 0: the outputs.
Address = tuple[tuple[int, ...], int]

#: First number of fresh draws: above the replicas of nodes inside nodes, five levels deep.
FRESH = 10**16


@dataclass(frozen=True)
class Repair:
    """A replacement: outputs of a node without running it, an answer in place of a call, another model, or a new
    sample.

    Attributes:
        outputs: all outputs of the node. Its address has the call 0.
        response: the answer. Nothing is sent.
        lm: the model that is asked instead.
        draw: from 1: a fresh draw of this number.
        temperature: of the fresh draw, where the step has none; at 0 nothing would be drawn anew.
    """

    outputs: Mapping[str, Any] | None = None
    response: Response | None = None
    lm: LMSpec | None = None
    draw: int = 0
    temperature: float = 1.0

    @property
    def key(self) -> str:
        """Return a text that differs between repairs."""
        parts = (self.outputs and dict(self.outputs), self.response, self.lm and self.lm.model_dump(), self.draw)
        return digest([str(part) for part in parts])[:16]

    def settings_of(self, settings: Mapping[str, Any], default: float | None) -> dict[str, Any]:
        """Return the settings of the call. default: the temperature of the model."""
        if not self.draw or settings.get("temperature") or (settings.get("temperature") is None and default):
            return dict(settings)
        changed = {**settings, "temperature": self.temperature}
        if (native := settings.get("native")) is not None:
            changed["native"] = native.with_setting("temperature", self.temperature)
        return changed
