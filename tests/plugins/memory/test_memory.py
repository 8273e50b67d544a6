"""The optimizer `memory` against random search, where nothing helps, and at its limits (no language model)."""

from __future__ import annotations

import json
import random
import statistics
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.memory_worlds import (
    LABEL,
    PREDICT,
    RECALL,
    World,
    attacked,
    memories,
    misleading_rows,
    on_topic,
    one_on_topic,
    plain_rows,
    poisoned_rows,
    question,
    run_world,
    true_accuracy,
    truth,
)
from tests.helpers.planted import candidates, lower_bound

from workbench.lm import Request, Response
from workbench.run import Options, resume
from workbench_testing import Killed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("skill", "make", "calls", "seeds"),
    [(on_topic, plain_rows, 104, 20), pytest.param(attacked, poisoned_rows, 700, 8, marks=pytest.mark.long)],
    ids=["room for one candidate", "poisoned rows"],
)
def test_it_beats_random_search_at_the_same_number_of_calls(
    skill: Any, make: Any, calls: int, seeds: int, tmp_path: Path
) -> None:
    """Where nothing is poisoned and there is time for five draws, random search is as good (see the README)."""
    differences = []
    for seed in range(seeds):
        found = []
        for name in ("random", "memory"):
            report = run_world(
                tmp_path / f"{name}{seed}", make(seed), World(skill), name, nodes=PREDICT, calls=calls, seed=seed
            )
            found.append(true_accuracy(report, skill, make(1000 + seed)["test"]))
        differences.append(found[1] - found[0])
    assert statistics.mean(differences) > 0.05 and lower_bound(differences) > 0, differences


@pytest.mark.parametrize("nodes", [PREDICT, RECALL], ids=["demos", "recall"])
def test_where_memories_hurt_the_baseline_stays(nodes: dict[str, Any], tmp_path: Path) -> None:
    report = run_world(
        tmp_path, plain_rows(0), World(lambda r: 0.1 if memories(r) else 0.9), "memory", nodes=nodes, calls=600
    )
    assert not report.changes and not report.gain_shown


@pytest.mark.long
@pytest.mark.slow
def test_learned_retrieval_beats_words_where_words_mislead(tmp_path: Path) -> None:
    differences = []
    for seed in range(8):
        found = []
        for policies in (["lexical"], ["lexical", "learned"]):
            report = run_world(
                tmp_path / f"{len(policies)}{seed}",
                misleading_rows(seed),
                World(one_on_topic),
                {"memory": {"k": 4, "policies": policies, "kinds": ["examples"]}},
                nodes=RECALL,
                calls=600,
                seed=seed,
            )
            found.append(true_accuracy(report, one_on_topic, misleading_rows(1000 + seed)["test"]))
        differences.append(found[1] - found[0])
    assert statistics.mean(differences) > 0.3 and lower_bound(differences) > 0.2, differences


def test_with_full_marks_it_ends(tmp_path: Path) -> None:
    lm = World(lambda r: 1.0 if memories(r) else 0.3)
    report = run_world(tmp_path, plain_rows(0), lm, "memory", nodes=PREDICT, calls=2000)
    assert report.best["val"] == 1.0
    assert lm.requests == 24 + 24 + 40 + 40, "val with and without memory, test with and without"


def test_no_more_entries_are_shown_and_stored_than_allowed(tmp_path: Path) -> None:
    shown: list[int] = []

    def skill(request: Request) -> float:
        shown.append(len(memories(request)))
        return on_topic(request)

    report = run_world(tmp_path, plain_rows(0), World(skill), {"memory": {"k": 3, "size": 10}}, nodes=RECALL, calls=600)
    assert max(shown) == 3
    for values in candidates(tmp_path):
        live = [e for e in values["nodes.look.entries"] if not e["quarantined"]]
        assert len(live) <= 10
    assert report.changes


def test_demos_of_a_node_inside_another_one_are_filled(tmp_path: Path) -> None:
    nodes = {"vote": {"ensemble": PREDICT["sort"], "samples": 1}}
    report = run_world(tmp_path, plain_rows(0), World(on_topic), "memory", nodes=nodes, calls=400)
    assert report.winner.get("nodes.vote.of.retrieve") and report.gain_shown


def test_agents_get_the_most_useful_examples(tmp_path: Path) -> None:
    nodes = {"sort": {"agent": f"text -> {LABEL}", "max_steps": 1}}

    class Agent(World):
        async def complete(self, request: Request) -> Response:
            self.requests += 1
            draw = random.Random(request.key("agent")).random()
            right = truth(question(request))
            return Response(f"label: {right if draw < 0.3 + 0.1 * len(memories(request)) else 'x'}", "stop", 5, 1, 0.0)

    report = run_world(tmp_path, plain_rows(0), Agent(on_topic), {"memory": {"k": 5}}, nodes=nodes, calls=500)
    assert 1 <= len(report.winner.get("nodes.sort.demos")) <= 5 and report.gain_shown


def test_without_train_rows_the_workflow_stays(tmp_path: Path) -> None:
    rows = plain_rows(0, (1, 12, 20))
    lm = World(on_topic)
    report = run_world(tmp_path, {n: rows[n] for n in ("val", "test")}, lm, "memory", nodes=PREDICT, calls=300)
    assert not report.changes and lm.requests == 12


@pytest.mark.parametrize("kill_at", [30, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 90, 170))])
def test_a_recall_run_that_was_killed_ends_with_the_same_winner(kill_at: int, tmp_path: Path) -> None:
    """The kit's simulated task has no recall node; here are all four kinds, exploring and learning."""

    class Mortal(World):
        async def complete(self, request: Request) -> Response:
            if self.requests + 1 >= kill_at:
                raise Killed
            return await super().complete(request)

    def propose(request: Request) -> str:
        return "- Topics may matter for the label"

    settings: dict[str, Any] = {"nodes": RECALL, "calls": 420, "seed": 3}
    optimizer = {"memory": {"k": 4, "trials": 2}}
    whole = run_world(
        tmp_path / "whole", misleading_rows(3, (40, 24, 24)), World(one_on_topic, propose), optimizer, **settings
    )
    with suppress(Killed, BaseExceptionGroup):
        run_world(
            tmp_path / "killed", misleading_rows(3, (40, 24, 24)), Mortal(one_on_topic, propose), optimizer, **settings
        )
    again = resume(
        "last",
        database=tmp_path / "killed" / "run.db",
        pool=World(one_on_topic, propose),
        options=Options(out=str(tmp_path / "out.yaml")),
    )
    assert again.winner == whole.winner and again.best["val"] == whole.best["val"]
    assert again.best["test"] == whole.best["test"]
    assert whole.changes and not whole.leaks, "a store of training rows is no prompt that has memorised them"
    assert candidates(tmp_path / "killed") == candidates(tmp_path / "whole")
    assert json.dumps(again.winner.tree, sort_keys=True) == json.dumps(whole.winner.tree, sort_keys=True)
