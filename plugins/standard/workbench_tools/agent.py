"""The `agent` node: a language model that thinks, calls tools and reads their results, until it answers.

Source: ReAct (Yao et al., arXiv 2210.03629). Departures: actions are one line of JSON rather than free text; a wrong
action is reported to the model and costs a step; native tool definitions are used if the server supports them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from workbench.errors import Defect, NodeError, SpecError
from workbench.lm import Response
from workbench.runtime import Context
from workbench.workflow import EXCHANGE, NodeKind, SignatureNode, Span, Surroundings, parse_signature
from workbench_kit import answers
from workbench_kit.acting import (
    Reach,
    Tool,
    Unavailable,
    call_tool,
    describe_tool,
    fit_calls,
    fit_values,
    has_unknown_tools,
    introduce_tools,
    is_permitted,
    load_tools,
    make_node_tools,
    permitted,
    run_in_sandbox,
    unreadable_call,
)
from workbench_kit.lms.native_calls import to_message
from workbench_kit.lms.prefill import join_prefill, split_prefill
from workbench_kit.prompting import check_said, load_types, plain_adapter as plain
from workbench_tools.agent_config import AgentConfig, check_names_differ, check_settings, check_tool_names
from workbench_tools.consistency import TEMPERATURE, Attempt, choose_attempt
from workbench_tools.defects import find_agent_defects, find_undescribed_nodes
from workbench_tools.exchange import (
    check_exchange,
    lift_calls,
    note_call,
    read_turn,
    replay_message,
    result_messages,
    see_result,
    without_images,
)
from workbench_tools.first_thought import think_first
from workbench_tools.objects import ask_for_kept, describe_given, find_session, read_kept, without_kept
from workbench_tools.screens import Screens
from workbench_tools.toolset import LAZY, REGISTER, REGISTRATION, Shown, ToolIndex, check_wrapper, tell_crossover
from workbench_tools.user import RULES, SimulatedUser, extract_user_message

_QUERIES = (
    "You look for tools that help with a task. Write {count} short search queries for descriptions of such tools, "
    "one a line: what a tool would have to do, without the details of this task."
)


class Agent(SignatureNode):
    """A language model with tools: it may call them several times before it answers (ReAct)."""

    Config = AgentConfig
    primary = "signature"
    learnable = {
        "instructions": "text",
        "demos": "demos",
        "max_steps": "int",
        "tools": "tools",
        "functions": "functions",
        "lm": "lm",
        "descriptions": "descriptions",
        "wrappers": "wrappers",
        "register": "choice",
        "nearest": "int",
        "queries": "int",
    }
    config: AgentConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.signature = parse_signature(config.signature, load_types(config.types, base, self.code))
        self.forged = {f.name: f for f in config.functions}
        self.tools = load_tools(config.tools, base, config.env, self.code)
        check_names_differ(config, self.tools)
        self.node_tools = make_node_tools(config.nodes, base, self.code, actions=config.actions)
        self.live_tools, self.tools_unknown = tuple(self.tools), has_unknown_tools(config.tools, self.code)
        self.tools |= {f.name: f.tool() for f in config.functions}
        self.tools |= {name: found.tool for name, found in self.node_tools.items()}
        self.session = find_session(config, self.signature, self.tools)
        self.told = without_kept(self.signature, config.kept)
        self.tools |= {self.session.name: self.session} if self.session else {}
        if config.register_ == "lazy" and REGISTER in self.tools:
            raise SpecError("with register: lazy, no tool may be named 'register'; rename it", path=("tools",))
        self.screens = Screens(config.screens, base, () if self.tools_unknown else self.tools, self.code)
        check_settings(config, self.outputs)
        if not self.tools_unknown:
            check_tool_names(config, list(self.tools), self.live_tools)
        self.tools |= {n: self.tools[n].described(text) for n, text in config.descriptions.items() if n in self.tools}
        for tool, source in config.wrappers.items():
            check_wrapper(source, ("wrappers", tool))
        for i, demo in enumerate(config.demos):
            check_exchange(demo.get(EXCHANGE, []), ("demos", i, EXCHANGE))

    @property
    def inputs(self) -> tuple[str, ...]:
        known = self.config.user.knows if self.config.user else ()
        of_nodes = (name for found in self.node_tools.values() for name in found.row_inputs)
        return tuple(dict.fromkeys((*super().inputs, *known, *of_nodes, *self.screens.inputs)))

    def children(self) -> Mapping[str, NodeKind]:
        inner = [*(found.node for found in self.node_tools.values()), *self.screens.nodes.values()]
        return {node.name: node for node in inner}

    @property
    def roles(self) -> tuple[str, ...]:
        return ("user",) if self.config.user else ()

    @property
    def max_calls(self) -> int:
        c = self.config
        steps = c.max_steps * c.actions * (2 if c.user else 1)
        asked = max((found.node.max_calls for found in self.node_tools.values()), default=0) + self.screens.max_calls
        return steps + (c.calls if self.session else steps) * asked + bool(c.queries) + c.first_thought

    @property
    def max_inner_calls(self) -> int | None:
        """Return the maximum number of calls of model-asking nodes and screens; None: one per step."""
        return self.config.calls if self.session else None

    @cached_property
    def head(self) -> str:
        """Return the instructions and the form of the answer, without tools."""
        return plain.system_text(self.told, self.config.instructions, {}, True) + ask_for_kept(self.config.kept)

    @cached_property
    def index(self) -> ToolIndex:
        return ToolIndex(list(self.tools.values()), self.config.asked)

    @cached_property
    def readable(self) -> Collection[Tool]:
        """Return the tools whose calls are accepted in other forms than the requested one."""
        return [*self.tools.values(), *([REGISTRATION] if self.config.register_ == "lazy" else [])]

    def tool_names(self) -> Collection[str]:
        return [*self.tools, *(self.config.tools if self.tools_unknown else [])]

    def warnings(self) -> list[str]:
        if self.config.register_ != "lazy" or self.config.nearest:
            return []
        fixed = len(self.system(Shown(self.tools, (), lazy=False)))
        return [f"'{self.name}': {tell_crossover(list(self.tools.values()), fixed)}"]

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        if self.tools_unknown:
            return ()  # all of them are about existing tools
        found = find_agent_defects(self.config, self.told, self.tools, self.base, around, self.code)
        return [*found, *find_undescribed_nodes(self.node_tools, self.config.descriptions)]

    def system(self, shown: Shown) -> str:
        """Return the system prompt: instructions, and, unless tools are native, the tools and the form of a call."""
        return self._with_tools(shown) + (RULES if self.config.user else "")

    def _with_tools(self, shown: Shown) -> str:
        names = [field.name for field in self.told.outputs]
        if not self.tools:
            return self.head
        if self.config.native:
            return f"{self.head}\n{plain.form_of_answer(names)}"
        text = plain.with_tools(self.head, names, map(describe_tool, shown.whole.values()))
        return text + LAZY.format(names=", ".join(shown.named)) if shown.named else text

    def definitions(self, shown: Shown) -> tuple[dict[str, Any], ...] | None:
        """Return the current tool definitions for a server with native tools, else None."""
        if not self.config.native or not self.tools:
            return None
        tools = [*shown.whole.values(), *([shown.registering] if shown.named else [])]
        return tuple(_named(tool.definition, self.wire[tool.name]) for tool in tools)

    @cached_property
    def wire(self) -> Mapping[str, str]:
        """Return the server-side tool names, by the tools' own names."""
        return answers.wire_names([*self.tools, REGISTER])

    def demo(self, span: Span) -> dict[str, Any]:
        found = super().demo(span)
        asked = [call for call in span.calls if call.role == "task"]
        messages = [dict(m) for m in split_prefill(asked[-1].messages)[0]] if asked else []
        question = {"role": "user", "content": self._question(span.inputs)}
        # Demos precede the question, and one may ask the same question.
        begun = max((i for i, message in enumerate(messages) if message == question), default=len(messages))
        between = list(map(without_images, messages[begun + 1 :]))
        return {**found, EXCHANGE: between} if between else found

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        ctx.span.agent = self.name
        await introduce_tools(self.tools, self.node_tools, self.config.descriptions, ctx)
        shown = await self._shown(inputs, ctx)
        messages: list[dict[str, Any]] = [{"role": "system", "content": self.system(shown)}]
        for demo in self.config.demos:
            messages.append({"role": "user", "content": self._question(demo)})
            messages += [replay_message(message, self.config.native) for message in demo.get(EXCHANGE, ())]
            messages.append({"role": "assistant", "content": self._answer(demo)})
        messages.append({"role": "user", "content": self._question(inputs)})
        user = SimulatedUser(self.config.user, inputs, self._question(inputs)) if self.config.user else None
        labels = (*(f.name for f in self.told.outputs), *(["say"] if user else []))
        corrected, thought = False, await self._first_thought(inputs, ctx) if self.config.first_thought else ""
        for step in range(self.config.max_steps):
            ctx.span.turn = step
            response, results = await self._turn(messages, shown, ctx, "" if step else thought, labels)
            reading = self._calls(response, labels)
            calls = reading.calls
            if user and not calls and (said := extract_user_message(response.text, self.outputs)):
                text, over = await user.replies(said, ctx)
                text += "\n(The user has ended the conversation. Give the answer.)" if over else ""
                messages += [to_message(response), {"role": "user", "content": text.strip()}]
                continue
            if reading.fault:
                told = unreadable_call(ctx, response, reading, self.readable)
                # The second time, an apparent call that may be an answer is accepted as one.
                if reading.certain or not corrected:
                    corrected = True
                    messages += [to_message(response), {"role": "user", "content": told}]
                    continue
            if not calls:
                try:
                    said = self._read_answer(response)
                    return {**said, **await read_kept(ctx, self.session, self.signature, self.config.kept)}
                except NodeError as error:
                    messages += [
                        to_message(response),
                        {"role": "user", "content": f"{error}. Give the answer in the form asked for."},
                    ]
                    continue
            messages.append(to_message(response))
            messages += results or await self._results(calls, shown, ctx)
        raise NodeError("steps", f"no answer within {self.config.max_steps} steps")

    async def _shown(self, inputs: Mapping[str, Any], ctx: Context) -> Shown:
        """Return the tools that the model sees at the start."""
        c = self.config
        lazy = c.register_ == "lazy"
        if not c.nearest:
            return Shown(self.tools, () if lazy else tuple(self.tools), lazy)
        texts = [self._question(inputs)]
        if c.queries:
            response = await ctx.complete(
                [
                    {"role": "system", "content": _QUERIES.format(count=c.queries)},
                    {"role": "user", "content": texts[0]},
                ],
                lm=self.lm,
                temperature=c.temperature,
                max_tokens=c.max_tokens,
            )
            lines = [re.sub(r"^\W*\d*\W+", "", line).strip() for line in response.text.splitlines()]
            texts += [line for line in lines if line][: c.queries]
        return Shown(self.tools, self.index.nearest(texts, c.nearest), lazy)

    def _read_answer(self, response: Response) -> Mapping[str, Any]:
        return answers.parse(self.told, response.text, response.finish == "length")[0] if self.told.outputs else {}

    def _question(self, values: Mapping[str, Any]) -> str:
        values = {n: describe_given(v) if n in self.config.given else v for n, v in values.items()}
        return "\n".join(f"{n}: {plain.as_text(values.get(n, ''))}" for n in super().inputs)

    def _answer(self, values: Mapping[str, Any]) -> str:
        outputs = [field.name for field in self.told.outputs]
        return "\n".join(f"{n}: {plain.as_text(values[n])}" for n in outputs if n in values)

    async def _first_thought(self, inputs: Mapping[str, Any], ctx: Context) -> str:
        settings = {"temperature": self.config.temperature, "max_tokens": self.config.max_tokens}
        return await think_first(self.head, self._question(inputs), ctx, self.lm, **settings)

    async def _turn(
        self, messages: Sequence[Mapping[str, Any]], shown: Shown, ctx: Context, begun: str, labels: Collection[str]
    ) -> tuple[Response, Sequence[dict[str, Any]]]:
        """Return (the model's answer, the results of its calls if already made). begun: the answer's first words."""
        c = self.config
        asked = [*messages, {"role": "assistant", "content": begun}] if begun else messages
        offered = shown
        if c.offer == "permitted":
            offered = shown.only(lambda name: is_permitted(ctx, name))
            asked = [{"role": "system", "content": self.system(offered)}, *asked[1:]]
        temperature = TEMPERATURE if c.temperature is None and c.actions > 1 else c.temperature
        settings = {"temperature": temperature, "max_tokens": c.max_tokens, "tools": self.definitions(offered)}
        drawn = await ctx.samples(asked, c.actions, lm=self.lm, **settings)
        drawn = [replace(r, text=join_prefill(begun, r.text)) for r in drawn] if begun else drawn
        drawn = [fit_calls(response, self.wire) for response in drawn]
        if c.native:
            drawn = [lift_calls(r, self._calls(r, labels).calls, self.wire, ctx.span.turn) for r in drawn]
        best = Attempt(drawn[0], None)
        if c.actions > 1:
            best = choose_attempt([await self._attempt(response, shown, ctx) for response in drawn])
        check_said(best.response)
        return best.response, best.results

    def _calls(self, response: Response, labels: Collection[str]) -> answers.Reading:
        values = labels if self.config.native else [field.name for field in self.told.outputs if field.closed]
        return read_turn(response, self.readable, labels, values)

    async def _attempt(self, response: Response, shown: Shown, ctx: Context) -> Attempt:
        """Make the calls of an answer, and return both."""
        reading = self._calls(response, self.outputs)
        if reading.calls:
            results = await self._results(reading.calls, shown, ctx)
            told = [str(message["content"]) for message in results]
            failed = any(text.startswith("error:") for text in told)
            return Attempt(response, None if failed else json.dumps(["calls", *told]), results)
        try:
            answer = self._read_answer(response)
        except NodeError:
            return Attempt(response, None)
        return Attempt(response, None if reading.fault else json.dumps(["answer", answer], default=str))

    async def _results(self, calls: Sequence[Mapping[str, Any]], shown: Shown, ctx: Context) -> list[dict[str, Any]]:
        """Return the results of calls as messages to the model."""
        return result_messages([(call, *await self._result(call, shown, ctx)) for call in calls])

    async def _result(self, call: Mapping[str, Any], shown: Shown, ctx: Context) -> tuple[str, Sequence[str]]:
        """Return (a tool's result as text, its images if the model takes them). For a wrong call, the text is the
        error."""
        images: Sequence[str] = ()
        name, arguments = call.get("name"), call.get("arguments")
        value: Any = ...
        if name == REGISTER and self.config.register_ == "lazy":
            text = shown.register(arguments.get("tool") if isinstance(arguments, dict) else None)
        elif refusal := shown.refusal(name):
            text = refusal
        elif not isinstance(arguments, dict):
            text = "error: the arguments must be a JSON object"
        else:
            text, value, images = await self._observed(self.tools[str(name)], arguments, ctx)
        note_call(ctx, name, arguments, text, value)
        return text, images

    async def _observed(self, tool: Tool, arguments: dict[str, Any], ctx: Context) -> tuple[str, Any, Sequence[str]]:
        """Return (the text for the model, the tool's result, images if the model takes any). A failure's result is
        {"error": text}.

        A wrapper derives the text from the result. If the wrapper fails, the whole result is shown.
        """
        images: Sequence[str] = ()
        try:
            kind, value = "result", await self._call(tool, arguments, ctx)
            shown, images = see_result(value, ctx, self.lm)
        except Unavailable as failed:
            raise failed.error from None
        except NodeError as error:
            kind, value, shown = "error", {"error": str(error)}, str(error)
            if error.kind == "policy":
                return f"error: {shown}", value, ()
        if tool.name in self.config.wrappers:
            wrapper = Tool("wrap", "", {}, tool.call, self.config.wrappers[tool.name])
            try:
                wrapped = await run_in_sandbox(ctx, wrapper, {"result": value, "arguments": arguments})
                shown, images = see_result(wrapped, ctx, self.lm)
            except NodeError as error:
                ctx.note(wrapper=f"{tool.name}: {error}"[:300])
        return f"{kind}: {shown}", value, images

    async def _reached(self, ctx: Context, tool: Tool, arguments: dict[str, Any]) -> Any:
        """Return the result of a call made by code. It is noted like others, and not shown to the model by itself."""
        try:
            value = await self._call(tool, arguments, ctx)
        except NodeError as error:
            note_call(ctx, tool.name, arguments, f"error: {error}", {"error": str(error)})
            raise
        note_call(ctx, tool.name, arguments, f"result: {plain.as_text(value)}", value)
        return value

    async def _call(self, tool: Tool, arguments: dict[str, Any], ctx: Context) -> Any:
        """Call a tool and return its result, journalled. Raises NodeError("tool") and NodeError("policy")."""
        self.screens.claim(tool.name, ctx, self.max_inner_calls)
        if tool.name in self.node_tools:
            found = await self.node_tools[tool.name].call(ctx, arguments, ctx.span.inputs, self.max_inner_calls)
        elif tool.name not in self.forged:
            reach = Reach(self.tools, partial(self._reached, ctx), {n: ctx.span.inputs[n] for n in self.config.given})
            found = await call_tool(ctx, tool, arguments, self.config.live.get(tool.name), reach)
        else:
            arguments = fit_values(tool.schema, arguments)
            async with permitted(ctx, tool.name, arguments, tool.all_defaults):
                found = ctx.received(tool.name, await run_in_sandbox(ctx, tool, arguments))
        return await self.screens.check(tool.name, found, ctx)


def _named(definition: dict[str, Any], name: str) -> dict[str, Any]:
    return {**definition, "function": {**definition["function"], "name": name}}
