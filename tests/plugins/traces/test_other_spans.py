"""Spans of the Vercel AI SDK and of OpenLLMetry's workflows; and those without a known content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.traces.samples import imported, otel_span, otlp, run, write


def asked(n: int) -> str:
    return f"When was the {n}th one?"


VERCEL: dict[str, Any] = {
    "ai__prompt__messages": lambda n: json.dumps(
        [
            {"role": "system", "content": "Answer."},
            {"role": "user", "content": [{"type": "text", "text": asked(n)}]},
        ]
    ),
    "ai__response__text": lambda n: f"In {n}.",
}
OLDER: dict[str, Any] = {
    "ai__prompt": lambda n: json.dumps({"system": "Answer.", "prompt": asked(n)}),
    "ai__result__text": lambda n: f"In {n}.",
}
TRACELOOP: dict[str, Any] = {
    "traceloop__entity__input": lambda n: json.dumps({"inputs": {"question": asked(n)}, "tags": [], "metadata": {}}),
    "traceloop__entity__output": lambda n: json.dumps({"outputs": {"answer": f"In {n}."}}),
}
BY_PLACE: dict[str, Any] = {
    "traceloop__entity__input": lambda n: json.dumps({"args": [asked(n)], "kwargs": {}}),
    "traceloop__entity__output": lambda n: json.dumps(f"In {n}."),
}


@pytest.mark.parametrize("form", [VERCEL, OLDER, TRACELOOP, BY_PLACE], ids=["vercel", "older", "traceloop", "args"])
def test_l8_other_spans_are_rows(form: dict[str, Any], tmp_path: Path) -> None:
    spans = [otel_span(n, **{name: make(n) for name, make in form.items()}) for n in range(4)]
    rows, said = imported(tmp_path / "rows.jsonl", write(tmp_path / "s.jsonl", otlp(*spans)))
    assert {row["input"] for row in rows} == {asked(n) for n in range(4)}
    assert {row["output"] for row in rows} == {f"In {n}." for n in range(4)}
    assert "no content" not in said


def test_l8_spans_without_a_known_content_are_told_with_their_attributes(tmp_path: Path) -> None:
    spans = [otel_span(n, own__question=asked(n), own__answer="x") for n in range(4)]
    done = run(tmp_path / "rows.jsonl", write(tmp_path / "s.jsonl", otlp(*spans)))
    told = "4 spans have no content in a known attribute; their attributes are own.answer, own.question."
    assert done.exit_code != 0 and told in str(done.exception)
