"""`workbench serve` as a process: what it asks before it listens, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.helpers.lm_faults import ChatServer

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "workbench", "serve", *map(str, words)]


def environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("WORKBENCH_SERVE_TOKEN", "WORKBENCH_TRUST")}
    return {**kept, "XDG_CONFIG_HOME": str(folder / "config")}


def write(folder: Path, server: ChatServer | None = None, **changes: Any) -> Path:
    lm: Any = {"model": "openai/x", "api_base": server.base} if server else "bundled/nano"
    (folder / "winner.yaml").write_text(
        yaml.safe_dump({"lm": lm, "nodes": {"n": {"predict": "text -> answer"}}, **changes})
    )
    return folder / "winner.yaml"


@contextmanager
def serving(folder: Path, path: Path, *words: object) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with subprocess.Popen(
        command(path, "--port", 0, *words), stderr=subprocess.PIPE, text=True, env=environment(folder)
    ) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert line.startswith("Serving "), line + process.stderr.read()
            yield line.split()[-1], process
        finally:
            process.kill()


def wait_for_request(server: ChatServer) -> None:
    begun = time.monotonic()
    while not server.requests and time.monotonic() - begun < 10:
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_lets_running_requests_end(tmp_path: Path, number: signal.Signals) -> None:
    with ChatServer("ok", latency=0.8) as server, serving(tmp_path, write(tmp_path, server)) as (address, process):
        found: list[httpx.Response] = []
        asked = threading.Thread(
            target=lambda: found.append(httpx.post(f"{address}/predict", json={"text": "x"}, timeout=20))
        )
        asked.start()
        wait_for_request(server)
        process.send_signal(number)
        time.sleep(0.3)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{address}/health")
        asked.join()
        assert found and found[0].status_code == 200 and "x" in found[0].json()["outputs"]["answer"]
        assert process.wait(15) == 0 and process.stderr is not None
        assert process.stderr.read() == "Stopped.\n", "no traceback"


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    answered: list[int] = []

    def ask(address: str) -> None:
        with suppress(httpx.TransportError):
            answered.append(httpx.post(f"{address}/predict", json={"text": "x"}, timeout=30).status_code)

    with ChatServer("stall") as server, serving(tmp_path, write(tmp_path, server)) as (address, process):
        asked = threading.Thread(target=ask, args=(address,))
        asked.start()
        wait_for_request(server)
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        assert process.wait(10) == 0 and process.stderr is not None
        assert process.stderr.read() == "Stopped.\n", "no traceback"
        asked.join()
    assert 200 not in answered


def refused(folder: Path, *words: object) -> str:
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=60, env=environment(folder))
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    return done.stderr


@pytest.mark.slow
def test_what_cannot_be_served_is_said_before_it_listens(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert "no token is set" in refused(tmp_path, path, "--host", "0.0.0.0")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port}: Address already in use" in refused(tmp_path, path, "--port", port)
    assert "none.yaml" in refused(tmp_path, tmp_path / "none.yaml")


def test_a_strangers_workflow_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("open('ran', 'w')\ndef look(text: str) -> str:\n    return text\n")
    path = write(tmp_path, nodes={"n": {"tool": "python:tools.py:look", "output": "found"}})
    assert "is not trusted yet" in refused(tmp_path, path, "--port", 0) and not (tmp_path / "ran").exists()


def test_without_the_extra_it_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None\n"
        f"from workbench.cli import main; main(['serve', {str(write(tmp_path))!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(tmp_path))
    assert done.returncode == 2 and "serving needs uvicorn" in done.stderr and "[serve]" in done.stderr


def test_a_token_of_the_environment_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    monkeypatch.setenv("TOKEN_OF_TEST", "s3cret")
    with serving(tmp_path, path, "--token", "s3cret", "--host", "127.0.0.1") as (address, _):
        with httpx.Client(base_url=address, timeout=60) as client:
            assert client.post("/predict", json={"text": "x"}).status_code == 401
            headers = {"Authorization": "Bearer s3cret"}
            found = client.post("/predict", json={"text": "x"}, headers=headers)
            assert found.status_code == 200 and isinstance(json.loads(found.text)["outputs"]["answer"], str)
            assert "s3cret" not in client.get("/openapi.json", headers=headers).text


def test_a_winner_is_served_without_optuna(tmp_path: Path) -> None:
    """docs/reference/loaded-workflows.md leaves out these packages, which Optuna alone brings."""
    page = Path(__file__).parents[3] / "docs/reference/loaded-workflows.md"
    (line,) = [line for line in page.read_text().splitlines() if "pip uninstall -y" in line]
    gone = line.split(" -y ")[1].split()
    assert gone[0] == "optuna" and len(gone) == 7
    folder = tmp_path / "without"
    for name in gone:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"raise ModuleNotFoundError('{name} is not installed')\n")
    known = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    with ChatServer() as server:
        path = write(tmp_path, server)
        run = subprocess.run(
            [sys.executable, "-m", "workbench", "run", path, "--input", "text=x"],
            env=environment(tmp_path) | {"PYTHONPATH": known}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", known)
            with serving(tmp_path, path) as (address, _):
                found = httpx.post(f"{address}/predict", json={"text": "x"}, timeout=60)
    assert found.status_code == 200 and found.json()["outputs"]["answer"]
