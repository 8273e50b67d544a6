"""`workbench agent slots` and `workbench agent gateway`, as a user has them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner
from tests.helpers.external_agents import SORTER, SYSTEM, write_agent
from tests.helpers.forking import start_module
from tests.helpers.upstream import as_event, upstream

from workbench.cli import cli
from workbench.errors import SpecError
from workbench.run import Options, optimize, prepare
from workbench.study import make_optimizer
from workbench_external.observed import list_slots, observe_file
from workbench_testing.simulated import SimulatedLM, SimulatedPool

ROOT = Path(__file__).parents[3]


def test_the_slots_of_a_file_are_found_shown_and_written(tmp_path: Path) -> None:
    path = write_agent(tmp_path, SORTER)
    task = prepare(path)[2]
    workflow, runs, spent = observe_file(task, path, tmp_path / "run.db", 3, SimulatedPool(SimulatedLM()))
    assert len(runs) == 3 and spent.startswith("3 calls")
    assert workflow.get("nodes.agent.slots.system.match") == SYSTEM.replace("2026-11-23", "{{1}}")
    assert workflow.get("nodes.agent.calls") == 3


@pytest.mark.slow
def test_slots_needs_trust_and_tells_what_an_agent_that_fails_said(tmp_path: Path) -> None:
    path = write_agent(tmp_path, "import sys; sys.exit('no such thing')")

    def slots(trusted: str) -> tuple[int, str]:
        words = ("agent", "slots", str(path), "--db", str(tmp_path / "run.db"))
        env = {"XDG_CONFIG_HOME": str(tmp_path), "WORKBENCH_TRUST": trusted}
        job = start_module("workbench", *words, env=env)
        _, said = job.communicate(100)
        return job.wait(), said

    assert "is not trusted yet" in slots("")[1]
    code, said = slots(str(tmp_path))
    assert "exit code 1; it said: no such thing" in said and code == 2, said
    assert "empty working directory, unless `folder` names one" in said


def test_an_agent_that_never_starts_stops_a_search_before_it_is_paid_for(tmp_path: Path) -> None:
    path = write_agent(tmp_path, "import sys; sys.exit('no such thing')")
    with pytest.raises(SpecError, match="failed on each of 2 rows before it asked a model; exit: .*no such thing"):
        observe_file(prepare(path)[2], path, tmp_path / "run.db", 2, SimulatedPool(SimulatedLM()))


def test_an_agent_that_asks_past_the_gateway_is_told_of(tmp_path: Path) -> None:
    path = write_agent(tmp_path, "print('a')")
    with pytest.raises(SpecError, match="made no call through the gateway"):
        observe_file(prepare(path)[2], path, tmp_path / "run.db", 2, SimulatedPool(SimulatedLM()))


def test_slots_of_rows_that_all_failed_are_no_result(tmp_path: Path) -> None:
    """A server that is not there: the agent asked, and nothing of it can be shown."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = write_agent(tmp_path, SORTER)
    spec = {
        **json.loads(path.read_text()),
        "lm": {"model": "openai/m", "api_base": f"http://127.0.0.1:{port}/v1", "attempts": 1},
    }
    path.write_text(json.dumps(spec))
    told = CliRunner().invoke(
        cli, ["agent", "slots", str(path), "--rows", "1", "--db", str(tmp_path / "run.db"), "--json"]
    )
    assert told.exit_code != 0 and f"no server at 127.0.0.1:{port}" in str(told.exception), told.output
    assert "correct `api_base`" in str(told.exception) and not told.stdout


def gateway(
    folder: Path, node: dict[str, Any], lm: Any = "templates/instructions"
) -> AbstractContextManager[dict[str, str]]:
    """A running gateway of a file with this node."""
    spec = {"name": "t", "lm": lm, "nodes": {"agent": {"external": "text -> label", **node}}}
    (folder / "out.yaml").write_text(yaml.safe_dump(spec))
    return gateway_of(folder, "out.yaml")


