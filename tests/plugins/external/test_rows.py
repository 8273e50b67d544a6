"""One row of an agent: what it is given, how its answer is read, and how it fails."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.external_agents import CLIENT, SORTER

import workbench
from workbench.errors import LMError, SpecError
from workbench.inference import PredictionError
from workbench.lm import Request, Response
from workbench_testing.simulated import SimulatedLM, SimulatedPool

ECHO = "import sys; print(sys.stdin.read())"


class RecordingLM(SimulatedLM):
    """Answers `yes` to everything, and keeps the requests."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Request] = []

    async def complete(self, request: Request) -> Response:
        self.asked.append(request)
        return Response("yes", "stop", 3, 1, 0.0)


def answer(place: Path, lm: SimulatedLM | None = None, signature: str = "text -> label", **settings: Any) -> Any:
    """The outputs of one row. A setting `source` is the agent in Python."""
    if (source := settings.pop("source", None)) is not None:
        (place / "agent.py").write_text(source)
        settings["command"] = ["python", "agent.py", *settings.pop("arguments", [])]
    node = {"external": signature, "timeout": 30, **settings}
    file = place / "workflow.yaml"
    spec = {"model": "openai/m", "attempts": node.pop("attempts", 3)}
    file.write_text(yaml.safe_dump({"name": "t", "lm": spec, "nodes": {"agent": node}}))
    with workbench.load(file, pool=SimulatedPool(lm or RecordingLM())) as wf:
        return dict(wf(text="a b"))


def failure(place: Path, **settings: Any) -> tuple[str | None, str]:
    with pytest.raises(PredictionError) as caught:
        answer(place, **settings)
    return caught.value.prediction.failure, str(caught.value)


@pytest.mark.parametrize(
    ("settings", "printed"),
    [
        ({"command": ["cat"], "output": "json:text"}, "a b"),
        ({"command": ["cat"], "stdin": "text"}, "a b"),
        ({"command": ["echo", "<{text}>", "{other}"], "stdin": "none"}, "<a b> {other}"),
        ({"command": ["sh", "-c", 'printf %s "$NOTE"'], "env": {"NOTE": "n:{text}"}}, "n:a b"),
        ({"command": ["sh", "-c", "cat > out.txt"], "output": "file:out.txt", "stdin": "text"}, "a b"),
        ({"command": ["sh", "-c", "echo log; echo ' x y '; echo"], "output": "line"}, "x y"),
        ({"command": ["sh", "-c", 'echo log; echo \'{"label": "x"}\''], "output": "json"}, "x"),
        ({"command": ["sh", "-c", "pwd; ls"]}, None),
    ],
)
def test_inputs_and_answers_pass_in_the_ways_that_programs_use(
    settings: Any, printed: str | None, tmp_path: Path
) -> None:
    found = answer(tmp_path, **settings)["label"]
    if printed is None:
        assert found.startswith("/") and "\n" not in found and not Path(found).exists(), "an empty folder that is gone"
    else:
        assert found == printed


def test_several_outputs_are_read_with_their_types(tmp_path: Path) -> None:
    command = ["echo", '{"label": "x", "score": "0.5", "more": 1}']
    found = answer(tmp_path, signature="text -> label, score: float", command=command, output="json")
    assert found == {"label": "x", "score": 0.5}


@pytest.mark.parametrize("printed", ['{"score": null}', '{"score": "much"}', '{"score": {}}', '{"score": NaN}'])
def test_an_answer_of_another_type_is_none(printed: str, tmp_path: Path) -> None:
    settings = {"command": ["echo", printed], "output": "json", "stdin": "none"}
    assert answer(tmp_path, signature="text -> score: int", **{**settings, "command": ["echo", '{"score": 2.0}']}) == {
        "score": 2
    }
    assert failure(tmp_path, signature="text -> score: int", **settings)[0] == "unparsed"


