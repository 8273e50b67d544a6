"""Services that a run starts itself: unchanged servers, which say in no request for which row it is."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.external_agents import SYSTEM, write_agent
from tests.helpers.processes import free_port
from tests.plugins.external.test_rows import RecordingLM

import workbench
from workbench.errors import SpecError
from workbench.inference import PredictionError
from workbench.lm import Request, Response
from workbench.run import Options, optimize
from workbench.study import make_optimizer
from workbench_testing.simulated import SimulatedLM, SimulatedPool

#: A server as users have them. It reads its models' address once, when it begins.
SERVER = f"""\
import json, os, sys, time, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

URL, KEY = os.environ["OPENAI_BASE_URL"] + "/chat/completions", os.environ["OPENAI_API_KEY"]

def chat(text):
    messages = [{{"role": "system", "content": {SYSTEM!r}}}, {{"role": "user", "content": text}}]
    body = json.dumps({{"model": "gpt-4o-mini", "messages": messages}}).encode()
    headers = {{"Content-Type": "application/json", "Authorization": "Bearer " + KEY}}
    with urllib.request.urlopen(urllib.request.Request(URL, body, headers)) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]

def work(row):
    return chat(row["text"] + " label:")

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        told = work(row).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *told):
        pass

open(os.environ["LOG"], "a").write(str(os.getpid()) + "\\n")
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
FREE = {"url": "http://127.0.0.1:{port}/ask", "command": [sys.executable, "server.py", "{port}"]}


class EchoLM(RecordingLM):
    """Repeats the last message, after a while."""

    async def complete(self, request: Request) -> Response:
        await super().complete(request)
        return Response(str(request.messages[-1]["content"]), "stop", 3, 1, 0.0)


def write(place: Path, work: str = "", **settings: Any) -> Path:
    """A file with the service as its node; each process writes its number to `started`."""
    source = SERVER.replace("class Handler", f"{work}\n\nclass Handler") if work else SERVER
    (place / "server.py").write_text(source)
    node = {"external": "text -> label", "timeout": 30, "env": {"LOG": str(place / "started")}, **FREE, **settings}
    file = place / "workflow.yaml"
    file.write_text(yaml.safe_dump({"name": "t", "lm": "openai/m", "concurrency": 4, "nodes": {"agent": node}}))
    return file


def started(place: Path) -> list[int]:
    return [int(line) for line in (place / "started").read_text().split()]


