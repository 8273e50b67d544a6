"""`map`: the same nodes for each item of a list, concurrently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from workbench.base.concurrency import gather_all
from workbench.runtime import Context
from workbench_control_flow.body import MAX, Body, BodyConfig


class MapConfig(BodyConfig):
    """Settings of a `map` node."""

    max_items: int = Field(
        10, ge=1, le=MAX, description="most items, counted by the budget; a longer list fails the row"
    )

    @model_validator(mode="after")
    def _list(self) -> MapConfig:
        if self.over is None:
            raise ValueError("over is missing: name the field with the list")
        return self


class Map(Body):
    """Runs its body once for each item of a list. Each output is the list of what the runs wrote, in their order."""

    Config = MapConfig
    config: MapConfig

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.inputs_but(())

    @property
    def _lists(self) -> Mapping[str, str]:
        """Return the body's field that each output lists; without `gather`, all of them under their own names."""
        return self.config.gather or {field: field for field in self.written}

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self._lists)

    @property
    def max_calls(self) -> int:
        return self.calls_of(self.config.max_items)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        items = self.items(inputs, self.config.max_items)
        runs = await gather_all(self.run_once({**inputs, **item}, ctx, n) for n, item in enumerate(items))
        ctx.note(items=len(items))
        return {field: [run.get(of) for run in runs] for field, of in self._lists.items()}
