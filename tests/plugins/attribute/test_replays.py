"""Replays of a stored run: the planted step is named, rows are repeated at no cost, and sealed rows are left alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kit.credit.planted import STRONG, Models

from workbench.errors import Interrupted, LMError, SpecError, StoreError
from workbench.evaluation import EvalOptions, evaluate
from workbench.lm import Request
from workbench.run import Options, optimize
from workbench.spec import lm_spec
from workbench.store import Store
from workbench.study import Optimizer, Study
from workbench.workflow import Patch, Workflow
from workbench_attribute.replay_report import ReplayReport
from workbench_attribute.replays import ReplayOptions, replay_failures

STRONG_LM = lm_spec({"model": STRONG, "attempts": 1})
NODES = 5
ROWS = 24


def fault_of(row: int) -> int | None:
    """The node that is wrong on a row: every third row has none."""
    return None if row % 3 == 0 else (row * 7) % NODES


def answers(weak: bool) -> Callable[[Request], str]:
    def say(request: Request) -> str:
        text = str(request.messages[-1]["content"])
        row, place, value = (int(x) for x in re.findall(r"row: r(\d+)\nn(\d+): (-?\d+)", text)[-1])
        careful = "Take care." in str(request.messages[0]["content"])
        return f"n{place + 1}: {value + 1 + (weak and not careful and fault_of(row) == place)}"

    return say


@pytest.fixture
def models() -> Models:
    return Models(answers(True), answers(False))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A chain of five nodes; the row holds what each should put out."""
    rows = [{"id": f"r{i}", "row": f"r{i}", "n0": 0, **{f"n{k}": k for k in range(1, NODES + 1)}} for i in range(ROWS)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    nodes = {f"node{k}": {"predict": f"row, n{k} -> n{k + 1}: int", "instructions": "Add one."} for k in range(NODES)}
    spec = {
        "name": "chain",
        "data": {"file": "rows.jsonl", "split": {"train": 4, "val": 12, "test": 8}},
        "metric": f"exact_match(n{NODES})",
        "lm": {"model": "openai/weak", "api_base": "http://127.0.0.1:9/v1", "attempts": 1},
        "nodes": nodes,
        "optimize": ["random"],
        "budget": {"calls": 5000},
    }
    path = tmp_path / "workflow.yaml"
    path.write_text(json.dumps(spec, indent=1))
    return path


def check(found: ReplayReport) -> None:
    assert found.rows and found.complete and found.repair_rate == 1.0
    for one in found.rows:
        assert one.node == f"node{fault_of(int(one.row.rpartition('r')[2]))}", one


@pytest.fixture
def database(file: Path, models: Models, tmp_path: Path) -> Path:
    evaluate(file, database=tmp_path / "a.db", pool=models)
    return tmp_path / "a.db"


def test_the_planted_step_is_named_and_only_what_follows_it_is_paid(file: Path, models: Models, database: Path) -> None:
    sent = len(models.requests)
    found = replay_failures("last", options=ReplayOptions(lm=STRONG_LM), database=database, pool=models)
    check(found)
    assert found.paid.calls == len(models.requests) - sent + len(models.strong.requests)
    asked = [str(request.messages) for request in models.requests]
    assert not set(asked[:sent]) & set(asked[sent:]), "what the evaluation asked is answered by its journal"
    for one in found.rows:
        assert one.steps == NODES and one.reruns <= 5 and one.calls < one.reruns * NODES
    assert sum(one.calls for one in found.rows) == found.paid.calls
    again = replay_failures("last", options=ReplayOptions(lm=STRONG_LM), database=database, pool=models)
    check(again)
    assert again.paid.calls == 0 and again.run == found.run


def test_a_call_that_rows_share_counts_once(file: Path, models: Models, tmp_path: Path) -> None:
    """Rows with the same input have their calls in common, so that the second of them pays nothing."""
    rows = [json.loads(line) for line in (file.parent / "rows.jsonl").read_text().splitlines()]
    twins = [{**row, "row": f"r{int(row['id'][1:]) // 2 * 2}"} for row in rows]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in twins))
    evaluate(file, database=tmp_path / "b.db", pool=models)
    options = ReplayOptions(lm=STRONG_LM)
    found = replay_failures("last", options=options, database=tmp_path / "b.db", pool=models)
    by_input: dict[int, list[int]] = {}
    for row in found.rows:
        by_input.setdefault(int(row.row[1:]) // 2, []).append(row.calls)
    pairs = [calls for calls in by_input.values() if len(calls) == 2]
    assert pairs and all(first > 0 == second for first, second in pairs)
    assert sum(row.calls for row in found.rows) == found.paid.calls > 0
    again = replay_failures("last", options=options, database=tmp_path / "b.db", pool=models)
    assert [row.calls for row in again.rows] == [row.calls for row in found.rows]


def test_rows_that_the_budget_cut_short_have_a_share_in_the_bill(file: Path, models: Models, database: Path) -> None:
    short = replay_failures("last", options=ReplayOptions(lm=STRONG_LM, calls=9), database=database, pool=models)
    assert sum(row.calls for row in short.rows) == short.paid.calls > 0


@pytest.mark.parametrize("repair", ["label", "fresh"])
def test_other_repairs(repair: Any, file: Path, models: Models, database: Path) -> None:
    """A label puts right what a node gave; further draws of a model that always errs do not."""
    found = replay_failures("last", options=ReplayOptions(repair, draws=2), database=database, pool=models)
    if repair == "label":  # the last node gives the answer: to put in the right one would make any row pass
        last = [one for one in found.rows if fault_of(int(one.row.rpartition("r")[2])) == NODES - 1]
        assert last and all(one.step is None and not one.failure for one in last)
        check(replace(found, rows=[one for one in found.rows if one not in last]))
        assert not models.strong.requests
    else:
        assert found.repair_rate == 0.0
        assert all(one.reruns == 2 * NODES for one in found.rows)


class Careful(Optimizer):
    """Proposes the workflow whose third node takes care."""

    async def optimize(self, study: Study) -> Workflow:
        better = study.workflow.patched(Patch({"nodes.node2.instructions": "Take care."}))
        await study.evaluate(better)
        return better


def test_the_answer_of_a_candidate_that_passed_repairs_a_step_without_the_model(
    file: Path, models: Models, tmp_path: Path
) -> None:
    done = optimize(
        file,
        options=Options(out=tmp_path / "out.yaml"),
        database=tmp_path / "a.db",
        optimizers=[("careful", Careful())],
        pool=models,
    )
    assert done.candidates == 2
    options = ReplayOptions("sibling", candidate="baseline")
    found = replay_failures("last", options=options, database=tmp_path / "a.db", pool=models)
    named = [one.node for one in found.rows if one.node is not None]
    assert set(named) == {"node2"}
    lone = [one for one in found.rows if one.node is None]
    assert lone and all("has a repair of this kind" in d.evidence for d in lone)
    assert found.by_node == {"node2": len(named)} and not models.strong.requests
    winner = replay_failures("last", options=ReplayOptions(lm=STRONG_LM), database=tmp_path / "a.db", pool=models)
    assert winner.rows and "node2" not in winner.by_node


def test_a_budget_that_ends_leaves_the_rest_open_and_the_next_call_goes_on(
    file: Path, models: Models, database: Path
) -> None:
    short = replay_failures("last", options=ReplayOptions(lm=STRONG_LM, calls=9), database=database, pool=models)
    assert not short.complete and short.paid.calls <= 9
    rest = replay_failures("last", options=ReplayOptions(lm=STRONG_LM), database=database, pool=models)
    check(rest)
    assert rest.run == short.run and rest.paid.calls > 0


def test_what_cannot_be_examined_is_said(file: Path, models: Models, database: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="a model must be named"):
        replay_failures("last", database=database, pool=models)
    with pytest.raises(StoreError, match="has no row 'x'"):
        replay_failures("last", options=ReplayOptions(lm=STRONG_LM, rows=["x"]), database=database, pool=models)
    evaluate(file, options=EvalOptions(split="test"), database=database, pool=models)
    with pytest.raises(StoreError, match="sealed"):
        replay_failures("last", options=ReplayOptions(lm=STRONG_LM), database=database, pool=models)
    rows = (file.parent / "rows.jsonl").read_text()
    (file.parent / "rows.jsonl").write_text(rows.replace('"n1": 1', '"n1": 2', 1))
    with pytest.raises(StoreError, match="have changed"):
        replay_failures("last", options=ReplayOptions(lm=STRONG_LM), database=database, pool=models)


def test_a_model_that_is_down_is_no_finding_and_the_next_call_asks_again(models: Models, database: Path) -> None:
    def down(request: Request) -> str:
        raise LMError("connection", "refused")

    answers_, models.strong.say = models.strong.say, down
    options = ReplayOptions(lm=STRONG_LM, most=2)
    found = replay_failures("last", options=options, database=database, pool=models)
    assert not found.complete and found.repair_rate is None and not found.by_node
    assert all(one.failure.startswith("not answered") for one in found.rows)
    models.strong.say = answers_
    again = replay_failures("last", options=options, database=database, pool=models)
    check(again)
    assert again.run == found.run


def test_a_run_of_all_splits_is_examined_without_its_test_rows(file: Path, models: Models, tmp_path: Path) -> None:
    evaluate(file, options=EvalOptions(split="all"), database=tmp_path / "b.db", pool=models)
    found = replay_failures("last", options=ReplayOptions(lm=STRONG_LM), database=tmp_path / "b.db", pool=models)
    check(found)
    assert 8 <= len(found.rows) <= 16  # of train and val


def test_an_unfinished_run_of_optimize_needs_a_named_candidate(file: Path, models: Models, tmp_path: Path) -> None:
    class Stops(Optimizer):
        async def optimize(self, study: Study) -> Workflow:
            raise Interrupted("stopped")

    database = tmp_path / "b.db"
    optimize(
        file,
        options=Options(out=tmp_path / "o.yaml"),
        database=database,
        optimizers=[("stops", Stops())],
        pool=models,
        listener=lambda event, data: None,
    )
    store = Store(database)
    store.execute("update runs set report = null, checksum = null")
    store.close()
    with pytest.raises(StoreError, match="no result yet; name a candidate"):
        replay_failures("last", options=ReplayOptions(lm=STRONG_LM), database=database, pool=models)
    named = ReplayOptions(lm=STRONG_LM, candidate="baseline")
    check(replay_failures("last", options=named, database=database, pool=models))
