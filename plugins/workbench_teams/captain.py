"""`captain`: plans, builds a team for a step of the task, reads its report, and answers.

Source: Captain Agent (Song et al., arXiv 2405.19425). A team is retrieved from a library; one call maps roles to
experts; an expert is written for a role without one; the team talks in turns; a reviewer summarises and may request a
second check. Departures, with reasons in the README: every loop has a cap, also the one over unreadable mappings;
members speak in turn instead of being picked by a manager; experts are found by words; an expert's description may
contain colons; and nothing found or written for one example is kept for another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.errors import Defect, DefectKind, NodeError, SpecError, suggest
from workbench.kit import answers
from workbench.kit.acting import (
    ENV,
    TOOLS,
    Tool,
    call_tool,
    describe_tool,
    find_tool_defects,
    has_unknown_tools,
    know_tools,
    load_tools,
    read_calls,
    tools_at,
    unreadable_call,
)
from workbench.kit.prompting import plain_adapter as plain
from workbench.kit.prompting import prompt_defects as prompts
from workbench.kit.prompting import split_images
from workbench.kit.searching import TfIdf, count_words_and_stems
from workbench.lm import Response
from workbench.runtime import Context
from workbench.spec import MODEL, TOOL_ADDRESSES, VARIABLES
from workbench.workflow import NodeConfig, SignatureNode, Surroundings, parse_signature

_CAPTAIN = """\
You solve a task with teams of experts. To have a team work on a step, answer with exactly one line:
call: {{"tool": "seek_experts", "arguments": {{"group": NAME, "roles": [ROLE, ...], "task": WHAT TO DO}}}}
Ask for at most {size} roles, one of them a checker. You will be told their report. A group that you name again has the same
experts. Where a report contradicts itself or an earlier one, have the same group check it. When you know the answer, give it
in this form:
{form}"""  # noqa: E501
_MAP = """\
Roles are needed for a task. For each role, choose an expert from the candidates, or null where none fits. Answer with one
JSON object and nothing else: {"ROLE": "EXPERT" or null, ...}"""  # noqa: E501
_WRITE = (
    "Write an expert for a role in a team. Answer with one JSON object and nothing else: "
    '{"name": one_word, "description": one line, "instructions": what to tell the expert}'
)
_TALK = """\
You are {name}, in a team with {others}. {instructions}
Work on the task together, one short message a turn. When the task is done, end your message with the word TERMINATE."""
_TOOLS = """
You can use tools. To call one, answer with exactly one line:
call: {{"tool": NAME, "arguments": {{...}}}}
Tools:
{tools}"""
_REVIEW = """\
Sum up a team's conversation about a task in this form:
result: what was found, in one line
errors: contradictions and mistakes, or none
check: yes if it should be done again, else no"""


def _never(arguments: Mapping[str, Any]) -> Any:
    raise AssertionError("the captain calls its teams itself")


_SEEK = Tool("seek_experts", "", {"properties": {"group": {}, "roles": {}, "task": {}}}, _never)


class Expert(BaseModel):
    """A member of the library."""

    model_config = ConfigDict(extra="forbid")

    description: str = Field(description="the expert's field, used to find the expert")
    instructions: str = Field("", description="instructions of the expert")
    tools: list[str] = Field(
        default_factory=list, description="names of tools that the expert may call; none: the nearest"
    )


class CaptainConfig(NodeConfig):
    """Settings of a `captain` node."""

    signature: str = Field(description='inputs and outputs, e.g. "question -> answer"')
    instructions: str = Field("", description="instructions for the captain")
    library: dict[str, Expert] = Field(default_factory=dict, description="experts by name")
    tools: list[str] = Field(default_factory=list, description=TOOLS)
    env: dict[str, str] = ENV
    turns: int = Field(5, ge=1, le=50, description="maximum number of answers of the captain")
    talk: int = Field(6, ge=1, le=50, description="maximum number of messages in a team's conversation")
    size: int = Field(3, ge=1, le=10, description="maximum number of team members")
    candidates: int = Field(3, ge=1, le=20, description="experts of the library considered for a role; tools, too")
    max_tokens: int = Field(512, ge=1, description="maximum tokens per message")
    temperature: float | None = Field(None, ge=0, le=2, description="sampling temperature")
    lm: str | dict[str, Any] | None = Field(None, description="another language model for this node")


@dataclass
class Group:
    """A team of one example: its experts in speaking order, and whether it has checked its result."""

    experts: dict[str, Expert] = field(default_factory=dict)
    checked: bool = False


class Captain(SignatureNode):
    """Plans, builds a team of experts for each step, and answers when their reports suffice (Captain Agent)."""

    Config = CaptainConfig
    primary = "signature"
    powers = {"tools": TOOL_ADDRESSES, "env": VARIABLES, "lm": MODEL}
    learnable = {"instructions": "text", "library": "library", "turns": "int", "talk": "int", "size": "int", "lm": "lm"}
    config: CaptainConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.signature = parse_signature(config.signature)
        self.tools, self.tools_unknown = load_tools(config.tools, base, config.env), has_unknown_tools(config.tools)
        for expert, entry in config.library.items():
            for tool in entry.tools:
                if tool not in self.tools and not self.tools_unknown:
                    raise SpecError(
                        f"there is no tool '{tool}'",
                        hint=suggest(tool, list(self.tools)),
                        path=("library", expert, "tools"),
                    )

    def tool_names(self) -> Collection[str]:
        return [*self.tools, *(self.config.tools if self.tools_unknown else [])]

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        if self.tools_unknown:
            return
        c, described = self.config, {name: tool.description for name, tool in self.tools.items()}
        for number, address in enumerate(c.tools):
            for tool in tools_at(address, self.base, c.env):
                yield from find_tool_defects(tool, self.base, ("tools", number))
        known = (around.names, self.inputs, self.outputs, c.library, [_SEEK.name])
        yield from prompts.find_unknown_tools(c.instructions, described, ("instructions",), known=known)
        yield from prompts.find_contradictions(c.instructions, self.signature, ("instructions",), known=known)
        for name, expert in c.library.items():
            path = ("library", name, "instructions")
            yield from prompts.find_unknown_tools(expert.instructions, described, path, known=known)
        needed = prompts.tokens_of_answer(self.signature, labels=True)
        yield from prompts.find_few_tokens(c.max_tokens, needed, "an answer", ("max_tokens",))
        if c.turns == 1:
            yield Defect(
                DefectKind.FEW_STEPS,
                "turns is 1, and asking a team and answering take 2: no team is ever built",
                "Write turns: 3 or more, or a `predict` node, which costs less.",
                ("turns",),
            )

    @property
    def max_calls(self) -> int:
        """Each turn may build a team (two mappings, an expert written for each role), let it talk, and review it."""
        c = self.config
        return c.turns + (c.turns - 1) * (2 + c.size + c.talk + 1)

    @cached_property
    def index(self) -> TfIdf:
        return TfIdf([count_words_and_stems(f"{name} {e.description}") for name, e in self.config.library.items()])

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        await know_tools(self.tools.values())
        form = "\n".join(f"{f.name}: ..." for f in self.signature.outputs)
        head = plain.system_text(self.signature, self.config.instructions, {}, True)
        task = "\n".join(f"{n}: {plain.as_text(inputs[n])}" for n in self.inputs)
        messages = [
            {"role": "system", "content": f"{head}\n{_CAPTAIN.format(size=self.config.size, form=form)}"},
            {"role": "user", "content": task},
        ]
        groups: dict[str, Group] = {}
        ctx.span.agent = self.name
        corrected = False
        for turn in range(self.config.turns):
            ctx.span.turn = turn
            response = await self._ask(messages, ctx)
            reading = read_calls(response, [_SEEK], self.outputs)
            calls = reading.calls
            unreadable = unreadable_call(ctx, response, reading, [_SEEK]) if reading.fault else None
            if unreadable and (reading.certain or not corrected):
                # An apparent call that may be an answer is accepted as one the second time.
                corrected, told = True, unreadable
            elif not calls:
                try:
                    found = answers.parse(self.signature, response.text, response.finish == "length")[0]
                    self._note(groups, ctx)
                    return found
                except NodeError as error:
                    told = f"{error}. Give the answer in the form asked for."
            elif turn == self.config.turns - 1:
                break  # no turn is left to read a report
            else:
                told = await self._team(calls[0], groups, ctx)
            messages += [{"role": "assistant", "content": response.text}, {"role": "user", "content": told}]
        self._note(groups, ctx)
        raise NodeError("steps", f"no answer within {self.config.turns} turns")

    def _note(self, groups: Mapping[str, Group], ctx: Context) -> None:
        used = {name for group in groups.values() for name in group.experts if name in self.config.library}
        ctx.note(
            groups={name: list(g.experts) for name, g in groups.items()},
            importance={name: float(name in used) for name in self.config.library},
        )

    async def _ask(
        self, messages: Sequence[Mapping[str, Any]], ctx: Context, max_tokens: int | None = None
    ) -> Response:
        c = self.config
        response = await ctx.complete(
            messages, lm=self.lm, temperature=c.temperature, max_tokens=max_tokens or c.max_tokens
        )
        if response.finish == "refusal":
            raise NodeError("refused", f"the model refused: {response.text[:200]!r}")
        return response

    async def _team(self, call: Mapping[str, Any], groups: dict[str, Group], ctx: Context) -> str:
        """The report of an existing or new team, or the error of an invalid call, as text for the captain."""
        given = call.get("arguments")
        if call.get("name") != "seek_experts":
            return f"error: there is no tool {call.get('name')!r}; the only one is seek_experts"
        if not isinstance(given, dict) or not isinstance(given.get("task"), str) or not given["task"].strip():
            return 'error: the arguments are {"group": NAME, "roles": [ROLE, ...], "task": TEXT}'
        name, roles, task = str(given.get("group") or "team"), given.get("roles"), given["task"]
        again = name in groups
        if not again:
            if not isinstance(roles, list) or not any(str(r).strip() for r in roles):
                return "error: a new group needs roles, each in one line"
            wanted = list(dict.fromkeys(str(r).strip() for r in roles if str(r).strip()))[: self.config.size]
            groups[name] = Group(await self._built(wanted, task, ctx))
        group = groups[name]
        if again and group.checked:
            return f"error: the group {name} has checked its result already: answer, or ask another group"
        group.checked = again
        said = await self._talk(group, task, ctx)
        review = await self._ask(
            [{"role": "system", "content": _REVIEW}, {"role": "user", "content": f"The task: {task}\n\n{said}"}], ctx
        )
        doubt = re.search(r"(?im)^[ \t]*+check:\s*+yes\b", review.text) and not again
        advice = f"\nHave the group {name} check this once more before you answer." if doubt else ""
        return f"report of {name} ({', '.join(group.experts)}):\n{review.text.strip()}{advice}"

    async def _built(self, roles: Sequence[str], task: str, ctx: Context) -> dict[str, Expert]:
        """A distinct expert for each role, from the library or written for the role."""
        near = {role: self._nearest(role) for role in roles}
        mapped = await self._mapped(near, ctx) if any(near.values()) else {}
        team: dict[str, Expert] = {}
        for role in roles:
            name = mapped.get(role)
            if name is None:
                name, expert = await self._written(role, task, ctx)
                team[_free_name(name, [*self.config.library, *team])] = expert
            elif name not in team:
                team[name] = self.config.library[name]
        return team

    def _nearest(self, role: str) -> list[str]:
        names, scores = list(self.config.library), self.index.scores(count_words_and_stems(role))
        best = sorted(scores, key=lambda i: (-scores[i], i))[: self.config.candidates]
        return [names[i] for i in best]

    async def _mapped(self, near: Mapping[str, Sequence[str]], ctx: Context) -> dict[str, str | None]:
        """Map each role to an expert or None. After two unreadable answers, to its nearest expert."""
        listed = "\n".join(
            f"role {role!r}: "
            + ("; ".join(f"{n} ({self.config.library[n].description})" for n in names) or "no candidate")
            for role, names in near.items()
        )
        messages = [{"role": "system", "content": _MAP}, {"role": "user", "content": listed}]
        for _ in range(2):
            response = await self._ask(messages, ctx)
            found = _object(response.text)
            if found is not None and set(near) <= set(found):
                return {r: found[r] if found[r] in list(self.config.library) else None for r in near}
            messages += [
                {"role": "assistant", "content": response.text},
                {"role": "user", "content": f"That is not a JSON object with the keys {', '.join(near)}."},
            ]
        ctx.note(unreadable_mapping=response.text[:200])
        return {role: names[0] if names else None for role, names in near.items()}

    async def _written(self, role: str, task: str, ctx: Context) -> tuple[str, Expert]:
        response = await self._ask(
            [{"role": "system", "content": _WRITE}, {"role": "user", "content": f"The role: {role}\nThe task: {task}"}],
            ctx,
        )
        found = _object(response.text) or {}
        name = re.sub(r"\W+", "_", str(found.get("name") or role)).strip("_")[:40] or "expert"
        told = str(found.get("instructions") or f"You are the {role}.")
        return name, Expert(description=str(found.get("description") or role), instructions=told)

    def _tools_of(self, expert: Expert) -> dict[str, Tool]:
        if expert.tools or not self.tools:
            return {name: self.tools[name] for name in expert.tools}
        names = list(self.tools)
        scores = TfIdf([count_words_and_stems(f"{t.name} {t.description}") for t in self.tools.values()]).scores(
            count_words_and_stems(expert.description)
        )
        return {
            names[i]: self.tools[names[i]] for i in sorted(scores, key=lambda i: -scores[i])[: self.config.candidates]
        }

    async def _talk(self, group: Group, task: str, ctx: Context) -> str:
        """Run a team's conversation and return it as text: members speak in turn until one ends it."""
        lines = [f"The task: {task}"]
        names = list(group.experts)
        for turn in range(self.config.talk):
            name = names[turn % len(names)]
            expert = group.experts[name]
            tools = self._tools_of(expert)
            others = ", ".join(n for n in names if n != name) or "nobody else"
            system = _TALK.format(name=name, others=others, instructions=expert.instructions or expert.description)
            if tools:
                system += _TOOLS.format(tools="\n".join(map(describe_tool, tools.values())))
            response = await self._ask(
                [{"role": "system", "content": system}, {"role": "user", "content": "\n".join(lines)}], ctx
            )
            lines.append(f"{name}: {response.text.strip()}")
            reading = read_calls(response, tools.values())
            if reading.fault:
                lines.append(unreadable_call(ctx, response, reading, tools.values()))
            for call in reading.calls:
                lines.append(await self._called(call, tools, ctx))
            if re.search(r"\bTERMINATE\W*\Z", response.text):
                break
        return "\n".join(lines[1:])

    async def _called(self, call: Mapping[str, Any], tools: Mapping[str, Tool], ctx: Context) -> str:
        tool, arguments = tools.get(str(call.get("name"))), call.get("arguments")
        if tool is None:
            return f"error: there is no tool {call.get('name')!r}; tools: {', '.join(tools) or 'none'}"
        if not isinstance(arguments, dict):
            return "error: the arguments must be a JSON object"
        try:
            return f"result: {split_images(await call_tool(ctx, tool, arguments))[0]}"
        except NodeError as error:
            return f"error: {error}"


def _free_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number appended if another expert has it."""
    if name not in taken:
        return name
    return next(other for number in count(2) if (other := f"{name}_{number}") not in taken)


def _object(text: str) -> dict[str, Any] | None:
    """The first JSON object in a text."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(text[start:])
    except json.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
