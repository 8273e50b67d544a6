"""`workbench data synthesize --failures`: rows like the train rows that a run failed, and never like those of val and
test."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.scripted import Script

from workbench.cli import cli
from workbench.errors import SpecError, StoreError
from workbench.kit.searching import frontier_weight
from workbench.lm import Request
from workbench.run import Options, optimize
from workbench.study import Optimizer, Study
from workbench.workflow import Workflow
from workbench_synthesize.synthesize import synthesize

APIS = {
    "pay": {"parameters": {"sum": {"type": "int"}}},
    "rain": {"parameters": {"city": {"type": "str"}}},
    "sing": {"parameters": {"song": {"type": "str"}}},
    "nap": {"parameters": {"minutes": {"type": "int"}}},
}


class Looks(Optimizer):
    """Looks at train twice, with fresh samples."""

    async def optimize(self, study: Study) -> Workflow:
        for replica in (0, 1):
            await study.evaluate(study.workflow, study.train, replica=replica)
        return study.best


def row(split: str, n: int, tool: str, **arguments: Any) -> dict[str, Any]:
    calls = [{"name": tool, "arguments": arguments}]
    return {
        "question": f"{split}mark{n} is about {tool} {json.dumps(arguments)}",
        "calls": calls,
        "tools": "hidden documents",
    }


def answer(request: Request) -> str:
    """Right for rain; right for sing in the first look; wrong for pay: the workflow whose failures are wanted."""
    text = str(request.messages[-1]["content"])
    tool, arguments = re.findall(r"is about (\w+) (\{.*?\})", text)[-1]
    right = tool == "rain" or (tool == "sing" and not request.replica)
    return "calls: " + json.dumps([{"name": tool if right else "wrong", "arguments": json.loads(arguments)}])


def earlier(folder: Path, shared: bool = False, tools: tuple[str, ...] = ("pay", "sing", "rain")) -> Path:
    """A workflow file; rows of every split are failed alike. shared: a row of test is in train, too."""
    folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {"pay": {"sum": 3}, "sing": {"song": "la"}, "rain": {"city": "rome"}}
    for split in ("train", "val", "test"):
        rows = [row(split, n, tools[n % len(tools)], **values[tools[n % len(tools)]]) for n in range(9)]
        rows += [row("shared", 0, "pay", sum=9)] if shared and split != "val" else []
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    spec = {
        "data": {s: f"{s}.jsonl" for s in ("train", "val", "test")},
        "metric": "tool_call_match(calls)",
        "lm": {"model": "openai/scripted", "attempts": 1, "temperature": 1.0},
        "budget": {"calls": 200},
        "nodes": {"call": {"predict": "question -> calls"}},
    }
    (folder / "workflow.yaml").write_text(json.dumps(spec))
    return folder / "workflow.yaml"


def run(folder: Path, **how: Any) -> str:
    report = optimize(
        earlier(folder, **how),
        options=Options(out=str(folder / "out.yaml")),
        database=folder / "a.db",
        optimizers=[("looks", Looks())],
        pool=Script(answer),
    )
    return report.run


def write(folder: Path, **settings: Any) -> Path:
    (folder / "apis.json").write_text(json.dumps(APIS))
    spec = {
        "apis": "apis.json",
        "shown": 1,
        "rows": 26,
        "each": 1,
        "concurrency": 2,
        "budget": {"calls": 26},
        **settings,
    }
    (folder / "spec.yaml").write_text(json.dumps(spec))
    return folder / "spec.yaml"


def rows(request: Request) -> str:
    n, tool = request.replica, str(request.messages[0]["content"]).split("tool `")[1].split("`")[0]
    (name,) = APIS[tool]["parameters"]
    value = n if APIS[tool]["parameters"][name]["type"] == "int" else f"v{n}"
    return json.dumps({"question": f"x{n} y{n} z{n}", "name": tool, "arguments": {name: value}})


def texts(script: Script) -> list[str]:
    return [str(request.messages) for request in script.requests]


def test_failed_train_rows_are_shown_and_no_row_of_val_or_test(tmp_path: Path) -> None:
    script, name = Script(rows), run(tmp_path, shared=True)
    found = synthesize(write(tmp_path, failures=name), database=str(tmp_path / "a.db"), pool=script)
    asked = "\n".join(texts(script))
    shown = set(re.findall(r"[a-z]+mark\d+", asked))
    # The row that test shares with train is left out of the test, so it may be learned from like any other of train.
    assert shown == {"sharedmark0", *(f"trainmark{n}" for n in range(9) if n % 3 != 2)}, "no solved one, val or test"
    assert "hidden documents" not in asked and "A model failed these" in asked
    like = [r["source"]["like"] for r in found.rows if "like" in r["source"]]
    assert like and all(one["run"] == name and len(one["rows"]) == 2 for one in like)
    about = Counter(r["calls"][0]["name"] for r in found.rows)
    # Failed twice: 4/6*5/6 = 0.56; solved once of two: 1; each of 26 requests goes to the furthest behind its share.
    assert about["sing"] > about["pay"] > about["rain"] >= 1 and about["nap"] >= 1
    for text in texts(script):
        tool = text.split("tool `")[1].split("`")[0]
        assert ("A model failed these" in text) == (tool in ("pay", "sing")), "only rows of the tool itself"


def test_the_floor_makes_all_tools_equal_at_1(tmp_path: Path) -> None:
    failures = {"run": run(tmp_path), "floor": 1.0, "shown": 1, "database": "a.db"}
    script = Script(rows)
    found = synthesize(write(tmp_path, failures=failures, rows=8), database=str(tmp_path / "other.db"), pool=script)
    assert set(Counter(r["calls"][0]["name"] for r in found.rows).values()) == {2}
    assert all(len(r["source"]["like"]["rows"]) == 1 for r in found.rows if "like" in r["source"])


def test_a_copy_of_a_failed_row_is_a_duplicate(tmp_path: Path) -> None:
    def copies(request: Request) -> str:
        shown = re.findall(
            r'"question":"(trainmark\d is about (\w+) [^}]*\})', str(request.messages[1]["content"]).replace("\\", "")
        )
        return (
            json.dumps({"question": 'trainmark0 is about pay {"sum": 3}', "name": "pay", "arguments": {"sum": 3}})
            if shown
            else ""
        )

    path = write(tmp_path, failures=run(tmp_path), shown=4, budget={"calls": 6})
    found = synthesize(path, database=str(tmp_path / "a.db"), pool=Script(copies))
    assert not found.rows and found.rejected["duplicate"] > 0


def test_kinds_are_shown_failures_of_their_kind(tmp_path: Path) -> None:
    path = earlier(tmp_path)
    several = [{"function": {"name": "pay", "arguments": {"sum": 1}}}, {"nap": {"minutes": 1}}]
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write(json.dumps({"question": "severalmark1 is about pay {}", "calls": several}) + "\n")
        file.write(json.dumps({"question": "nonemark1 is about pay {}", "calls": []}) + "\n")
    name = optimize(
        path,
        options=Options(out=str(tmp_path / "out.yaml")),
        database=tmp_path / "a.db",
        optimizers=[("looks", Looks())],
        pool=Script(answer),
    ).run
    script = Script(lambda request: "")
    settings = {"failures": name, "judge": True, "kinds": ["simple", "parallel", "none"], "budget": {"calls": 60}}
    synthesize(write(tmp_path, **settings), database=str(tmp_path / "a.db"), pool=script)
    shown: dict[str, set[str]] = {"two to": set(), "no tool helps": set(), "one call of": set()}
    for text in texts(script):
        kind = next(k for k in shown if k in text)
        shown[kind] |= set(re.findall(r"(several|none|train)mark", text))
    assert shown["no tool helps"] == {"none"} and shown["one call of"] == {"train", "several"}
    assert shown["two to"] == {"several", "train"}, "tools without a failed row of several calls show what they have"
    parallel = [text for text in texts(script) if "two to" in text and "tool `nap`" in text]
    assert parallel and all("severalmark" in text for text in parallel)


@pytest.mark.parametrize("how", ["solved", "no look", "unknown", "changed", "no workflow", "no database"])
def test_runs_without_failed_train_rows_are_refused_before_a_call(tmp_path: Path, how: str) -> None:
    script, db = Script(rows), str(tmp_path / "a.db")
    name, error, message = "", SpecError, ""
    if how == "solved":
        name, message = run(tmp_path, tools=("rain",)), "failed none of the 9 train rows"
    elif how == "no look":
        name = optimize(
            earlier(tmp_path),
            options=Options(out=str(tmp_path / "out.yaml")),
            database=db,
            optimizers=[],
            pool=Script(answer),
        ).run
        message = "has stored no scores of train rows\n.*eval FILE --split train"
    elif how == "unknown":
        run(tmp_path)
        name, error, message = "zzzz", StoreError, "run 'zzzz' is not in"
    elif how == "changed":
        name, error, message = run(tmp_path), StoreError, "the data of run .* have changed"
        (tmp_path / "val.jsonl").write_text(json.dumps(row("val", 99, "pay", sum=1)) + "\n")
    elif how == "no workflow":
        synthesize(write(tmp_path, budget={"calls": 1}), database=db, pool=Script(rows))
        import sqlite3

        with sqlite3.connect(db) as reader:
            name = reader.execute("select run from runs").fetchone()[0]
        error, message = StoreError, "has no workflow file"
    else:
        name, error, message = "abcd", StoreError, "there is no run database at"
        db = str(tmp_path / "none.db")
    with pytest.raises(error, match=message):
        synthesize(write(tmp_path, failures=name), database=db, pool=script)
    assert not script.requests and (how != "no database" or not Path(db).exists())


KILLED = """
import os, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.plugins.synthesize.test_failures import rows
from tests.helpers.scripted import Script
from workbench_synthesize.synthesize import synthesize
def say(request):
    if len(script.requests) > 7:
        os._exit(9)
    return rows(request)
