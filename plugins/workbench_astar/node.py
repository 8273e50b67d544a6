"""The `astar` node: plans a sequence of tool calls by A* and then executes it.

Source: ToolChain* (Zhuang et al., arXiv 2310.13227). A node of the search tree is a partial plan. The plan with the
lowest cost so far plus estimated remaining cost is expanded by calls that the model proposes; a plan is complete when
the model says so. Departures, with reasons, are in the README.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from workbench.errors import Defect, NodeError, SpecError, suggest
from workbench.kit import answers
from workbench.kit.acting import (
    Tool,
    call_tool,
    calls_in,
    describe_tool,
    find_tool_defects,
    has_unknown_tools,
    know_tools,
    load_tools,
    tools_at,
)
from workbench.kit.prompting import plain_adapter as plain
from workbench.kit.searching import Node, explore
from workbench.runtime import Context
from workbench.spec import MODEL, TOOL_ADDRESSES, VARIABLES, LMSpec, lm_spec
from workbench.workflow import NodeKind, Surroundings, parse_signature
from workbench_astar import costs
from workbench_astar.settings import AStarConfig

FINISH = "finish"
Call = tuple[str, str]  # a tool's name, and its arguments as JSON; (FINISH, "") ends a plan
Path = tuple[Call, ...]

_NEXT = """\
Plan a sequence of tool calls. Answer with the next call, as exactly one line:
call: {{"tool": NAME, "arguments": {{...}}}}
"$1" as an argument stands for what call 1 gives, "$2" for call 2. If nothing is left to do, answer with: finish
Tools:
{tools}"""
_NEXT_NAME = "Answer with the name of the next tool and nothing else{end}.\nnext: one of {names}"
_WHOLE = """\
Which tools would you use, in which order? Answer with their names alone, one a line.
Tools:
{tools}"""


class AStar(NodeKind):
    """Plans tool calls by A*, guided by remembered plans and by how often the model proposes a call (ToolChain*)."""

    Config = AStarConfig
    primary = "signature"
    powers = {"tools": TOOL_ADDRESSES, "env": VARIABLES, "lm": MODEL}
    learnable = {
        "instructions": "text",
        "plans": "plans",
        "alpha": "float",
        "beta": "float",
        "samples": "int",
        "nodes": "int",
        "lm": "lm",
    }
    config: AStarConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.signature = parse_signature(config.signature)
        if len(self.signature.outputs) != 1:
            raise SpecError("an astar node has one output: what the last call gives", path=("signature",))
        self.tools, unknown = load_tools(config.tools, base, config.env), has_unknown_tools(config.tools)
        self.tools_unknown = unknown
        if FINISH in self.tools:
            raise SpecError(f"the name '{FINISH}' is taken", path=("tools",))
        for i, tool in enumerate(config.finish):
            if tool not in self.tools and not unknown:
                raise SpecError(f"there is no tool '{tool}'", hint=suggest(tool, self.tools), path=("finish", i))
        for i, plan in enumerate(config.plans):
            for tool in plan.tools:
                if tool not in self.tools and not unknown:
                    raise SpecError(
                        f"a plan has the tool '{tool}', which is none of this node's",
                        hint=suggest(tool, self.tools),
                        path=("plans", i, "tools"),
                    )

    def tool_names(self) -> Collection[str]:
        return [*self.tools, *(self.config.tools if self.tools_unknown else [])]

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        for number, address in enumerate(self.config.tools):
            for tool in tools_at(address, self.base, self.config.env):
                yield from find_tool_defects(tool, self.base, ("tools", number), hidden=self.config.arguments)

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*(f.name for f in self.signature.inputs), *self.config.arguments.values())))

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.signature.outputs[0].name, "plan")

    @property
    def max_calls(self) -> int:
        return self.config.max_calls

    @cached_property
    def lm(self) -> LMSpec | None:
        return lm_spec(self.config.lm) if self.config.lm is not None else None

    @cached_property
    def listed(self) -> str:
        return "\n".join(describe_tool(tool, self.config.arguments) for tool in self.tools.values())

    @cached_property
    def bare(self) -> bool:
        """Return True if no tool takes an argument from the model: then names are all that it is asked for."""
        return not any(self._free(tool, "properties") for tool in self.tools.values())

    def _free(self, tool: Tool, which: str) -> set[str]:
        """The arguments of a tool that the model gives: all of its `properties`, or those that are `required`."""
        return set(tool.schema.get(which, ())) - set(self.config.arguments)

    @cached_property
    def system(self) -> str:
        """Write the system message of the request for the next call."""
        if self.bare:
            ends = "" if self.config.finish else ", or with: finish, if nothing is left to do"
            names = [*self.tools, *([] if self.config.finish else [FINISH])]
            text = _NEXT_NAME.format(end=ends, names=", ".join(names))
        else:
            text = _NEXT.format(tools=self.listed)
        return "\n".join([*([self.config.instructions.strip()] if self.config.instructions else []), text])

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        """{output: what the last call gave, plan: [{tool, arguments}, ...]}."""
        ctx.span.agent = self.name
        await know_tools(self.tools.values())
        question = self.question(inputs)
        path = await self._search(question, ctx)
        ctx.note(task=question, plan=[name for name, _ in path])
        field = self.signature.outputs[0]
        result = await self._carry_out(path, inputs, ctx)
        value = result if field.type is Any else answers.convert(field, plain.as_text(result))[0]
        return {field.name: value, "plan": [{"tool": name, "arguments": json.loads(text)} for name, text in path]}

    def question(self, inputs: Mapping[str, Any]) -> str:
        """The inputs as the model sees them, and as remembered plans name their task."""
        return "\n".join(f"{f.name}: {plain.as_text(inputs[f.name])}" for f in self.signature.inputs)

    def remembered(self, question: str) -> list[list[str]]:
        """The plans that count for a question."""
        chosen = costs.find_nearest(question, [plan.task for plan in self.config.plans], self.config.nearest)
        return [self.config.plans[i].tools for i in chosen]

    async def _search(self, question: str, ctx: Context) -> Path:
        """The calls of the plan that A* ends with. Raises NodeError("steps") where the limits end it first."""
        c, memory, unreadable = self.config, self.remembered(question), 0
        # To end is a step, too: it is cheap where a remembered plan ends there as well.
        whole = [plan if plan[-1] in c.finish else [*plan, FINISH] for plan in memory]
        imagined = await self._imagined(question, ctx) if c.imagines else []

        async def expand(node: Node[Path]) -> None:
            nonlocal unreadable
            calls = await self._proposed(question, node.state, ctx)
            unreadable += calls.count(None)
            counted = Counter(call for call in calls if call is not None)
            for call, count in counted.most_common(c.branching):
                path = (*node.state, call)
                if len(path) == 1 if call[0] == FINISH else len(path) > c.depth:
                    continue  # an empty plan, or one call too many
                names = [name for name, _ in path]
                cost = costs.compute_step_cost(names, count / counted.total(), whole, c.alpha)
                open_ended = c.heuristic and not self._ends(call)
                left = costs.estimate_remaining(names, memory, imagined, c.beta) if open_ended else 0.0
                node.add(path, cost=cost, heuristic=left, action=call)

        root: Node[Path] = Node(())
        found = await explore(
            root, expand, order="astar", goal=self._is_finished, depth=c.depth + 1, expansions=c.nodes
        )
        ctx.note(
            expanded=len(found.expanded),
            stopped=found.stopped,
            unreadable=unreadable,
            remembered=len(memory),
            imagined=imagined,
        )
        if found.goal is None:
            if not root.children:
                raise NodeError("unparsed", "no answer of the model is a call of a tool")
            raise NodeError(
                "steps",
                f"no finished plan: the search ended with '{found.stopped}' after {len(found.expanded)} partial plans",
            )
        ctx.note(cost=round(found.goal.cost, 6))
        return tuple(call for call in found.goal.state if call[0] != FINISH)

    def _ends(self, call: Call) -> bool:
        return call[0] == FINISH or call[0] in self.config.finish

    def _is_finished(self, node: Node[Path]) -> bool:
        return bool(node.state) and self._ends(node.state[-1])

    async def _proposed(self, question: str, path: Path, ctx: Context) -> list[Call | None]:
        """The next calls that the model names; None for an answer that is none."""
        c = self.config
        calls = [f"{i}. {name} {arguments}" for i, (name, arguments) in enumerate(path, 1)]
        so_far = [] if self.bare and not calls else ["Calls so far:", *(calls or ["none"])]
        user = "\n".join([question, *so_far, "next:" if self.bare else "Next:"])
        messages = [{"role": "system", "content": self.system}, {"role": "user", "content": user}]
        answers = await ctx.samples(messages, c.drawn, lm=self.lm, temperature=c.temperature, max_tokens=c.max_tokens)
        return [self._read(a, len(path)) for a in answers]

    def _read(self, response: Any, made: int) -> Call | None:
        """A call that can be made: a known tool, all arguments it needs, and only results that are there."""
        if response.finish in ("refusal", "length"):
            return None
        calls = calls_in(response, self.tools.values(), self.config.arguments)
        if not calls:
            bare = response.text.strip().strip(".\"'`").lower()
            if bare == FINISH:
                return (FINISH, "")
            named = next(
                (n for n, t in self.tools.items() if n.lower() == bare and not self._free(t, "required")), None
            )
            return None if named is None else (named, "{}")
        name, arguments = calls[0]["name"], calls[0]["arguments"]
        if str(name).lower() == FINISH:
            return (FINISH, "")
        tool = self.tools.get(str(name))
        if tool is None or not isinstance(arguments, dict):
            return None
        needed = self._free(tool, "required")
        known = self._free(tool, "properties") if "properties" in tool.schema else set(arguments)
        references = [int(n) for v in arguments.values() for n in re.findall(r"\A\$(\d+)\Z", str(v))]
        if needed - set(arguments) or set(arguments) - known or any(not 1 <= n <= made for n in references):
            return None
        return (tool.name, json.dumps(arguments, sort_keys=True, ensure_ascii=False))

    async def _imagined(self, question: str, ctx: Context) -> list[str]:
        """The tools of a whole plan as the model imagines it; [] where it names none."""
        system = "\n".join(
            [
                *([self.config.instructions.strip()] if self.config.instructions else []),
                _WHOLE.format(tools=self.listed),
            ]
        )
        messages = [{"role": "system", "content": system}, {"role": "user", "content": f"{question}\nTools:"}]
        response = await ctx.complete(messages, lm=self.lm, temperature=0.0, max_tokens=self.config.max_tokens)
        words = re.findall(r"[A-Za-z_]\w*", "" if response.finish == "refusal" else response.text)
        return [word for word in words if word in self.tools][: self.config.depth]

    async def _carry_out(self, path: Sequence[Call], inputs: Mapping[str, Any], ctx: Context) -> Any:
        """Return the result of the last call. Raises NodeError of the kind "tool" or "policy" where one fails."""
        results: list[Any] = []
        for name, text in path:
            tool, given = self.tools[name], json.loads(text)
            for argument, value in given.items():
                reference = re.fullmatch(r"\$(\d+)", value) if isinstance(value, str) else None
                if reference is not None:
                    given[argument] = results[int(reference.group(1)) - 1]
            known = tool.schema.get("properties")
            filled = {a: inputs[f] for a, f in self.config.arguments.items() if known is None or a in known}
            results.append(await call_tool(ctx, tool, {**given, **filled}))
        return results[-1]
