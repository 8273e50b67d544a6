"""The body of `loop` and `map`: the nodes of one round, and the list that supplies their items."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from workbench.errors import Defect, DefectKind, NodeError, SpecError, suggest
from workbench.runtime import Context
from workbench.spec import NODE_KEYS, Code
from workbench.workflow import Field as OfSignature, NodeConfig, NodeKind, Schedule, Surroundings
from workbench_kit.acting import FieldCondition, child_node
from workbench_kit.answers import convert

#: Maximum number of runs of a body: each has its own replica (`workbench.runtime.Draw`).
MAX = 1000


class BodyConfig(NodeConfig):
    """Settings that `loop` and `map` share."""

    of: dict[str, Any] | None = Field(None, description="the node that is run again and again")
    nodes: dict[str, dict[str, Any]] = Field(default_factory=dict, description="several nodes, instead of one")
    over: str | None = Field(None, description="the field with the list")
    as_: str | list[str] = Field(
        "item",
        alias="as",
        description="the field in which a run gets its item; several: the parts of an item of these names",
    )
    gather: dict[str, str] = Field(
        default_factory=dict, description="output: the field whose values of all runs it lists"
    )

    @model_validator(mode="after")
    def _one_body(self) -> BodyConfig:
        if (self.of is None) == (not self.nodes):
            raise ValueError("give either `of`, a node, or `nodes`")
        return self

    @property
    def parts(self) -> list[str]:
        """Return the fields that an item fills."""
        if self.over is None:
            return []
        return [self.as_] if isinstance(self.as_, str) else list(self.as_)


class Body(NodeKind):
    """A node that runs its body, one or several nodes, more than once. Subclasses define the number and the inputs of
    runs."""

    Config = BodyConfig
    primary = "of"
    config: BodyConfig
    #: Fields taken from the round before, unless an earlier node of this round writes them.
    carried: Collection[str] = ()

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.schedule  # bad settings are told when the file is read  # noqa: B018
        for field, of in config.gather.items():
            self.check_written(of, ("gather", field))

    @cached_property
    def nodes(self) -> dict[str, NodeKind]:
        if self.config.of is not None:
            return {"of": child_node("of", self.config.of, self.base, ("of",), self.code)}
        return make_nodes(self.config.nodes, self.base, self.code)

    @cached_property
    def schedule(self) -> Schedule:
        trees = self.config.nodes or {"of": self.config.of or {}}
        return Schedule(self.nodes, trees, carried=self.carried)

    def children(self) -> Mapping[str, NodeKind]:
        return {node.name: node for node in self.nodes.values()}

    @cached_property
    def written(self) -> tuple[str, ...]:
        """Return the fields that a run of the body writes."""
        return tuple(dict.fromkeys(field for node in self.nodes.values() for field in node.outputs))

    def inputs_but(self, supplied: Iterable[str]) -> tuple[str, ...]:
        """Return the list, and the fields that the body reads from outside, except those supplied to each run."""
        given = {*supplied, *self.config.parts}
        over = [self.config.over] if self.config.over is not None else []
        return tuple(dict.fromkeys([*over, *(field for field in self.schedule.inputs if field not in given)]))

    def check_written(self, field: str, path: tuple[str, ...]) -> None:
        """Raise SpecError for a field that no node of the body writes."""
        if field not in self.written:
            known = ", ".join(self.written)
            hint = suggest(field, self.written) or f"These are written: {known}."
            raise SpecError(f"no node inside '{self.name}' writes '{field}'", hint=hint, path=path)

    def calls_of(self, runs: int) -> int:
        return runs * sum(node.max_calls for node in self.nodes.values())

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        over = self.config.over
        if over is not None and (values := around.values.get(over)):
            shown = ", ".join(map(str, values))
            hint = f"Let its node write a list, e.g. `{over}: list[str]`."
            yield Defect(DefectKind.CONTRADICTION, f"'{over}' is one of {shown}, and no list", hint, ("over",))

    def items(self, inputs: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
        """Return the fields that the list fills, for each run. Raise NodeError if it is no list, or too long."""
        over = self.config.over
        if over is None:
            return [{}] * most
        items = _read_list(inputs[over], over)
        if len(items) > most:
            raise NodeError("steps", f"'{over}' has {len(items)} items, and '{self.name}' takes {most} at most")
        return [self._parts_of(item, number) for number, item in enumerate(items, 1)]

    def _parts_of(self, item: Any, number: int) -> dict[str, Any]:
        if isinstance(self.config.as_, str):
            return {self.config.as_: item}
        if isinstance(item, Mapping) and all(part in item for part in self.config.as_):
            return {part: item[part] for part in self.config.as_}
        wanted = ", ".join(self.config.as_)
        raise NodeError("unparsed", f"item {number} of '{self.config.over}' lacks one of {wanted}: {item!r:.200}")

    async def run_once(self, given: Mapping[str, Any], ctx: Context, number: int) -> dict[str, Any]:
        """Return the fields that one run of the body writes. number: of the run, which draws its own samples."""
        written: dict[str, Mapping[str, Any]] = {}

        async def step(name: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
            node = self.nodes[name]
            return await ctx.run_child(node, node.name, values, number, place=self.schedule.order.index(name))

        await self.schedule.run(step, given, written)
        return self.schedule.merged(written)

    def diagram(self) -> Any:
        """Return the body with the fields that pass through it, including those of the next round."""
        import networkx

        graph = networkx.DiGraph()
        labels: dict[tuple[str, str], list[str]] = {}
        graph.add_nodes_from(self.children())
        if self.config.over is not None:
            graph.add_node("over", label=f"each of {self.config.over}", shape="round")
        for reader, fields in self.schedule.sources.items():
            for field, writers in fields.items():
                back = [n for n in self.nodes if field in self.nodes[n].outputs][-1:] if field in self.carried else []
                items = ["over"] if field in self.config.parts and not writers else []
                for before in [*(self.nodes[n].name for n in writers or back), *items]:
                    labels.setdefault((before, self.nodes[reader].name), []).append(field)
        for edge, fields in labels.items():
            graph.add_edge(*edge, label=", ".join(fields))
        return graph


class CarryingBody(Body):
    """A body whose runs pass fields on, until a condition holds. Its settings have `carry` and `until`."""

    config: Any
    #: Subject of the condition in error messages.
    unit: str

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        for field in config.carry:
            self.check_written(field, ("carry", field))
        known = [*self.outputs, *self.inputs]
        if unknown := [field for field in (self.until.names if self.until is not None else ()) if field not in known]:
            hint = suggest(unknown[0], known) or f"These are there: {', '.join(known)}."
            raise SpecError(f"until reads '{unknown[0]}', which no {self.unit} has", hint=hint, path=("until",))

    @cached_property
    def until(self) -> FieldCondition | None:
        return FieldCondition(self.config.until) if self.config.until is not None else None

    @property
    def carried(self) -> Collection[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.config.carry

    @property
    def outputs(self) -> tuple[str, ...]:
        return (*self.written, *self.config.gather)


def make_nodes(trees: Mapping[str, Mapping[str, Any]], base: Path, code: Code) -> dict[str, NodeKind]:
    """Create the enabled nodes of a mapping in a setting `nodes`, by name. Raise SpecError at their place."""
    return {
        name: child_node(
            f"nodes.{name}", {k: v for k, v in tree.items() if k not in NODE_KEYS}, base, ("nodes", name), code
        )
        for name, tree in trees.items()
        if tree.get("enabled", True)
    }


def _read_list(value: Any, field: str) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, str):
        try:
            found, loose = convert(OfSignature(field, list), value)
        except NodeError:
            found, loose = [], True
        if not loose or (found and "\n" in value.strip()):  # JSON, or a list in lines
            return found
    hint = f"declare it as `{field}: list[str]` where it is written"
    raise NodeError("unparsed", f"'{field}' is no list, {hint}: {value!r:.200}")
