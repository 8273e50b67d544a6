"""The `agent` node: a language model that thinks, calls tools and reads their results, until it answers.

Source: ReAct (Yao et al., arXiv 2210.03629). Departures: actions are one line of JSON rather than free text, a wrong
action is told to the model and costs a step, and where the server takes tool definitions natively they are used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench import plain
from workbench.errors import NodeError, SpecError
from workbench.lm import Response
from workbench.nodes import NodeConfig, NodeKind
from workbench.runtime import Context, lm_spec
from workbench.signature import parse_signature
from workbench.spec import LMSpec
from workbench.tools import Tool, call_tool, calls_in, check_policy, described, load_tool

_RULES = """\
You can use tools. To call one, answer with exactly one line:
call: {{"tool": NAME, "arguments": {{...}}}}
You will then be told its result. When you know the answer, give it in this form:
{form}
Tools:
{tools}"""


class ForgedExample(BaseModel):
    """A call of the function and what it must give: its test (`workbench functions test`)."""

    model_config = ConfigDict(extra="forbid")

    arguments: dict[str, Any]
    result: Any


class Forged(BaseModel):
    """A tool whose source stands in the workflow file, as the optimizer `forge` writes them."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z_]\w{0,63}$", description="the function to call, and the tool's name")
    description: str = Field("", description="what it does, for the model")
    parameters: dict[str, Any] = Field(default_factory=dict, description="JSON Schema of its arguments")
    source: str = Field(max_length=100_000, description="Python that defines the function")
    example: ForgedExample | None = Field(None, description="{arguments, result}: the function's test")

    def tool(self) -> Tool:
        def call(arguments: Mapping[str, Any]) -> Any:
            raise AssertionError("forged functions run in the sandbox alone")

        return Tool(self.name, self.description, self.parameters, call, self.source)


class AgentConfig(NodeConfig):
    """Settings of an `agent` node."""

    signature: str = Field(description='inputs and outputs, e.g. "question -> answer"')
    tools: list[str] = Field(default_factory=list, description="python:module.function or mcp:COMMAND ARGS#name")
    functions: list[Forged] = Field(default_factory=list, description="tools written as source, run in the sandbox")
    instructions: str = Field("", description="what to do, in words")
    demos: list[dict[str, Any]] = Field(default_factory=list, description="worked examples: inputs and outputs")
    max_steps: int = Field(6, ge=1, le=100, description="answers of the model at most, tool calls included")
    native: bool = Field(False, description="pass tool definitions to the server instead of describing them in words")
    temperature: float | None = Field(None, ge=0, le=2, description="sampling temperature")
    max_tokens: int = Field(512, ge=1, description="tokens of one step at most")
    lm: str | dict[str, Any] | None = Field(None, description="another language model for this node")