def test_an_answer_is_no_file_outside_the_folder_of_its_row(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    command = ["ln", "-s", str(tmp_path / "secret"), "out.txt"]
    found, message = failure(tmp_path, command=command, output="file:out.txt", stdin="none")
    assert found == "empty" and "mine" not in message


def test_no_more_programs_run_at_once_than_the_file_says(tmp_path: Path) -> None:
    """A training starts hundreds of rows together; as many processes would take the memory of the machine."""
    (tmp_path / "here").mkdir()
    mark = 'touch "$HERE/$$"; ls "$HERE" | wc -l; sleep 0.2; rm "$HERE/$$"'
    node = {"external": "text -> label", "processes": 2, "env": {"HERE": str(tmp_path / "here")}}
    file = tmp_path / "workflow.yaml"
    file.write_text(
        yaml.safe_dump({"lm": "openai/m", "nodes": {"agent": {**node, "command": ["sh", "-c", mark], "stdin": "none"}}})
    )
    with workbench.load(file, pool=SimulatedPool(RecordingLM())) as wf:
        found = [int(row.outputs["label"]) for row in wf.batch([{"text": str(i)} for i in range(8)], concurrency=8)]
    assert max(found) == 2


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        (["sh", "-c", "echo broken >&2; exit 3"], "exit", "exit code 3; it said: broken"),
        (["sh", "-c", "kill -SEGV $$"], "crash", "signal 11"),
        (["sleep", "30"], "deadline", "more than 1 s"),
        (["true"], "empty", "no answer"),
        (
            ["no-such-program"],
            "start",
            "cannot be started: there is no program 'no-such-program' on its PATH",
        ),
        (["./note.txt"], "start", "note.txt is not executable; name what runs it before it"),
        (
            ["python", "-c", "import a.b.c"],
            "exit",
            'said: File "<string>", line 1, in <module> ModuleNotFoundError: No',
        ),
        (["yes"], "output", "too much"),
    ],
)
def test_a_failure_of_the_agent_has_a_kind_and_what_it_said(
    command: list[str], kind: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_text("no program")
    found, message = failure(tmp_path, command=command, timeout=1.0 if command[0] == "sleep" else 30.0)
    assert found == kind and words in message


def test_what_an_agent_started_is_killed_with_it(tmp_path: Path) -> None:
    mark = f"77{os.getpid()}.5"
    answer(tmp_path, command=["sh", "-c", f"sleep {mark} & echo done"])
    for _ in range(50):
        if not subprocess.run(["pgrep", "-f", f"sleep {mark}"], capture_output=True, check=False).stdout:
            return
        time.sleep(0.1)
    pytest.fail("a child of the agent lives on")


def test_each_row_has_a_copy_of_the_folder_and_files_that_are_slots_are_written_into_it(tmp_path: Path) -> None:
    (tmp_path / "home/.git").mkdir(parents=True)
    (tmp_path / "home/AGENTS.md").write_text("old")
    slots = {"rules": {"in": "file", "name": "AGENTS.md", "match": "old", "text": "new"}}
    found = answer(
        tmp_path, command=["sh", "-c", "cat AGENTS.md; echo; rm AGENTS.md; ls -a | wc -l"], folder="home", slots=slots
    )
    assert found["label"].split() == ["new", "2"] and (tmp_path / "home/AGENTS.md").read_text() == "old"
    (tmp_path / "home/AGENTS.md").write_text("changed since")
    assert answer(tmp_path, command=["cat", "AGENTS.md"], folder="home", slots=slots)["label"] == "changed since"


def test_keys_of_ours_never_reach_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "MY_TOKEN"):
        monkeypatch.setenv(name, "sk-secret-of-ours")
    found = answer(tmp_path, command=["env"])["label"]
    assert "sk-secret-of-ours" not in found and "OPENAI_BASE_URL=http://127.0.0.1:" in found
    assert "sk-secret-of-ours" in answer(tmp_path, command=["env"], env={"TOKEN": "$MY_TOKEN"})["label"]


