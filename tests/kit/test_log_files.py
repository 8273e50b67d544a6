"""Files of logs: Who&When, OpenTelemetry GenAI, OpenInference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import SpecError
from workbench_kit.logs import Log, load_logs

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared/data/who_and_when"
WHO: dict[str, Any] = {
    "question": "How many?",
    "ground_truth": 7,
    "history": [
        {"content": "task", "role": "human"},
        {"content": "plan", "role": "Orchestrator (thought)"},
        {"content": "look", "role": "Orchestrator (-> WebSurfer)"},
        {"content": "found", "role": "assistant", "name": "WebSurfer"},
    ],
    "is_corrected": False,
    "mistake_agent": "Orchestrator",
    "mistake_step": "2",
}


def write(folder: Path, value: Any, name: str = "log.json") -> Path:
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def only(path: Path, form: str | None = None) -> Log:
    (log,) = load_logs(path, form)
    return log


# Who&When


def test_who_and_when_is_read(tmp_path: Path) -> None:
    log = only(write(tmp_path, WHO))
    assert (log.id, log.question, log.ground_truth) == ("log.json", "How many?", "7")
    assert (log.gold_agent, log.gold_step) == ("Orchestrator", 2)
    assert [s.agent for s in log.steps] == ["human", "Orchestrator", "Orchestrator", "WebSurfer"]
    assert log.steps[2].role == "Orchestrator (-> WebSurfer)" and log.steps[3].content == "found"


def test_a_log_may_lack_the_truth(tmp_path: Path) -> None:
    log = only(write(tmp_path, {"history": WHO["history"]}))
    assert log.ground_truth is None and not log.has_gold


def test_a_folder_is_read_in_the_order_of_its_numbers_and_lines_and_lists_hold_several(tmp_path: Path) -> None:
    for name in ("10", "9", "b/1"):
        (tmp_path / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / "logs", WHO, f"{name}.json")
    assert [log.id for log in load_logs(tmp_path / "logs")] == ["9.json", "10.json", "b/1.json"]
    lines = write(tmp_path, f"{json.dumps(WHO)}\n\n{json.dumps(WHO)}\n", "two.jsonl")
    assert [log.id for log in load_logs(lines)] == ["two.jsonl#0", "two.jsonl#1"]
    assert len(load_logs(write(tmp_path, [WHO, WHO, WHO], "list.json"))) == 3


def test_what_is_no_log_is_named_with_what_to_write(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (value, said) in enumerate(
        [
            ("", "is empty"),
            ("{oops", "not JSON"),
            ("[" * 100_000, "not JSON: it is nested too deeply"),
            ([], "an unknown format"),
            ({"messages": []}, "an unknown format: it contains an object with 'messages'"),
            ({**WHO, "history": []}, "'history' is empty"),
            ({**WHO, "history": "x"}, "no list 'history'"),
            ({**WHO, "history": [{"role": "a"}]}, "history[0] has no text 'content'"),
            ({**WHO, "history": [{"content": "a"}]}, "history[0] names no agent"),
            ({**WHO, "mistake_step": "4"}, "mistake_step is '4'"),
            ({**WHO, "mistake_step": "two"}, "mistake_step is 'two'"),
            ({**WHO, "mistake_agent": 3}, "mistake_agent is not a text"),
            ([WHO, {**WHO, "history": []}], "[1]: 'history' is empty"),
        ]
    ):
        with subtests.test(value=value):
            folder = tmp_path / str(number)
            folder.mkdir()
            path = write(folder, value)
            with pytest.raises(SpecError) as raised:
                load_logs(path)
            assert said in str(raised.value) and str(path) in str(raised.value) and raised.value.hint


def test_a_line_that_is_no_json_is_named_by_its_number(tmp_path: Path) -> None:
    path = write(tmp_path, f"{json.dumps(WHO)}\n\n{{oops\n", "log.jsonl")
    with pytest.raises(SpecError) as raised:
        load_logs(path)
    assert raised.value.line == 3


def test_no_file_no_format_and_an_empty_folder_are_errors(tmp_path: Path) -> None:
    for path, form, said in (
        (tmp_path / "none.json", None, "there is no file"),
        (write(tmp_path, WHO), "langsmith", "no format 'langsmith'"),
        (tmp_path / "folder", None, "contains no .json files"),
    ):
        (tmp_path / "folder").mkdir(exist_ok=True)
        with pytest.raises(SpecError, match=said):
            load_logs(path, form)


# Spans


def otlp(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def span(id_: str, parent: str, at: int, attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
    values = [{"key": k, "value": {"stringValue": v} if isinstance(v, str) else v} for k, v in attributes.items()]
    ids = {"traceId": "t1", "spanId": id_, "parentSpanId": parent, "startTimeUnixNano": str(at)}
    return {**ids, "name": f"span {id_}", "attributes": values, **more}


def message(role: str, *parts: dict[str, Any]) -> str:
    return json.dumps([{"role": role, "parts": list(parts)}])


GENAI = otlp(
    # Not in the order of time; the agent of a call is that of the span around it.
    span(
        "d",
        "a",
        40,
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.output.messages": message("assistant", {"type": "text", "content": "It is 57."}),
        },
    ),
    span("a", "", 10, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "Weather"}),
    span(
        "b",
        "a",
        20,
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(
                [
                    {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
                    {"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]},
                ]
            ),
            "gen_ai.output.messages": message(
                "assistant", {"type": "tool_call", "name": "get_weather", "arguments": {"city": "Rome"}}
            ),
        },
    ),
    span(
        "c",
        "a",
        30,
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "get_weather",
            "gen_ai.tool.call.arguments": '{"city": "Rome"}',
            "gen_ai.tool.call.result": "rainy",
        },
        status={"code": 2, "message": "no such city"},
    ),
    span("e", "", 50, {"http.method": "GET"}),
)


def test_spans_of_genai_are_steps_of_the_agent_around_them(tmp_path: Path) -> None:
    log = only(write(tmp_path, GENAI))
    assert log.question == "Weather in Paris?"
    assert [(s.agent, s.role) for s in log.steps] == [("Weather", ""), ("Weather", "tool get_weather"), ("Weather", "")]
    assert log.steps[0].content == 'calls get_weather({"city": "Rome"})'
    assert (
        log.steps[1].content == 'called with {"city": "Rome"}\nresult: rainy' and log.steps[1].error == "no such city"
    )
    assert log.steps[2].content == "It is 57." and log.steps[2].error is None


def test_structured_attributes_and_the_form_of_the_sdk_are_read_alike(tmp_path: Path) -> None:
    said = {
        "kvlistValue": {
            "values": [
                {"key": "type", "value": {"stringValue": "text"}},
                {"key": "content", "value": {"stringValue": "hi"}},
            ]
        }
    }
    parts = {"arrayValue": {"values": [said]}}
    whole = {"arrayValue": {"values": [{"kvlistValue": {"values": [{"key": "parts", "value": parts}]}}]}}
    first = only(
        write(
            tmp_path,
            otlp(
                span(
                    "a",
                    "",
                    1,
                    {"gen_ai.operation.name": "chat", "gen_ai.agent.name": "A", "gen_ai.output.messages": whole},
                )
            ),
        )
    )
    sdk = [
        {
            "name": "chat",
            "context": {"trace_id": "0x1", "span_id": "0x2"},
            "parent_id": None,
            "start_time": "2026-01-01T00:00:00Z",
            "status": {"status_code": "UNSET"},
            "attributes": {
                "gen_ai.operation.name": "chat",
                "gen_ai.agent.name": "A",
                "gen_ai.output.messages": message("assistant", {"type": "text", "content": "hi"}),
            },
        }
    ]
    assert first.steps == only(write(tmp_path, sdk)).steps
    assert first.steps[0].content == "hi" and first.steps[0].agent == "A"


def test_each_trace_is_a_log_and_lines_of_a_collector_are_put_together(tmp_path: Path) -> None:
    other = json.loads(json.dumps(GENAI).replace('"t1"', '"t2"'))
    path = write(tmp_path, f"{json.dumps(GENAI)}\n{json.dumps(other)}\n", "traces.jsonl")
    assert [(log.id, len(log.steps)) for log in load_logs(path)] == [("traces.jsonl#t1", 3), ("traces.jsonl#t2", 3)]


INFERENCE = [
    {
        "name": "crew",
        "context": {"trace_id": "t", "span_id": "1"},
        "parent_id": None,
        "start_time": "2026-01-01T00:00:01Z",
        "status_code": "OK",
        "attributes": {"openinference.span.kind": "CHAIN", "input.value": "Who won?", "output.value": "Nobody."},
    },
    {
        "name": "planner",
        "context": {"trace_id": "t", "span_id": "2"},
        "parent_id": "1",
        "start_time": "2026-01-01T00:00:02Z",
        "status_code": "OK",
        "attributes": {"openinference.span.kind": "AGENT", "agent": {"name": "Planner"}},
    },
    {
        "name": "ChatCompletion",
        "context": {"trace_id": "t", "span_id": "3"},
        "parent_id": "2",
        "start_time": "2026-01-01T00:00:03Z",
        "status_code": "OK",
        "attributes": {
            "openinference.span.kind": "LLM",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "I look it up.",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "search",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"q": "winner"}',
        },
    },
    {
        "name": "search",
        "context": {"trace_id": "t", "span_id": "4"},
        "parent_id": "2",
        "start_time": "2026-01-01T00:00:04Z",
        "status_code": "ERROR",
        "status_message": "quota",
        "attributes": {"openinference.span.kind": "TOOL", "tool.name": "search", "input.value": "winner"},
    },
    {
        "name": "writer",
        "context": {"trace_id": "t", "span_id": "5"},
        "parent_id": "1",
        "start_time": "2026-01-01T00:00:05Z",
        "attributes": {"openinference.span.kind": "CHAIN", "output.value": "Nobody."},
    },
]


def test_spans_of_openinference_are_read(tmp_path: Path) -> None:
    log = only(write(tmp_path, INFERENCE))
    assert log.question == "Who won?"
    assert [(s.agent, s.role, s.error) for s in log.steps] == [
        ("Planner", "", None),
        ("Planner", "tool search", "quota"),
        ("writer", "", None),  # a chain with no call inside
    ]
    assert log.steps[0].content == 'I look it up.\ncalls search({"q": "winner"})' and log.steps[2].content == "Nobody."


def test_nested_attributes_are_those_with_dots(tmp_path: Path) -> None:
    nested = json.loads(json.dumps(INFERENCE))
    nested[2]["attributes"] = {
        "openinference": {"span": {"kind": "LLM"}},
        "llm": {
            "output_messages": [
                {
                    "message": {
                        "role": "assistant",
                        "content": "I look it up.",
                        "tool_calls": [{"tool_call": {"function": {"name": "search", "arguments": '{"q": "winner"}'}}}],
                    }
                }
            ]
        },
    }
    assert only(write(tmp_path, nested)).steps == only(write(tmp_path, INFERENCE, "flat.json")).steps


def test_spans_without_content_are_refused_with_the_reason(tmp_path: Path) -> None:
    bare = otlp(span("a", "", 1, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}))
    with pytest.raises(SpecError) as raised:
        load_logs(write(tmp_path, bare))
    assert "no step" in str(raised.value) and "its spans are chat" in str(raised.value)
    assert "record the content" in str(raised.value.hint)
    with pytest.raises(SpecError, match="no span has openinference.span.kind"):
        load_logs(write(tmp_path, bare), "openinference")
    with pytest.raises(SpecError, match="span 0 has no attributes"):
        load_logs(write(tmp_path, WHO), "otel")


def test_content_in_an_event_and_an_exception_are_read(tmp_path: Path) -> None:
    said = {"name": "gen_ai.client.inference.operation.details", "attributes": {}}
    said["attributes"] = {"gen_ai.output.messages": [{"role": "assistant", "parts": [{"content": "hi"}]}]}
    failed = {"name": "exception", "attributes": {"exception.message": "no memory"}}
    nested = {"gen_ai": {"operation": {"name": "chat"}, "agent": {"name": "A"}}}
    sdk = [{"name": "chat", "attributes": nested, "events": [said, failed], "status_code": "ERROR"}] * 2
    log = only(write(tmp_path, sdk))  # without ids, too
    assert [(s.agent, s.content, s.error) for s in log.steps] == [("A", "hi", "no memory")] * 2


def test_a_circle_of_parents_ends(tmp_path: Path) -> None:
    said = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": "hi"}
    found = [span("a", "b", 1, said), span("b", "c", 2, {}), span("c", "b", 3, {})]
    assert only(write(tmp_path, otlp(*found))).steps[0].agent == "span a"


@pytest.mark.parametrize(
    "odd",
    [
        {"startTimeUnixNano": "²"},
        {"startTimeUnixNano": "9" * 5000},
        {"events": 3},
        {"attributes": [{"key": "n", "value": {"intValue": "--5"}}]},
        {"attributes": [{"key": "n", "value": {"arrayValue": {"values": 5}}}]},
        {"attributes": [{"key": "n", "value": {"kvlistValue": {"values": 5}}}]},
        {"attributes": {f"llm.output_messages.{'9' * 5000}.message.content": "x"}},
    ],
    ids=lambda odd: json.dumps(odd, ensure_ascii=False)[:60],
)
def test_odd_values_in_a_span_leave_the_others_readable(odd: dict[str, Any], tmp_path: Path) -> None:
    whole = {"openinference.span.kind": "LLM", "output.value": "said"}
    attributes = odd.get("attributes", {})
    if isinstance(attributes, list):
        given: Any = [*attributes, *({"key": k, "value": {"stringValue": v}} for k, v in whole.items())]
    else:
        given = {**attributes, **whole}
    log = only(write(tmp_path, [{"name": "one", **odd, "attributes": given}]))
    assert [step.content for step in log.steps] == ["said"]


def test_a_tool_call_without_arguments_takes_none_of_another_one(tmp_path: Path) -> None:
    calls = "llm.output_messages.0.message.tool_calls"
    attributes = {
        "openinference.span.kind": "LLM",
        f"{calls}.0.tool_call.function.name": "clock",
        f"{calls}.1.tool_call.function.name": "search",
        f"{calls}.1.tool_call.function.arguments": "trains",
    }
    log = only(write(tmp_path, [{"name": "one", "attributes": attributes}]))
    assert log.steps[0].content == "calls clock()\ncalls search(trains)"


def test_lines_of_json_may_hold_what_other_texts_end_lines_with(tmp_path: Path) -> None:
    line = json.dumps({**WHO, "question": "one\u2028two"}, ensure_ascii=False)
    logs = load_logs(write(tmp_path, f"{line}\n{line}\n", "logs.jsonl"))
    assert [log.question for log in logs] == ["one\u2028two"] * 2


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
def test_every_shared_log_is_read_as_its_index_says() -> None:
    logs = {log.id: log for log in load_logs(SHARED)}
    index = [json.loads(line) for line in (SHARED / "index.jsonl").read_text().splitlines()]
    assert len(logs) == len(index) == 123
    for row in index:
        log = logs[row["file"]]
        assert (log.gold_agent, log.gold_step) == (row["mistake_agent"], row["mistake_step"])
        assert len(log.steps) == row["n_steps"]
        assert (log.steps[row["mistake_step"]].agent == row["mistake_agent"]) == row["actor_matches"]
