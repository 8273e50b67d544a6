"""`tree`: states grow from the best ones, within the budget of states; and what is wrong with one is told."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script, make_workflow, run_rows

from workbench.errors import SpecError
from workbench.lm import Request
from workbench.workflow import learnable_addresses

STEP = {"predict": "path -> path", "instructions": "Go on.", "decoding": {"temperature": 1.0}}
JUDGE = {"predict": "path -> score: float", "instructions": "Score it."}
SECRET = "babcab"


def tree(**settings: Any) -> dict[str, Any]:
    return {"tree": STEP, "carry": {"path": "-"}, "judge": JUDGE, **settings}


class Maze(Script):
    """Goes on by a letter drawn by the request, its replica included; a path is worth the letters that are right so
    far. blind: all paths are worth the same."""

    def __init__(self, seed: int, blind: bool = False):
        super().__init__(self.answer)
        self.seed, self.blind = seed, blind

    def answer(self, request: Request) -> str:
        said = str(request.messages[-1]["content"])
        path = said.split("path: ")[-1].split("\n")[0].strip("- ")
        if "Score" in str(request.messages[0]["content"]):
            right = next((i for i, (a, b) in enumerate(zip(path, SECRET, strict=False)) if a != b), len(path))
            return "0.5" if self.blind else f"{right / len(SECRET):.3f}"
        drawn = hashlib.sha256(f"{self.seed} {path} {request.replica}".encode()).digest()[0]
        return path + "abc"[drawn % 3]


def reached(folder: Path, seed: int, blind: bool = False, **settings: Any) -> int:
    """Letters of the best path that are right."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"evaluations": 30, "branching": 5, "depth": len(SECRET), **settings}
    workflow = make_workflow({"n": tree(**given)}, folder)
    script = Maze(seed, blind)
    (run,) = run_rows(workflow, [{"x": "1"}], script, folder / "run.db")
    assert run.failure is None, run.message
    assert len(script.requests) <= workflow.max_calls == 60
    path = str(run.prediction["path"])
    return next((i for i, (a, b) in enumerate(zip(path, SECRET, strict=False)) if a != b), min(len(path), len(SECRET)))


@pytest.mark.parametrize("order", ["best_first", "beam", "mcts"])
def test_it_goes_where_the_judge_sees_more_than_random_paths_do(order: str, tmp_path: Path) -> None:
    """30 states; five random paths of six letters, the best kept, take as many."""
    seeds = range(6)
    found = [reached(tmp_path / f"{order}{seed}", seed, order=order) for seed in seeds]
    blind = [reached(tmp_path / f"blind{order}{seed}", seed, blind=True, order=order) for seed in seeds]
    random_best = []
    for seed in seeds:
        paths = [
            "".join("abc"[hashlib.sha256(f"{seed} {p} {i}".encode()).digest()[1] % 3] for i in range(6))
            for p in range(5)
        ]
        random_best.append(max(next((i for i in range(6) if p[i] != SECRET[i]), 6) for p in paths))
    means = [sum(values) / len(values) for values in (found, random_best, blind)]
    assert means[0] > means[1] + 0.5 and means[0] > means[2] + 1, means


def test_the_states_are_counted_and_a_replay_asks_nothing(tmp_path: Path) -> None:
    workflow = make_workflow({"n": tree(evaluations=7, branching=2)}, tmp_path)
    first, again = Maze(1), Maze(1)
    (run,) = run_rows(workflow, [{"x": "1"}], first, tmp_path / "run.db")
    assert len(first.requests) <= workflow.max_calls == 14
    (same,) = run_rows(workflow, [{"x": "1"}], again, tmp_path / "run.db")
    assert not again.requests and same.prediction == run.prediction
    spans = [(span.node, span.order, span.outputs) for span in run.trace.spans]
    assert [(span.node, span.order, span.outputs) for span in same.trace.spans] == spans


def test_until_ends_it_and_gather_lists_all_the_best_first(tmp_path: Path) -> None:
    settings = {"until": "score >= 0.16", "gather": {"paths": "path", "scores": "score"}, "evaluations": 20}
    workflow = make_workflow({"n": tree(**settings)}, tmp_path)
    (run,) = run_rows(workflow, [{"x": "1"}], Maze(3), tmp_path / "run.db")
    note = run.trace.spans[0].notes
    assert note["ended"] == "until" and note["states"] == len(run.prediction["paths"]) < 20
    scores = list(run.prediction["scores"])
    assert scores == sorted(scores, reverse=True) and run.prediction["score"] >= 0.16


def test_what_is_inside_can_be_learned(tmp_path: Path) -> None:
    addresses = learnable_addresses(make_workflow({"n": tree()}, tmp_path))
    assert {"nodes.n.of.instructions", "nodes.n.judge.instructions", "nodes.n.order", "nodes.n.evaluations"} <= {
        *addresses
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"carry": {}}, "name under carry what children build on"),
        ({"carry": {"pat": "-"}}, "no node inside 'n' writes 'pat'"),
        ({"score": "value"}, "no node inside 'n' writes 'value'"),
        ({"until": "done"}, "until reads 'done', which no state has"),
        ({"until": "score >="}, "cannot read the condition"),
        ({"over": "path"}, "a tree has no list"),
        ({"judge": {"predict": "path -> score", "rounds": 1}}, "rounds"),
        ({"gather": {"all": "pat"}}, "no node inside 'n' writes 'pat'"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((SpecError, ValueError), match=message):
        make_workflow({"n": tree(**change)}, tmp_path)


def test_a_score_that_is_no_number_fails_the_row(tmp_path: Path) -> None:
    judge = {"predict": "path -> score", "instructions": "Score it."}
    workflow = make_workflow({"n": tree(judge=judge)}, tmp_path)
    (run,) = run_rows(workflow, [{"x": "1"}], Script(lambda request: "very good"), tmp_path / "run.db")
    assert run.failure == "unparsed" and "'score' is no number: 'very good'" in str(run.message)