def test_an_agent_that_reads_other_variables_is_led_to_the_gateway_by_env(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://elsewhere.example/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-ours")
    env = {"MY_URL": "$OPENAI_BASE_URL/", "MY_KEY": "${OPENAI_API_KEY}", "AZURE_OPENAI_ENDPOINT": "https://a.example"}
    found = dict(line.partition("=")[::2] for line in answer(tmp_path, command=["env"], env=env)["label"].splitlines())
    assert found["MY_URL"] == found["OPENAI_BASE_URL"] + "/" and found["MY_URL"].startswith("http://127.0.0.1:")
    assert found["MY_KEY"] == found["OPENAI_API_KEY"] != "sk-secret-of-ours"
    assert found["AZURE_OPENAI_ENDPOINT"].startswith("http://127.0.0.1:"), "a provider that the file names is replaced"


def test_frameworks_send_no_traces_to_their_makers_unless_the_file_says_so(tmp_path: Path) -> None:
    found = answer(tmp_path, command=["env"])["label"].splitlines()
    assert {"OPENAI_AGENTS_DISABLE_TRACING=1", "LANGSMITH_TRACING=false", "CREWAI_TRACING_ENABLED=false"} <= {*found}
    found = answer(tmp_path, command=["env"], env={"LANGSMITH_TRACING": "true"})["label"].splitlines()
    assert "LANGSMITH_TRACING=true" in found


def test_a_call_goes_to_the_model_of_the_workflow_with_what_the_agent_set(tmp_path: Path) -> None:
    lm = RecordingLM()
    source = CLIENT + "print(chat([{'role': 'user', 'content': row['text']}], temperature=0.25, stop=['x'])['content'])"
    assert answer(tmp_path, lm, source=source) == {"label": "yes"}
    (request,) = lm.asked
    assert request.messages == ({"role": "user", "content": "a b"},)
    assert (request.temperature, request.stop, request.max_tokens) == (0.25, ("x",), 4096)


def test_equal_requests_of_a_row_are_different_draws_and_an_agent_that_sets_no_temperature_gets_the_usual_one(
    tmp_path: Path,
) -> None:
    lm = RecordingLM()
    answer(
        tmp_path, lm, source=CLIENT + "m = [{'role': 'user', 'content': 'x'}]\nprint(chat(m), chat(m), chat(m, n=2))"
    )
    assert [(r.replica, r.temperature) for r in lm.asked] == [(0, 1.0), (1, 1.0), (0, 1.0), (1, 1.0)]


def test_more_calls_than_allowed_end_the_row(tmp_path: Path) -> None:
    source = CLIENT + "while True:\n    chat([{'role': 'user', 'content': 'again'}])"
    lm = RecordingLM()
    kind, message = failure(tmp_path, lm=lm, source=source, calls=3)
    assert kind == "steps" and "calls: 3" in message and len(lm.asked) == 3


def test_an_agent_that_does_not_survive_an_outage_failed_for_the_outage(tmp_path: Path) -> None:
    assert failure(tmp_path, lm=SimulatedLM(fail=1.0), source=SORTER, attempts=1)[0] == "server"


FALLS_BACK = CLIENT + (
    "try:\n    label = chat([{'role': 'user', 'content': row['text']}])['content']\n"
    "except Exception:\n    label = 'yes'\nprint(label)"
)


def test_the_fallback_of_an_agent_is_no_answer_of_its_model(tmp_path: Path) -> None:
    """Whatever it says in an outage, the row has no result; with a request that is its own fault, it has."""
    assert failure(tmp_path, lm=SimulatedLM(fail=1.0), source=FALLS_BACK, attempts=1)[0] == "server"

    class Refusing(RecordingLM):
        async def complete(self, request: Request) -> Response:
            raise LMError("bad_request", "too many tools", status=400)

    assert answer(tmp_path, Refusing(), source=FALLS_BACK) == {"label": "yes"}


def test_a_function_is_called_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(
        "import os\nprint('loud')\n\nasync def reply(text):\n    print('aside')\n    os.system('echo aside')\n"
        "    return f'{text} {os.getpid()}'\n\ndef both(row_text, **more):\n    return [row_text, more]\n\n"
        "from pydantic import BaseModel\nclass Found(BaseModel):\n    label: str\n\n"
        "def typed(text):\n    return Found(label='\\u00e9' + text)\n\n"
        "async def streamed(text):\n    for word in text.split():\n        yield word\n\n"
        "def events(text):\n    yield text\n    yield {}\n\n"
        "class Agent:\n    def run(self, letter):\n        return '\u2192' + letter\n"
    )
    text, process = answer(tmp_path, python="tool.py:reply")["label"].rsplit(" ", 1)
    assert text == "a b" and int(process) != os.getpid()
    assert answer(tmp_path, python="python:tool:both", output="json")["label"] == ["a b", {}]
    assert answer(tmp_path, python="tool:typed", output="json")["label"] == "\u00e9a b"
    assert answer(tmp_path, python="tool:streamed")["label"] == "ab", "a stream of texts is one answer"
    assert answer(tmp_path, python="tool:events", output="json")["label"] == ["a b", {}]
    assert answer(tmp_path, python="tool.py:Agent")["label"] == "\u2192a b", "a class is made, and run"


def test_a_tool_of_an_mcp_server_is_an_agent(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    (tmp_path / "server.py").write_text(
        "from mcp.server import MCPServer\nimport os\nserver = MCPServer('s')\n\n@server.tool()\n"
        "def ask(text: str) -> str:\n    return text + ' ' + os.environ['OPENAI_BASE_URL'][:16]\n\nserver.run()\n"
    )
    assert answer(tmp_path, mcp=f"{sys.executable} server.py#ask")["label"] == "a b http://127.0.0.1"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "name one of command, url, a2a, python and mcp, not none"),
        ({"command": ["x"], "python": "x:y"}, "not command and python"),
        ({"url": "http://x", "mcp": "x#y"}, "not url and mcp"),
        ({"command": ["x"], "output": "xml"}, "names no place of an answer"),
        ({"command": ["x"], "output": "file:../a"}, "'../a' leads out of the row's working directory"),
        ({"command": ["x"], "output": "file:/tmp/a"}, "'/tmp/a' leads out of the row's working directory"),
        ({"url": "localhost:8000/ask"}, "'localhost:8000/ask' is not an address of an HTTP service"),
        ({"url": "http://127.0.0.1:{port}/"}, "{port} is needed in `url` and in `command` or `env`"),
        ({"url": "http://[::1/"}, "is not an address of an HTTP service"),
        ({"command": ["x"], "folder": "nowhere"}, "there is no folder"),
        ({"mcp": "server.py"}, "mcp names no tool"),
        ({"command": ["x"], "slots": {"s": {"in": "nowhere"}}}, "slots.s.in"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        answer(tmp_path, **settings)
    assert told in str(caught.value)


def test_a_service_is_asked_with_its_models_in_headers_and_read_to_the_end(tmp_path: Path) -> None:
    class Service(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else a body waits 40 ms for its head

        def do_POST(self) -> None:
            row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked = {"model": "m", "messages": [{"role": "user", "content": row["text"]}]}
            url, key = self.headers["X-OpenAI-Base-URL"] + "/chat/completions", self.headers["X-API-Key"]
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
            with urllib.request.urlopen(urllib.request.Request(url, json.dumps(asked).encode(), headers)) as found:
                answer = json.load(found)["choices"][0]["message"]["content"]
            self.send_response(201)  # as of a POST that creates
            self.end_headers()
            self.wfile.write(b"first part, ")
            self.wfile.flush()
            time.sleep(0.3)
            self.wfile.write(answer.encode() * 100_000)

        def log_message(self, format: str, *args: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True).start()
        found = answer(tmp_path, url=f"http://127.0.0.1:{server.server_port}/")["label"]
        server.shutdown()
    assert found == "first part, " + "yes" * 100_000
    kind, message = failure(tmp_path, url=f"http://127.0.0.1:{server.server_port}/")
    assert kind == "connection" and "cannot be reached" in message


def test_what_stands_before_a_service_is_no_failure_of_the_agent(tmp_path: Path, subtests: pytest.Subtests) -> None:
    class Service(BaseHTTPRequestHandler):
        given = (0, "")

        def do_POST(self) -> None:
            if self.given[0]:
                self.send_response(self.given[0])
                self.end_headers()
                self.wfile.write(self.given[1].encode())

        def log_message(self, format: str, *args: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True).start()
        page = "<!DOCTYPE html><title>Attention Required!</title>"
        for status, body, kind in [
            (0, "", "broken"),
            (302, "", "blocked"),
            (400, '{"error": "no such tool"}', "exit"),
            (400, page, "blocked"),
            (403, page, "blocked"),
            (404, "", "blocked"),
            (422, '{"detail": "b is missing"}', "exit"),
            (429, "slow down", "rate_limit"),
            (500, "Traceback", "exit"),
            (502, "", "server"),
            (503, page, "server"),
            (504, "", "server"),
        ]:
            Service.given = (status, body)
            with subtests.test(status=status, body=body):
                assert failure(tmp_path, url=f"http://127.0.0.1:{server.server_port}/")[0] == kind
        server.shutdown()


def test_values_of_inputs_name_no_variables_of_ours_and_the_gateways_are_named_by_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("a", "ours")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://ours")
    env = {"NOTE": "{text} $a", "URL": "$OPENAI_BASE_URL"}
    (tmp_path / "row.txt").write_text("")
    command = ["sh", "-c", "echo $NOTE; echo $URL"]
    node = {"external": "text -> label", "command": command, "env": env}
    (tmp_path / "workflow.yaml").write_text(yaml.safe_dump({"name": "t", "lm": "openai/m", "nodes": {"agent": node}}))
    with workbench.load(tmp_path / "workflow.yaml", pool=SimulatedPool(RecordingLM())) as wf:
        note, url = wf(text="$a ${a}")["label"].splitlines()
    assert note == "$a ${a} ours" and url.startswith("http://127.0.0.1:")


def test_the_row_runs_its_own_copy_of_an_agent_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "skill.md").write_text("old")
    (tmp_path / "main.py").write_text(
        "from pathlib import Path\ndef f(text): return Path(__file__).with_name('skill.md').read_text()\n"
    )
    slots = {"skill": {"in": "file", "name": "skill.md", "match": "old", "text": "new"}}
    source = "from pathlib import Path\nprint(Path(__file__).with_name('skill.md').read_text())"
    assert answer(tmp_path, source=source, folder=".", slots=slots) == {"label": "new"}
    assert answer(tmp_path, python="main.py:f", folder=".", slots=slots) == {"label": "new"}
    (tmp_path / "link").symlink_to(tmp_path)
    assert answer(tmp_path / "link", source=source, folder=".", slots=slots) == {"label": "new"}


def test_a_program_that_is_not_copied_with_the_folder_runs_where_it_is(tmp_path: Path) -> None:
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/run").symlink_to("/bin/sh")
    command = [".venv/bin/run", "-c", "ls -a | tr '\\n' ' '"]
    assert answer(tmp_path, command=command, folder=".") == {"label": ". .. .venv workflow.yaml"}


def test_the_clock_of_a_row_stops_while_a_model_answers(tmp_path: Path) -> None:
    class SlowLM(RecordingLM):
        async def complete(self, request: Request) -> Response:
            await asyncio.sleep(1.5)
            return await super().complete(request)

    source = CLIENT + "print(chat([{'role': 'user', 'content': 'x'}])['content'])"
    assert answer(tmp_path, SlowLM(), source=source, timeout=1.2) == {"label": "yes"}


def test_an_outage_that_an_agent_survived_is_not_why_it_failed_later(tmp_path: Path) -> None:
    class Hesitant(RecordingLM):
        async def complete(self, request: Request) -> Response:
            if "first" in str(request.messages):
                raise LMError("bad_body", "no")
            return await super().complete(request)

    source = CLIENT + (
        "try:\n    chat([{'role': 'user', 'content': 'first'}])\nexcept Exception: pass\n"
        "chat([{'role': 'user', 'content': 'second'}])\nsys.exit('my own bug')"
    )
    assert failure(tmp_path, lm=Hesitant(), source=source, attempts=1)[0] == "exit"
