"""Recorded traces in the forms of several tools, made by hand after their documentation. No tool wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from workbench.cli import cli

Json = dict[str, Any]


def run(out: Path, *args: Any) -> Result:
    return CliRunner().invoke(cli, ["data", "traces", *map(str, args), "--out", str(out)])


def imported(out: Path, *args: Any) -> tuple[list[Json], str]:
    """(rows, what was printed)."""
    done = run(out, *args)
    assert done.exit_code == 0, done.output if done.exception is None else done.exception
    return read(out), done.output


def read(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, *values: Any) -> Path:
    """A file of JSON lines."""
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def attribute(name: str, value: Any) -> Json:
    kind = {str: "stringValue", int: "intValue", float: "doubleValue"}[type(value)]
    return {"key": name, "value": {kind: value}}


def otlp(*spans: Json) -> Json:
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def otel_span(n: int, *, trace: str | None = None, parent: str = "", **attributes: Any) -> Json:
    """A span of OTLP/JSON; `__` in a name is a dot."""
    named = [attribute(k.replace("__", "."), v) for k, v in attributes.items()]
    return {
        "traceId": trace or f"trace{n}",
        "spanId": f"span{n}",
        "parentSpanId": parent,
        "name": "chat gpt",
        "startTimeUnixNano": str(1_700_000_000_000_000_000 + n * 1_000_000_000),
        "attributes": named,
    }


def genai_messages(n: int) -> Json:
    """The attributes of today's conventions."""
    asked = [{"role": "user", "parts": [{"type": "text", "content": f"Question {n}?"}]}]
    said = [{"role": "assistant", "parts": [{"type": "text", "content": f"Answer {n}."}], "finish_reason": "stop"}]
    return {
        "gen_ai__operation__name": "chat",
        "gen_ai__conversation__id": f"talk{n // 2}",
        "user__id": f"u{n // 4}",
        "gen_ai__system_instructions": json.dumps([{"type": "text", "content": "Be kind."}]),
        "gen_ai__input__messages": json.dumps(asked),
        "gen_ai__output__messages": json.dumps(said),
    }


def old_event(name: str, **attributes: str) -> Json:
    return {"name": name, "attributes": [attribute(k.replace("__", "."), v) for k, v in attributes.items()]}


def chat(n: int, **more: Any) -> Json:
    return {
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": f"What is {n} plus one?"},
            {"role": "assistant", "content": str(n + 1)},
        ],
        "conversation_id": f"talk{n}",
        **more,
    }


def phoenix(n: int) -> Json:
    """A span as Phoenix exports it: nested attributes are flat, with an annotation beside it."""
    return {
        "name": "llm",
        "context": {"trace_id": f"t{n}", "span_id": f"s{n}"},
        "parent_id": None,
        "start_time": f"2026-01-0{n + 1}T00:00:00+00:00",
        "attributes": {
            "openinference.span.kind": "LLM",
            "session.id": f"talk{n}",
            "user.id": "u1",
            "llm.input_messages.0.message.role": "system",
            "llm.input_messages.0.message.content": "Be kind.",
            "llm.input_messages.1.message.role": "user",
            "llm.input_messages.1.message.content": f"Question {n}?",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": f"Answer {n}.",
        },
    }


def langfuse(n: int) -> Json:
    return {
        "id": f"t{n}",
        "timestamp": f"2026-01-0{n + 1}T00:00:00.000Z",
        "name": "support",
        "input": {"question": f"Question {n}?"},
        "output": {"answer": f"Answer {n}."},
        "sessionId": f"talk{n}",
        "userId": "u1",
        "observations": [
            {
                "id": f"o{n}",
                "type": "GENERATION",
                "startTime": f"2026-01-0{n + 1}T00:00:01.000Z",
                "parentObservationId": "root",
                "input": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": f"Question {n}?"}],
                "output": {"role": "assistant", "content": "thinking"},
            }
        ],
        "scores": [
            {"name": "helpful", "value": n % 2, "dataType": "NUMERIC", "source": "ANNOTATION", "comment": f"note {n}"}
        ],
    }


def langsmith(n: int) -> list[Json]:
    root: Json = {
        "id": f"r{n}",
        "trace_id": f"t{n}",
        "parent_run_id": None,
        "run_type": "chain",
        "name": "agent",
        "session_id": "the project",
        "start_time": f"2026-01-0{n + 1}T00:00:00",
        "inputs": {"input": f"Question {n}?"},
        "outputs": {"output": f"Answer {n}."},
        "extra": {"metadata": {"thread_id": f"talk{n}", "user_id": "u1"}},
        "feedback": [{"key": "correct", "score": n % 2, "comment": f"note {n}"}],
        "feedback_stats": {"correct": {"n": 1, "avg": float(n % 2), "comments": [f"note {n}"]}},
    }
    if n == 3:
        root["feedback"][0]["correction"] = {"output": "Better 3."}
    human = {"id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": f"Question {n}?"}}
    system = {"id": ["langchain", "schema", "messages", "SystemMessage"], "kwargs": {"content": "Be kind."}}
    model = {
        "id": f"c{n}",
        "trace_id": f"t{n}",
        "parent_run_id": f"r{n}",
        "run_type": "llm",
        "name": "ChatOpenAI",
        "start_time": f"2026-01-0{n + 1}T00:00:01",
        "inputs": {"messages": [[system, human]]},
        "outputs": {"generations": [[{"text": "thinking", "message": {"kwargs": {"content": "thinking"}}}]]},
    }
    return [model, root]
