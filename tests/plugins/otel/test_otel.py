"""Runs as OpenTelemetry spans, received on loopback and decoded as a collector does."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from tests.helpers.otlp_receiver import Received, otlp_receiver
from tests.helpers.scripted import Script

from workbench.api import evaluate
from workbench.errors import SpecError
from workbench.lm import Request, Response
from workbench.proof import Report
from workbench.run import Options, optimize, resume, trackers
from workbench.study import make_optimizer
from workbench_kit.logs import find_convention
from workbench_otel.content import CAPTURE, Capture
from workbench_otel.redaction import Redaction
from workbench_testing.simulated import Killed, SimulatedLM, SimulatedPool, write_task

CANARY = "sk-canary-0123456789abcdef"
ROWS = (6, 6, 6)


# Its threads outlive a test. They draw numbers of their own, so that no other test sees the state of `random` change.
for module in ("opentelemetry.exporter.otlp.common.http", "opentelemetry.sdk.trace.id_generator"):
    vars(import_module(module))["random"] = random.Random()


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CAPTURE, "OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    with otlp_receiver() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3")
        yield found


def settings(folder: Path, lm: SimulatedLM) -> dict[str, Any]:
    return {
        "database": folder / "run.db",
        "optimizers": [("rewrite", make_optimizer({"rewrite": {"rounds": 2}}))],
        "pool": SimulatedPool(lm),
    }


def improve(folder: Path, lm: SimulatedLM | None = None, **changed: Any) -> Report:
    """A simulated run that is told to otel."""
    path = write_task(folder, budget={"calls": 200}, rows=ROWS)
    spec = {**json.loads(path.read_text()), "track": "otel", **changed}
    path.write_text(json.dumps(spec))
    options = Options(out=str(folder / "out.yaml"), allow_unproved=True)
    return optimize(path, options=options, **settings(folder, lm or SimulatedLM()))


def test_a_run_arrives_as_spans_of_both_conventions(tmp_path: Path, received: Received) -> None:
    lm = SimulatedLM()
    report = improve(tmp_path, lm)
    assert not [w for w in report.warnings if "tracker" in w]
    (root,) = received.named("optimize simulated")
    assert root["workbench.status"] == report.status and root["workbench.spent.calls"] == lm.requests
    assert {r["service.name"] for r in received.resources} == {"workbench"}
    rows = received.named("invoke_workflow simulated")
    assert all(row["links"] == [root["id"]] and not row["parent"] for row in rows)
    assert Counter(row["workbench.split"] for row in rows)["test"] == 12
    by_id = {span["id"]: span for span in received.spans}
    calls = received.named("chat simulated")
    assert len(calls) == report.spent["calls"] + report.spent["cached"]
    assert sum(not call["workbench.replayed"] for call in calls) == lm.requests
    for call in calls:
        assert call["gen_ai.operation.name"] == "chat" and call["openinference.span.kind"] == "LLM"
        assert call["gen_ai.provider.name"] == "openai" or call["workbench.role"] == "proposer"
        assert call["began"] <= call["ended"]
    node = by_id[next(c["parent"] for c in calls if c["workbench.role"] == "task")]
    assert node["name"] == "sort" and by_id[node["parent"]]["gen_ai.operation.name"] == "invoke_workflow"
    assert node["openinference.span.kind"] == "CHAIN" and node["workbench.node.kind"] == "Predict"


def test_tokens_add_up_to_the_bill(tmp_path: Path, received: Received) -> None:
    report = improve(tmp_path)
    for name, total in (("input", "prompt_tokens"), ("output", "completion_tokens")):
        told = sum(span.get(f"gen_ai.usage.{name}_tokens", 0) for span in received.spans)
        assert told == report.spent[total] > 0
    assert sum(s.get("llm.token_count.prompt", 0) for s in received.spans) == report.spent["prompt_tokens"]


def test_proposals_gates_and_accepted_patches_are_spans(tmp_path: Path, received: Received) -> None:
    improve(tmp_path)
    by_id = {span["id"]: span for span in received.spans}
    (root,) = received.named("optimize")
    gates, proposals, accepted = received.named("gate"), received.named("propose"), received.named("accept")
    assert len(gates) >= 2 and all(g["parent"] == root["id"] for g in gates)
    assert len(accepted) == sum(g["workbench.accepted"] for g in gates) - 1  # the baseline is no patch
    for patch in accepted:
        assert by_id[patch["parent"]]["workbench.accepted"]
        assert patch["workbench.changed"] == ["nodes.sort.instructions"]
    for proposal in proposals:
        assert proposal["workbench.parent"] and proposal["workbench.optimizer"] == "rewrite"
        assert any(by_id[link]["workbench.role"] == "proposer" for link in proposal["links"])
    assert len([g for g in gates if g["links"]]) == len(proposals) > 0
    (proof,) = received.named("proof")
    assert "workbench.gain.shown" in proof


def test_each_score_is_an_event_under_its_row(tmp_path: Path, received: Received) -> None:
    improve(tmp_path)
    rows = {row["id"]: row for row in received.named("invoke_workflow")}
    scores = [event for event in received.events if event["name"] == "gen_ai.evaluation.result"]
    assert {event["span"] for event in scores} == set(rows)
    for event in scores:
        assert event["gen_ai.evaluation.score.value"] == rows[event["span"]]["workbench.score"]
        assert event["gen_ai.evaluation.name"] == "exact_match"


def test_content_stays_here_unless_the_variable_asks_for_it(
    tmp_path: Path, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    improve(tmp_path / "off")
    sent = b"".join(received.raw)
    assert b"-thing" not in sent and b"Label it" not in sent and b"carefully" not in sent
    monkeypatch.setenv(CAPTURE, "true")
    improve(tmp_path / "on")
    assert b"-thing" in b"".join(received.raw)
    call = next(c for c in received.named("chat") if "gen_ai.input.messages" in c)
    first, *_, last = json.loads(call["gen_ai.input.messages"])
    assert first["role"] == "system" and "-thing" in last["parts"][0]["content"]
    (answer,) = json.loads(call["gen_ai.output.messages"])
    assert answer["finish_reason"] == "stop" and answer["parts"][0]["content"] == call["output.value"]
    assert call["llm.input_messages.0.message.role"] == "system"
    assert received.named("accept") == [] or any("carefully" in s.get("workbench.patch", "") for s in received.spans)


@pytest.mark.parametrize(
    ("value", "spans", "events"),
    [
        *((value, False, False) for value in ("", "false", "no_content", "perhaps")),
        ("true", True, False),
        ("SPAN_ONLY", True, False),
        ("event_only", False, True),
        ("span_and_event", True, True),
    ],
)
def test_the_variable_has_the_values_of_the_standard(
    value: str, spans: bool, events: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE, value)
    assert Capture.from_environment() == Capture(spans, events)


def test_content_in_events_alone_is_in_no_span(
    tmp_path: Path, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE, "event_only")
    improve(tmp_path)
    assert not [span for span in received.spans if "gen_ai.input.messages" in span or "input.value" in span]
    details = [e for e in received.events if e["name"] == "gen_ai.client.inference.operation.details"]
    assert details and all("parts" in e["gen_ai.input.messages"] for e in details)


def test_no_key_leaves(tmp_path: Path, received: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it stands: in the environment, a prompt, an answer, a header for the collector, a setting."""
    monkeypatch.setenv(CAPTURE, "span_and_event")
    monkeypatch.setenv("SOME_SERVICE_TOKEN", "plain-looking-canary")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=header-canary-value")
    said = f"{CANARY} plain-looking-canary header-canary-value https://user:url-canary@host/"
    changed = {"nodes": {"sort": {"predict": "text -> label", "instructions": f"Label it. {said}"}}, "search": {}}
    improve(tmp_path, name=f"run {CANARY}", **changed)
    sent = b"".join(received.raw)
    assert b"[redacted]" in sent and b"Label it" in sent
    assert b"canary" not in sent


