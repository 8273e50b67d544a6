"""Agents that speak A2A: their cards, messages, tasks, and what is refused.

The agents are those of the gallery, which were written by the specification; `test_a2a_sdk.py` has some on the SDK.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.gallery_speech import call
from tests.helpers.scripted import Script, run_rows
from tests.helpers.strangers import passed_by

import workbench
from workbench.errors import SpecError
from workbench.inference import PredictionError
from workbench.lm import Request
from workbench.run import prepare

STRANGERS = Path(__file__).parents[3] / "workflows" / "gallery" / "strangers.py"
COMMAND = [sys.executable, str(STRANGERS), "{port}"]
HERE = "http://127.0.0.1:{port}"


def write(folder: Path, nodes: Mapping[str, Any]) -> Path:
    rows = [{"question": "q", "message": "m", "agent": "a", "m": "m", "answer": "a"}]
    (folder / "rows.jsonl").write_text("\n".join(json.dumps({**row, "id": n}) for n in range(3) for row in rows))
    data = {"file": "rows.jsonl", "split": {"train": 1, "val": 1, "test": 1}}
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {"name": "t", "lm": "bundled/nano", "data": data, "metric": "exact_match(answer)", "nodes": dict(nodes)}
        )
    )
    return file


def load(folder: Path, signature: str, a2a: str | list[str], **settings: Any) -> Any:
    return workbench.load(write(folder, {"n": {"external": signature, "a2a": a2a, "timeout": 20, **settings}}))


def asked(wf: Any, **inputs: Any) -> Any:
    """The outputs of a row, or the kind of its failure."""
    try:
        return dict(wf(**inputs))
    except PredictionError as error:
        return error.prediction.failure


Answers = Callable[[str, Mapping[str, Any]], Any]


@pytest.fixture
def serve() -> Iterator[Callable[[Answers], str]]:
    """Serves a function of (method or path, request) and gives its address."""
    servers: list[ThreadingHTTPServer] = []

    def begin(answers: Answers) -> str:
        class Handler(BaseHTTPRequestHandler):
            disable_nagle_algorithm = True  # else a body waits 40 ms for its head

            def do_GET(self) -> None:
                self.tell(answers(self.path, dict(self.headers)))

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                found = answers(request["method"], request["params"])
                self.tell({"jsonrpc": "2.0", "id": request["id"], **found})

            def tell(self, found: Any) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(found).encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.005,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}"

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


def card(url: str, **more: Any) -> dict[str, Any]:
    place = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return {"name": "one", "description": "Does it.", "supportedInterfaces": [place], **more}


def test_an_agent_that_the_run_starts_answers_by_message_and_by_task(tmp_path: Path) -> None:
    with load(tmp_path, "message -> reply", f"{HERE}/grocer", command=COMMAND) as wf:
        assert asked(wf, message="What is tea?") == {"reply": "tea costs 4"}
    with load(tmp_path, "message -> reply", f"{HERE}/carrier", command=COMMAND) as wf:
        assert asked(wf, message="to Rome") == {"reply": "postage to Rome is 9"}, "it works until it is asked for again"


def test_the_first_release_is_spoken_where_the_card_says_so(tmp_path: Path, serve: Callable[[Answers], str]) -> None:
    """Fields by release 0.3.0: 5.5 on cards, 6 on messages and tasks, 7.1 and 7.3 on methods."""
    heard: list[Any] = []

    def answers(method: str, request: Mapping[str, Any]) -> Any:
        if method.startswith("/"):
            return {"name": "elder", "url": f"{place}/rpc", "protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}
        heard.append((method, request))
        state = "completed" if method == "tasks/get" else "submitted"
        made = [{"artifactId": "1", "parts": [{"kind": "text", "text": "yes"}]}]
        task = {"kind": "task", "id": "7", "contextId": "c", "status": {"state": state}}
        return {"result": {**task, "artifacts": made} if state == "completed" else task}

    place = serve(answers)
    with load(tmp_path, "message, context -> reply, context", place) as wf:
        assert asked(wf, message="well?", context="c 6") == {"reply": "yes", "context": "c"}
    (sending, sent), (getting, got) = heard
    assert (sending, getting, got) == ("message/send", "tasks/get", {"id": "7"})
    message = sent["message"]
    assert message.pop("messageId") and message == {
        "kind": "message",
        "role": "user",
        "parts": [{"kind": "text", "text": "well?"}],
        "contextId": "c",
        "taskId": "6",
    }


def test_one_of_several_is_asked_by_its_name_and_others_are_named(tmp_path: Path) -> None:
    places = [f"{HERE}/grocer", f"{HERE}/reckoner"]
    with load(tmp_path, "agent, message -> reply", places, command=COMMAND) as wf:
        assert asked(wf, agent=" Reckoner", message="2 * 4 + 1") == {"reply": "that is 9"}
        with pytest.raises(PredictionError, match="there is no agent 'baker'; there are grocer, reckoner"):
            wf(agent="baker", message="bread")


def test_cards_are_documents(tmp_path: Path) -> None:
    with load(tmp_path, "question -> cards: list[dict]", [f"{HERE}/carrier"], command=COMMAND, output="cards") as wf:
        (found,) = asked(wf, question="who?")["cards"]
    assert found == {
        "id": "carrier",
        "title": "carrier",
        "text": "Brings parcels.\nshipping: Knows the postage to a city. (shipping)",
    }


def test_a_model_is_shown_the_stranger_whose_card_fits(tmp_path: Path) -> None:
    """The tool is found among five by the skills on their cards, which stand in no file."""
    agents = ("poet", "grocer", "carrier", "reckoner", "gardener")
    nodes = {n: {"external": "message -> reply", "a2a": f"{HERE}/{n}", "command": COMMAND, "calls": 1} for n in agents}
    nodes["poet"]["describe"] = "Does nothing."
    file = write(tmp_path, {"solve": {"agent": "question -> answer", "nodes": nodes, "nearest": 1, "max_steps": 3}})

    def say(request: Request) -> str:
        system, last = str(request.messages[0]["content"]), str(request.messages[-1]["content"])
        if last.startswith("question"):
            assert [n for n in agents if f"- {n}(" in system] == ["carrier"], system
            assert "carrier: Brings parcels. Skills: shipping: Knows the postage to a city." in system
            return call("carrier", message="to Oslo")
        return f"answer: {last}"

    workflow = prepare(file)[2].workflow
    (outcome,) = run_rows(workflow, [{"question": "What is the postage to Oslo?"}], Script(say), tmp_path / "run.db")
    assert outcome.prediction["answer"] == "result: postage to Oslo is 12", outcome.message


def test_a_resumed_row_asks_no_stranger_again(tmp_path: Path, serve: Callable[[Answers], str]) -> None:
    said: list[str] = []

    def answers(method: str, request: Mapping[str, Any]) -> Any:
        said.append(method)
        if method.startswith("/"):
            return card(f"{place}/rpc")
        return {"result": {"message": {"parts": [{"text": "yes"}], "contextId": "c"}}}

    place = serve(answers)
    node = {"external": "message -> answer, context", "a2a": place}
    workflow = prepare(write(tmp_path, {"n": node}))[2].workflow
    for _ in range(2):
        (outcome,) = run_rows(workflow, [{"message": "well?"}], Script(lambda request: ""), tmp_path / "run.db")
        assert dict(outcome.prediction) == {"answer": "yes", "context": "c"}
        assert said == ["/.well-known/agent-card.json", "SendMessage"]


@pytest.mark.parametrize(
    ("of_card", "told"),
    [
        ({"name": ""}, "is no card of an agent: it has no name"),
        ({"supportedInterfaces": []}, "does not speak A2A 0.3 or 1.0 over JSON-RPC"),
        ({"supportedInterfaces": [{"url": "http://h/", "protocolBinding": "GRPC"}]}, "does not speak A2A"),
        (card("http://example.org/rpc"), "leads to another server, http://example.org/rpc"),
        (card("http://127.0.0.1:1/rpc"), "leads to another server"),
        (card("file:///etc/passwd"), "leads to another server"),
    ],
)
def test_a_card_that_cannot_be_used_fails_the_row(
    of_card: dict[str, Any], told: str, tmp_path: Path, serve: Callable[[Answers], str]
) -> None:
    place = serve(lambda method, request: {**card("http://127.0.0.1/"), **of_card})
    with load(tmp_path, "message -> reply", place) as wf, pytest.raises(PredictionError) as caught:
        wf(message="hello")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"error": {"code": -32005, "message": "no pictures"}}, "exit: .* answered with error -32005: no pictures"),
        ({"result": {"task": {"status": {"state": "TASK_STATE_WORKING"}}}}, "unparsed: .* a task without an id"),
        ({"result": {"task": {"id": "1", "status": {"state": "TASK_STATE_REJECTED"}}}}, "exit: .* ended as rejected"),
        (
            {"result": {"task": {"id": "1", "status": {"state": "TASK_STATE_DREAMING"}}}},
            "unparsed: .* in no state of A2A",
        ),
        ({"result": {"task": {"id": "1", "status": {"state": "TASK_STATE_COMPLETED"}}}}, "empty: .* gave no answer"),
        ({"result": []}, "unparsed: .* gave no answer of JSON-RPC"),
        ({}, "unparsed: .* gave no answer of JSON-RPC"),
    ],
)
def test_an_answer_that_is_none_fails_the_row(
    answer: Any, told: str, tmp_path: Path, serve: Callable[[Answers], str]
) -> None:
    place = serve(lambda method, request: card(place) if method.startswith("/") else answer)
    with load(tmp_path, "message -> reply", place) as wf, pytest.raises(PredictionError, match=told):
        wf(message="hello")


def test_data_and_files_of_an_answer(tmp_path: Path, serve: Callable[[Answers], str]) -> None:
    parts: list[Any] = [{"data": {"a": 1, "b": "two"}}]
    place = serve(
        lambda method, request: card(place) if method.startswith("/") else {"result": {"message": {"parts": parts}}}
    )
    with load(tmp_path, "message -> a: int, b", place, output="json") as wf:
        assert asked(wf, message="hello") == {"a": 1, "b": "two"}
    parts[:] = [{"text": "see"}, {"raw": "AAAA", "filename": "x.png"}]
    with load(tmp_path, "message -> reply", place) as wf:
        assert asked(wf, message="hello") == {"reply": "see\n[a file x.png, left out]"}


def test_a_key_goes_out_and_does_not_come_back(
    tmp_path: Path, serve: Callable[[Answers], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOOR_KEY", "s3same-open")
    heard: list[Any] = []

    def answers(method: str, request: Mapping[str, Any]) -> Any:
        heard.append(request.get("Authorization"))
        return card(place) if method.startswith("/") else {"error": {"code": 1, "message": "s3same-open is wrong"}}

    place = serve(answers)
    for written in ("$DOOR_KEY", "${DOOR_KEY}"):
        heard.clear()
        with load(tmp_path, "message -> reply", place, headers={"Authorization": f"Bearer {written}"}) as wf:
            with pytest.raises(PredictionError) as caught:
                wf(message="hello")
        assert (
            heard[0] == "Bearer s3same-open" and "s3same" not in str(caught.value) and "is wrong" in str(caught.value)
        )


def test_a_file_says_whom_it_asks_and_what_it_sends(tmp_path: Path) -> None:
    node = {"external": "agent, m -> reply", "a2a": ["http://a.example/", "http://b.example/"]}
    nodes = {"n": {**node, "headers": {"X-Key": "$DOOR_KEY"}}}
    assert sorted((one.kind, one.text) for one in passed_by(tmp_path, nodes=nodes)) == [
        ("asks an address", "http://a.example/"),
        ("asks an address", "http://b.example/"),
        ("sends a variable of the environment", "DOOR_KEY to an address, as X-Key"),
    ]


@pytest.mark.parametrize(
    ("signature", "settings", "told"),
    [
        ("message -> reply", {"a2a": "localhost:80"}, "is not an address"),
        ("message -> reply", {"a2a": []}, "is not an address"),
        ("message -> reply", {"a2a": ["http://h/"]}, "the input 'agent' says which one is asked"),
        ("agent -> reply", {"a2a": ["http://h/"]}, "is told something and answers something"),
        ("message -> context", {"a2a": "http://h/"}, "is told something and answers something"),
        ("message -> reply", {"url": "http://h/", "output": "cards"}, "gives the cards of agents as one field"),
        ("message -> reply", {"url": "http://h/", "headers": {"A": "b"}}, "headers are those of requests to an agent"),
        ("message -> reply", {"url": "http://h/", "a2a": "http://h/"}, "name one of"),
        ("message -> reply", {"a2a": "http://h/", "command": ["x", "{port}"]}, "{port} is needed in `a2a`"),
        ("message -> reply", {"a2a": "http://h/", "output": "file:a"}, "a service gives its answer"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    signature: str, settings: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as caught:
        prepare(write(tmp_path, {"n": {"external": signature, **settings}}))
    assert told in str(caught.value)


def test_a_stranger_costs_no_calls_and_has_nothing_to_learn(tmp_path: Path) -> None:
    node = {"external": "message -> answer", "a2a": "http://h/"}
    found: Any = prepare(write(tmp_path, {"n": node}))[2].workflow.enabled_nodes["n"]
    assert found.max_calls == 0 and not found.observed and not found.learnable
    ours: Any = prepare(write(tmp_path, {"n": {**node, "a2a": HERE, "command": COMMAND}}))[2].workflow.enabled_nodes[
        "n"
    ]
    assert ours.max_calls == 16 and ours.observed and "temperature" in ours.learnable
