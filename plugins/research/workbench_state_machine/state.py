"""A state of a machine: a turn of the model, what its answer does, and which state comes next."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.errors import Defect, NodeError, SpecError, errors_at
from workbench.lm import Response, enter_model
from workbench.runtime import Context
from workbench.spec import Code, LMSpec, Pattern, TooSlow, lm_spec
from workbench.workflow import Field, NodeKind, Signature, Surroundings, parse_signature
from workbench_kit import answers
from workbench_kit.acting import (
    Tool,
    call_tool,
    describe_tool,
    has_unknown_tools,
    know_tools,
    load_tool,
    load_tools,
    read_calls,
    unreadable_call,
)
from workbench_kit.answers import UNREADABLE, Reading
from workbench_kit.prompting import plain_adapter as plain, split_images
from workbench_state_machine.defects import find_state_defects
from workbench_state_machine.settings import CUT, EMPTY, END, GO_ON, StateConfig, StatesConfig, Transition, When

_CALLS = """\
You can use tools. To call one, answer with exactly one line:
call: {{"tool": NAME, "arguments": {{...}}}}
Tools:
{tools}"""
_JUDGE = "Answer a question about the following conversation with yes or no."
_YES_NO = Field("answer", str, ("yes", "no"))


@dataclass(frozen=True)
class Turn:
    """The effect of an answer. action: what was asked for. outcome: the tool's result as it came."""

    action: str
    observation: str
    outcome: Any = None
    arguments: Mapping[str, Any] | None = None
    failed: bool = False


