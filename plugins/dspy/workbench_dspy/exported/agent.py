"""Tools, called once (`ToolCall`) or by a language model that reads their results until it answers (`Agent`).

A call is one line of JSON in the model's answer: `call: {"tool": NAME, "arguments": {...}}`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dspy

from workbench.errors import NodeError
from workbench_dspy.exported.predictor import PlainAdapter, Runs, ask, read_signature
from workbench_kit import answers
from workbench_kit.acting import BoundFunction
from workbench_kit.answers import correction, read_text
from workbench_kit.prompting import plain_adapter as plain

#: Key of a demo: the messages between its inputs and its answer.
EXCHANGE = "_exchange"


@dataclass(frozen=True)
class Tool:
    """A function that a model may call. line: its description for the model."""

    name: str
    function: Callable[..., Any]
    line: str = ""

    @cached_property
    def bound(self) -> BoundFunction:
        return BoundFunction(self.function)

    @property
    def arguments(self) -> list[str]:
        """Return the names of all arguments."""
        return [*self.bound.schema["properties"]]

    def __call__(self, given: Mapping[str, Any]) -> Any:
        """Return its result in JSON types. Arguments are converted to the types of the function. Raises NodeError."""
        values = self.bound.read(self.name, given)
        try:
            result = self.bound(values)
            if inspect.isawaitable(result):
                with ThreadPoolExecutor(1) as pool:  # the caller may be in a running event loop
                    result = pool.submit(asyncio.run, _awaited(result)).result()
        except Exception as error:
            raise NodeError("tool", f"{self.name}: {type(error).__name__}: {error}"[:2_000]) from error
        return json.loads(json.dumps(result, default=str))

    def __deepcopy__(self, memo: Any) -> Tool:
        return self  # DSPy copies programs; a function stays the same


async def _awaited(result: Any) -> Any:
    return await result


class ToolCall(dspy.Module):
    """A call of a tool. arguments: the field of each argument. constants: arguments with fixed values."""

    def __init__(self, tool: Tool, output: str, arguments: Mapping[str, str], constants: Mapping[str, Any]):
        super().__init__()
        self.tool, self.output, self.arguments, self.constants = tool, output, arguments, constants

    @property
    def reads(self) -> list[str]:
        return list(self.arguments.values())

    def forward(self, **inputs: Any) -> dspy.Prediction:
        given = {**self.constants, **{name: inputs[field] for name, field in self.arguments.items()}}
        return dspy.Prediction(**{self.output: self.tool(given)})


class Agent(Runs, dspy.Predict):
    """A language model with tools. Its demos may contain the messages between question and answer, under EXCHANGE.

    Args:
        signature: its inputs and outputs.
        instructions: as written.
        tools: the tools that it may call.
        max_steps: maximum answers of the model, tool calls included.
        lm: a language model of its own.
        settings: temperature, max_tokens.
    """

    signature: Any

    def __init__(
        self,
        signature: Any,
        instructions: str = "",
        tools: Sequence[Tool] = (),
        max_steps: int = 6,
        lm: Any = None,
        **settings: Any,
    ):
        super().__init__(signature, **settings)
        self.adapter = PlainAdapter(instructions)
        self.tools, self.max_steps, self.own_lm = {tool.name: tool for tool in tools}, max_steps, lm

    def system(self) -> str:
        head = self.adapter.system(self.signature)
        if not self.tools:
            return head
        return plain.with_tools(head, self.signature.output_fields, (tool.line for tool in self.tools.values()))

    def _run(self, given: dict[str, Any]) -> dspy.Prediction:
        lm = given.pop("lm", None) or self.lm or self.own_lm
        settings = {**self.config, **given.pop("config", {})}
        demos = given.pop("demos", self.demos)
        inputs = {name: given[name] for name in self.signature.input_fields if name in given}
        messages = self._opening([dict(demo.items()) for demo in demos], inputs)
        begun = len(messages)
        outputs = self._converse(messages, lm, settings)
        found = dspy.Prediction(**outputs)
        if dspy.settings.trace is not None:
            exchange = {EXCHANGE: messages[begun:]} if messages[begun:] else {}
            dspy.settings.trace.append((self, inputs, dspy.Prediction(**outputs, **exchange)))
        return found

    def _opening(self, demos: Sequence[Mapping[str, Any]], inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = [{"role": "system", "content": self.system()}]
        for demo in demos:
            messages.append({"role": "user", "content": self._lines(self.signature.input_fields, demo)})
            messages += [as_text_message(message) for message in demo.get(EXCHANGE, ())]
            shown = {n: demo[n] for n in self.signature.output_fields if n in demo}
            messages.append({"role": "assistant", "content": self._lines(shown, demo)})
        messages.append({"role": "user", "content": self._lines(self.signature.input_fields, inputs)})
        return messages

    def _converse(self, messages: list[dict[str, Any]], lm: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Ask and call tools until the model answers. messages: extended with the conversation."""
        known = {tool.name: tool.arguments for tool in self.tools.values()}
        corrected = False
        for _ in range(self.max_steps):
            text, cut = ask(lm, messages, settings)
            said = {"role": "assistant", "content": text}
            reading = read_text(text, known, list(self.signature.output_fields), cut)
            # An apparent call that may be an answer is accepted as one the second time.
            if reading.fault and (reading.certain or not corrected):
                corrected = True
                messages += [said, {"role": "user", "content": correction(reading, known)}]
                continue
            if not reading.calls:
                try:
                    return answers.parse(read_signature(self.signature), text, cut)[0]
                except NodeError as error:
                    told = f"{error}. Give the answer in the form asked for."
                    messages += [said, {"role": "user", "content": told}]
                    continue
            messages.append(said)
            messages += [{"role": "user", "content": self._result(call)} for call in reading.calls]
        raise NodeError("steps", f"no answer within {self.max_steps} steps")

    def _result(self, call: Mapping[str, Any]) -> str:
        """Return the message to the model about a call."""
        name, given = call.get("name"), call.get("arguments")
        if not isinstance(name, str) or name not in self.tools:
            return f"error: there is no tool {name!r}; tools: {', '.join(self.tools)}"
        if not isinstance(given, dict):
            return "error: the arguments must be a JSON object"
        try:
            return f"result: {plain.as_text(self.tools[name](given))}"
        except NodeError as error:
            return f"error: {error}"

    @staticmethod
    def _lines(names: Any, values: Mapping[str, Any]) -> str:
        return "\n".join(f"{n}: {plain.as_text(values.get(n, ''))}" for n in names)


def as_text_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of a demo, with native calls and their results as text."""
    if message["role"] != "tool" and not message.get("tool_calls"):
        return dict(message)
    functions = [call["function"] for call in message.get("tool_calls", ())]
    lines = [f'call: {{"tool": {json.dumps(f["name"])}, "arguments": {f["arguments"]}}}' for f in functions]
    role = "user" if message["role"] == "tool" else message["role"]
    return {"role": role, "content": "\n".join(part for part in (message.get("content"), *lines) if part)}
