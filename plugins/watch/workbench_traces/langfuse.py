"""Turns of Langfuse: traces with their observations and scores, and observations and scores by themselves.

Keys may be those of the API (`sessionId`) or of the export to a blob storage (`session_id`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench_traces.turn import Collector, Trace, Turn, as_text, asked_text, read_messages, read_time, said_text

#: Ranks of records as a source of question and answer.
_GENERATION, _FIRST, _WHOLE = 1, 2, 3


class LangfuseTurns(Collector):
    """Collects the turns of traces, observations and scores."""

    def add_value(self, value: Any, file: str) -> None:
        """Add a trace, an observation or a score, or a trace with both."""
        record = _snake(value) if is_dict(value) else {}
        if is_dict(record.get("trace")):
            self.add_value({**record["trace"], **{k: v for k, v in record.items() if k != "trace"}}, file)
        elif "trace_id" in record and ("data_type" in record or ("value" in record and "start_time" not in record)):
            _read_score(record, self._trace(record["trace_id"], file).turn)
        elif "trace_id" in record:
            self._add_observation(record, self._trace(record["trace_id"], file))
        elif record.get("id"):
            self._add_trace(record, self._trace(record["id"], file), file)

    def _trace(self, id_: Any, file: str) -> Trace:
        return self.trace(as_text(id_), {"file": file, "format": "langfuse", "id": as_text(id_)})

    def _add_trace(self, record: Mapping[str, Any], trace: Trace, file: str) -> None:
        _about(record, trace.turn, self.wanted)
        _take(record, trace, _WHOLE)
        for one in _listed(record.get("observations")):
            self.add_value({"trace_id": record["id"], **_snake(one)}, file)
        for one in _listed(record.get("scores")):
            _read_score(_snake(one), trace.turn)
        if is_dict(record.get("scores")):
            for name, value in record["scores"].items():
                _read_score({"name": name, "value": value[0] if is_list(value) and value else value}, trace.turn)

    def _add_observation(self, record: Mapping[str, Any], trace: Trace) -> None:
        _about(record, trace.turn, self.wanted)
        generation = as_text(record.get("type")).upper() == "GENERATION"
        if not record.get("parent_observation_id"):
            _take(record, trace, _FIRST)
        began = read_time(record.get("start_time")) or 0.0
        if generation and began >= trace.called and record.get("output") is not None:
            trace.called, trace.turn.messages = began, read_messages(record.get("input"))
            _take(record, trace, _GENERATION)


def _take(record: Mapping[str, Any], trace: Trace, rank: int) -> None:
    asked, said = asked_text(record.get("input")), said_text(record.get("output"))
    if asked and said:
        trace.take(asked, said, rank)


def _snake(record: Mapping[str, Any]) -> dict[str, Any]:
    return {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(key)).lower(): value for key, value in record.items()}


def _listed(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if is_dict(one)] if is_list(value) else []


def _about(record: Mapping[str, Any], turn: Turn, wanted: tuple[str, str]) -> None:
    metadata = record.get("metadata")
    turn.conversation = turn.conversation or as_text(record.get("session_id"))
    turn.user = turn.user or as_text(record.get("user_id"))
    turn.begin(read_time(record.get("timestamp") or record.get("start_time")))
    for place in (record, metadata if is_dict(metadata) else {}):
        turn.read_named(place, wanted)


def _read_score(record: Mapping[str, Any], turn: Turn) -> None:
    """Read a score: a number or boolean is an outcome, a correction's text the right answer, a comment a comment."""
    if as_text(record.get("data_type")).upper() == "CORRECTION":
        turn.edit = turn.edit or as_text(record.get("string_value") or record.get("value"))
    else:
        turn.add_score(record.get("name"), record.get("value"))
    if record.get("comment") and as_text(record.get("source")).upper() in ("ANNOTATION", "API", ""):
        turn.comments.append(as_text(record["comment"]))
