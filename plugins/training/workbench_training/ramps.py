"""Numeric settings of nodes that change from step to step of training.

Source: the curriculum of ZeroSearch (arXiv 2505.04588), p(i) = p_s + (b^(i/m) - 1) / (b - 1) * (p_e - p_s) with b = 4,
checked against its published code (`dynamic_threshold`). Departure: i counts from 0 and m is the last step, so that the
first step has p_s and the last p_e; there the first has i = 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench import Workflow
from workbench.errors import SpecError
from workbench.workflow import setting_at

#: By address: the values at the first and at the last step.
Ramps = Mapping[str, Sequence[float]]
#: Slow at first and fast later: ZeroSearch's b.
BASE = 4.0


def ramp_value(first: float, last: float, step: int, steps: int) -> float:
    """The value at a step of a schedule of so many steps."""
    done = min(1.0, step / max(1, steps - 1))
    return first + (BASE**done - 1) / (BASE - 1) * (last - first)


def ramped_values(ramps: Ramps, workflow: Workflow, step: int, steps: int) -> dict[str, Any]:
    """The settings at a step, by address."""
    return {a: _fit(workflow, a, ramp_value(ends[0], ends[1], step, steps)) for a, ends in ramps.items()}


def final_values(ramps: Ramps, workflow: Workflow) -> list[dict[str, Any]]:
    """The settings before and after all of their changes."""
    return [{a: _fit(workflow, a, ends[k]) for a, ends in ramps.items()} for k in (0, 1)]


def check_ramps(ramps: Ramps, workflow: Workflow) -> None:
    """Raise SpecError for an address that is no numeric setting of a node, or values that the node does not take."""
    for address, ends in ramps.items():
        place = ("ramps", address)
        if address.rpartition(".")[2] in ("temperature", "top_p"):
            raise SpecError(
                f"what is learned is drawn at the training temperature, so '{address}' cannot change",
                hint="Write `learning: {temperature: ...}`.",
                path=place,
            )
        try:
            value = setting_at(workflow, address)
        except KeyError:
            value = None
        if not address.startswith("nodes.") or not isinstance(value, int | float) or isinstance(value, bool):
            raise SpecError(
                f"'{address}' is not a numeric setting of a node",
                hint="Write its address, e.g. nodes.NAME.max_steps, or nodes.NAME.nodes.search.noise.",
                path=place,
            )
        for end in final_values({address: ends}, workflow):
            try:
                workflow.patched(end)
            except SpecError as error:
                raise SpecError(error.message, hint=error.hint, path=place) from None


def _fit(workflow: Workflow, address: str, value: float) -> float | int:
    """A whole number for a setting that has one."""
    return round(value) if isinstance(setting_at(workflow, address), int) else value