script = Script(say)
synthesize(Path({path!r}), database={db!r}, pool=script, changes={{"failures": {name!r}}})
"""


@pytest.mark.slow
def test_killed_and_begun_again_it_shows_the_same_failures(tmp_path: Path) -> None:
    name, path, db = run(tmp_path), write(tmp_path, concurrency=1), str(tmp_path / "a.db")
    first = Script(rows)
    whole = synthesize(path, database=db, pool=first, changes={"failures": name})
    code = KILLED.format(root=str(Path(__file__).parents[3]), path=str(path), db=db, name=name)
    done = subprocess.run([sys.executable, "-c", code], timeout=200, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 9
    script = Script(rows)
    again = synthesize(path, database=db, pool=script, changes={"failures": name})
    assert again.spent["unknown"] == 1 and again.rows == whole.rows[: len(again.rows)]
    assert texts(script) == texts(first)[7:-1], "the call that was under way counts against the budget"


def test_the_command_takes_a_run_of_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts: list[Script] = []

    def made(spec: Any) -> Script:
        scripts.append(
            Script(
                lambda request: (
                    answer(request)
                    if "mark" in str(request.messages[-1]["content"]).split("Tools:")[0]
                    else rows(request)
                )
            )
        )
        return scripts[-1]

    monkeypatch.setattr("workbench.lm.pool.make_lm", made)
    monkeypatch.setattr("workbench_synthesize.settings.check_lms", lambda spec: None)
    db, out = str(tmp_path / "a.db"), str(tmp_path / "rows.jsonl")
    done = CliRunner().invoke(cli, ["eval", str(earlier(tmp_path)), "--split", "train", "--db", db])
    name = re.search(r"workbench run (\w+)", done.output)
    assert name, done.output
    path = write(tmp_path, rows=4, failures={"run": "other", "shown": 1}, lm="openai/scripted")
    args = ["data", "synthesize", str(path), "--failures", name[1], "--out", out, "--db", db, "--json"]
    done = CliRunner().invoke(cli, args)
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in Path(out).read_text().splitlines()]
    like = [r["source"]["like"] for r in found if "like" in r["source"]]
    assert like and all(one["run"] == name[1] and len(one["rows"]) == 1 for one in like)
    assert json.loads(done.output.splitlines()[-1])["kinds"] == {"simple": 4}


def test_rows_at_the_frontier_weigh_most() -> None:
    assert frontier_weight(1, 2) == 1.0 and frontier_weight(0, 1) == 0.75
    assert frontier_weight(0, 4) < frontier_weight(0, 1) < frontier_weight(1, 3) < 1.0
