"""A newcomer's first hour, by the documented commands: from a wheel in a fresh venv to a winner that is used."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow

APP = """
import contextlib
import sys

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

import workbench


@contextlib.asynccontextmanager
async def lifespan(app):
    async with workbench.load("optimized.yaml") as app.state.workflow:
        yield


async def sort(request):
    found = await request.app.state.workflow.acall(**await request.json())
    return JSONResponse({**found, "calls": found.cost.calls})


with TestClient(Starlette(routes=[Route("/sort", sort, methods=["POST"])], lifespan=lifespan)) as client:
    print(client.post("/sort", json={"text": sys.argv[1]}).text)
"""

DSPY = """
import json
import sys

from program import Program
program = Program()
program.load("program.json")

import dspy
from tests.helpers.exported import Answers, nano

dspy.configure(lm=Answers(nano).lm())  # DSPy does not serve the bundled model
print(json.dumps([program(text=text).label for text in json.load(sys.stdin)]))
"""


class Newcomer:
    """A venv with the wheel of the checkout, and an empty folder."""

    def __init__(self, folder: Path):
        self.venv, self.home = folder / "venv", folder / "home"
        self.home.mkdir()
        hidden = ("WORKBENCH_", "PYTHONPATH", "VIRTUAL_ENV")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self.env |= {"XDG_CONFIG_HOME": str(folder / "config"), "OMP_NUM_THREADS": "1"}
        venv.create(self.venv, with_pip=False)
        scripts = "Scripts" if os.name == "nt" else "bin"
        self.scripts = self.venv / scripts
        self._install(folder / "wheels")

    def _install(self, wheels: Path) -> None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        build = [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(ROOT)]
        subprocess.run(build, check=True, capture_output=True, timeout=240)
        (wheel,) = wheels.glob("*.whl")
        into = [*pip, "--python", str(self.scripts / "python"), "install", "-q", "--no-deps", "--no-index", str(wheel)]
        subprocess.run(into, check=True, capture_output=True, timeout=240)
        # The dependencies are those of this interpreter: no network is needed. Plain paths, so that an editable
        # installation of the checkout is not found there.
        site = Path(sysconfig.get_path("purelib", vars={"base": str(self.venv), "platbase": str(self.venv)}))
        found = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        (site / "dependencies.pth").write_text("\n".join(found), encoding="utf-8")

    def run(self, *command: str, folder: str = ".", given: str = "", **env: str) -> str:
        cwd, env = self.home / folder, self.env | env
        done = subprocess.run(command, cwd=cwd, env=env, input=given, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def workbench(self, *args: str) -> str:
        return self.run(str(self.scripts / "workbench"), *args)

    def json(self, *args: str) -> Any:
        return json.loads(self.workbench(*args, "--json").splitlines()[-1])

    def python(self, code: str, *args: str, **more: str) -> str:
        return self.run(str(self.scripts / "python"), "-c", code, *args, **more)


def test_from_an_empty_folder_to_a_winner_in_use_within_ten_minutes(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    user = Newcomer(tmp_path)
    installed = user.python("import workbench; print(workbench.__file__)")
    assert Path(installed.strip()).is_relative_to(user.venv), "the walk is of the wheel, not of the checkout"

    user.workbench("init")
    assert {path.name for path in user.home.iterdir()} == {"rows.jsonl", "schema.json", "workflow.yaml"}
    rows = [json.loads(line) for line in (user.home / "rows.jsonl").read_text(encoding="utf-8").splitlines()]

    before = user.json("eval", "workflow.yaml")
    assert 0 < before["score"] < 1 and before["n"] == 60 and not before["warnings"]

    report = user.json("optimize", "workflow.yaml")
    low, high = report["gain"]["ci95"]
    assert report["status"] == "finished" and report["gain"]["shown"] and 0 < low < report["gain"]["diff"] < high
    assert report["baseline"]["val"] == pytest.approx(before["score"]) and report["best"]["val"] > before["score"]
    assert 0 < report["spent"]["calls"] <= 1200

    after = user.json("eval", "optimized.yaml")
    assert after["score"] == pytest.approx(report["best"]["val"])
    (difference,) = user.json("compare", before["run"], after["run"])["compared"]
    assert difference["diff"] == pytest.approx(after["score"] - before["score"]) and difference["p"] < 0.001
    gain = f"{report['gain']['diff']:+.3f}"
    assert gain in user.workbench("compare", report["run"]) and gain in user.workbench("show", report["run"])

    texts = [row["text"] for row in rows]
    served = json.loads(user.python(APP, texts[0]))
    assert served == {"label": rows[0]["label"], "calls": 1}

    with (user.home / "in.csv").open("w", newline="", encoding="utf-8") as file:
        written = csv.DictWriter(file, ["number", "text"])
        written.writeheader()
        written.writerows({"number": number, "text": text} for number, text in enumerate(texts))
    user.workbench("predict", "optimized.yaml", "in.csv", "--out", "out.csv")
    with (user.home / "out.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert [row["number"] for row in found] == [str(number) for number in range(len(rows))]
    right = sum(row["label"] == of["label"] for row, of in zip(found, rows, strict=True))
    assert right / len(rows) > before["score"] + 0.2

    user.workbench("export", report["run"], "--format", "dspy", "--out", "sorter")
    answers = json.loads(user.python(DSPY, folder="sorter", given=json.dumps(texts[:20]), PYTHONPATH=str(ROOT)))
    assert answers == [row["label"] for row in found[:20]]
