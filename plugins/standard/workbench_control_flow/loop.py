"""`loop`: the same nodes again and again, until a condition holds or a list ends, with fields carried along."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from pydantic import Field, model_validator

from workbench.errors import Defect, DefectKind, SpecError, suggest
from workbench.runtime import Context
from workbench.workflow import Schedule, Signature, Surroundings
from workbench_control_flow.body import MAX, BodyConfig, CarryingBody


class LoopConfig(BodyConfig):
    """Settings of a `loop` node."""

    rounds: int = Field(
        5, ge=1, le=MAX, description="most rounds, which the budget counts; a longer list fails the row"
    )
    until: str | None = Field(
        None, description="condition that ends it after a round, e.g. finished, score >= 0.8, verdict == 'right'"
    )
    carry: dict[str, Any] = Field(
        default_factory=dict,
        description="field that a round hands to the next: its first value; null: the field as it is before the loop",
    )

    @model_validator(mode="after")
    def _changing(self) -> LoopConfig:
        if self.over is None and self.until is None and not self.carry and not self.gather:
            raise ValueError("every round would be the first one again: write carry, over, until or gather")
        return self


class Loop(CarryingBody):
    """Runs its body in rounds, one after the other. Each sees what the one before carried, and the lists so far."""

    Config = LoopConfig
    learnable = {"rounds": "int"}
    config: LoopConfig
    unit = "round"

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        if taken := [field for field in config.gather if field in self.written]:
            hint = f"Name it e.g. all_{taken[0]}."
            raise SpecError(f"'{taken[0]}' is written by a round, and no list", hint=hint, path=("gather", taken[0]))

    @cached_property
    def schedule(self) -> Schedule:
        try:
            return super().schedule
        except SpecError as error:
            if "cycle" not in error.message:
                raise
            hint = "What comes from the round before stands under `carry`, e.g. carry: {notes: nothing yet}."
            raise SpecError(error.message, hint=hint, path=error.path) from None

    @property
    def inputs(self) -> tuple[str, ...]:
        c = self.config
        before = [field for field, first in c.carry.items() if first is None]
        return tuple(dict.fromkeys([*self.inputs_but([*c.carry, *c.gather]), *before]))

    @property
    def max_calls(self) -> int:
        return self.calls_of(self.config.rounds)

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        yield from super().defects(around)
        if self.until is None or self.until.wanted is None:
            return
        field, value = self.until.wanted
        signatures = (getattr(node, "signature", None) for node in self.nodes.values())
        outputs = [of for found in signatures if isinstance(found, Signature) for of in found.outputs]
        allowed = [one for of in outputs if of.name == field for one in of.allowed]
        if allowed and value not in allowed:
            shown = ", ".join(map(str, allowed))
            message = f"until never holds: '{field}' is one of {shown}"
            yield Defect(DefectKind.NO_END, message, suggest(str(value), [*map(str, allowed)]), ("until",))

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        c, ended, rounds = self.config, "items" if self.config.over is not None else "rounds", 0
        state = {field: inputs[field] if first is None else first for field, first in c.carry.items()}
        lists: dict[str, list[Any]] = {field: [] for field in c.gather}
        last: dict[str, Any] = {}
        for rounds, item in enumerate(self.items(inputs, c.rounds), 1):
            given = {**inputs, **state, **{field: [*values] for field, values in lists.items()}, **item}
            last = await self.run_once(given, ctx, rounds - 1)
            state |= {field: last[field] for field in state if field in last}
            for field, of in c.gather.items():
                lists[field].append(last.get(of))
            if self.until is not None and self.until.holds({**given, **last, **state, **lists}):
                ended = "until"
                break
        ctx.note(rounds=rounds, ended=ended)
        # Without a round, carried fields keep their initial values, and fields that only a round writes are null.
        return {**dict.fromkeys(self.written), **last, **state, **lists}
