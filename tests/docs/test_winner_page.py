"""The page on using the winner: its FastAPI application answers, and what it serves is asked as it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers import fastapi_stand_in

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/use-the-winner.md").read_text(encoding="utf-8")


def block(language: str, word: str) -> str:
    """The block of the page in a language that has a word in it."""
    found = re.findall(r"^( *)```(\w+)\n(.*?)^\1```$", PAGE, re.M | re.S)
    return next(textwrap.dedent(text) for _, name, text in found if name == language and word in text)


def test_friction_1_the_fastapi_application_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    testclient = pytest.importorskip("starlette.testclient")
    had = "fastapi" in sys.modules
    fastapi_stand_in.install()
    monkeypatch.chdir(ROOT)
    space: dict[str, Any] = {"__name__": "application"}
    try:
        exec(compile(block("py", "FastAPI"), "application.py", "exec"), space)
        with testclient.TestClient(space["app"]) as client:
            found = client.post("/sort", json={"text": "the app crashes"})
            assert found.status_code == 200 and found.json()["label"] == "technical" and "usd" in found.json()
    finally:
        if not had:
            sys.modules.pop("fastapi", None)


@pytest.mark.slow
def test_what_the_page_serves_is_asked_as_it_says(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    serve, curl = block("text", "workbench serve").strip().splitlines()
    words = shlex.split(serve)
    assert words[0] == "workbench"
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "workbench", *words[1:], "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=env) as process:
        assert process.stderr is not None
        try:
            address = process.stderr.readline().split()[-1]
            asked = shlex.split(curl)
            name, _, value = asked[asked.index("-H") + 1].partition(": ")
            url = asked[1].replace("http://127.0.0.1:8000", address)
            found = httpx.post(url, headers={name: value}, content=asked[asked.index("-d") + 1], timeout=60)
            assert found.status_code == 200 and json.loads(found.text)["outputs"]["label"] == "technical"
        finally:
            process.terminate()


def test_the_container_of_the_page_serves_the_bundle_of_the_page(tmp_path: Path) -> None:
    from workbench.inference import bundle_file

    made = bundle_file(ROOT / "workflows/quickstart.yaml", tmp_path / "winner")
    docker, run = block("dockerfile", "FROM"), block("text", "docker run").strip().splitlines()[1]
    served = json.loads(docker.partition("CMD ")[2])
    assert served[:3] == ["workbench", "serve", made.name] and (made.parent / served[2]).is_file()
    assert "-r requirements.lock" in docker and (tmp_path / "winner" / "requirements.lock").is_file()
    assert "USER app" in docker and "EXPOSE 8000" in docker and "-p 8000:8000 -e WORKBENCH_SERVE_TOKEN" in run
