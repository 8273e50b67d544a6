"""Turns of Langfuse: traces with their observations and scores, observations alone, and scores beside them.

Keys may be those of the API (`sessionId`) or of the export to a blob storage (`session_id`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench_traces.turn import Turn, as_text, asked_text, read_messages, read_score, read_time, said_text


@dataclass
class _Trace:
    turn: Turn
    has_io: int = 0  # 3: of the trace itself, 2: of its first observation, 1: of a generation
    generated: float = -1.0
    times: list[float] = field(default_factory=list)


class LangfuseTurns:
    """Collects the turns of records, which may come in any order."""

    def __init__(self, wanted: tuple[str, str] = ("", "")) -> None:
        self.traces: dict[str, _Trace] = {}
        self.wanted = wanted

    def add_value(self, value: Any, file: str) -> None:
        """Take in a trace, an observation or a score, or a trace with both."""
        record = _snake(value) if is_dict(value) else {}
        if is_dict(record.get("trace")):
            self.add_value({**record["trace"], **{k: v for k, v in record.items() if k != "trace"}}, file)
        elif "trace_id" in record and ("data_type" in record or ("value" in record and "start_time" not in record)):
            _read_score(record, self._trace(as_text(record["trace_id"]), file).turn)
        elif "trace_id" in record:
            self._add_observation(record, self._trace(as_text(record["trace_id"]), file))
        elif record.get("id"):
            self._add_trace(record, self._trace(as_text(record["id"]), file), file)

    def _trace(self, id_: str, file: str) -> _Trace:
        source = {"file": file, "format": "langfuse", "id": id_}
        return self.traces.setdefault(id_, _Trace(Turn("", "", source=source)))

    def _add_trace(self, record: Mapping[str, Any], trace: _Trace, file: str) -> None:
        _about(record, trace, self.wanted)
        self._take(record, trace, 3)
        for one in _listed(record.get("observations")):
            self.add_value({"trace_id": record["id"], **_snake(one)}, file)
        for one in _listed(record.get("scores")):
            _read_score(_snake(one), trace.turn)
        if is_dict(record.get("scores")):
            for name, value in record["scores"].items():
                _read_score({"name": name, "value": value[0] if is_list(value) and value else value}, trace.turn)

    def _add_observation(self, record: Mapping[str, Any], trace: _Trace) -> None:
        _about(record, trace, self.wanted)
        generation = as_text(record.get("type")).upper() == "GENERATION"
        if not record.get("parent_observation_id"):
            self._take(record, trace, 2)
        began = read_time(record.get("start_time")) or 0.0
        if generation and began >= trace.generated and record.get("output") is not None:
            trace.generated = began
            trace.turn.messages = read_messages(record.get("input"))
            if trace.has_io <= 1:
                self._take(record, trace, 1)

    @staticmethod
    def _take(record: Mapping[str, Any], trace: _Trace, rank: int) -> None:
        asked, said = asked_text(record.get("input")), said_text(record.get("output"))
        if asked and said and rank >= trace.has_io:
            trace.turn.input, trace.turn.output, trace.has_io = asked, said, rank

    def turns(self) -> Iterator[Turn]:
        """The turns, one a trace."""
        for trace in self.traces.values():
            trace.turn.time = min(trace.times, default=None)
            yield trace.turn


def _snake(record: Mapping[str, Any]) -> dict[str, Any]:
    return {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(key)).lower(): value for key, value in record.items()}


def _listed(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if is_dict(one)] if is_list(value) else []


def _about(record: Mapping[str, Any], trace: _Trace, wanted: tuple[str, str]) -> None:
    turn, metadata = trace.turn, record.get("metadata")
    turn.conversation = turn.conversation or as_text(record.get("session_id"))
    turn.user = turn.user or as_text(record.get("user_id"))
    time = read_time(record.get("timestamp") or record.get("start_time"))
    trace.times += [] if time is None else [time]
    for place in (record, metadata if is_dict(metadata) else {}):
        if wanted[0] in place and (score := read_score(place[wanted[0]])) is not None:
            turn.scores[wanted[0]] = score
        turn.edit = turn.edit or as_text(place.get(wanted[1]))


def _read_score(record: Mapping[str, Any], turn: Turn) -> None:
    """A score: a number or boolean is an outcome, the text of a correction the right answer, a comment a comment."""
    if as_text(record.get("data_type")).upper() == "CORRECTION":
        turn.edit = turn.edit or as_text(record.get("string_value") or record.get("value"))
    elif (score := read_score(record.get("value"))) is not None:
        turn.scores[as_text(record.get("name")) or "score"] = score
    if record.get("comment") and as_text(record.get("source")).upper() in ("ANNOTATION", "API", ""):
        turn.comments.append(as_text(record["comment"]))
