"""The `calls` node: prepared tool calls, made in order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field

from workbench.errors import Defect, NodeError, SpecError
from workbench.runtime import Context
from workbench.workflow import NodeConfig, NodeKind, Surroundings, parse_signature
from workbench_kit.acting import ENV, TOOLS, call_tool, find_tool_defects, load_tools
from workbench_kit.answers import load_loose

#: Maximum depth of arguments at which references are found.
DEEPEST = 30


class CallsConfig(NodeConfig):
    """Settings of a `calls` node."""

    calls: str = Field(description="`plan -> made, results`: field of the calls, those made, and what they returned")
    tools: list[str] = Field(min_length=1, description=TOOLS)
    env: dict[str, str] = ENV


class Calls(NodeKind):
    """Makes the tool calls of a list, {name, arguments}, one after the other.

    In place of a value, a call may refer to an earlier result: {"$ref": "1"} is all that the first call returned,
    {"$ref": "1.order.id"} a part of it (as plans of ReWOO, arXiv 2305.18323, refer to their evidence). The first output
    has the calls with values, the second their results. A call that fails, or that the policy refuses, fails the row.
    """

    Config = CallsConfig
    primary = "calls"
    config: CallsConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        signature = parse_signature(config.calls)
        self.fields, self.made = [f.name for f in signature.inputs], [f.name for f in signature.outputs]
        if (len(self.fields), len(self.made)) != (1, 2):
            hint = "Write e.g. calls: plan -> made, results."
            raise SpecError("it reads one field and writes two", hint=hint, path=("calls",))
        self.tools = load_tools(config.tools, base, config.env, self.code)

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        for tool in self.tools.values():
            yield from find_tool_defects(tool, self.base, ("tools",), told=False)

    def tool_names(self) -> Collection[str]:
        return [*self.tools]

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.fields)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.made)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        made, results = list[dict[str, Any]](), list[Any]()
        for number, (name, arguments) in enumerate(self._read(inputs[self.fields[0]]), 1):
            try:
                given = fill_references(arguments, results)
                results.append(await call_tool(ctx, self.tools[name], given))
            except NodeError as error:
                raise NodeError(error.kind, f"call {number}: {error}") from error
            made.append({"name": name, "arguments": given})
        return dict(zip(self.made, (made, results), strict=True))

    def _read(self, value: Any) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the calls as (name, arguments). Raise NodeError("tool") before making any of them."""
        calls = load_loose(value) if isinstance(value, str) else value
        found = list[tuple[str, Mapping[str, Any]]]()
        if not isinstance(calls, list | dict):
            raise NodeError("tool", f"'{self.fields[0]}' is no list of calls: {str(value)[:80]}")
        for number, call in enumerate([calls] if isinstance(calls, dict) else calls, 1):
            name, arguments = (call.get("name"), call.get("arguments")) if isinstance(call, dict) else (None, None)
            if not isinstance(name, str) or name not in self.tools:
                raise NodeError("tool", f"call {number} names no tool of this node: {str(call)[:80]}")
            if not isinstance(arguments, dict):
                raise NodeError("tool", f"call {number} ({name}): its arguments are no object")
            found.append((name, arguments))
        return found


def fill_references(value: Any, results: Sequence[Any], depth: int = DEEPEST) -> Any:
    """Return arguments with references replaced by values.

    Raises NodeError("tool") for a reference to no earlier call, or to a missing part of a result.
    """
    if depth < 0:
        raise NodeError("tool", "the arguments are nested too deeply")
    if isinstance(value, list):
        return [fill_references(part, results, depth - 1) for part in value]
    if not isinstance(value, Mapping):
        return value
    if "$ref" not in value:
        return {key: fill_references(part, results, depth - 1) for key, part in value.items()}
    number, *path = str(value["$ref"]).split(".")
    if len(value) > 1 or not number.isdecimal() or not 1 <= int(number) <= len(results):
        raise NodeError("tool", f'{str(dict(value))[:80]} refers to no earlier call: write {{"$ref": "1.key"}}')
    found = results[int(number) - 1]
    for part in path:
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            returned = str(results[int(number) - 1])[:80]
            raise NodeError("tool", f"call {number} returned no {'.'.join(path)}, but {returned}")
    return found
