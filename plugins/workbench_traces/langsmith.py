"""Turns of LangSmith: runs, of which those of one trace are a turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench_traces.turn import Turn, as_text, asked_text, listed, read_messages, read_score, read_time, said_text

#: Keys of metadata that name a thread. The `session_id` of a run itself is its project.
_THREAD = ("session_id", "thread_id", "conversation_id")
_USER = ("user_id", "user", "langgraph_auth_user_id")


@dataclass
class _Trace:
    turn: Turn
    root: bool = False
    called: float = -1.0


class LangSmithTurns:
    """Collects the turns of runs, which may come in any order."""

    def __init__(self, wanted: tuple[str, str] = ("", "")) -> None:
        self.traces: dict[str, _Trace] = {}
        self.wanted = wanted

    def add_value(self, value: Any, file: str) -> None:
        """Take in a run."""
        if not is_dict(value):
            return
        id_ = as_text(value.get("trace_id") or value.get("id"))
        source = {"file": file, "format": "langsmith", "id": id_}
        trace = self.traces.setdefault(id_, _Trace(Turn("", "", source=source)))
        turn, began = trace.turn, read_time(value.get("start_time"))
        if began is not None:
            turn.time = began if turn.time is None else min(began, turn.time)
        extra = value.get("extra")
        metadata = extra.get("metadata") if is_dict(extra) else value.get("metadata")
        metadata = metadata if is_dict(metadata) else {}
        turn.conversation = turn.conversation or as_text(value.get("thread_id")) or _first(metadata, _THREAD)
        turn.user = turn.user or _first(metadata, _USER)
        for place in (value, metadata):
            if (score := read_score(place.get(self.wanted[0]))) is not None:
                turn.scores[self.wanted[0]] = score
            turn.edit = turn.edit or as_text(place.get(self.wanted[1]))
        _read_feedback(value, turn)
        self._read_content(value, trace, began or 0.0)
        for child in listed(value.get("child_runs")):
            self.add_value({"trace_id": id_, **child} if is_dict(child) else child, file)

    @staticmethod
    def _read_content(run: Mapping[str, Any], trace: _Trace, began: float) -> None:
        asked, said = run.get("inputs"), run.get("outputs")
        if not asked or not said:
            return
        called = run.get("run_type") == "llm" and began >= trace.called
        if called:
            trace.called, trace.turn.messages = began, read_messages(asked)
        if not run.get("parent_run_id"):
            trace.turn.input, trace.turn.output, trace.root = asked_text(asked), said_text(said), True
        elif called and not trace.root:
            trace.turn.input, trace.turn.output = asked_text(asked), said_text(said)

    def turns(self) -> Iterator[Turn]:
        """The turns, one a trace."""
        for trace in self.traces.values():
            yield trace.turn


def _first(metadata: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((as_text(metadata[name]) for name in names if metadata.get(name)), "")


def _read_feedback(run: Mapping[str, Any], turn: Turn) -> None:
    """Feedback as a list of records, and its statistics by key."""
    for one in listed(run.get("feedback")):
        if not is_dict(one):
            continue
        if (score := read_score(one.get("score"))) is not None:
            turn.scores[as_text(one.get("key")) or "score"] = score
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