def test_ea9_the_gateway_is_fit_for_production(tmp_path: Path) -> None:
    """Streams pass, no address holds the key, requests in flight end before it does, and refusals are told."""
    gate, begun = threading.Event(), threading.Event()

    async def slowly(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(as_event({"choices": [{"index": 0, "delta": {"content": "a"}}]}))
        begun.set()
        await asyncio.to_thread(gate.wait, 20)
        await response.write(as_event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        await response.write(as_event("[DONE]"))
        return response

    with upstream() as server:
        refusal = (400, {"error": {"message": "no such model", "type": "invalid_request_error"}})
        server.answers["chat/completions"] = [refusal, slowly]
        lm = {"model": "openai/up", "api_base": f"{server.address}/v1"}
        with gateway(tmp_path, {"command": ["true"]}, lm=lm) as variables:
            key, addresses = variables["OPENAI_API_KEY"], [v for n, v in variables.items() if "URL" in n or "BASE" in n]
            assert addresses and not any(key in address for address in addresses)
            assert variables["OPENAI_AGENTS_DISABLE_TRACING"] == "1"
            with pytest.raises(urllib.error.HTTPError, match="400"):
                chat(variables, "x")
            answer = open_chat(variables, "x", stream=True)
            begun.wait(20)
            os.kill(int(variables["pid"]), signal.SIGTERM)
            variables["told to end"] = "yes"
            with pytest.raises(urllib.error.HTTPError, match="503"):
                while True:  # the signal is on its way
                    server.answers["chat/completions"] = []
                    chat(variables, "x")
            gate.set()
            assert answer.read().endswith(b"[DONE]\n\n")
    said = variables["stderr"]
    assert (
        "All requests pass to the model at once" in said
        and 'refused: status 400: {"error": {"message": "no such' in said
    )
    assert "the agent named 1 model: m: " in said and "answered by openai/up" in said
    assert "asked 1 time and was refused: status 400" in said and key not in said


def test_h10_a_second_signal_ends_the_gateway_while_it_drains(tmp_path: Path) -> None:
    begun, gate = threading.Event(), threading.Event()

    async def silent(request: web.Request) -> web.StreamResponse:
        begun.set()
        await asyncio.to_thread(gate.wait, 20)
        return web.Response()

    with upstream() as server:
        server.answers["chat/completions"] = [silent]
        lm = {"model": "openai/up", "api_base": f"{server.address}/v1"}
        with gateway(tmp_path, {"command": ["true"]}, lm=lm) as variables:
            asking = threading.Thread(target=ask_in_vain, args=(variables,))
            asking.start()
            assert begun.wait(20)
            os.kill(int(variables["pid"]), signal.SIGTERM)
            with pytest.raises(urllib.error.HTTPError, match="503"):
                while True:  # the signal is on its way
                    server.answers["chat/completions"] = []
                    chat(variables, "x")
        gate.set()
        asking.join()


def test_s17_a_malformed_request_puts_no_key_and_no_traceback_on_stderr(tmp_path: Path) -> None:
    with gateway(tmp_path, {"command": ["true"]}) as variables:
        place = urllib.parse.urlsplit(variables["OPENAI_BASE_URL"])
        assert place.hostname is not None
        key = variables["OPENAI_API_KEY"]
        for raw in (
            f"POST /s/{key}/v1/chat/completions HTTP/1.1\nHost: x\n\n",
            f"POST /s/{key}/v1/chat/completions HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            f"GET /s/{key} HTTP/1.1\r\nX: {'x' * 70000}\r\n\r\n",
            f"GET /s/{key}\0 HTTP/1.1\r\n\r\n",
            f"{key}\r\n\r\n",
        ):
            with socket.create_connection((place.hostname, place.port or 0), timeout=10) as client:
                client.sendall(raw.encode())
                client.settimeout(10)
                with suppress(OSError):
                    assert not client.recv(100).startswith(b"HTTP/1.1 200")
    assert "Traceback" not in variables["stderr"] and key not in variables["stderr"], variables["stderr"]


@contextmanager
def gateway_of(folder: Path, *result: str) -> Iterator[dict[str, str]]:
    """The variables that a running `workbench agent gateway` prints. It is told to end, unless a test has told it: a
    second signal ends it at once. Then the variables have what it said, as `stderr`."""
    env = {**os.environ, "WORKBENCH_TRUST": str(folder)}
    command = [sys.executable, "-m", "workbench", "agent", "gateway", *result, "--port", "0"]
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert "is listening at http://127.0.0.1:" in process.stderr.readline()
        process.send_signal(0)
        found: dict[str, str] = {"pid": str(process.pid)}
        while "OPENAI_AGENTS_DISABLE_TRACING" not in found or "OPENAI_BASE_URL" not in found:
            name, _, value = process.stdout.readline().strip().partition("=")
            found[name] = value
        try:
            yield found
        finally:
            if "told to end" not in found:
                process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
            found["stderr"] = process.stderr.read()


def chat(variables: dict[str, str], system: str, key: str | None = None) -> Any:
    with open_chat(variables, system, key) as answer:
        return json.load(answer)


def ask_in_vain(variables: dict[str, str]) -> None:
    with suppress(OSError):  # of the server that ends
        chat(variables, "x")


def open_chat(variables: dict[str, str], system: str, key: str | None = None, **more: Any) -> Any:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "x"}]
    body = {"model": "m", "messages": messages, **more}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key or variables['OPENAI_API_KEY']}"}
    url = f"{variables['OPENAI_BASE_URL']}/chat/completions"
    return urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers))


