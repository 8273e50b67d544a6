"""Defects of a machine: what is valid but cannot work (`workbench validate --deep`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import Defect, DefectKind
from workbench.spec import Code
from workbench.workflow import Field, Signature, Surroundings
from workbench_kit.acting import Tool, Unmatchable, find_tool_defects, listed_matches, shortest_match, tools_at
from workbench_kit.prompting import plain_adapter as plain, prompt_defects as prompts
from workbench_state_machine.settings import END, StateConfig, StatesConfig, Transition

if TYPE_CHECKING:
    import networkx


def find_machine_defects(
    config: StatesConfig, signature: Signature, tools: Collection[Tool], around: Surroundings
) -> Iterator[Defect]:
    """Of the machine as a whole. tools: those that its states may call."""
    known = (around.names, config.states, [f.name for f in (*signature.inputs, *signature.outputs)])
    yield from _of_instructions(config.instructions, tools, known)
    needed = prompts.tokens_of_answer(signature) if len(signature.outputs) == 1 else 0
    yield from prompts.find_few_tokens(config.max_tokens, needed, "an answer", ("max_tokens",))
    yield from _of_ways(config, signature)


def find_state_defects(
    config: StateConfig,
    machine: StatesConfig,
    written: Collection[Field],
    tools: Mapping[str, Tool],
    runs: Tool | None,
    base: Path,
    around: Surroundings,
    code: Code,
) -> Iterator[Defect]:
    """Of one state. written: the outputs that its answer may give. runs: the tool that gets its plain answers.
    code: of the machine."""
    for number, address in enumerate(config.tools):
        for tool in tools_at(address, base, machine.env, code):
            yield from find_tool_defects(tool, base, ("tools", number), hidden=machine.arguments)
    if runs is not None:
        yield from find_tool_defects(runs, base, ("run",), told=False)
    known = (around.names, machine.states, [runs.name] if runs else [])
    yield from _of_instructions(config.instructions, tools.values(), known)
    if written and _silent(config):
        signature = Signature((), tuple(written))
        yield from prompts.find_contradictions(config.instructions, signature, ("instructions",), known=known)
    for number, step in enumerate(config.next):
        if fault := _never(step, config, written):
            kind, message, hint, key = fault
            told = f"this transition to '{step.to}' is never taken: {message}"
            yield Defect(kind, told, hint, ("next", number, "when", key))


def _of_instructions(text: str, tools: Collection[Tool], known: prompts.Names) -> Iterator[Defect]:
    arguments = {argument for tool in tools for argument in tool.schema.get("properties", {})}
    described = {tool.name: tool.description for tool in tools}
    yield from prompts.find_unknown_tools(text, described, ("instructions",), known=(*known, arguments))


def _silent(state: StateConfig) -> bool:
    """Return True if an answer in this state does nothing: it is the action as it stands."""
    return not state.tools and state.run is None


def _never(step: Transition, state: StateConfig, written: Collection[Field]) -> tuple[DefectKind, str, str, str] | None:
    """Why the condition of a transition cannot hold: kind, message, hint, and the key that is at fault."""
    when, silent = step.when, _silent(state)
    if when.regex is not None:
        try:
            shortest_match(when.regex)
        except Unmatchable as error:
            hint = "Correct the pattern; it is searched for, and need not match the whole text."
            return DefectKind.IMPOSSIBLE_PATTERN, f"nothing matches {when.regex!r}, since {error}", hint, "regex"
    if when.outcome is not None and silent:
        return (
            DefectKind.UNREACHABLE,
            "the state has no tools and no `run`, and so no outcome",
            "Give it a tool, or another condition.",
            "outcome",
        )
    kept = next((f for f in written if f.name == step.keep and f.values), None)
    listed = listed_matches(when.regex) if when.regex is not None and when.of == "action" and silent else None
    if kept is not None and listed is not None and not any(_mentions(text, kept.values) for text in listed):
        values = ", ".join(map(plain.as_text, kept.values))
        message = f"{when.regex!r} matches no more than {', '.join(listed[:5])}, and '{kept.name}' is one of {values}"
        return DefectKind.IMPOSSIBLE_PATTERN, message, "Write a pattern that one of the values meets.", "regex"
    return None


def _mentions(text: str, values: Collection[Any]) -> bool:
    """Return True if a value may be read from a text, as `plain_adapter.parse` does."""
    words = re.sub(r"[\s_-]+", "", text).lower()
    return any(re.sub(r"[\s_-]+", "", plain.as_text(value)).lower() in words for value in values)


def _of_ways(config: StatesConfig, signature: Signature) -> Iterator[Defect]:
    """States without a way to the end over transitions that can be taken, and too few turns for the shortest way."""
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_nodes_from([*config.states, END])
    for name, state in config.states.items():
        for step in state.next:
            if _never(step, state, signature.outputs) is None:
                graph.add_edge(name, step.to)
    ending = networkx.ancestors(graph, END)
    for name in config.states:
        if name not in ending:
            yield Defect(
                DefectKind.NO_END,
                f"from the state '{name}' no way leads to the end that is ever taken",
                f"Add one that is, e.g. {{when: always, to: {END}}}.",
                ("states", name, "next"),
            )
            return
    turns = networkx.single_source_shortest_path_length(graph, config.start)
    kept: dict[str, list[int]] = {field.name: [] for field in signature.outputs}
    for name, state in config.states.items():
        for step in state.next:
            if step.keep is not None and name in turns:
                kept[step.keep].append(turns[name] + 1)
    needed = min(turns[END], max((min(found, default=turns[END]) for found in kept.values()), default=turns[END]))
    if config.max_steps < needed:
        yield Defect(
            DefectKind.FEW_STEPS,
            f"max_steps is {config.max_steps}, and the shortest way to an answer takes {needed} turns",
            f"Write max_steps: {needed + 1} or more.",
            ("max_steps",),
        )
