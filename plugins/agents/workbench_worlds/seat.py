"""A player's seat: the view of the world for its node, and its own memory between its turns."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from workbench.workflow import NodeKind
from workbench_kit.acting import Tool, describe_tool
from workbench_worlds.settings import PlayConfig

#: Inputs that a seat gives its node. All others come from the row, or from the node's previous turn.
GIVEN = ("brief", "observation", "history", "tools", "actions")
_CALL = 'To call a tool, answer with one line: call: {"tool": NAME, "arguments": {...}}'


def carried(node: NodeKind) -> tuple[str, ...]:
    """Return the fields that the node writes for its own next turn, e.g. notes."""
    return tuple(name for name in node.outputs if name in node.inputs and name != "action")


def _never(arguments: Mapping[str, Any]) -> Any:
    raise AssertionError("the world runs its tools itself")


class Seat:
    """The view and the memory of one player. row: the fields of the row that its node reads."""

    def __init__(self, node: NodeKind, row: Mapping[str, Any], config: PlayConfig):
        self.node, self.row, self.config = node, row, config
        self.turns: list[tuple[str, str]] = []
        self._last: str | None = None
        self._shown = ""
        self._brief = "none"
        self.tools: dict[str, Tool] = {}
        self._kept: dict[str, Any] = dict.fromkeys(carried(node), "")

    def look(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs of its node at this turn. told: the world's answer, with its tools and its brief if they
        are new."""
        self._shown = self._show(told["observation"])
        self._brief = told.get("brief") or self._brief
        if "tools" in told:
            tools = [
                Tool(self.config.actions.shown(t["name"]), t.get("description", ""), t.get("parameters") or {}, _never)
                for t in told["tools"]
                if not self.config.actions.is_dropped(t["name"])
            ]
            self.tools = {tool.name: tool for tool in tools}
        seen = {
            "brief": self._brief,
            "observation": self._shown,
            "history": self._history(),
            "tools": "\n".join([*map(describe_tool, self.tools.values()), _CALL]) if self.tools else "none",
            "actions": ", ".join(self.config.actions.offered(told.get("actions") or ())) or "any",
        }
        given = {**self.row, **seen, **self._kept}
        return {name: given[name] for name in self.node.inputs}

    def act(self, outputs: Mapping[str, Any], action: str) -> None:
        """Remember a turn. outputs: of its node."""
        self.turns.append((self._shown, action))
        self._kept |= {name: outputs[name] for name in self._kept}

    def _show(self, observation: str) -> str:
        before, self._last = self._last, observation
        if self.config.observations == "diff" and before is not None:
            lines = difflib.unified_diff(before.splitlines(), observation.splitlines(), lineterm="", n=0)
            changed = "\n".join(line for line in [*lines][2:] if not line.startswith("@@")) or "(nothing changed)"
            observation = min(observation, changed, key=len)
        most = self.config.chars
        return observation if len(observation) <= most else f"{observation[:most]} ..."

    def _history(self) -> str:
        turns = self.turns[-self.config.history :] if self.config.history else []
        return "\n".join(f"observation: {seen}\naction: {action}" for seen, action in turns) or "none"
