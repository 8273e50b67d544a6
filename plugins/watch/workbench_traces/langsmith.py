"""Turns of LangSmith runs. The runs of one trace are a turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench_traces.turn import (
    Collector,
    Trace,
    Turn,
    as_text,
    asked_text,
    first_value,
    listed,
    read_messages,
    read_score,
    read_time,
    said_text,
)

#: Keys of metadata that name a thread. The `session_id` of a run itself is its project.
_THREAD = ("session_id", "thread_id", "conversation_id")
_USER = ("user_id", "user", "langgraph_auth_user_id")


class LangSmithTurns(Collector):
    """Collects the turns of runs."""

    def add_value(self, value: Any, file: str) -> None:
        """Add a run."""
        if not is_dict(value):
            return
        id_ = as_text(value.get("trace_id") or value.get("id"))
        trace = self.trace(id_, {"file": file, "format": "langsmith", "id": id_})
        turn, began = trace.turn, read_time(value.get("start_time"))
        turn.begin(began)
        extra = value.get("extra")
        metadata = extra.get("metadata") if is_dict(extra) else value.get("metadata")
        metadata = metadata if is_dict(metadata) else {}
        turn.conversation = turn.conversation or as_text(value.get("thread_id")) or first_value(metadata, _THREAD)
        turn.user = turn.user or first_value(metadata, _USER)
        for place in (value, metadata):
            turn.read_named(place, self.wanted)
        _read_feedback(value, turn)
        _read_content(value, trace, began or 0.0)
        for child in listed(value.get("child_runs")):
            self.add_value({"trace_id": id_, **child} if is_dict(child) else child, file)


def _read_content(run: Mapping[str, Any], trace: Trace, began: float) -> None:
    asked, said, is_root = run.get("inputs"), run.get("outputs"), not run.get("parent_run_id")
    if not asked or not said:
        return
    called = run.get("run_type") == "llm" and began >= trace.called
    if called:
        trace.called, trace.turn.messages = began, read_messages(asked)
    if called or is_root:
        trace.take(asked_text(asked), said_text(said), 1 + is_root)


def _read_feedback(run: Mapping[str, Any], turn: Turn) -> None:
    """Read feedback from a list of records, and from its statistics by key."""
    for one in listed(run.get("feedback")):
        if not is_dict(one):
            continue
        turn.add_score(one.get("key"), one.get("score"))
        turn.comments += [as_text(one["comment"])] if one.get("comment") else []
        if one.get("correction"):
            turn.edit = turn.edit or said_text(one["correction"])
    stats = run.get("feedback_stats")
    for key, one in stats.items() if is_dict(stats) else ():
        if is_dict(one):
            if (score := read_score(one.get("avg"))) is not None:
                turn.scores.setdefault(str(key), score)
            comments = one.get("comments")
            turn.comments += [as_text(c) for c in comments if c] if is_list(comments) else []
