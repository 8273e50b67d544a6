"""What rows may do, in workers: agents that are programs, models with weights, vectors, code, a training's rollouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.process_executor import Processes
from tests.helpers.sqlite import connect

from workbench.evaluation import EvalOptions, evaluate
from workbench.plugins import plugins

ROOT = Path(__file__).parents[2]
LABELS = "Literal['billing', 'technical', 'shipping', 'returns', 'account']"
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plugins()._tables["executors"], "processes", (Processes, "test"))


def scores(folder: Path, nodes: dict[str, Any], executor: Any, **more: Any) -> tuple[Any, ...]:
    """The score of each row, what it cost, and the kinds of what the journal has."""
    folder.mkdir()
    value = {
        "name": "kinds",
        "lm": "bundled/nano",
        "data": {"file": str(ROOT / "workflows/data/tickets.jsonl"), "split": {"train": 4, "val": 8, "test": 4}},
        "metric": "exact_match(label)",
        "nodes": nodes,
        "executor": executor,
        **more,
    }
    (folder / "workflow.yaml").write_text(json.dumps(value))
    rows: list[Any] = []
    report = evaluate(folder / "workflow.yaml", options=EvalOptions(split="val"), database=folder / "run.db")
    with connect(folder / "run.db") as connection:
        kinds = connection.execute("select kind, key from calls order by kind, key").fetchall()
        rows = connection.execute("select position, score, failure from results order by position").fetchall()
    return report.as_dict()["failures"], rows, kinds


AGENT = {"agent": {"external": f"text -> label: {LABELS}", "command": ["python", str(ROOT / "workflows/sorter.py")]}}
CODE = {
    "count": {
        "code": "text -> words: int",
        "source": "def count(text):\n    return len(text.split())\n",
    },
    "sort": {"predict": f"text, words -> label: {LABELS}"},
}


@pytest.mark.parametrize("nodes", [AGENT, CODE], ids=["external", "code"])
def test_rows_do_in_workers_what_they_do_here(nodes: dict[str, Any], tmp_path: Path) -> None:
    here = scores(tmp_path / "here", nodes, "local")
    there = scores(tmp_path / "there", nodes, {"processes": {"workers": 2}})
    assert here == there and len(here[1]) == 8 <= len(here[2])


def test_a_model_with_weights_is_loaded_by_each_worker(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.helpers.tiny_lm import save

    save(tmp_path / "weights")
    nodes = {"sort": {"predict": "text -> label", "decoding": {"max_tokens": 4}}}
    lm = f"hf:{tmp_path / 'weights'}"
    here = scores(tmp_path / "here", nodes, "local", lm=lm)
    there = scores(tmp_path / "there", nodes, {"processes": {"workers": 2}}, lm=lm)
    assert here == there


@pytest.mark.training
def test_rollouts_of_a_training_run_in_workers_and_are_drawn_by_the_driver(tmp_path: Path) -> None:
    from tests.helpers import grpo_runs

    grpo_runs.needs_torch()
    here, there = list[Any](), list[Any]()
    grpo_runs.run(tmp_path / "here", heard=here)
    grpo_runs.run(tmp_path / "there", heard=there, executor={"processes": {"workers": 2}})
    # The weights differ in their last bits: rows come in another order, and so in other batches.
    scores = [[score for _, score in grpo_runs.candidates(tmp_path / name)] for name in ("here", "there")]
    assert scores[0] == scores[1]
    assert grpo_runs.calls_in(tmp_path / "there") == grpo_runs.calls_in(tmp_path / "here") > 0
    told = [[(f["step"], f["reward"]) for _, f in heard if "reward" in f] for heard in (here, there)]
    assert told[0] == told[1] != []
