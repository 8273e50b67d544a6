"""The `program` node: an agent as a Python generator that yields what it asks for and receives answers.

    def agent(task, inputs):
        found = yield {"tool": "search", "arguments": {"query": inputs["question"]}}
        return (yield task + "\nFound: " + found)

It runs in the sandbox as code that asks (`workbench_kit.acting`): at each step again from the start, with the answers
so far. So its calls are budgeted, journalled and traced like all others, and a step cannot hang.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

from pydantic import Field

from workbench.base.concurrency import gather_all
from workbench.errors import NodeError, SpecError, suggest
from workbench.runtime import Context
from workbench.workflow import NodeConfig, NodeKind, SignatureNode, parse_signature
from workbench_kit.acting import ENV, TOOLS, Unavailable, answered, call_tool, load_tools, make_node_tools, run_asking
from workbench_kit.answers import convert, parse
from workbench_kit.prompting import plain_adapter as plain

FUNCTION = "agent"
#: Put behind the source, so that lines of errors are those of the source.
_MAIN = f"""

def workbench_main(ask, task, inputs):
    made = {FUNCTION}(task, inputs)
    if not hasattr(made, "send"):
        return made
    try:
        asked = next(made)
        while True:
            try:
                answer = ask(asked)
            except ToolError as error:
                asked = made.throw(ToolError(str(error)))  # a new one: its line is that of the yield
            else:
                asked = made.send(answer)
    except StopIteration as stop:
        return stop.value
