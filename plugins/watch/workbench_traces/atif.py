"""Turns of trajectories in ATIF (`workbench_kit.logs`): the last answer of the agent, and the messages before it."""

from __future__ import annotations

from typing import Any

from workbench.base.type_guards import is_dict
from workbench_kit.logs import read_trajectory
from workbench_traces.chat import CONVERSATION, USER, first_text, read_scores
from workbench_traces.turn import Collector, Message, Turn, read_time

_ROLES = {"agent": "assistant"}


class AtifTurns(Collector):
    """Collects the turns of trajectories, except those of subagents, which only the agent called."""

    def add_value(self, value: Any, file: str) -> None:
        """Add one trajectory. Raises SpecError if it is invalid."""
        read = read_trajectory(value, file)
        messages, last = list[Message](), 0
        for step in read.steps:
            if step.said:
                messages.append((_ROLES.get(step.source, step.source), step.said))
                if step.source == "agent" and step.text:
                    last = len(messages) - 1
            messages += [("tool", result.text) for result in step.results if result.text]
        before = messages[:last]
        extra = value.get("extra")
        places = [extra] if is_dict(extra) else []
        turn = Turn(
            next((text for role, text in reversed(before) if role == "user"), ""),
            messages[last][1] if before else "",
            before,
            str(value.get("session_id") or "") or first_text(places, CONVERSATION),
            first_text(places, USER),
            read_time(next((step.time for step in read.steps if step.time), None)),
            read_scores(places),
            first_text(places, (self.wanted[1],)),
            source={"file": file, "format": "atif", "id": read.id or f"{len(self.found) + 1}"},
        )
        self.found.append(turn)
