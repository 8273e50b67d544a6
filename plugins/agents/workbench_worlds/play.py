"""The `play` node: one or more players act in a world, step by step, until it ends.

Source of `observations: diff`: diff History (Piterbarg et al., arXiv 2312.07540), which shows an observation as the
lines that changed. Departure: the whole observation is shown if it is shorter.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from workbench.base.hashing import digest
from workbench.base.type_guards import walk
from workbench.errors import NodeError, SpecError, suggest
from workbench.runtime import Context
from workbench.spec import (
    PREFIX,
    read_outside,
    set_variables,
)
from workbench.workflow import CallRecord, NodeKind
from workbench_kit.acting import Server, Tool, check_policy, child_node, fit_values, tool_name
from workbench_kit.answers import correction, find_code, read_text
from workbench_worlds.interpreter import find_requirements
from workbench_worlds.live_world import LiveWorld
from workbench_worlds.process import WorldPlace, enter_world, known_worlds
from workbench_worlds.seat import GIVEN, Seat, carried
from workbench_worlds.settings import PlayConfig


class Play(NodeKind):
    """Players act in a world that lives as long as the row, in a process of its own."""

    Config = PlayConfig
    primary = "play"
    learnable = {"max_steps": "int", "history": "int", "chars": "int", "observations": "choice"}
    config: PlayConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        enter_world(config.play, base, config.python)
        for text in walk(config.settings):
            if isinstance(text, str) and text:
                read_outside(text, base)
        set_variables(config.env, base, "env")
        if not config.play.startswith(PREFIX) and config.play not in known_worlds():
            hint = f"{suggest(config.play, known_worlds())} Or python:file.py:Class."
            raise SpecError(f"there is no world '{config.play}'", hint=hint, path=("play",))
        if self.code == "loaded":
            self.place.locate()
            if config.python is not None and config.python.endswith(".txt"):
                find_requirements(config.python, base)
        for key, node in self.players.items():
            if "action" not in node.outputs:
                path = ("of",) if config.of is not None else ("players", key)
                raise SpecError(f"'{key}' must write `action`", hint="Write e.g. observation -> action.", path=path)

    @cached_property
    def players(self) -> dict[str, NodeKind]:
        if self.config.of is not None:
            return {"of": child_node("of", self.config.of, self.base, ("of",), self.code)}
        named = self.config.players.items()
        return {
            name: child_node(f"players.{name}", tree, self.base, ("players", name), self.code) for name, tree in named
        }

    @cached_property
    def observer(self) -> NodeKind | None:
        """The node between world and players."""
        if self.config.observe is None:
            return None
        node = child_node("observe", self.config.observe, self.base, ("observe",), self.code)
        if "observation" not in node.outputs:
            hint = "Write e.g. observation -> observation."
            raise SpecError("`observe` must write `observation`", hint=hint, path=("observe",))
        return node

    @property
    def place(self) -> WorldPlace:
        c = self.config
        env = Server((c.play,), self.base, tuple(c.env.items())).variables() if c.env else ()
        return WorldPlace(c.play, self.base, c.python, env)

    def children(self) -> Mapping[str, NodeKind]:
        between = [self.observer] if self.observer is not None else []
        return {node.name: node for node in (*self.players.values(), *between)}

    def tool_names(self) -> Collection[str]:
        return [tool_name(self.config.play), "*"]

    @property
    def inputs(self) -> tuple[str, ...]:
        read = [n for node in self.players.values() for n in node.inputs if n not in (*GIVEN, *carried(node))]
        read += [name for name in (self.observer.inputs if self.observer is not None else ()) if name not in GIVEN]
        return tuple(dict.fromkeys([*self.config.task.values(), *read]))

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("actions", "observation", "score")

    @property
    def max_calls(self) -> int:
        between = self.observer.max_calls if self.observer is not None else 0
        return self.config.max_steps * (max(node.max_calls for node in self.players.values()) + between)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        """Return {actions: all actions, observation: the last one, or the world's verdict, score: the world's own}.

        Raises NodeError("environment") for a fault of the world, and NodeError("policy").
        """
        world = LiveWorld(self.place, self.config.settings, ctx)
        try:
            return await _Course(self, inputs, ctx, world).run()
        finally:
            world.close()


class _Course:
    """An episode."""

    def __init__(self, node: Play, inputs: Mapping[str, Any], ctx: Context, world: LiveWorld):
        self.node, self.inputs, self.ctx, self.world = node, inputs, ctx, world
        self.seats: dict[str, Seat] = {}  # by the world's names of players
        self.actions: list[str] = []
        self.calls: list[CallRecord] = []  # the last one of each turn
        self.rewarded = False

    async def run(self) -> dict[str, Any]:
        c = self.node.config
        told = await self.world.reset({name: self.inputs[source] for name, source in c.task.items()})
        for number in range(c.max_steps):
            if told["done"]:
                break
            told = await self._turn(number, told)
        score, verdict = await self.world.score()
        if self.calls and not self.rewarded:
            self.calls[-1].earned = score
        self.ctx.note(steps=len(self.actions), ended="world" if told["done"] else "steps")
        return {"actions": self.actions, "observation": verdict or told["observation"], "score": score}

    async def _turn(self, number: int, told: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take the turn of the next player. Its latest call is a step for the credit of training."""
        name, seat = self._next(told.get("player"))
        seen = await self._observe(told, number, name)
        begun = len(self.ctx.trace.spans)
        outputs = await self.ctx.run_child(seat.node, seat.node.name, seat.look(seen), number, name)
        said = outputs["action"]
        text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False, default=str)
        seat.act(outputs, text)
        self.actions.append(text)
        after = await self._take(text, seat.tools, told)
        reward, path = after.get("reward"), f"{self.ctx.node}.{seat.node.name}"
        self.rewarded |= reward is not None
        inside = [span for span in self.ctx.trace.spans[begun:] if f"{span.node}.".startswith(f"{path}.")]
        for call in [span.calls[-1] for span in inside if span.calls][-1:]:
            call.state, call.earned = digest([name, told["observation"]]), float(reward or 0.0)
            self.calls.append(call)
        return after

    async def _observe(self, told: Mapping[str, Any], number: int, player: str) -> Mapping[str, Any]:
        """Return the world's answer with the observation that `observe` makes of it. Our own answers stay."""
        node = self.node.observer
        if node is None or told.get("ours"):
            return told
        actions = ", ".join(self.node.config.actions.offered(told.get("actions") or ())) or "any"
        given = {**self.inputs, **told, "actions": actions, "brief": told.get("brief") or "none"}
        missing = dict.fromkeys(GIVEN, "none")
        inputs = {name: {**missing, **given}[name] for name in node.inputs}
        made = await self.ctx.run_child(node, node.name, inputs, number, player)
        return {**told, "observation": str(made["observation"])}

    def _next(self, player: str | None) -> tuple[str, Seat]:
        """Return the name of the player who acts (ours if the world has none), and its seat."""
        nodes = self.node.players
        key = "of" if self.node.config.of is not None else player or next(iter(nodes))
        if key not in nodes:
            known = ", ".join(nodes)
            raise NodeError("environment", f"{self.node.config.play} asks the player '{key}'; `players` has {known}")
        name = player or (self.node.name if key == "of" else key)
        if name not in self.seats:
            self.seats[name] = Seat(nodes[key], self.inputs, self.node.config)
        return name, self.seats[name]

    async def _take(self, text: str, tools: Mapping[str, Tool], told: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take an action. One that this player may not take is answered here, and the world is unchanged."""
        names = {tool.name: [*tool.schema.get("properties", ())] for tool in tools.values()}
        reading = read_text(text, names) if tools else None
        if reading is None or not (reading.calls or reading.fault):
            if text.lstrip().startswith("```"):  # a command, in the form that models like to use
                text = "\n".join(find_code(text)) or text
            text, ours = self.node.config.actions.original(text.strip()), text.strip()
            if self.node.config.actions.is_dropped(text):
                left = self.node.config.actions.offered(told.get("actions") or ())
                can = f" You can: {', '.join(left)}." if left else ""
                return {
                    **told,
                    "observation": f"'{ours:.200}' is not possible here.{can}",
                    "reward": None,
                    "ours": True,
                }
            words = text.split(maxsplit=1)
            action = {"action": text.strip(), "verb": words[0].lower() if words else ""}
            await check_policy(self.ctx, tool_name(self.node.config.play), action)
            return await self._step(tool_name(self.node.config.play), text)
        call = reading.calls[0] if reading.calls else {"name": None, "arguments": None}
        name, arguments = str(call["name"] or ""), call["arguments"]
        if name in tools and isinstance(arguments, Mapping):
            arguments = fit_values(tools[name].schema, arguments)
            name = self.node.config.actions.original(name)
            await check_policy(self.ctx, name, arguments)
            made = await self._step(name, {"tool": name, "arguments": arguments})
            use = {"name": name, "arguments": dict(arguments), "result": str(made["observation"])[:500]}
            self.ctx.note(tools=[*self.ctx.span.notes.get("tools", []), use])
            return made
        wrong = f"You have no tool '{name}'. You have: {', '.join(tools)}." if name else correction(reading, names)
        return {**told, "observation": wrong, "reward": None, "ours": True}

    async def _step(self, tool: str, action: Any) -> Mapping[str, Any]:
        told = await self.world.step(action)
        return {**told, "observation": self.ctx.received(tool, told["observation"])}