def test_the_gateway_replaces_texts_in_production(tmp_path: Path) -> None:
    slots = {"system": {"in": "system", "match": "Be short on {{1}}.", "text": "Be kind on {{1}}."}}
    slots["skill"] = {"in": "file", "name": "SKILL.md", "match": "old", "text": "new"}
    with gateway(tmp_path, {"command": ["true"], "slots": slots}) as variables:
        assert chat(variables, "Be short on Monday.")["choices"][0]["message"]["content"]
        chat(variables, "Another text.")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            chat(variables, "Hi", key="sk-workbench-of-somebody-else")
    assert "no slot matches: system: Another text." in variables["stderr"]
    assert "SKILL.md is a file; the gateway cannot replace it: use `workbench agent apply`." in variables["stderr"]
    assert "Monday" not in variables["stderr"]


def test_the_agent_of_a_run_is_looked_for_where_the_run_had_it(tmp_path: Path) -> None:
    """`apply RUN` and `gateway RUN`, whose folder is relative to the file of the run."""
    from workbench_external.commands import _asked_about

    (tmp_path / "office").mkdir()
    path = write_agent(tmp_path, SORTER, rows=(1, 1, 6), folder="office", slots={})
    (tmp_path / "agent.py").rename(tmp_path / "office/agent.py")
    options, pool = Options(out=str(tmp_path / "out.yaml")), SimulatedPool(SimulatedLM())
    run = optimize(path, database=tmp_path / "run.db", optimizers=[], pool=pool, options=options).run
    source = _asked_about(run, str(tmp_path / "run.db"))
    assert (source.file, source.value["nodes"]["agent"]["folder"]) == (str(path), "office")
    applied = CliRunner().invoke(
        cli, ["agent", "apply", run, "--to", str(tmp_path / "office"), "--db", str(tmp_path / "run.db")]
    )
    assert applied.exit_code == 0 and "No text of an agent was changed." in applied.output, applied.output