class State(NodeKind):
    """A state, as a node inside its machine: one run of it is one turn."""

    Config = StateConfig
    learnable = {"instructions": "text", "tools": "tools", "lm": "lm"}
    config: StateConfig

    def __init__(self, state: str, machine: StatesConfig, base: Path, code: Code):
        super().__init__(f"states.{state}", machine.states[state], base)
        self.state, self.machine, self.code = state, machine, code
        self.signature = parse_signature(machine.signature)
        with errors_at("states", state):
            enter_model(self.config.lm, base, "lm")
            self.tools = load_tools(self.config.tools, base, machine.env, code)
        self.tools_unknown = has_unknown_tools(self.config.tools, code)
        with errors_at("states", state, "run"):
            self.runs = load_tool(self.config.run, base, machine.env, code) if self.config.run is not None else None
        self.argument = self._open_argument() if self.runs is not None else ""

    def _open_argument(self) -> str:
        """The argument of the `run` tool that gets the answer: the one that is required and not filled in."""
        assert self.runs is not None
        if self.code != "loaded":
            return ""
        free = [a for a in self.runs.schema.get("required", ()) if a not in self.machine.arguments]
        if len(free) != 1:
            raise SpecError(
                f"the tool of 'run' must need one argument besides {', '.join(self.machine.arguments) or 'none'}: "
                f"the answer; {self.runs.name} needs {', '.join(free) or 'none'}",
                hint="Fill the others in, e.g. arguments: {ARGUMENT: FIELD}.",
                path=("states", self.state, "run"),
            )
        return free[0]

    @property
    def all_tools(self) -> list[Tool]:
        return [*self.tools.values(), *([self.runs] if self.runs else [])]

    def tool_names(self) -> Collection[str]:
        return [*(tool.name for tool in self.all_tools), *(self.config.tools if self.tools_unknown else [])]

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.signature.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.written)

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        return find_state_defects(
            self.config, self.machine, self.written, self.tools, self.runs, self.base, around, self.code
        )

    @property
    def max_calls(self) -> int:
        return 1 + sum(step.when.lm is not None for step in self.config.next)

    @cached_property
    def lm(self) -> LMSpec | None:
        chosen = self.config.lm if self.config.lm is not None else self.machine.lm
        return lm_spec(chosen) if chosen is not None else None

    @cached_property
    def answers(self) -> tuple[Field, ...]:
        """The outputs that are read from the last answer, because no transition of the machine keeps them."""
        kept = {step.keep for state in self.machine.states.values() for step in state.next}
        ends = any(step.to == END for step in self.config.next)
        return tuple(f for f in self.signature.outputs if f.name not in kept) if ends else ()

    @cached_property
    def written(self) -> tuple[Field, ...]:
        """The outputs that an answer in this state may give."""
        keeps = {step.keep for step in self.config.next}
        return tuple(f for f in self.signature.outputs if f.name in keeps or f in self.answers)

    @cached_property
    def system(self) -> str:
        """The machine's instructions and this state's own, the values that answers may have, and the tools."""
        own = "\n".join(t for t in (self.machine.instructions.strip(), self.config.instructions.strip()) if t)
        parts = [plain.system_text(Signature((), self.written), own, {}, True)]
        if self.tools:
            listed = "\n".join(describe_tool(tool, self.machine.arguments) for tool in self.tools.values())
            parts.append(_CALLS.format(tools=listed))
        if self.answers and (self.tools or len(self.answers) > 1):
            parts.append("When you know the answer, give it in this form:")
            parts += [f"{f.name}: ..." for f in self.answers]
        return "\n".join(part for part in parts if part)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        """A turn: {reply, action, observation, failed, to, kept}."""
        ctx.span.agent, ctx.span.turn = self.state, inputs["turn"]
        await know_tools(self.all_tools)
        messages = [*([{"role": "system", "content": self.system}] if self.system else []), *inputs["history"]]
        response = await ctx.complete(
            messages, lm=self.lm, temperature=self.machine.temperature, max_tokens=self.machine.max_tokens
        )
        if response.finish == "refusal":
            raise NodeError("refused", f"the model refused: {response.text[:200]!r}")
        turn = await self._act(response, inputs, ctx)
        said = [*inputs["history"], {"role": "assistant", "content": response.text}]
        to, kept, turn = await self._next(turn, response.text, inputs["kept"], said, ctx)
        return {
            "reply": response.text,
            "action": turn.action,
            "observation": turn.observation,
            "failed": turn.failed,
            "to": to,
            "kept": kept,
        }

    async def _act(self, response: Response, inputs: Mapping[str, Any], ctx: Context) -> Turn:
        """Do what the answer asks for. Errors are shown to the model as an observation."""
        text, fields = self._action(response.text), inputs["inputs"]
        if not text:
            return Turn(text, EMPTY, failed=True)
        if response.finish == "length":
            return Turn(text, CUT, failed=True)
        tools, hidden = self.tools.values(), self.machine.arguments
        reading = read_calls(response, tools, self.outputs, hidden) if self.tools else Reading()
        calls = reading.calls
        if reading.fault:
            told = unreadable_call(ctx, response, reading, tools, hidden)
            # What may be meant otherwise after all is accepted the second time.
            if reading.certain or not any(UNREADABLE in said["content"] for said in inputs["history"]):
                return Turn(text, told, failed=True)
        if not calls and self.runs is None:
            return Turn(text, GO_ON)
        if not calls:
            assert self.runs is not None
            return await self._call(self.runs, text, {self.argument: text}, fields, ctx)
        name, arguments = calls[0]["name"], calls[0]["arguments"]
        action = f"{name} {json.dumps(arguments, ensure_ascii=False)}"
        if str(name) not in self.tools:
            return Turn(action, f"error: there is no tool {name!r}; tools: {', '.join(self.tools)}", failed=True)
        if not isinstance(arguments, dict):
            return Turn(action, "error: the arguments must be a JSON object", failed=True)
        return await self._call(self.tools[name], action, arguments, fields, ctx)

    def _action(self, text: str) -> str:
        """The answer without a fence around it, and without the name of the field that it stands for."""
        if self.runs is not None:
            text = next(iter(answers.find_code(text)), text)
        if len(self.signature.outputs) == 1:
            text = re.sub(rf"(?i)\A\s*{re.escape(self.signature.outputs[0].name)}\s*:", "", text)
        return text.strip()

    async def _call(
        self, tool: Tool, action: str, arguments: dict[str, Any], fields: Mapping[str, Any], ctx: Context
    ) -> Turn:
        """Call a tool, with the arguments that are filled in. Result and failure are journalled alike."""
        known = tool.schema.get("properties")
        filled = {a: fields[f] for a, f in self.machine.arguments.items() if known is None or a in known}
        whole = {**arguments, **filled}
        value, failed = None, False
        try:
            value = await call_tool(ctx, tool, whole)
            text = f"result: {split_images(value)[0]}"
        except NodeError as error:
            text, failed = f"error: {error}", True
        if len(text) > self.machine.chars:
            text = text[: self.machine.chars - 1] + "…"
        return Turn(action, text, value, arguments, failed)

    async def _next(
        self, turn: Turn, reply: str, kept: Mapping[str, Any], said: Sequence[Mapping[str, str]], ctx: Context
    ) -> tuple[str, Mapping[str, Any], Turn]:
        """(state, outputs kept, turn) by the first transition that holds; where none does, the state stays.

        An answer that cannot be read as the output it stands for is a failed action.
        """
        for step in self.config.next:
            if not await self._holds(step.when, turn, said, ctx):
                continue
            try:
                return step.to, self._kept(step, turn, reply, kept), turn
            except NodeError as error:
                turn = Turn(turn.action, f"error: {error}", failed=True)
                ways = (s.to for s in self.config.next if s.when.error and s.keep is None and s.to != END)
                return next(ways, self.state), kept, turn
        return self.state, kept, turn

    async def _holds(self, when: When, turn: Turn, said: Sequence[Mapping[str, str]], ctx: Context) -> bool:
        text = turn.action if when.of == "action" else turn.observation
        if when.regex is not None:
            return _found(when.regex, text)
        if when.outcome is not None:
            return isinstance(turn.outcome, Mapping) and all(
                turn.outcome.get(name) in (value if isinstance(value, list) else [value])
                for name, value in when.outcome.items()
            )
        if when.lm is not None:
            return await self._asked(when.lm, turn, said, ctx)
        return turn.failed if when.error else True

    async def _asked(self, question: str, turn: Turn, said: Sequence[Mapping[str, str]], ctx: Context) -> bool:
        """The model's answer to a closed question about the conversation; one that cannot be read is a no."""
        asked = f"{turn.observation}\n\n{question}\nAnswer yes or no."
        messages = [{"role": "system", "content": _JUDGE}, *said, {"role": "user", "content": asked}]
        response = await ctx.complete(messages, lm=self.lm, max_tokens=16)
        try:
            return answers.convert(_YES_NO, response.text)[0] == "yes"
        except NodeError:
            ctx.note(unreadable=response.text[:200])
            return False

    def _kept(self, step: Transition, turn: Turn, reply: str, kept: Mapping[str, Any]) -> Mapping[str, Any]:
        """The outputs so far, with those that this transition gives. Raises NodeError("unparsed")."""
        found = dict(kept)
        for field in self.signature.outputs:
            if field.name == step.keep:
                given = (turn.arguments or {}).get(field.name, turn.action)
                found |= answers.parse(Signature((), (field,)), plain.as_text(given))[0]
        if step.to != END:
            return found
        missing = [f.name for f in self.signature.outputs if f.name not in found and f not in self.answers]
        if missing:
            raise NodeError("unparsed", f"there is no '{missing[0]}' yet")
        return found | answers.parse(Signature((), self.answers), reply)[0] if self.answers else found


def _found(pattern: str, text: str) -> bool:
    """Return True if a condition's pattern is found. Raises NodeError("steps") where the search takes too long."""
    try:
        return Pattern(pattern).search(text) is not None
    except TooSlow as error:
        raise NodeError("steps", str(error)) from None