class Agent(NodeKind):
    """A language model with tools: it may call them several times before it answers (ReAct)."""

    Config = AgentConfig
    primary = "signature"
    learnable = {"instructions": "text", "demos": "demos", "max_steps": "int", "tools": "tools",
                 "functions": "functions", "lm": "lm"}  # fmt: skip
    config: AgentConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.signature = parse_signature(config.signature)
        self.forged = {f.name: f for f in config.functions}
        self.tools = {tool.name: tool for tool in (load_tool(address, base) for address in config.tools)}
        twice = sorted(set(self.tools) & set(self.forged))
        if twice or len(self.forged) < len(config.functions):
            raise SpecError(f"two tools are named '{twice[0] if twice else config.functions[-1].name}'")
        self.tools |= {f.name: f.tool() for f in config.functions}

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.signature.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.signature.outputs)

    @property
    def max_calls(self) -> int:
        return self.config.max_steps

    @cached_property
    def lm(self) -> LMSpec | None:
        return lm_spec(self.config.lm) if self.config.lm is not None else None

    @cached_property
    def system(self) -> str:
        """Instructions, and, unless they go to the server natively, the tools and how to call them."""
        text = plain.system_text(self.signature, self.config.instructions, {}, True)
        if self.config.native or not self.tools:
            return text
        form = "\n".join(f"{f.name}: ..." for f in self.signature.outputs)
        return f"{text}\n{_RULES.format(form=form, tools=chr(10).join(map(described, self.tools.values())))}"

    @cached_property
    def definitions(self) -> tuple[dict[str, Any], ...]:
        if not self.config.native:
            return ()
        return tuple(
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": dict(t.schema)},
            }
            for t in self.tools.values()
        )

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        messages: list[dict[str, Any]] = [{"role": "system", "content": self.system}]
        for demo in self.config.demos:
            messages.append({"role": "user", "content": self._question(demo)})
            messages.append({"role": "assistant", "content": self._answer(demo)})
        messages.append({"role": "user", "content": self._question(inputs)})
        ctx.span.agent = self.name
        for step in range(self.config.max_steps):
            ctx.span.turn = step
            response = await self._ask(messages, ctx)
            calls = calls_in(response)
            if not calls:
                try:
                    return plain.parse(self.signature, response.text, response.finish == "length")[0]
                except NodeError as error:
                    messages += [
                        _said(response),
                        {"role": "user", "content": f"{error}. Give the answer in the form asked for."},
                    ]
                    continue
            messages.append(_said(response))
            messages += [await self._result(call, ctx) for call in calls]
        raise NodeError("steps", f"no answer within {self.config.max_steps} steps")

    def _question(self, values: Mapping[str, Any]) -> str:
        return "\n".join(f"{n}: {plain.as_text(values.get(n, ''))}" for n in self.inputs)

    def _answer(self, values: Mapping[str, Any]) -> str:
        return "\n".join(f"{n}: {plain.as_text(values[n])}" for n in self.outputs if n in values)

    async def _ask(self, messages: Sequence[Mapping[str, Any]], ctx: Context) -> Response:
        c = self.config
        response = await ctx.complete(
            messages, lm=self.lm, temperature=c.temperature, max_tokens=c.max_tokens, tools=self.definitions or None
        )
        if response.finish == "refusal":
            raise NodeError("refused", f"the model refused: {response.text[:200]!r}")
        if not response.text.strip() and not response.tool_calls:
            raise NodeError("empty", "the model gave an empty answer")
        return response

    async def _result(self, call: Mapping[str, Any], ctx: Context) -> dict[str, Any]:
        """A tool's result as a message; a wrong call is told to the model, so that it can do better."""
        name, arguments = call.get("name"), call.get("arguments")
        tool = self.tools.get(str(name))
        if tool is None:
            text = f"error: there is no tool {name!r}; tools: {', '.join(self.tools)}"
        elif not isinstance(arguments, dict):
            text = "error: the arguments must be a JSON object"
        else:
            try:
                text = f"result: {plain.as_text(await self._call(tool, arguments, ctx))}"
            except NodeError as error:
                text = f"error: {error}"
        ctx.note(tools=[*ctx.span.notes.get("tools", []), {"name": name, "arguments": arguments, "result": text[:500]}])
        if call.get("id"):
            return {"role": "tool", "tool_call_id": call["id"], "content": text}
        return {"role": "user", "content": text}

    async def _call(self, tool: Tool, arguments: dict[str, Any], ctx: Context) -> Any:
        """A tool's result, journalled. Raises NodeError of the kind "tool" or "policy"."""
        if tool.name not in self.forged:
            return await call_tool(ctx, tool, arguments)
        await check_policy(ctx, tool.name, arguments)
        found = await ctx.sandboxed(tool.source, tool.name, arguments)
        if found["kind"] == "ok":
            return found["value"]
        line = f" in line {found['line']}" if found["line"] else ""
        raise NodeError("tool", f"{tool.name}: {found['kind']}{line}: {found['message']}")


def _said(response: Response) -> dict[str, Any]:
    """The model's own turn, as the server wants to see it again."""
    message: dict[str, Any] = {"role": "assistant", "content": response.text}
    if response.tool_calls:
        message["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": _dumped(c["arguments"])}}
            for c in response.tool_calls
        ]
    return message


def _dumped(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
