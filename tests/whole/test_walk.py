"""A newcomer's first hour, by the documented commands: from wheels in a fresh venv to a winner that is used."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from tests.helpers.wheels import BASE, ROOT, Environment, build_wheels

from workbench.base.distribution import BUNDLED

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


def test_from_an_empty_folder_to_a_winner_in_use_within_ten_minutes(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    wheels = build_wheels(
        tmp_path / "wheels", *(BUNDLED[name] for name in (*BASE, "workbench-dspy", "workbench-watch"))
    )
    user = Environment(tmp_path, wheels, [*BASE, "workbench-dspy", "workbench-watch[serve]"])
    installed = user.run(str(user.python), "-c", "import workbench; print(workbench.__file__)")
    assert Path(installed.strip()).is_relative_to(tmp_path), "the walk is of the wheels, not of the checkout"

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
    served = json.loads(user.run(str(user.python), "-c", APP, texts[0]))
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
    answers = json.loads(
        user.run(
            str(user.python), "-c", DSPY, cwd=user.home / "sorter", given=json.dumps(texts[:20]), PYTHONPATH=str(ROOT)
        )
    )
    assert answers == [row["label"] for row in found[:20]]