def test_errors_of_a_server_are_told_by_their_kind_alone(tmp_path: Path, received: Received) -> None:
    improve(tmp_path, SimulatedLM(fail=0.6))
    failed = [span for span in received.spans if span["failed"]]
    assert failed and {span["error.type"] for span in failed} <= {"server", "infrastructure"}
    assert b"simulated server error" not in b"".join(received.raw)


def test_a_resumed_run_marks_what_it_replays_and_counts_nothing_twice(tmp_path: Path, received: Received) -> None:
    lm = SimulatedLM(kill_at=15)
    with pytest.raises((Killed, BaseExceptionGroup)):
        improve(tmp_path, lm)
    before = Counter(s["workbench.call"] for s in received.spans if s.get("gen_ai.usage.input_tokens"))
    lm.kill_at = None
    received.spans.clear()
    report = resume("last", **settings(tmp_path, lm))
    (root,) = received.named("optimize")
    assert root["workbench.resumed"] is True
    replayed = [s for s in received.named("chat") if s["workbench.replayed"]]
    assert replayed and all("gen_ai.usage.input_tokens" not in s for s in replayed)
    after = Counter(s["workbench.call"] for s in received.spans if s.get("gen_ai.usage.input_tokens"))
    assert max((before + after).values()) == 1 and not before.keys() & after.keys()
    assert sum((before + after).values()) <= report.spent["calls"]
    rows = received.named("invoke_workflow")
    assert {row["workbench.replayed"] for row in rows} == {True, False}


def test_tools_and_agents_are_spans(tmp_path: Path, received: Received) -> None:
    (tmp_path / "tools.py").write_text('def double(n: int) -> int:\n    "Doubles."\n    return 2 * n\n')
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "2?", "answer": "4"}) + "\n")
    spec = {
        "name": "agents",
        "lm": "openai/x",
        "track": ["otel"],
        "data": {"val": "rows.jsonl"},
        "metric": "exact_match(answer)",
        "nodes": {"helper": {"agent": "question -> answer", "tools": ["python:tools.py:double"]}},
    }
    (tmp_path / "w.yaml").write_text(json.dumps(spec))
    calls = ({"id": "1", "name": "double", "arguments": {"n": 2}},)

    def say(request: Request) -> Response | str:
        asked = len(request.messages) < 3
        return Response("", "tool_calls", 5, 1, 0.0, tool_calls=calls) if asked else "answer: 4"

    evaluate(tmp_path / "w.yaml", database=tmp_path / "run.db", pool=Script(say))
    (agent,) = received.named("invoke_agent")
    assert agent["gen_ai.agent.name"] == "helper" and agent["openinference.span.kind"] == "AGENT"
    (tool,) = received.named("execute_tool")
    assert tool["gen_ai.tool.name"] == "double" == tool["tool.name"] and tool["parent"] == agent["id"]
    assert tool["openinference.span.kind"] == "TOOL" and "gen_ai.tool.call.arguments" not in tool
    assert {find_convention(one) for one in received.decoded} == {"openinference"}  # read by `attribute`