"""
_FORMS = "text, {'prompt': ...}, {'tool': NAME, 'arguments': ...}, {'node': NAME, 'inputs': ...}, or a list of them"


def _is_empty(value: Any) -> bool:
    return not value


class ProgramConfig(NodeConfig):
    """Settings of a `program` node."""

    signature: str = Field(description='inputs and outputs, e.g. "question -> answer"')
    source: str = Field(
        max_length=100_000, description="Python that defines agent(task, inputs), a generator of prompts and calls"
    )
    tools: list[str] = Field(default_factory=list, exclude_if=_is_empty, description=f"tools that it may call: {TOOLS}")
    env: dict[str, str] = ENV
    nodes: dict[str, dict[str, Any]] = Field(
        default_factory=dict, exclude_if=_is_empty, description="nodes that it may run, by name"
    )
    instructions: str = Field("", description="what to do, in words; each prompt is sent below it")
    calls: int = Field(8, ge=1, le=64, description="prompts, and nodes that ask a model, for one example")
    max_tokens: int = Field(512, ge=1, description="default limit on the tokens of one answer")
    temperature: float | None = Field(None, ge=0, le=2, description="default sampling temperature")
    timeout: float = Field(5.0, gt=0, le=600, description="seconds of computing for one step")
    lm: str | dict[str, Any] | None = Field(None, description="another language model for this node")


class Program(SignatureNode):
    """Runs an agent that is written as code: it yields prompts and calls, gets the answers, and returns its own."""

    Config = ProgramConfig
    primary = "signature"
    learnable = {"source": "agent", "instructions": "text", "calls": "int", "temperature": "float", "lm": "lm"}
    config: ProgramConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.signature = parse_signature(config.signature)
        check_source(config.source)
        self.tools = load_tools(config.tools, base, config.env, self.code)
        self.node_tools = make_node_tools(config.nodes, base, self.code)

    @property
    def inputs(self) -> tuple[str, ...]:
        of_nodes = (name for found in self.node_tools.values() for name in found.row_inputs)
        return tuple(dict.fromkeys((*super().inputs, *of_nodes)))

    def children(self) -> Mapping[str, NodeKind]:
        return {found.node.name: found.node for found in self.node_tools.values()}

    def tool_names(self) -> Collection[str]:
        return [*self.tools, *self.node_tools]

    @property
    def max_calls(self) -> int:
        return self.config.calls * max([1, *(found.node.max_calls for found in self.node_tools.values())])

    @cached_property
    def system(self) -> str:
        return plain.system_text(self.signature, self.config.instructions, {}, True)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        fields = {name: inputs[name] for name in super().inputs}
        given = {"task": plain.user_text(self.signature, fields), "inputs": fields}
        answers, asked = list[dict[str, Any]](), 0
        ctx.span.agent = self.name

        async def reply(wanted: Any) -> dict[str, Any]:
            nonlocal asked
            several = wanted if isinstance(wanted, list) else [wanted]
            if not several:
                raise NodeError("code", "the agent yields an empty list: yield a prompt, or return")
            numbers = [*accumulate(map(self._is_paid, several), initial=asked)]
            asked = numbers.pop()
            if asked > self.config.calls:
                raise NodeError("steps", f"the agent yields more than {self.config.calls} prompts")
            ctx.span.turn = len(answers)
            jobs = [partial(self._answer, *pair, inputs, ctx) for pair in zip(several, numbers, strict=True)]
            if any(isinstance(one, dict) and one.keys() & {"tool", "node"} for one in several):
                found = [await job() for job in jobs]  # in order: tools may have effects
            else:
                found = await gather_all(job() for job in jobs)
            return {"value": [one.get("value", one) for one in found]} if isinstance(wanted, list) else found[0]

        try:
            done = await run_asking(ctx, self.config.source + _MAIN, given, answers, reply, timeout=self.config.timeout)
        except Unavailable as failed:
            raise failed.error from None
        ctx.note(asked=asked)
        return self._outputs(done)

    def _is_paid(self, wanted: Any) -> bool:
        """Return True for what `calls` counts: a prompt, or a node that asks a model."""
        if not isinstance(wanted, dict) or "prompt" in wanted:
            return True
        tool = self.node_tools.get(str(wanted.get("node")))
        return bool(tool and tool.node.max_calls)

    async def _answer(self, wanted: Any, number: int, row: Mapping[str, Any], ctx: Context) -> dict[str, Any]:
        """{value} of what the agent asks, or {error} of a tool or node."""
        for kind, given, known in (("tool", "arguments", self.tools), ("node", "inputs", self.node_tools)):
            if not isinstance(wanted, dict) or kind not in wanted:
                continue
            name, arguments = wanted[kind], wanted.get(given, {})
            if name not in known or not isinstance(arguments, dict) or wanted.keys() - {kind, given}:
                hint = suggest(str(name), list(known))
                raise NodeError("code", f"{wanted!r:.80} is no call of a {kind}: yield {_FORMS}. {hint}")
            if kind == "tool":
                return await answered(call_tool(ctx, self.tools[name], arguments))
            return await answered(self.node_tools[name].call(ctx, arguments, row, self.config.calls, number))
        return {"value": await self._ask(wanted, number, ctx)}

    async def _ask(self, prompt: Any, number: int, ctx: Context) -> str:
        """Ask one prompt: text, or {prompt, temperature?, max_tokens?}. A refused or empty answer is an empty text, and
        the program decides what that means."""
        given = {"prompt": prompt} if isinstance(prompt, str) else prompt
        if not isinstance(given, dict) or not isinstance(given.get("prompt"), str):
            raise NodeError("code", f"the agent yields {_FORMS}, not {prompt!r:.80}")
        if unknown := set(given) - {"prompt", "temperature", "max_tokens"}:
            raise NodeError("code", f"a prompt has no key '{sorted(unknown)[0]}': use prompt, temperature, max_tokens")
        temperature = given.get("temperature", self.config.temperature)
        tokens = given.get("max_tokens", self.config.max_tokens)
        if not (temperature is None or (isinstance(temperature, int | float) and 0 <= temperature <= 2)) or not (
            isinstance(tokens, int) and tokens >= 1
        ):
            raise NodeError("code", "temperature is a number from 0 to 2, max_tokens a whole number from 1")
        messages = [{"role": "system", "content": self.system}] if self.system else []
        messages.append({"role": "user", "content": given["prompt"]})
        response = await ctx.complete(
            messages,
            lm=self.lm,
            temperature=temperature,
            max_tokens=min(tokens, 4 * self.config.max_tokens),
            replica=number,
        )
        return "" if response.finish == "refusal" else response.text

    def _outputs(self, value: Any) -> Mapping[str, Any]:
        """The outputs in the program's return value: a dict of them, or text that is parsed like a model's answer."""
        if isinstance(value, dict):
            missing = [f.name for f in self.signature.outputs if f.name not in value]
            if missing:
                raise NodeError("code", f"the agent returned no '{missing[0]}'")
            return {f.name: convert(f, plain.as_text(value[f.name]))[0] for f in self.signature.outputs}
        if value is None or not plain.as_text(value).strip():
            raise NodeError("empty", "the agent returned nothing")
        return parse(self.signature, plain.as_text(value))[0]


def check_source(source: str) -> None:
    """Raise SpecError if the source is not Python or defines no agent(task, inputs)."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise SpecError(
            f"source is not Python: {getattr(error, 'msg', error)}",
            hint=f"Look at its line {line}." if line else None,
            path=("source",),
        ) from None
    made = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == FUNCTION), None)
    if made is None or [a.arg for a in made.args.args] != ["task", "inputs"]:
        raise SpecError(
            "source defines no agent(task, inputs)",
            path=("source",),
            hint="Write e.g. `def agent(task, inputs): return (yield task)`.",
        )
