"""`workbench data synthesize --run`: rows from what a run failed and did on train, and never from val and test."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.scripted import Script
from tests.helpers.sqlite import connect

from workbench.cli import cli
from workbench.errors import SpecError, StoreError
from workbench.evaluation import EvalOptions, evaluate
from workbench.lm import Request
from workbench.run import Options, optimize
from workbench.study import Optimizer, Study
from workbench.workflow import Workflow
from workbench_kit.searching import frontier_weight
from workbench_synthesize.seeds import MIN_WEIGHT
from workbench_synthesize.synthesize import Found, synthesize


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


def earlier(
    folder: Path, shared: bool = False, held: bool = False, tools: tuple[str, ...] = ("pay", "sing", "rain")
) -> Path:
    """A workflow file; rows of every split are failed alike. shared: a row of test is in train, too; held: one of
    val."""
    folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {"pay": {"sum": 3}, "sing": {"song": "la"}, "rain": {"city": "rome"}}
    for split in ("train", "val", "test"):
        rows = [row(split, n, tools[n % len(tools)], **values[tools[n % len(tools)]]) for n in range(9)]
        rows += [row("shared", 0, "pay", sum=9)] if shared and split != "val" else []
        rows += [row("held", 0, "pay", sum=8)] if held and split != "test" else []
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
    nodes = {"write": {"predict": "question, calls -> written: list[str]", "instructions": "Write others."}}
    spec = {
        "lm": {"model": "openai/scripted", "attempts": 1, "temperature": 1.0},
        "synthesize": {"run": "last", "as": "failures", "rows": 26},
        "nodes": nodes,
        "explode": {"written": "question"},
        "distinct": "question",
        "concurrency": 2,
        "budget": {"calls": 26},
        **settings,
    }
    (folder / "spec.yaml").write_text(json.dumps(spec))
    return folder / "spec.yaml"


def rows(request: Request) -> str:
    mark = re.findall(r"[a-z]+mark\d", str(request.messages[-1]["content"]))[0]
    n = f"{mark}{request.replica}"
    return json.dumps([f"x{n} y{n} z{n}"])


def texts(script: Script) -> list[str]:
    return [str(request.messages) for request in script.requests]


def test_failed_train_rows_are_shown_and_no_row_of_val_or_test(tmp_path: Path) -> None:
    script, name = Script(rows), run(tmp_path, shared=True)
    path = write(tmp_path, synthesize={"run": name, "as": "failures", "rows": 26})
    found = synthesize(path, database=str(tmp_path / "a.db"), pool=script)
    shown = Counter(re.findall(r"[a-z]+mark\d+", "\n".join(texts(script))))
    # The row that test shares with train is left out of the test, so it may be learned from like any other of train.
    assert set(shown) == {"sharedmark0", *(f"trainmark{n}" for n in range(9) if n % 3 != 2)}, "no solved one"
    assert len(found.rows) == 26 and found.rows[0]["tools"] == "hidden documents" and "question" in found.rows[0]
    # Failed twice: 4/6*5/6 = 0.56; solved once of two: 1; each request goes to the furthest behind its share.
    pays, sings = (sum(n for mark, n in shown.items() if int(mark[-1]) % 3 == kind) for kind in (0, 1))
    assert sings == 3 * 5 and pays == 26 - 15, "4 rows of pay and 3 of sing"


def test_a_failed_row_of_train_that_is_in_val_is_not_shown(tmp_path: Path) -> None:
    run(tmp_path, held=True)
    synthesize(write(tmp_path), database=str(tmp_path / "a.db"), pool=(script := Script(rows)))
    assert "trainmark0" in str(texts(script)) and "heldmark0" not in str(texts(script))


def test_a_copy_of_a_failed_row_is_a_duplicate(tmp_path: Path) -> None:
    run(tmp_path)
    copy = Script(lambda request: json.dumps(['trainmark0 is about pay {"sum": 3}']))
    found = synthesize(write(tmp_path, budget={"calls": 3}), database=str(tmp_path / "a.db"), pool=copy)
    assert not found.rows and found.rejected == {"duplicate": 3}


def test_trajectories_are_those_of_train_without_the_right_answer(tmp_path: Path) -> None:
    db = str(tmp_path / "a.db")
    for split in ("test", "train"):
        evaluate(earlier(tmp_path, shared=True), options=EvalOptions(split=split), database=db, pool=Script(answer))
    nodes = {"write": {"predict": "question, steps, outcome, score -> asked", "instructions": "Write it back."}}
    settings = {"nodes": nodes, "explode": {}, "distinct": []}
    path = write(tmp_path, synthesize={"run": "last", "as": "trajectories"}, **settings)
    script = Script(lambda request: f"asked: {len(script.requests)}")
    found = synthesize(path, database=db, pool=script)
    assert len(found.rows) == 10 == len(script.requests)
    asked = "\n".join(texts(script))
    assert set(re.findall(r"([a-z]+)mark", asked)) == {"train", "shared"} and "hidden documents" not in asked
    assert {row["score"] for row in found.rows} == {0.0, 1.0}, "failed ones are taken, too"
    assert all("calls: " in row["steps"][0] for row in found.rows)
    with pytest.raises(SpecError, match="stores no steps of train rows"):
        evaluate(earlier(tmp_path), options=EvalOptions(split="test"), database=db, pool=Script(answer))
        synthesize(path, database=db, pool=script)


def test_trajectories_are_read_from_a_file(tmp_path: Path) -> None:
    steps = [{"step_id": 1, "source": "user", "message": "find it"}, {"step_id": 2, "source": "agent", "message": "ok"}]
    log = {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "a", "version": "1"}, "steps": steps}
    (tmp_path / "log.json").write_text(json.dumps(log))
    settings = {"nodes": {"write": {"predict": "steps -> asked"}}, "explode": {}, "distinct": []}
    path = write(tmp_path, synthesize={"from": "log.json", "as": "trajectories"}, **settings)
    found = synthesize(path, database=str(tmp_path / "a.db"), pool=Script(lambda request: "asked: x"))
    assert any("ok" in step for step in found.rows[0]["steps"])


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
        run(tmp_path)
        synthesize(write(tmp_path, budget={"calls": 1}), database=db, pool=Script(rows))
        with connect(db) as reader:
            name = reader.execute("select run from runs order by id desc").fetchone()[0]
        error, message = StoreError, "has no workflow file"
    else:
        name, error, message = "abcd", StoreError, "there is no run database at"
        db = str(tmp_path / "none.db")
    with pytest.raises(error, match=message):
        synthesize(write(tmp_path), database=db, pool=script, changes={"synthesize.run": name})
    assert not script.requests and (how != "no database" or not Path(db).exists())


def test_a_synthesis_from_failures_goes_on_where_it_was(tmp_path: Path) -> None:
    name, db = run(tmp_path), str(tmp_path / "a.db")
    changes: dict[str, Any] = {"synthesize.rows": 9}
    path, whole = write(tmp_path, concurrency=1), Script(rows)
    found = synthesize(path, database=str(shutil.copy(db, tmp_path / "b.db")), pool=whole, changes=changes)

    def stop(found: Found) -> None:
        if found.requests == 5:
            raise InterruptedError

    changes |= {"synthesize.run": name}
    with pytest.raises(InterruptedError):
        synthesize(path, database=db, pool=Script(rows), changes=changes, on_progress=stop)
    rest = Script(rows)
    again = synthesize(path, database=db, pool=rest, changes=changes)
    assert [row["question"] for row in again.rows] == [row["question"] for row in found.rows]
    assert texts(rest) == texts(whole)[5:]


def test_the_command_takes_a_run_of_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def both(request: Request) -> str:
        return rows(request) if "Write others" in str(request.messages[0]["content"]) else answer(request)

    monkeypatch.setattr("workbench.lm.pool.make_lm", lambda spec: Script(both))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    db, out = str(tmp_path / "a.db"), str(tmp_path / "rows.jsonl")
    done = CliRunner().invoke(cli, ["eval", str(earlier(tmp_path)), "--split", "train", "--db", db])
    name = re.search(r"workbench run (\w+)", done.output)
    assert name, done.output
    path = write(tmp_path, synthesize={"run": "other", "as": "failures", "rows": 4})
    args = ["data", "synthesize", str(path), "--run", name[1], "--out", out, "--db", db, "--json"]
    done = CliRunner().invoke(cli, args)
    assert done.exit_code == 0, done.output
    assert len(Path(out).read_text().splitlines()) == 4


def test_rows_at_the_frontier_weigh_most() -> None:
    assert frontier_weight(1, 2) == 1.0 and frontier_weight(0, 1) == 0.75
    assert frontier_weight(0, 4) < frontier_weight(0, 1) < frontier_weight(1, 3) < 1.0
    assert 0 < MIN_WEIGHT < 0.5
