"""The optimizer `bootstrap` on planted problems whose optimum is known (a formula answers, no model)."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import LABELS, PlantedLM, candidates, demos_of, lower_bound, plant, topic, true_skill

from workbench.lm import Request, Response


def by_relevance(request: Request) -> float:
    """Demos of the input's own topic help most; at best 0.76, with eight demos of which two are of its topic."""
    demos, wanted = demos_of(request), topic(str(request.messages[-1]["content"]))
    return 0.3 + 0.02 * min(len(demos), 8) + 0.15 * min(sum(topic(d) == wanted for d in demos), 2)


@pytest.mark.slow
def test_it_beats_random_demos_at_the_same_number_of_calls(tmp_path: Path) -> None:
    differences = []
    for seed in range(6):
        found = []
        for name in ("random", "bootstrap"):
            report, _ = plant(
                tmp_path / f"{name}{seed}",
                by_relevance,
                {name: {"trials": 500}},
                calls=700,
                seed=seed,
                search={"nodes.sort.demos": {"demos": 8, "nearest": False}},
            )
            found.append(true_skill(report, by_relevance, seed))
        differences.append(found[1] - found[0])
    assert statistics.mean(differences) > 0.05 and lower_bound(differences) > 0, differences


def test_where_demos_hurt_the_baseline_stays(tmp_path: Path) -> None:
    report, _ = plant(tmp_path, lambda r: 0.1 if demos_of(r) else 0.9, {"bootstrap": {}}, calls=600)
    assert not report.changes and not report.gain_shown


@pytest.mark.parametrize("most", [1, 3])
def test_never_more_demos_are_shown_than_allowed(most: int, tmp_path: Path) -> None:
    seen: list[int] = []

    def skill(request: Request) -> float:
        seen.append(len(demos_of(request)))
        return by_relevance(request)

    plant(tmp_path, skill, {"bootstrap": {"max_demos": most, "trials": 12}}, calls=700)
    assert max(seen) == most


@pytest.mark.parametrize(
    ("settings", "helpful", "most", "reached"),
    [({}, 16, 32, 0.85), ({}, 5, 16, 0.75), ({"max_demos": 8}, 16, 8, 0.5)],
    ids=["more", "fewer", "bound"],
)
def test_a_winner_at_the_edge_moves_the_edge(
    settings: dict[str, Any], helpful: int, most: int, reached: float, tmp_path: Path
) -> None:
    """Where 16 demos are better than 8, they are found. Where 5 are the best, one look is taken beyond 8."""
    seen: list[int] = []

    def skill(request: Request) -> float:
        seen.append(len(demos_of(request)))
        return 0.2 + 0.7 * min(seen[-1], helpful) / helpful - 0.03 * max(0, seen[-1] - helpful)

    report, _ = plant(tmp_path, skill, {"bootstrap": {"trials": 12, **settings}}, calls=1500)
    assert max(seen) == most and true_skill(report, skill, 0) >= reached


def test_the_edge_moves_up_to_64_demos(tmp_path: Path) -> None:
    seen: list[int] = []

    def skill(request: Request) -> float:
        seen.append(len(demos_of(request)))
        return {0: 0.1, 8: 0.3, 16: 0.5, 32: 0.7, 64: 0.85, 128: 0.95}.get(seen[-1], 0.0)

    plant(tmp_path, skill, {"bootstrap": {"trials": 16}}, calls=2500, rows=(150, 60, 40))
    assert max(seen) == 64


LABELLED = {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": "Plain."}
FREE, THINKING = {**LABELLED, "predict": "text -> label"}, {**LABELLED, "reasoning": True}
UNLABELLED = {**LABELLED, "predict": "text -> label: Literal['a', 'b', 'c', 'd'], sure: bool"}


@pytest.mark.parametrize(
    ("own", "node", "passes"),
    [(True, LABELLED, 0), (False, FREE, 0), (True, FREE, 1), (True, THINKING, 1), (True, UNLABELLED, 1)],
    ids=["labelled", "not wanted", "free text", "reasoning", "unlabelled"],
)
def test_a_pass_over_train_is_made_only_where_it_can_tell_something(
    own: bool, node: dict[str, Any], passes: int, tmp_path: Path
) -> None:
    """A success of a step whose outputs all are labelled is the labelled row: the pass would buy what is there."""
    rows: list[str] = []

    def skill(request: Request) -> float:
        rows.append(str(request.messages[-1]["content"]))
        return 0.5

    settings = {"self_generated": own, "trials": 3}
    plant(tmp_path, skill, {"bootstrap": settings}, calls=700, nodes={"sort": node})
    assert sum(r.startswith("text: train") for r in rows) == 40 * passes


def test_without_train_rows_the_workflow_stays(tmp_path: Path) -> None:
    report, lm = plant(
        tmp_path,
        by_relevance,
        {"bootstrap": {}},
        calls=300,
        rows=(1, 12, 20),
        data={"val": "val.jsonl", "test": "test.jsonl"},
    )
    assert not report.changes and lm.requests == 12


def test_reasoning_of_its_own_successes_is_shown_again(tmp_path: Path) -> None:
    """Labels cannot teach reasoning; only the workflow's own steps can."""

    from workbench.lm import Response

    async def complete(self: Any, request: Request) -> Response:
        self.requests += 1
        shown = [str(m["content"]) for m in request.messages if m["role"] == "assistant"]
        question = str(request.messages[-1]["content"])
        right = question.split("-thing")[0][-1]
        taught = any(text.startswith("Because I see") for text in shown) or "text: train" in question
        return Response(f"Because I see {right}.\nlabel: {right if taught else LABELS[0]}", "stop", 9, 3, 0.0)

    node = {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": "Plain.", "reasoning": True}
    settings = {"bootstrap": {"nearest": False, "trials": 8, "max_demos": 3}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlantedLM, "complete", complete)
        report, _ = plant(tmp_path, lambda r: 0.0, settings, calls=700, nodes={"sort": node})
    demos = report.winner.get("nodes.sort.demos")
    assert demos and all(d["reasoning"].startswith("Because I see") for d in demos)
    assert report.best["test"]["score"] == 1.0 and report.gain_shown


def test_steps_without_labels_get_demos_from_successes(tmp_path: Path) -> None:
    """The first of two nodes writes `hint`, which no row has: its demos can only come from successful runs."""

    from workbench.lm import Response

    async def complete(self: Any, request: Request) -> Response:
        self.requests += 1
        question = str(request.messages[-1]["content"])
        if question.endswith("hint:"):
            return Response("it is " + question.split("-thing")[0][-1], "stop", 9, 3, 0.0)
        return Response(question.split("it is ")[1][0], "stop", 9, 3, 0.0)

    nodes = {"first": {"predict": "text -> hint"}, "sort": {"predict": f"hint -> label: Literal{list(LABELS)}"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlantedLM, "complete", complete)
        plant(tmp_path, lambda r: 0.0, {"bootstrap": {"trials": 6}}, calls=900, nodes=nodes)
    sets = candidates(tmp_path)
    first = [s["nodes.first.demos"] for s in sets if "nodes.first.demos" in s]
    assert first and all(d["hint"].startswith("it is ") for demos in first for d in demos)
    train = [json.loads(line)["text"] for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert all(d["text"] in train for demos in first for d in demos), "a demo does not come from train"