@pytest.mark.slow
def test_the_gateway_of_a_run_is_that_of_its_winner(tmp_path: Path) -> None:
    lm = SimulatedPool(SimulatedLM())
    rewrite = [("checked", make_optimizer({"rewrite": {"rounds": 1}}))]
    options = Options(out=str(tmp_path / "out.yaml"), allow_unproved=True)
    path = write_agent(tmp_path, SORTER, rows=(6, 8, 8), folder="office")
    (tmp_path / "office").mkdir()
    (tmp_path / "agent.py").rename(tmp_path / "office/agent.py")
    report = optimize(path, database=tmp_path / "run.db", optimizers=rewrite, pool=lm, options=options)
    found = report.winner.get("nodes.agent.slots.system.text")
    assert found != report.winner.get("nodes.agent.slots.system.match")
    arguments = [report.run, "--to", str(tmp_path / "office"), "--write", "--db", str(tmp_path / "run.db")]
    applied = CliRunner().invoke(cli, ["agent", "apply", *arguments])
    assert applied.exit_code == 0 and "1 file changed." in applied.output, applied.output
    with gateway_of(tmp_path, report.run, "--db", "run.db", "--set", "lm=templates/instructions") as variables:
        assert chat(variables, SYSTEM)["choices"][0]["message"]["content"]
        chat(variables, "Another text.")
    assert "no slot matches: system: Another text." in variables["stderr"]
    assert SYSTEM[:30] not in variables["stderr"], "which is replaced"
    with pytest.raises(AssertionError), gateway_of(tmp_path, "no-such-run", "--db", "run.db"):
        pass


@pytest.mark.slow
def test_what_a_gateway_cannot_begin_with_is_told_in_a_sentence(tmp_path: Path) -> None:
    spec = {"name": "t", "lm": "templates/instructions", "nodes": {"agent": {"external": "text -> label"}}}
    spec["nodes"]["agent"]["command"] = ["true"]
    (tmp_path / "out.yaml").write_text(yaml.safe_dump(spec))

    def told(*arguments: str) -> str:
        command = [sys.executable, "-m", "workbench", "agent", "gateway", *arguments]
        env = {**os.environ, "WORKBENCH_TRUST": str(tmp_path)}
        ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 2, ended.stderr
        return ended.stderr

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = told("out.yaml", "--port", str(port))
        assert said.startswith(f"Error: nothing can listen at 127.0.0.1, port {port}: Address already in use\n"), said
    assert told("nothere.yaml").startswith("Error: there is no file nothere.yaml")
    said = told("out.yaml", "--node", "clerk")
    assert said.startswith(
        "Error: out.yaml has 1 external node, and none is 'clerk'\n  Name one with --node: agent."
    ), said


@pytest.mark.slow
def test_an_agent_inside_another_node_is_found_by_all_three_commands(tmp_path: Path) -> None:
    slots = {"system": {"in": "system", "match": "Be short on {{1}}.", "text": "Be kind on {{1}}."}}
    inner = {"external": "text -> label", "command": ["true"], "slots": slots}
    spec = {"name": "t", "lm": "templates/instructions", "nodes": {"team": {"ensemble": inner, "samples": 2}}}
    (tmp_path / "out.yaml").write_text(yaml.safe_dump(spec))
    (tmp_path / "agent.py").write_text("prompt = f'Be short on {day}.'\n")
    with gateway_of(tmp_path, "out.yaml") as variables:
        chat(variables, "Another text.")
    assert "no slot matches: system: Another text." in variables["stderr"]
    applied = CliRunner().invoke(cli, ["agent", "apply", str(tmp_path / "out.yaml"), "--to", str(tmp_path)])
    assert '+prompt = f"Be kind on {day}."' in applied.output and applied.exit_code == 0

    path = write_agent(tmp_path, SORTER)
    file = json.loads(path.read_text())
    agent = file["nodes"]["agent"]
    file["nodes"] = {"team": {"ensemble": agent, "samples": 1}}
    path.write_text(json.dumps(file))
    workflow, _, _ = observe_file(prepare(path)[2], path, tmp_path / "run.db", 2, SimulatedPool(SimulatedLM()))
    assert [(found.node, found.name) for found in list_slots(workflow)[0]] == [("team.of", "system")]
