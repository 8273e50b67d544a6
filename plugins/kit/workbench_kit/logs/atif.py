"""Trajectories in ATIF, the Agent Trajectory Interchange Format of Harbor and Terminal-Bench, versions 1.0 to 1.8.

A trajectory is an object with `schema_version`, `agent` and `steps`. A step has the speaker (`source`: system, user or
agent), the text (`message`), the tool calls and their results (https://harborframework.com/docs/trajectory-format and
RFC 0001 of Harbor). Unused fields, and those of later minor versions, are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.base.text import short
from workbench.base.type_guards import is_dict, is_list
from workbench.errors import SpecError
from workbench_kit.logs.agent_log import Log, LogStep

_VERSION = re.compile(r"ATIF-v1(\.\d+)?")
_SOURCES = ("system", "user", "agent")
#: Maximum depth of nested trajectories of subagents.
_DEPTH = 20


@dataclass(frozen=True, slots=True)
class AtifResult:
    """The result of a tool, or an observation of the environment.

    tool: empty if no call is named. inside: the trajectories of subagents that did the work.
    """

    tool: str
    text: str
    inside: tuple[Trajectory, ...] = ()


@dataclass(frozen=True, slots=True)
class AtifStep:
    """A step. copied: whether it repeats one of an earlier trajectory, as context."""

    source: str
    text: str
    calls: tuple[str, ...] = ()
    results: tuple[AtifResult, ...] = ()
    copied: bool = False
    time: str = ""

    @property
    def said(self) -> str:
        """Return the message, with its tool calls as text."""
        return "\n".join(filter(None, (self.text, *self.calls)))


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A run of one agent. raw: the parsed object."""

    id: str
    agent: str
    steps: tuple[AtifStep, ...]
    raw: Mapping[str, Any] = field(repr=False)


def is_trajectory(value: Any) -> bool:
    """Return True if a JSON value claims to be a trajectory in ATIF."""
    return is_dict(value) and str(value.get("schema_version")).startswith("ATIF")


def read_trajectory(value: Any, place: str, depth: int = 0) -> Trajectory:
    """Read a trajectory from JSON, with its subagents' trajectories in their places.

    Raises:
        SpecError: it is invalid, or of another major version. The message names `place`.
    """

    def fail(what: str, hint: str) -> SpecError:
        return SpecError(f"{place}: {what}", hint=hint)

    if not is_dict(value):
        raise fail(
            "it is no object", 'A trajectory is {"schema_version": "ATIF-v1.7", "agent": {...}, "steps": [...]}.'
        )
    version, agent, steps = value.get("schema_version"), value.get("agent"), value.get("steps")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise fail(f"its schema_version is {short(version, 40)}", "Known are ATIF-v1.0 to ATIF-v1.8.")
    if not is_dict(agent) or not isinstance(agent.get("name"), str):
        raise fail("its agent has no name", 'Write "agent": {"name": "...", "version": "..."}.')
    if not is_list(steps) or not steps:
        raise fail("it has no steps", 'Write "steps": [{"step_id": 1, "source": "user", "message": "..."}].')
    if depth > _DEPTH:
        raise fail(f"subagents are nested more than {_DEPTH} deep", "Write them to files of their own.")
    inside = value.get("subagent_trajectories")
    found = [read_trajectory(one, f"{place}, a subagent", depth + 1) for one in inside or ()] if is_list(inside) else []
    known = {one.id: one for one in found if one.id}
    read = tuple(_step(step, f"{place}, step {n}", known) for n, step in enumerate(steps, 1))
    id_ = value.get("trajectory_id") or value.get("session_id")
    return Trajectory(str(id_ or ""), agent["name"].strip() or "agent", read, value)


def _step(step: Any, place: str, known: Mapping[str, Trajectory]) -> AtifStep:
    if not is_dict(step) or step.get("source") not in _SOURCES:
        raise SpecError(f"{place} has no source", hint=f'Write "source": one of {", ".join(_SOURCES)}.')
    if not isinstance(step.get("message"), str) and not is_list(step.get("message")):
        raise SpecError(f"{place} has no message", hint='Write "message": a text, or a list of parts. It may be "".')
    calls = [call for call in step.get("tool_calls") or () if is_dict(call)] if is_list(step.get("tool_calls")) else []
    tools = {str(call.get("tool_call_id")): str(call.get("function_name")) for call in calls}
    seen = step.get("observation")
    given = seen.get("results") if is_dict(seen) else None
    return AtifStep(
        str(step["source"]),
        content_text(step["message"]),
        tuple(f"calls {call.get('function_name')}({short(call.get('arguments'), 4000)})" for call in calls),
        tuple(_result(one, tools, known) for one in given if is_dict(one)) if is_list(given) else (),
        step.get("is_copied_context") is True,
        str(step.get("timestamp") or ""),
    )


def _result(one: Mapping[str, Any], tools: Mapping[str, str], known: Mapping[str, Trajectory]) -> AtifResult:
    named = one.get("subagent_trajectory_ref")
    refs = [ref for ref in named if is_dict(ref)] if is_list(named) else []
    keys = [str(ref.get("trajectory_id") or ref.get("session_id")) for ref in refs]  # the latter before version 1.7
    elsewhere = [
        f"[trajectory {ref['trajectory_path']}]" for ref in refs if isinstance(ref.get("trajectory_path"), str)
    ]
    text = "\n".join(filter(None, (content_text(one.get("content")), *elsewhere)))
    return AtifResult(
        tools.get(str(one.get("source_call_id")), ""), text, tuple(known[key] for key in keys if key in known)
    )


def content_text(content: Any) -> str:
    """Return the text of a message or a result. Parts that are not text are named in brackets."""
    if not is_list(content):
        return content if isinstance(content, str) else ""
    parts = [part for part in content if is_dict(part)]
    return "\n".join(str(part["text"]) if "text" in part else f"[{part.get('type')}]" for part in parts)


# As a log


def read_log(value: Any, place: str, name: str) -> Log:
    """Return the log of a trajectory. Each message and each tool result is a step. The first message of the user is the
    question. Raises SpecError."""
    found = read_trajectory(value, place)
    steps = list(_log_steps(found, set()))
    question = next((step.content for step in steps if step.role == "user"), "")
    if not steps:
        raise SpecError(f"{place}: no step has a text", hint="Let the agent record messages and results of tools.")
    said = next((s.text for s in reversed(found.steps) if s.source == "agent" and s.text), "")
    return Log(name, tuple(steps), question, outcome=said, score=_score(found.raw))


def _score(trajectory: Mapping[str, Any]) -> float | None:
    """Return the score or reward from the format's free-form fields, where our export writes it."""
    extra = trajectory.get("extra")
    given = [extra.get(name) for name in ("score", "reward")] if is_dict(extra) else []
    return next((float(one) for one in given if isinstance(one, int | float)), None)


def _log_steps(trajectory: Trajectory, told: set[int]) -> Iterator[LogStep]:
    """Yield the steps. told: trajectories that were written already; several results may name the same one."""
    told.add(id(trajectory))
    for step in trajectory.steps:
        if step.copied:
            continue
        who = trajectory.agent if step.source == "agent" else step.source
        if step.said:
            yield LogStep(who, step.said, "" if step.source == "agent" else step.source)
        for result in step.results:
            for one in result.inside:
                if id(one) not in told:
                    yield from _log_steps(one, told)
            if result.text:
                yield LogStep(who, result.text, f"tool {result.tool}".strip() if result.tool else "result")
