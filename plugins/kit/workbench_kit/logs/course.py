"""The course of a run: which nodes ran, and which tools they called."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.base.type_guards import is_dict
from workbench.workflow import Span, Trace


@dataclass(frozen=True)
class ToolUse:
    """A tool call: the node that made it, its tool and arguments, and the result that the node read."""

    node: str
    tool: str
    arguments: Mapping[str, Any]
    result: str

    @property
    def failed(self) -> bool:
        """Return True if the call was refused or the tool failed, so it had no effect."""
        return self.result.startswith("error:")

    def __str__(self) -> str:
        given = ", ".join(f"{name}={_text(value)}" for name, value in self.arguments.items())
        return f"{self.tool}({given}) -> {self.result}"


def tool_uses(trace: Trace) -> list[ToolUse]:
    """List the tool calls of a run, in the order in which their nodes began."""
    return [use for span in _in_time(trace) for use in _uses(span)]


def describe_course(trace: Trace, most: int = 20_000) -> str:
    """Describe a run, one step a line: tool calls with their results, and the outputs of nodes.

    A longer text is cut at the start, because the last steps are the ones with consequences.
    """
    lines = list[str]()
    for span in _in_time(trace):
        wrote = ", ".join(f"{name}: {_text(value)}" for name, value in span.outputs.items())
        lines += [f"{span.node} calls {use}" for use in _uses(span)]
        lines.append(f"{span.node} fails: {span.error}" if span.error else f"{span.node} writes {wrote}")
    text = "\n".join(lines)
    return text if len(text) <= most else f"(...)\n{text[-most:]}"


def differs(one: Trace, other: Trace) -> bool:
    """Return True if the two runs differ in the nodes that ran or in their tool calls."""

    def steps(trace: Trace) -> list[Any]:
        calls = [(use.node, use.tool, _text(dict(use.arguments))) for use in tool_uses(trace)]
        return [[span.node for span in trace.spans], calls]

    return steps(one) != steps(other)


def _in_time(trace: Trace) -> list[Span]:
    return sorted(trace.spans, key=lambda span: span.at)


def _uses(span: Span) -> Iterator[ToolUse]:
    """Yield the tool calls of a span: those that an agent noted, or the effects of any other node."""
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
