"""The `states` node: a language model is led through the states of a machine.

Source: StateFlow (Wu et al., arXiv 2403.11322): states with their own instructions and tools, transitions by rule or by
a model, and a history that all states share; the prompt holds only the current state's instructions. Departures, with
reasons in the README: conditions look at what the tool reported instead of words in the model's text; an answer is the
action itself, without a thought before it; and a machine is checked before it runs, so that no state is unknown,
unreachable or without a way to the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from workbench.errors import Defect, NodeError, SpecError, suggest
from workbench.runtime import Context
from workbench.workflow import NodeKind, Surroundings, parse_signature
from workbench_kit.prompting import plain_adapter as plain
from workbench_state_machine.defects import find_machine_defects
from workbench_state_machine.settings import END, StatesConfig, check_machine
from workbench_state_machine.state import State

if TYPE_CHECKING:
    import networkx


class States(NodeKind):
    """A state machine: in each state a language model acts, and rules decide which state comes next (StateFlow)."""

    Config = StatesConfig
    primary = "states"
    learnable = {"instructions": "text", "max_steps": "int", "lm": "lm"}
    config: StatesConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.signature = parse_signature(config.signature)
        check_machine(config, self.outputs)
        self.states = {state: State(state, config, base, self.code) for state in config.states}
        self._check_arguments()

    def _check_arguments(self) -> None:
        tools = [tool for state in self.states.values() for tool in state.all_tools]
        asked = tools if self.config.arguments else []  # a server is asked only for what is needed
        known = {argument for tool in asked for argument in tool.schema.get("properties", {})}
        unknown = any(state.tools_unknown for state in self.states.values())
        for argument in self.config.arguments:
            if tools and not unknown and argument not in known and all("properties" in tool.schema for tool in tools):
                raise SpecError(
                    f"no tool takes the argument '{argument}'",
                    hint=suggest(argument, known),
                    path=("arguments", argument),
                )

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*(f.name for f in self.signature.inputs), *self.config.arguments.values())))

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.signature.outputs)

    @property
    def max_calls(self) -> int:
        return self.config.max_steps * max(state.max_calls for state in self.states.values())

    @cached_property
    def _children(self) -> dict[str, NodeKind]:
        return {state.name: state for state in self.states.values()}

    def children(self) -> Mapping[str, NodeKind]:
        return self._children

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        tools = [tool for state in self.states.values() for tool in state.tools.values()]
        return find_machine_defects(self.config, self.signature, tools, around)

    def diagram(self) -> networkx.DiGraph:
        """The states, with a start and an end; edges name their conditions."""
        import networkx

        graph = networkx.DiGraph()
        graph.add_node("start", shape="circle")
        for name, state in self.states.items():
            graph.add_node(state.name, label=name, shape="round")
        graph.add_node(END, shape="circle")
        graph.add_edge("start", self.states[self.config.start].name)
        for name, state in self.states.items():
            for step in self.config.states[name].next:
                to = END if step.to == END else self.states[step.to].name
                words = "" if step.when.always and len(self.config.states[name].next) == 1 else step.when.words
                before = graph.edges[state.name, to]["label"] + " / " if graph.has_edge(state.name, to) else ""
                graph.add_edge(state.name, to, label=before + words)
        return graph

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        question = "\n".join(f"{f.name}: {plain.as_text(inputs[f.name])}" for f in self.signature.inputs)
        history: list[dict[str, str]] = [{"role": "user", "content": question}]
        kept: Mapping[str, Any] = {}
        here, path = self.config.start, list[str]()
        for turn in range(self.config.max_steps):
            path.append(here)
            ctx.note(path=path)
            state = self.states[here]
            given = {"history": tuple(history), "kept": kept, "inputs": inputs, "turn": turn}
            # A replica for each turn: the same action in a later turn is done again, and not read from the journal.
            did = await ctx.run_child(state, state.name, given, replica=turn)
            kept, here = did["kept"], did["to"]
            if here == END:
                return {name: kept[name] for name in self.outputs}
            history += [
                {"role": "assistant", "content": did["reply"].strip() or "(no answer)"},
                {"role": "user", "content": did["observation"]},
            ]
        if all(name in kept for name in self.outputs):
            ctx.note(stopped=f"max_steps of {self.config.max_steps}")
            return {name: kept[name] for name in self.outputs}
        raise NodeError("steps", f"no answer within {self.config.max_steps} turns, in the states {' > '.join(path)}")
