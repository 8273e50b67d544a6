"""The `program` node: an agent as a Python generator that yields prompts and receives answers, run in the sandbox.

    def agent(task, inputs):
        thoughts = yield task + "\nThink step by step."
        return (yield task + "\nThoughts: " + thoughts)

The code never holds a model, a key or a connection: at each step it is run again from the start with the answers so
far, and returns its next prompts. So its calls are budgeted, journalled and traced like all others, and a step cannot
hang.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import Field

from workbench.base.concurrency import gather_all
from workbench.errors import NodeError, SpecError
from workbench.kit import answers
from workbench.kit.prompting import plain_adapter as plain
from workbench.runtime import Context
from workbench.spec import MODEL
from workbench.workflow import NodeConfig, SignatureNode, parse_signature

FUNCTION = "agent"
#: Put behind the source, so that lines of errors are those of the source.
_DRIVER = f"""

def workbench_step(task, inputs, answers):
    made = {FUNCTION}(task, inputs)
    if not hasattr(made, "send"):
        return {{"done": made}}
    try:
        asked = next(made)
        for answer in answers:
            asked = made.send(answer)
    except StopIteration as stop:
        return {{"done": stop.value}}
    return {{"ask": asked}}
"""


class ProgramConfig(NodeConfig):
    """Settings of a `program` node."""

    signature: str = Field(description='inputs and outputs, e.g. "question -> answer"')
    source: str = Field(
        max_length=100_000, description="Python that defines agent(task, inputs), a generator of prompts"
    )
    instructions: str = Field("", description="what to do, in words; each prompt is sent below it")
    calls: int = Field(8, ge=1, le=64, description="prompts that it may yield for one example")
    max_tokens: int = Field(512, ge=1, description="default limit on the tokens of one answer")
    temperature: float | None = Field(None, ge=0, le=2, description="default sampling temperature")
    timeout: float = Field(5.0, gt=0, le=600, description="seconds of computing for one step")
    lm: str | dict[str, Any] | None = Field(None, description="another language model for this node")


class Program(SignatureNode):
    """Runs an agent that is written as code: it yields prompts, gets the model's answers, and returns its own."""

    Config = ProgramConfig
    primary = "signature"
    powers = {"lm": MODEL}
    learnable = {"source": "agent", "instructions": "text", "calls": "int", "temperature": "float", "lm": "lm"}
    config: ProgramConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.signature = parse_signature(config.signature)
        check_source(config.source)

    @property
    def max_calls(self) -> int:
        return self.config.calls

    @cached_property
    def system(self) -> str:
        return plain.system_text(self.signature, self.config.instructions, {}, True)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        task, answers, asked = plain.user_text(self.signature, inputs), list[Any](), 0
        ctx.span.agent = self.name
        while True:
            step = await self._step(task, inputs, answers, ctx)
            if "done" in step:
                ctx.note(asked=asked)
                return self._outputs(step["done"])
            prompts = step["ask"] if isinstance(step["ask"], list) else [step["ask"]]
            if not prompts:
                raise NodeError("code", "the agent yields an empty list: yield a prompt, or return")
            if asked + len(prompts) > self.config.calls:
                raise NodeError("steps", f"the agent yields more than {self.config.calls} prompts")
            ctx.span.turn = len(answers)
            found = await gather_all(self._ask(p, asked + i, ctx) for i, p in enumerate(prompts))
            asked += len(prompts)
            answers.append(found if isinstance(step["ask"], list) else found[0])

    async def _step(self, task: str, inputs: Mapping[str, Any], answers: Sequence[Any], ctx: Context) -> dict[str, Any]:
        arguments = {"task": task, "inputs": dict(inputs), "answers": list(answers)}
        found = await ctx.sandboxed(
            self.config.source + _DRIVER, "workbench_step", arguments, timeout=self.config.timeout
        )
        if found["kind"] != "ok":
            line = f" in line {found['line']}" if found["line"] else ""
            raise NodeError("code", f"{found['kind']}{line}: {found['message']}")
        return found["value"]

    async def _ask(self, prompt: Any, number: int, ctx: Context) -> str:
        """Ask one prompt: text, or {prompt, temperature?, max_tokens?}. A refused or empty answer is an empty text, and
        the program decides what that means."""
        given = {"prompt": prompt} if isinstance(prompt, str) else prompt
        if not isinstance(given, dict) or not isinstance(given.get("prompt"), str):
            raise NodeError(
                "code", f"the agent yields text, {{'prompt': text, ...}}, or a list of them, not {prompt!r:.80}"
            )
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
            return {f.name: answers.convert(f, plain.as_text(value[f.name]))[0] for f in self.signature.outputs}
        if value is None or not plain.as_text(value).strip():
            raise NodeError("empty", "the agent returned nothing")
        return answers.parse(self.signature, plain.as_text(value))[0]


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
