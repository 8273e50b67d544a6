"""Scores of train rows are kept, each once, and those of val and test are not among them."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.scripted import Script

from workbench.cli import cli
from workbench.errors import StoreError
from workbench.lm import Request
from workbench.run import Options, optimize, prepare, prepare_stored, resume
from workbench.run.stored_scores import ScoredRows, TrainRows
from workbench.store import Store
from workbench.study import Evaluation, Optimizer, Result, Study
from workbench.task import Example
from workbench.workflow import Workflow
from workbench_synthesize.seeds import train_scores


class Looks(Optimizer):
    """Looks at parts of train twice, at rows of val and at a made-up row, and changes nothing."""

    async def optimize(self, study: Study) -> Workflow:
        made_up = Example(study.train[5].id, {**study.train[5].fields, "word": "other"})
        for rows in (study.train[:2], study.train[1:3], [study.val[0], study.train[3]], [made_up]):
            await study.evaluate(study.workflow, rows)
        await study.evaluate(study.workflow, study.train[:1], replica=1)
        await study.evaluate(study.workflow, study.train[4:5], replica=1, call_replicas=(0, 1))
        return study.best


def write(folder: Path) -> Path:
    rows = [{"id": f"r{i}", "word": f"w{i}", "label": f"w{i}" if i % 2 else "other"} for i in range(18)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {
        "data": {"file": "rows.jsonl", "split": {"train": 6, "val": 6, "test": 6}},
        "metric": "exact_match(label)",
        "lm": {"model": "openai/scripted", "attempts": 1},
        "nodes": {"say": {"predict": "word -> label"}},
        "budget": {"calls": 100},
    }
    (folder / "workflow.yaml").write_text(json.dumps(spec))
    return folder / "workflow.yaml"


def echo(request: Request) -> str:
    """The word that it is given: right for every second row."""
    return "label: " + re.findall(r"w\d+|other", str(request.messages[-1]["content"]))[-1]


def kept(database: Path) -> tuple[dict[str, list[float]], Any, list[Any]]:
    store = Store(database)
    try:
        row = store.find_run("last")
        evaluations = [
            tuple(r)
            for r in store.rows(
                "select replica, n, score, failed, complete from evaluations where split = 'train' order by replica"
            )
        ]
        return train_scores(store, row["id"]), prepare_stored(row), evaluations
    finally:
        store.close()


def test_what_optimizers_see_of_train_is_kept_once(tmp_path: Path) -> None:
    database, options = tmp_path / "a.db", Options(out=str(tmp_path / "out.yaml"))
    report = optimize(
        write(tmp_path), options=options, database=database, optimizers=[("looks", Looks())], pool=Script(echo)
    )
    scores, task, evaluations = kept(database)
    train = task.dataset.train
    right = {e.id: float(e["word"] == e["label"]) for e in train}
    wanted = {train[i].id: [right[train[i].id]] for i in (0, 1, 2, 3)}
    wanted[train[0].id] *= 2  # of two replicas
    assert scores == wanted, "rows of val, the made-up one and the shared run are left out"
    assert evaluations == [(0, 0, None, 0, 0), (1, 0, None, 0, 0)]
    resume(report.run, database=database, options=options, optimizers=[("looks", Looks())], pool=Script(echo))
    assert kept(database)[0] == wanted


@pytest.mark.parametrize(("split", "n"), [("train", 6), ("val", 0)])
def test_eval_keeps_the_rows_of_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str, n: int) -> None:
    monkeypatch.setattr("workbench.lm.pool.make_lm", lambda spec: Script(echo))
    db = str(tmp_path / "a.db")
    done = CliRunner().invoke(cli, ["eval", str(write(tmp_path)), "--split", split, "--db", db, "--json"])
    assert done.exit_code == 0, done.output
    found, store = json.loads(done.output.splitlines()[-1]), Store(db)
    try:
        row = store.find_run(found["run"])
        scores, task = train_scores(store, row["id"]), prepare_stored(row)
    finally:
        store.close()
    assert set(scores) <= {e.id for e in task.dataset.train} and len(scores) == n
    with pytest.raises(StoreError, match="cannot be resumed"):
        resume(found["run"], database=db)


def test_eval_keeps_what_was_scored_before_the_budget_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.lm.pool.make_lm", lambda spec: Script(echo))
    db, flags = str(tmp_path / "a.db"), ["--split", "train", "--set", "budget.calls=3", "--set", "concurrency=1"]
    done = CliRunner().invoke(cli, ["eval", str(write(tmp_path)), *flags, "--db", db])
    assert done.exit_code != 0
    said = re.findall(r"run (\w+): eval ended at the budget's ceiling", done.output)
    assert " on 3 of 6 rows" in done.output
    listed = CliRunner().invoke(cli, ["runs", "list", "--db", db]).output
    assert len(said) == 1 and said[0] in listed and " eval " in listed
    store = Store(db)
    try:
        assert len(train_scores(store, store.find_run("last")["id"])) == 3
    finally:
        store.close()


def test_a_score_takes_the_place_of_a_failure_and_of_nothing_else(tmp_path: Path) -> None:
    """Calls to a dead server are asked again by a resumed run; what was scored stays."""
    _, _, task, _ = prepare(write(tmp_path))
    store, row = Store(tmp_path / "a.db"), task.dataset.train[0]
    store.execute("insert into runs (run, status, started, spec, options) values ('r', '', '', '', '')")

    async def looks() -> None:
        kept = TrainRows(store, 1, task.dataset.train, ScoredRows(store, 1, task))
        for score, known in ((None, []), (1.0, [1.0]), (0.0, [1.0])):
            result = Result(row, score, failure=None if score is not None else "connection")
            kept.record(Evaluation(task.workflow, "train", (result,), False))
            store.flush()
            assert train_scores(store, 1).get(row.id, []) == known

    asyncio.run(looks())
    store.close()
