"""Defects of an agent's settings: valid, but cannot work (`workbench validate --deep`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import Defect, DefectKind
from workbench.spec import Code
from workbench.workflow import NodeKind, Signature, Surroundings
from workbench_kit.acting import NodeTool, Tool, find_source_defects, find_tool_defects, tools_at
from workbench_kit.prompting import prompt_defects as prompts


def find_agent_defects(
    config: Any, signature: Signature, tools: Mapping[str, Tool], base: Path, around: Surroundings, code: Code
) -> Iterator[Defect]:
    """Find defects. config: an `AgentConfig`. tools: all of the agent's, by name. code: of the agent."""
    yield from _of_tools(config, tools, base, code)
    yield from _of_steps(config, tools)
    described = {name: tool.description for name, tool in tools.items()}
    arguments = {a for tool in tools.values() for a in tool.schema.get("properties", {})}
    fields = {f.name for f in (*signature.inputs, *signature.outputs)}
    known = (around.names, arguments, fields, ["say"] if config.user else [])
    if config.register_ == "lazy":
        described["register"] = ""
    told, path = config.instructions, ("instructions",)
    yield from prompts.find_unknown_tools(told, described, path, known=known)
    yield from prompts.find_contradictions(told, signature, path, tools=tools, known=known)
    yield from prompts.find_wrong_demos(config.demos, signature)
    needed = prompts.tokens_of_answer(signature, labels=bool(tools))
    if tools and not config.native:
        needed = max(
            needed, min(prompts.tokens_of_call(name, tool.schema.get("required", ())) for name, tool in tools.items())
        )
    yield from prompts.find_few_tokens(config.max_tokens, needed, "a call or an answer", ("max_tokens",))


def _of_tools(config: Any, tools: Mapping[str, Tool], base: Path, code: Code) -> Iterator[Defect]:
    if not tools and config.user is None:
        yield Defect(
            DefectKind.NO_TOOLS,
            "the agent has no tools: it answers at once, as a `predict` node does for fewer tokens",
            "Name some, e.g. tools: [python:tools.py:lookup], or write predict.",
            ("tools",),
        )
    for number, address in enumerate(config.tools):
        for tool in tools_at(address, base, config.env, code):
            described = bool(config.descriptions.get(tool.name))
            yield from find_tool_defects(tool, base, ("tools", number), described=described)
    for number, forged in enumerate(config.functions):
        path = ("functions", number)
        yield from find_source_defects(forged.name, forged.source, path, forged.parameters)
        if not forged.description and not config.descriptions.get(forged.name):
            yield Defect(
                DefectKind.UNDESCRIBED_TOOL,
                f"the function '{forged.name}' has no description, and the model is told no more than its name",
                "Write description: what it does, and when to use it.",
                path,
            )


def find_undescribed_nodes(nodes: Mapping[str, NodeTool], descriptions: Mapping[str, str]) -> Iterator[Defect]:
    """Find nodes without a description. nodes: tools that are nodes. descriptions: of the agent, by tool."""
    for name, tool in nodes.items():
        if (
            not (tool.about or name in descriptions or tool.node.introduce)
            and type(tool.node).tool_description is NodeKind.tool_description
        ):
            yield Defect(
                DefectKind.UNDESCRIBED_TOOL,
                f"the model is told no more of the node '{name}' than its name, inputs and outputs",
                "Write describe: what it does, and when to use it.",
                ("nodes", name),
            )


def _of_steps(config: Any, tools: Mapping[str, Tool]) -> Iterator[Defect]:
    """Report fewer steps than a call and an answer take, or than the calls that the instructions order."""
    if not tools:
        return
    lazy = config.register_ == "lazy" and not config.nearest
    needed, why = (3, "registering a tool, calling it and answering") if lazy else (2, "a call and an answer")
    ordered = _calls_in_order(config.instructions, tools)
    if not config.native and len(ordered) + 1 > needed:
        needed, why = (
            len(ordered) + 1,
            f"the calls of {', '.join(ordered)} that the instructions ask for, and an answer",
        )
    if config.max_steps < needed:
        yield Defect(
            DefectKind.FEW_STEPS,
            f"max_steps is {config.max_steps}, and {why} take {needed}",
            f"Write max_steps: {needed + 1} or more: a wrong call costs a step, too.",
            ("max_steps",),
        )


def _calls_in_order(text: str, tools: Mapping[str, Tool]) -> list[str]:
    """List the tools that instructions order one after the other: `First call a. Then use b.`"""
    if not re.search(r"(?i)\b(then|after that|afterwards|finally)\b", text) or re.search(r"(?i)\b(or|if)\b", text):
        return []
    verb = r"\b(?:use|call|run|invoke|query)\s(?:the\s)?[`'\"]?"
    found = {name: re.search(rf"(?i){verb}{re.escape(name)}\b", text) for name in tools}
    places = {name: match.start() for name, match in found.items() if match}
    return sorted(places, key=places.__getitem__)
