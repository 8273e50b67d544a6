"""Numeric settings of nodes that change from step to step of training.

Source: the curriculum of ZeroSearch (arXiv 2505.04588), p(i) = p_s + (b^(i/m) - 1) / (b - 1) * (p_e - p_s) with b = 4,
checked against its published code (`dynamic_threshold`). Departure: i counts from 0 and m is the last step, so that the
first step has p_s and the last p_e; there the first has i = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench import Workflow
from workbench.errors import SpecError
from workbench.workflow import setting_at


class Ramp(BaseModel):
    """A numeric setting of a node that goes from one value to another."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str = Field(description="the setting, e.g. nodes.solve.nodes.search.noise; a whole number stays one")
    initial: float = Field(description="its value up to the step `start`")
    final: float = Field(description="its value from the step `end` on")
    base: float = Field(4.0, gt=0, description="above 1: slow first and fast later; 1: a straight line")
    start: int = Field(0, ge=0, description="the last step with the initial value; training begins at step 0")
    end: int | None = Field(None, ge=1, description="the first step with the final value; by default the last step")

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.end is not None and self.end <= self.start:
            raise ValueError(f"a ramp must end after it starts, not at {self.end} after {self.start}")
        return self

    def value_at(self, step: int, steps: int) -> float:
        """The value at a step of a schedule of so many steps."""
        end = max(self.start + 1, steps - 1) if self.end is None else self.end
        done = min(1.0, max(0.0, (step - self.start) / (end - self.start)))
        if self.base != 1:
            done = (self.base**done - 1) / (self.base - 1)
        return self.initial + done * (self.final - self.initial)


def ramped_values(ramps: Sequence[Ramp], workflow: Workflow, step: int, steps: int) -> dict[str, Any]:
    """The settings at a step, by address."""
    return {s.address: _fit(workflow, s.address, s.value_at(step, steps)) for s in ramps}


def final_values(ramps: Sequence[Ramp], workflow: Workflow) -> list[dict[str, Any]]:
    """The settings before and after all of their changes."""
    ends = ({s.address: s.initial for s in ramps}, {s.address: s.final for s in ramps})
    return [{address: _fit(workflow, address, value) for address, value in end.items()} for end in ends]


def check_ramps(ramps: Sequence[Ramp], workflow: Workflow) -> None:
    """Raise SpecError for an address that is no numeric setting of a node, or values that the node does not take."""
    for index, ramp in enumerate(ramps):
        place = ("ramps", index, "address")
        if ramp.address.rpartition(".")[2] in ("temperature", "top_p"):
            raise SpecError(
                f"what is learned is drawn at the training temperature, so '{ramp.address}' cannot change",
                hint="Write `learning: {temperature: ...}`.",
                path=place,
            )
        try:
            value = setting_at(workflow, ramp.address)
        except KeyError:
            value = None
        if not ramp.address.startswith("nodes.") or not isinstance(value, int | float) or isinstance(value, bool):
            raise SpecError(
                f"'{ramp.address}' is not a numeric setting of a node",
                hint="Write its address, e.g. nodes.NAME.max_steps, or nodes.NAME.nodes.search.noise.",
                path=place,
            )
        for end in final_values([ramp], workflow):
            try:
                workflow.patched(end)
            except SpecError as error:
                raise SpecError(error.message, hint=error.hint, path=("ramps", index)) from None


def _fit(workflow: Workflow, address: str, value: float) -> float | int:
    """A whole number for a setting that has one."""
    return round(value) if isinstance(setting_at(workflow, address), int) else value
