"""`branch`: the value of a field decides which node runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from pydantic import Field

from workbench.errors import Defect, DefectKind, NodeError, SpecError, suggest
from workbench.runtime import Context
from workbench.workflow import NodeConfig, NodeKind, Surroundings
from workbench_kit.acting import child_node


class BranchConfig(NodeConfig):
    """Settings of a `branch` node."""

    on: str = Field(description="the field that decides")
    cases: dict[str, dict[str, Any]] = Field(min_length=1, description="node to run, by the field's value")
    default: dict[str, Any] | None = Field(None, description="node to run for any other value")
    keep: bool = Field(
        False, exclude_if=lambda keep: not keep, description="a field that a case does not write stays as it was"
    )


class Branch(NodeKind):
    """Runs the node whose case is the value of a field. All cases write the same fields."""

    Config = BranchConfig
    primary = "on"
    config: BranchConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        if self.kept and not config.keep:
            shown = "; ".join(f"{key}: {', '.join(node.outputs)}" for key, node in self.nodes.items())
            raise SpecError(
                "the cases of a branch must write the same fields",
                hint=f"They write {shown}. With `keep: true` a field that a case does not write stays as it was.",
                path=("cases",),
            )

    @cached_property
    def nodes(self) -> dict[str, NodeKind]:
        made = {
            f"cases.{value}": child_node(f"cases.{value}", raw, self.base, ("cases", value), self.code)
            for value, raw in self.config.cases.items()
        }
        if self.config.default is not None:
            made["default"] = child_node("default", self.config.default, self.base, ("default",), self.code)
        return made

    @cached_property
    def _plain_cases(self) -> Mapping[str, str]:
        """Return the cases by their names without case, as answers may write them."""
        return {case.casefold(): case for case in self.config.cases}

    def children(self) -> Mapping[str, NodeKind]:
        return self.nodes

    @property
    def kept(self) -> list[str]:
        """Return the outputs that some case does not write."""
        return [name for name in self.outputs if any(name not in node.outputs for node in self.nodes.values())]

    @property
    def inputs(self) -> tuple[str, ...]:
        names = (name for node in self.nodes.values() for name in node.inputs)
        return tuple(dict.fromkeys((self.config.on, *names, *self.kept)))

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for node in self.nodes.values() for name in node.outputs))

    @property
    def max_calls(self) -> int:
        return max(node.max_calls for node in self.nodes.values())

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        on, cases = self.config.on, self.config.cases
        values = [str(value) for value in around.values.get(on, ())]
        if not values:
            return
        shown, plain = ", ".join(values), {value.strip().casefold() for value in values}
        for case in cases:
            if case not in values and case.casefold() not in plain:
                yield Defect(
                    DefectKind.UNREACHABLE,
                    f"the case '{case}' never runs: '{on}' is one of {shown}",
                    suggest(case, values),
                    ("cases", case),
                )
        if self.config.default is None and (
            lost := [v for v in values if v not in cases and v.strip().casefold() not in self._plain_cases]
        ):
            yield Defect(
                DefectKind.UNHANDLED_VALUE,
                f"no case runs where '{on}' is '{lost[0]}', and there is no default: the example fails",
                f"Write a case '{lost[0]}', or a default.",
                ("cases",),
            )

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        value = str(inputs[self.config.on])
        named = value if value in self.config.cases else self._plain_cases.get(value.strip().casefold(), value)
        node = self.nodes.get(f"cases.{named}") or self.nodes.get("default")
        if node is None:
            known = ", ".join(self.config.cases)
            raise NodeError("branch", f"no case for {self.config.on} = {value[:80]!r} and no default; cases: {known}")
        ctx.note(case=named)
        kept = {name: inputs[name] for name in self.kept}
        return kept | dict(await ctx.run_child(node, node.name, {name: inputs[name] for name in node.inputs}))