@pytest.mark.parametrize("answer", ["hang", "503", "400", "absent"])
def test_a_collector_that_is_away_costs_the_run_nothing(
    answer: str, tmp_path: Path, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    received.answer = answer
    monkeypatch.setattr("workbench_otel.export.FIRST_FLUSH", 0.2)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "30")  # its own limit comes later than ours
    if answer == "absent":
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
    report = improve(tmp_path)
    assert report.status == "finished"
    (told,) = [w for w in report.warnings if "tracker" in w]
    assert "did not reach the collector" in told


def test_what_the_queue_cannot_hold_is_dropped_and_told_once(
    tmp_path: Path, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    received.answer = "hang"
    monkeypatch.setattr("workbench_otel.export.FIRST_FLUSH", 0.2)
    report = improve(tmp_path)
    (told,) = [w for w in report.warnings if "spans" in w]
    assert int(told.split(" of ")[0].split()[-1]) > 8


def test_a_fast_run_loses_nothing_on_a_collector_that_works(
    tmp_path: Path, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16")
    report = improve(tmp_path)
    assert not [w for w in report.warnings if "tracker" in w] and len(received.spans) > 64


def test_the_sdk_can_be_switched_off(tmp_path: Path, received: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert improve(tmp_path).status == "finished" and received.raw == []


def test_without_track_nothing_is_sent(tmp_path: Path, received: Received) -> None:
    improve(tmp_path, track=[])
    assert received.raw == []


def test_the_environment_switches_it_on(tmp_path: Path, received: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_task(tmp_path, budget={"calls": 60}, rows=ROWS)
    monkeypatch.setenv("WORKBENCH_TRACK", "otel")
    evaluate(path, database=tmp_path / "run.db", pool=SimulatedPool(SimulatedLM()))
    assert len(received.named("eval simulated")) == 1 and len(received.named("invoke_workflow")) == ROWS[1]


def test_a_protocol_that_is_not_known_sets_the_tracker_aside(
    tmp_path: Path, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    (told,) = [w for w in improve(tmp_path).warnings if "tracker" in w]
    assert "write http/protobuf" in told


def test_an_unknown_tracker_is_an_error_before_anything_is_paid(tmp_path: Path) -> None:
    lm = SimulatedLM()
    with pytest.raises(SpecError, match="there is no tracker 'otle'") as found:
        improve(tmp_path, lm, track="otle")
    assert "otel" in str(found.value) and found.value.line and lm.requests == 0


def test_trackers_run_in_threads_that_end(tmp_path: Path, received: Received) -> None:
    improve(tmp_path)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tracker")]


def test_a_tracker_that_raises_or_hangs_is_told_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench_otel import tracker

    monkeypatch.setattr(trackers, "PATIENCE", 0.2)
    monkeypatch.setattr(tracker.OTel, "row_finished", lambda self, row: 1 / 0)
    (told,) = [w for w in improve(tmp_path / "raises", track="otel").warnings if "tracker" in w]
    assert "was set aside: ZeroDivisionError" in told
    monkeypatch.setattr(tracker.OTel, "row_finished", lambda self, row: time.sleep(3))
    (told,) = [w for w in improve(tmp_path / "hangs", track="otel").warnings if "tracker" in w]
    assert "was not done" in told


def test_events_beyond_the_queue_of_a_tracker_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench_otel import tracker

    monkeypatch.setattr(trackers, "MAX_WAITING", 5)
    monkeypatch.setattr(trackers, "PATIENCE", 0.2)
    monkeypatch.setattr(tracker.OTel, "run_started", lambda self, resumed: time.sleep(3))
    told = [w for w in improve(tmp_path).warnings if "tracker" in w]
    assert any("too slow for the run" in line for line in told)


def test_redaction_finds_keys_at_any_depth() -> None:
    redact = Redaction({"MY_API_KEY": "abcdefgh12345", "PATH": "/usr/local/bin", "SHORT_TOKEN": "abc"})
    assert redact({"a": ["x abcdefgh12345 y", {"b": "/usr/local/bin abc"}]}) == {
        "a": ["x [redacted] y", {"b": "/usr/local/bin abc"}]
    }
    for secret in (CANARY, "AKIAABCDEFGHIJKLMNOP", "Bearer abcdefghijklmnop", "ghp_abcdefghijklmnopqrst"):
        assert secret.split()[-1] not in redact(f"see {secret}.")
