"""Each format gives the same rows: question, answer, chat, who and when, and where it was recorded."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st
from tests.plugins.traces.samples import (
    attribute,
    chat,
    genai_messages,
    imported,
    langfuse,
    langsmith,
    old_event,
    otel_span,
    otlp,
    phoenix,
    run,
    write,
)

from workbench.cli import cli
from workbench.errors import SpecError
from workbench_traces.read_files import FORMATS, read_turns
from workbench_traces.redact import Redactor
from workbench_traces.rows import Labels, make_rows
from workbench_traces.turn import read_messages, read_time


def test_attributes_of_todays_genai_conventions(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    write(file, *(otlp(otel_span(n, **genai_messages(n))) for n in range(6)))
    rows, said = imported(tmp_path / "out" / "rows.jsonl", file)
    assert [row["input"] for row in rows] == [f"Question {n}?" for n in range(6)]
    assert rows[3]["output"] == "Answer 3." and (rows[3]["conversation"], rows[3]["user"]) == ("talk1", "u0")
    assert rows[3]["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Question 3?"},
    ]
    assert rows[3]["time"] == "2023-11-14T22:13:23+00:00" and rows[3]["history"] == ""
    assert rows[3]["source"] == {"file": "spans.jsonl", "format": "otel", "id": "trace3"}
    assert rows[2]["group"] == rows[3]["group"] != rows[4]["group"] and "6 rows in 3 groups" in said


def test_events_of_the_older_genai_conventions(tmp_path: Path) -> None:
    spans = []
    for n in range(3):
        span = otel_span(n, gen_ai__system="openai")
        asked, said = {"content": f"Question {n}?"}, {"message": {"role": "assistant", "content": f"Answer {n}."}}
        span["events"] = [
            old_event("gen_ai.system.message", content="Be kind."),
            old_event("gen_ai.user.message", gen_ai__event__content=json.dumps(asked)),
            old_event("gen_ai.choice", gen_ai__event__content=json.dumps(said)),
            old_event(
                "gen_ai.evaluation.result", gen_ai__evaluation__name="ok", gen_ai__evaluation__score__value="0.5"
            ),
        ]
        spans.append(span)
    turns = read_turns([write(tmp_path / "a.json", otlp(*spans))])
    assert [(t.input, t.output, t.scores) for t in turns][1] == ("Question 1?", "Answer 1.", {"ok": 0.5})
    assert turns[0].messages == [("system", "Be kind."), ("user", "Question 0?")]


@pytest.mark.parametrize(
    "said",
    ['{"role": "assistant", "content": "Answer."}', '[{"text": "Answer."}]', "Answer."],
)
def test_the_message_of_a_choice_may_stand_in_an_attribute_of_its_own(said: str, tmp_path: Path) -> None:
    """So Strands Agents writes it, whose texts are blocks, and others whose events have the fields of the body."""
    span = otel_span(1, gen_ai__system="strands-agents")
    asked = old_event("gen_ai.user.message", content='[{"text": "Question?"}]')
    span["events"] = [asked, old_event("gen_ai.choice", finish_reason="end_turn", message=said)]
    turns = read_turns([write(tmp_path / "a.json", otlp(span))])
    assert [(t.input, t.output) for t in turns] == [("Question?", "Answer.")]


def test_events_that_were_exported_as_log_records(tmp_path: Path) -> None:
    def record(n: int, place: int, name: str, body: Any) -> Any:
        told = {"kvlistValue": {"values": [{"key": "content", "value": {"stringValue": body}}]}}
        return {
            "traceId": f"trace{n}",
            "spanId": f"span{n}",
            "timeUnixNano": str(1_700_000_000_000_000_000 + place),
            "eventName": name,
            "body": told,
            "attributes": [attribute("gen_ai.system", "openai")],
        }

    names = {"gen_ai.user.message": "Question {}?", "gen_ai.choice": "Answer {}."}
    records = [record(n, p, name, text.format(n)) for n in range(3) for p, (name, text) in enumerate(names.items())]
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": records[::-1]}]}]}
    span = otel_span(1, gen_ai__operation__name="chat", gen_ai__conversation__id="talk")
    turns = read_turns([write(tmp_path / "logs.jsonl", logs, otlp(span))])
    found = {t.input: (t.output, t.conversation) for t in turns}
    assert found["Question 1?"] == ("Answer 1.", "talk") and found["Question 2?"] == ("Answer 2.", "")


def test_spans_of_phoenix_with_annotations(tmp_path: Path) -> None:
    spans: list[Any] = [phoenix(n) for n in range(4)]
    result = {"score": 1, "explanation": "good"}
    spans[2]["annotations"] = [{"name": "correct", "annotator_kind": "HUMAN", "result": result}]
    beside = {"span_id": "s1", "name": "correct", "annotator_kind": "LLM", "result": {**result, "score": 0}}
    rows, _ = imported(tmp_path / "o" / "rows.jsonl", write(tmp_path / "p.jsonl", beside, *spans))
    assert rows[1]["input"] == "Question 1?" and rows[1]["messages"][0] == {"role": "system", "content": "Be kind."}
    assert rows[2]["score"] == 1 and rows[2]["answer"] == "Answer 2." and rows[2]["comment"] == "good"
    assert rows[1]["score"] == 0 and "answer" not in rows[1] and "comment" not in rows[1]  # a model's comment
    assert rows[0]["source"]["format"] == "openinference" and rows[0]["time"].startswith("2026-01-01")


def test_phoenixs_table_of_spans_and_roots_that_record_both_ends(tmp_path: Path) -> None:
    flat = []
    for n in range(3):
        span = phoenix(n)
        made = {f"attributes.{k}": v for k, v in span["attributes"].items()}
        made |= {"context.trace_id": f"t{n}", "context.span_id": f"s{n}", "parent_id": f"root{n}", "name": "llm"}
        root = {
            "attributes.input.value": json.dumps({"query": f"Root {n}?"}),
            "attributes.output.value": f"Out {n}.",
            "attributes.openinference.span.kind": "CHAIN",
            "context.trace_id": f"t{n}",
            "context.span_id": f"root{n}",
            "parent_id": None,
        }
        flat += [made, root]
    turns = read_turns([write(tmp_path / "table.jsonl", *flat)])
    assert [(t.input, t.output, t.messages[1][1]) for t in turns][2] == ("Root 2?", "Out 2.", "Question 2?")


def test_traces_of_langfuse(tmp_path: Path) -> None:
    rows, _ = imported(tmp_path / "o" / "rows.jsonl", write(tmp_path / "l.jsonl", *map(langfuse, range(4))))
    assert (rows[1]["input"], rows[1]["output"]) == ("Question 1?", "Answer 1.")
    assert rows[1]["messages"][0]["content"] == "Be kind." and rows[1]["conversation"] == "talk1"
    assert (rows[1]["score"], rows[1]["answer"], rows[1]["comment"]) == (1, "Answer 1.", "note 1")
    assert rows[2]["score"] == 0 and "answer" not in rows[2]


def test_observations_and_scores_of_langfuses_blob_storage(tmp_path: Path) -> None:
    seen, scores = [], []
    for n in range(3):
        seen.append(
            {
                "id": f"o{n}",
                "trace_id": f"t{n}",
                "type": "GENERATION",
                "start_time": "2026-01-01 00:00:01.000000",
                "parent_observation_id": None,
                "input": json.dumps([{"role": "user", "content": f"Question {n}?"}]),
                "output": json.dumps({"role": "assistant", "content": f"Answer {n}."}),
                "session_id": f"talk{n}",
                "user_id": "u1",
            }
        )
        scores.append({"id": f"s{n}", "trace_id": f"t{n}", "name": "stars", "value": n, "data_type": "NUMERIC"})
    correction = {"trace_id": "t0", "name": "output", "data_type": "CORRECTION", "string_value": "Better 0."}
    files = [write(tmp_path / "scores.jsonl", *scores, correction), write(tmp_path / "observations.jsonl", *seen)]
    turns = read_turns(files)
    assert [(t.input, t.output, t.scores["stars"]) for t in turns][2] == ("Question 2?", "Answer 2.", 2)
    assert turns[0].edit == "Better 0." and turns[1].conversation == "talk1" and turns[1].time is not None


def test_runs_of_langsmith(tmp_path: Path) -> None:
    runs = [one for n in range(4) for one in langsmith(n)]
    rows, _ = imported(tmp_path / "o" / "rows.jsonl", write(tmp_path / "r.jsonl", *runs))
    assert (rows[1]["input"], rows[1]["output"]) == ("Question 1?", "Answer 1.")
    assert [m["role"] for m in rows[1]["messages"]] == ["system", "user"] and rows[1]["conversation"] == "talk1"
    assert rows[1]["score"] == 1 and rows[1]["answer"] == "Answer 1." and rows[1]["comment"] == "note 1"
    assert rows[3]["answer"] == "Better 3."  # an edit counts more than an outcome
    assert read_turns([write(tmp_path / "api.json", {"runs": runs})])[0].user == "u1"


def test_chats_with_parts_tools_and_an_edit(tmp_path: Path) -> None:
    long = {
        "id": 7,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {}}]},
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "content": "found"},
            {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
            {"role": "user", "content": "thanks"},
        ],
        "metadata": {"user_id": "u9", "rating": 4},
        "created_at": 1_700_000_000,
        "correction": "A dog.",
        "comment": "no cat",
    }
    file = write(tmp_path / "c.jsonl", long, *(chat(n, rating=5) for n in range(5)))
    rows, _ = imported(tmp_path / "o" / "rows.jsonl", file, "--score-range", "1", "5", "--accept", "0.9")
    assert rows[0]["input"] == "Look:\n[image_url]" and rows[0]["output"] == "A cat." and rows[0]["answer"] == "A dog."
    assert rows[0]["score"] == 0.75 and rows[0]["user"] == "u9" and rows[0]["comment"] == "no cat"
    assert rows[0]["history"] == "" and rows[0]["messages"][1:] == [
        {"role": "assistant", "content": "calls f({})"},
        {"role": "tool", "content": "found"},
    ]
    assert rows[1]["answer"] == "1" and rows[1]["score"] == 1


def test_the_workflow_beside_the_rows_validates_and_keeps_groups_whole(tmp_path: Path) -> None:
    out = tmp_path / "o" / "rows.jsonl"
    imported(out, write(tmp_path / "c.jsonl", *(chat(n, ok=True) for n in range(20))))
    tree = yaml.safe_load(out.with_name("workflow.yaml").read_text())
    assert tree["data"]["split"]["by"] == "group" and tree["metric"] == "f1(answer)"
    assert tree["nodes"]["answer"] == {"predict": "input -> answer", "instructions": "Be kind."}
    checked = CliRunner().invoke(cli, ["validate", str(out.with_name("workflow.yaml"))])
    assert checked.exit_code == 0, checked.output
    again = run(out, tmp_path / "c.jsonl")
    assert isinstance(again.exception, SpecError) and "nothing is overwritten" in str(again.exception)


def test_without_right_answers_a_judge_scores_who_proves_nothing_alone(tmp_path: Path) -> None:
    out = tmp_path / "o" / "rows.jsonl"
    _, said = imported(out, write(tmp_path / "c.jsonl", *(chat(n) for n in range(8))))
    tree = yaml.safe_load(out.with_name("workflow.yaml").read_text())
    assert "judge" in tree["metric"] and tree["proof"] == {"labels": "labels.jsonl"}
    assert "a judge, as 8 of 8 rows have no right answer" in said


def test_few_short_answers_are_labels(tmp_path: Path) -> None:
    file = write(tmp_path / "c.jsonl", *(chat(n, correction="billing" if n % 2 else "it's tech") for n in range(12)))
    imported(tmp_path / "o" / "rows.jsonl", file)
    tree = yaml.safe_load((tmp_path / "o" / "workflow.yaml").read_text())
    assert (
        tree["metric"] == "exact_match(answer)" and "['billing', \"it's tech\"]" in tree["nodes"]["answer"]["predict"]
    )


def test_several_outcomes_are_told_and_none_is_chosen(tmp_path: Path) -> None:
    file = write(tmp_path / "c.jsonl", *(chat(n, speed=0.1, ok=1) for n in range(6)))
    rows, said = imported(tmp_path / "a" / "rows.jsonl", file)
    assert "Choose one with --score" in said and "ok, speed" in said and "score" not in rows[0]
    rows, _ = imported(tmp_path / "b" / "rows.jsonl", file, "--score", "ok")
    assert rows[0]["score"] == 1 and rows[0]["scores"] == {"speed": 0.1, "ok": 1}
    rows, said = imported(tmp_path / "c" / "rows.jsonl", file, "--score", "ok", "--score-range", "5", "9")
    assert "6 outcomes ignored: outside --score-range" in said and "score" not in rows[0]
    out = tmp_path / "d" / "rows.jsonl"
    found = CliRunner().invoke(cli, ["data", "traces", str(file), "--out", str(out), "--score", "sped"])
    assert "no trace has the outcome 'sped'" in str(found.exception) and "'speed'" in str(found.exception)
    assert not out.exists()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2026-01-01T00:00:00Z", 1767225600),
        ("2026-01-01 00:00:00.000000", 1767225600),
        (1767225600, 1767225600),
        (1767225600000, 1767225600),
        ("1767225600000000000", 1767225600),
        ("yesterday", None),
        (True, None),
        (float("nan"), None),
        ("9" * 400, None),
    ],
)
def test_times_in_all_their_units(value: Any, seconds: float | None) -> None:
    assert read_time(value) == seconds


@pytest.mark.parametrize("value", [None, 3, "text", [], [1], {}, {"messages": 3}, [[[]]], {"role": 3}, [{"role": "x"}]])
def test_what_is_no_chat_gives_no_messages(value: Any) -> None:
    assert [text for _, text in read_messages(value)] in ([], [""])


#: Keys that some format knows.
_KEYS = st.sampled_from(
    "resourceSpans resourceLogs scopeSpans scopeLogs spans logRecords attributes events key value stringValue "
    "traceId spanId trace_id span_id context name body messages role content parts type text tool_calls "
    "function annotations result score gen_ai.input.messages gen_ai.output.messages gen_ai.choice "
    "gen_ai.prompt.0.content llm.input_messages.0.message.content run_type inputs outputs extra metadata "
    "feedback feedback_stats child_runs generations kwargs id trace observations scores input output sessionId "
    "timestamp start_time startTimeUnixNano data_type string_value comment attributes.x".split()
)
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "user", "x", "[", "{}", "llm", "1e999"])
)
_VALUES = st.recursive(
    _LEAVES, lambda of: st.lists(of, max_size=3) | st.dictionaries(_KEYS, of, max_size=5), max_leaves=20
)


@pytest.mark.slow
@settings(max_examples=300)
@given(value=_VALUES, kind=st.sampled_from([None, *FORMATS]))
def test_no_json_value_breaks_a_reader(value: Any, kind: str | None) -> None:
    """It is read, or refused in words."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl"
        path.write_text(json.dumps(value) + "\n")
        try:
            turns = read_turns([path], kind, ("score", "comment"))
            rows, _ = make_rows(turns, Labels(), Redactor())
        except SpecError as error:
            assert error.hint
        else:
            assert len(rows) == len({row["id"] for row in rows}) and json.dumps(rows)


def test_a_span_in_two_conventions_says_one_chat_and_our_own_runs_are_no_conversations(tmp_path: Path) -> None:
    """As `track: otel` writes them: the run is the session of all rows."""
    file, spans = tmp_path / "spans.jsonl", list[Any]()
    for n in range(6):
        flat = {
            "llm.input_messages.0.message.role": "system",
            "llm.input_messages.0.message.content": "Be kind.",
            "llm.input_messages.1.message.role": "user",
            "llm.input_messages.1.message.content": f"Question {n}?",
            "llm.output_messages.0.message.content": f"Answer {n}.",
            "session.id": "run1",
            "workbench.run": "run1",
        }
        said = {k: v for k, v in genai_messages(n).items() if "conversation" not in k and "user" not in k}
        spans.append(otlp(otel_span(n, **said, **flat)))
    write(file, *spans)
    rows, told = imported(tmp_path / "out" / "rows.jsonl", file)
    assert [len(row["messages"]) for row in rows] == [2] * 6 and {row["history"] for row in rows} == {""}
    assert "6 rows in 6 groups" in told