def runs(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def failure_of(wf: Any, text: str) -> tuple[str | None, str]:
    with pytest.raises(PredictionError) as caught:
        wf(text=text)
    return caught.value.prediction.failure, str(caught.value)


def test_one_service_answers_the_rows_and_goes_with_the_run(tmp_path: Path) -> None:
    with workbench.load(write(tmp_path), pool=SimulatedPool(EchoLM())) as wf:
        assert [wf(text=text)["label"] for text in ("a", "b")] == ["a label:", "b label:"]
        (process,) = started(tmp_path)
        assert runs(process)
    assert not runs(process)


def test_agents_inside_two_nodes_have_services_of_their_own(tmp_path: Path) -> None:
    work = "def work(row):\n    return chat(row['text'] + ' ' + os.environ['WORD'])"
    node = yaml.safe_load(write(tmp_path, work).read_text())["nodes"]["agent"]
    nodes = {
        name: {"ensemble": {**node, "external": signature, "env": {**node["env"], "WORD": name}}, "samples": 1}
        for name, signature in (("one", "text -> one"), ("two", "text, one -> two"))
    }
    (tmp_path / "w.yaml").write_text(json.dumps({"name": "t", "lm": "openai/m", "nodes": nodes}))
    with workbench.load(tmp_path / "w.yaml", pool=SimulatedPool(EchoLM())) as wf:
        assert wf(text="a")["two"] == "a two"


def test_rows_at_once_have_a_service_each_and_their_own_calls(tmp_path: Path) -> None:
    slow = "def work(row):\n    time.sleep(0.3)\n    return chat(row['text'] + ' label:')"
    with workbench.load(write(tmp_path, slow, processes=2), pool=SimulatedPool(EchoLM())) as wf:
        found = list(wf.batch([{"text": f"row {n}"} for n in range(6)], trace=True))
    assert [row["label"] for row in found] == [f"row {n} label:" for n in range(6)]
    for number, row in enumerate(found):
        (call,) = [call for span in row.trace.spans for call in span.calls]
        assert call.messages[-1]["content"] == f"row {number} label:"
    assert len(started(tmp_path)) == 2


def test_a_fixed_port_means_one_row_at_a_time(tmp_path: Path) -> None:
    port = free_port()
    fixed = {"url": f"http://127.0.0.1:{port}/", "command": [sys.executable, "server.py", str(port)]}
    with workbench.load(write(tmp_path, **fixed), pool=SimulatedPool(EchoLM())) as wf:
        found = list(wf.batch([{"text": f"row {n}"} for n in range(4)]))
    assert [row["label"] for row in found] == [f"row {n} label:" for n in range(4)]
    assert len(started(tmp_path)) == 1


def test_a_service_that_dies_fails_its_row_and_the_next_one_has_a_new_one(tmp_path: Path) -> None:
    ending = "        os.write(2, b'no disk')\n        os._exit(3)\n"
    dying = f"def work(row):\n    if row['text'] == 'die':\n{ending}    return 'ok'"
    with workbench.load(write(tmp_path, dying), pool=SimulatedPool(EchoLM())) as wf:
        assert wf(text="a")["label"] == "ok"
        kind, told = failure_of(wf, "die")
        assert kind == "crash" and "ended with exit code 3; it said: no disk" in told
        assert wf(text="a")["label"] == "ok"
    assert len(started(tmp_path)) == 2


def test_a_service_that_died_between_rows_gets_no_further_one(tmp_path: Path) -> None:
    with workbench.load(write(tmp_path), pool=SimulatedPool(EchoLM())) as wf:
        assert wf(text="a")["label"] == "a label:"
        os.kill(started(tmp_path)[0], signal.SIGKILL)
        time.sleep(0.3)
        assert wf(text="b")["label"] == "b label:" and len(started(tmp_path)) == 2


def test_a_row_that_is_cut_short_takes_its_service_along(tmp_path: Path) -> None:
    """It may still be at work, and what it asks would count for the next row."""
    hanging = "def work(row):\n    time.sleep(60 if row['text'] == 'hang' else 0)\n    return 'ok'"
    with workbench.load(write(tmp_path, hanging, timeout=1), pool=SimulatedPool(EchoLM())) as wf:
        assert failure_of(wf, "hang")[0] == "deadline"
        assert not runs(started(tmp_path)[0])
        assert wf(text="a")["label"] == "ok"


def test_an_error_status_fails_the_row_and_keeps_the_service(tmp_path: Path) -> None:
    raising = "def work(row):\n    if row['text'] == 'bad':\n        raise ValueError\n    return 'ok'"
    source = raising + "\n\n_post = None"
    file = write(tmp_path, source)
    text = (tmp_path / "server.py").read_text()
    (tmp_path / "server.py").write_text(
        text.replace("        told = work(row).encode()", "        try:\n            told = work(row).encode()\n"
                     "        except ValueError:\n            return self.send_error(500, 'bad row')")
    )  # fmt: skip
    with workbench.load(file, pool=SimulatedPool(EchoLM())) as wf:
        kind, told = failure_of(wf, "bad")
        assert kind == "exit" and "status 500" in told
        assert wf(text="a")["label"] == "ok"
    assert len(started(tmp_path)) == 1


def test_what_a_service_asks_after_the_row_is_refused(tmp_path: Path) -> None:
    later = (
        "import threading\n\ndef late():\n    time.sleep(0.5)\n    try:\n        chat('late')\n"
        "    except urllib.error.HTTPError as error:\n"
        "        open(os.environ['LOG'] + '.late', 'w').write(error.read().decode())\n\n"
        "def work(row):\n    threading.Thread(target=late).start()\n    return 'ok'"
    )
    lm = EchoLM()
    with workbench.load(write(tmp_path, later), pool=SimulatedPool(lm)) as wf:
        assert wf(text="a")["label"] == "ok"
        until = time.monotonic() + 10
        while not (tmp_path / "started.late").exists() and time.monotonic() < until:
            time.sleep(0.05)
    assert "The row has ended" in (tmp_path / "started.late").read_text() and not lm.asked


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"command": [sys.executable, "-c", "import sys; sys.exit('no {port}')"]}, "exit code 1; it said: no"),
        ({"command": ["sleep", "60", "{port}"], "start": 0.3}, "does not listen at http://127.0.0.1"),
        ({"command": ["no-such-program", "{port}"]}, "start"),
    ],
)
def test_a_service_that_does_not_start_says_why(settings: Any, told: str, tmp_path: Path) -> None:
    with workbench.load(write(tmp_path, **settings), pool=SimulatedPool(EchoLM())) as wf:
        kind, message = failure_of(wf, "a")
    assert kind == "start" and told in message


def test_a_port_where_something_listens_is_not_taken_for_the_service(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        fixed = {"url": f"http://127.0.0.1:{port}/", "command": [sys.executable, "server.py", str(port)]}
        with workbench.load(write(tmp_path, **fixed), pool=SimulatedPool(EchoLM())) as wf:
            kind, message = failure_of(wf, "a")
    assert kind == "start" and "another program listens" in message


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"url": "http://127.0.0.1:8000/"}, "is needed in `url` and in"),
        ({"command": ["serve"]}, "is needed in `url` and in"),
        ({"command": ["serve", "{port}", "{text}"]}, "{text} has no value there"),
        ({"external": "port -> label"}, "cannot be named 'port'"),
        ({"output": "file:x"}, "in no file"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught, workbench.load(write(tmp_path, **settings)):
        pass
    assert told in str(caught.value)


def test_a_service_is_improved_as_it_is(tmp_path: Path) -> None:
    """Its slots are found and patched, and a candidate's other files mean a service of its own."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/server.py").write_text(SERVER)
    file = write_agent(tmp_path, "", **FREE, folder="src", env={"LOG": str(tmp_path / "started")})
    lm = SimulatedLM()
    report = optimize(
        file,
        database=tmp_path / "run.db",
        optimizers=[("checked", make_optimizer({"rewrite": {"rounds": 2}}))],
        pool=SimulatedPool(lm),
        options=Options(out=str(tmp_path / "out.yaml"), allow_unproved=True),
    )
    assert report.status == "finished", report.error
    slots = report.winner.get("nodes.agent.slots")
    assert slots["system"]["match"] == SYSTEM.replace("2026-11-23", "{{1}}")
    assert report.best["val"] > report.baseline["val"] and 1 <= len(started(tmp_path)) <= 4
    assert not any(map(runs, started(tmp_path)))


def test_trust_is_asked_for_a_service_that_is_started(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path), "WORKBENCH_TRUST": ""}
    command = [
        sys.executable,
        "-m",
        "workbench",
        "agent",
        "slots",
        str(write(tmp_path)),
        "--db",
        str(tmp_path / "run.db"),
    ]
    told = subprocess.run(command, env=env, capture_output=True, text=True, check=False).stderr
    assert "server.py" in told and not (tmp_path / "started").exists()
