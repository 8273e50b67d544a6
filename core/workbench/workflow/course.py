"""The course of a run: which nodes ran, and what they asked of tools."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.base.type_guards import is_dict
from workbench.workflow.trace import Span, Trace


@dataclass(frozen=True)
class ToolUse:
    """A call of a tool: the node that made it, and what it was told. result: the text that it read."""

    node: str
    tool: str
    arguments: Mapping[str, Any]
    result: str

    @property
    def failed(self) -> bool:
        """Return True if it was refused, or the tool failed: nothing came of it."""
        return self.result.startswith("error:")

    def __str__(self) -> str:
        given = ", ".join(f"{name}={_text(value)}" for name, value in self.arguments.items())
        return f"{self.tool}({given}) -> {self.result}"


def tool_uses(trace: Trace) -> list[ToolUse]:
    """The calls of tools of a run, in the order in which their nodes began."""
    return [use for span in _in_time(trace) for use in _uses(span)]


def describe_course(trace: Trace, most: int = 20_000) -> str:
    """The course as text, a step a line: calls of tools with their results, and what nodes wrote. Of a longer text the
    end is kept: the last steps are the ones with consequences."""
    lines = list[str]()
    for span in _in_time(trace):
        wrote = ", ".join(f"{name}: {_text(value)}" for name, value in span.outputs.items())
        lines += [f"{span.node} calls {use}" for use in _uses(span)]
        lines.append(f"{span.node} fails: {span.error}" if span.error else f"{span.node} writes {wrote}")
    text = "\n".join(lines)
    return text if len(text) <= most else f"(...)\n{text[-most:]}"


def differs(one: Trace, other: Trace) -> bool:
    """Return True if other nodes ran, or other calls of tools were made."""

    def steps(trace: Trace) -> list[Any]:
        calls = [(use.node, use.tool, _text(dict(use.arguments))) for use in tool_uses(trace)]
        return [[span.node for span in trace.spans], calls]

    return steps(one) != steps(other)


def _in_time(trace: Trace) -> list[Span]:
    return sorted(trace.spans, key=lambda span: span.at)


def _uses(span: Span) -> Iterator[ToolUse]:
    """Agents note what they call; of other nodes the effects are known."""
    noted: list[dict[str, Any]] = span.notes.get("tools", [])
    for call in noted:
        given = call["arguments"]
        yield ToolUse(span.node, str(call["name"]), given if is_dict(given) else {}, str(call["result"]))
    for effect in span.effects if not noted else ():
        if effect.kind == "tool":
            address, arguments = effect.content
            told: Mapping[str, Any] = effect.result or {"error": effect.error}
            said = _text(told["value"]) if "value" in told else f"error: {told.get('error')}"
            yield ToolUse(span.node, re.split("[:#.]", str(address).split(" {")[0])[-1], arguments, said)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str, sort_keys=True)
