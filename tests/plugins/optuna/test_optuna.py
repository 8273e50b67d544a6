"""The optimizer `optuna` on planted problems whose optimum is known (a formula answers, no model)."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.helpers.planted import candidates, demos_of, evaluations, lower_bound, plant, true_skill

from workbench.errors import SpecError
from workbench.lm import Request
from workbench.store import Store

GAINS = {"Plain.": 0.0, "One.": 0.02, "Two.": 0.05, "Three.": 0.1, "Four.": 0.0, "Five.": 0.2}
SPACE = {
    "nodes.sort.instructions": list(GAINS),
    "nodes.sort.demos": {"demos": 8},
    "nodes.sort.decoding.temperature": {"float": [0.0, 1.5]},
    "nodes.sort.decoding.top_p": {"float": [0.05, 1.0]},
    "nodes.sort.show_values": [False, True],
}


def skill(request: Request) -> float:
    """At most 0.69: `Five.`, eight demos, temperature 0.3, top_p 0.7, values shown."""
    system = str(request.messages[0]["content"])
    hidden = 0.0 if "one of" in system else 0.15
    return (
        0.25
        + GAINS[system.split("\n")[0]]
        + 0.03 * min(len(demos_of(request)), 8)
        - hidden
        - 0.5 * (request.temperature - 0.3) ** 2
        - 0.5 * (request.top_p - 0.7) ** 2
    )


@pytest.mark.long
@pytest.mark.slow
def test_it_beats_random_at_the_same_number_of_calls(tmp_path: Path) -> None:
    differences = []
    for seed in range(8):
        found = []
        for name in ("random", "optuna"):
            settings = {"trials": 500}
            report, _ = plant(
                tmp_path / f"{name}{seed}",
                skill,
                {name: settings},
                calls=1200,
                seed=seed,
                search=SPACE,
                rows=(40, 40, 24),
            )
            found.append(true_skill(report, skill, seed))
        differences.append(found[1] - found[0])
    assert statistics.mean(differences) > 0.05 and lower_bound(differences) > 0, differences


@pytest.mark.slow
def test_a_condition_opens_and_closes_a_setting(tmp_path: Path) -> None:
    space = {
        "nodes.sort.decoding.temperature": {"float": [0.1, 1.0], "when": {"nodes.sort.samples": 3}},
        "nodes.sort.samples": [1, 3],
        "nodes.sort.retrieve": {"int": [1, 2], "when": {"nodes.sort.show_values": False}},  # never: it stays true
    }
    plant(tmp_path, skill, {"optuna": {"trials": 12}}, calls=900, search=space)
    sets = candidates(tmp_path)
    assert {s["nodes.sort.samples"] for s in sets} == {1, 3}
    for values in sets:
        assert ("nodes.sort.decoding.temperature" in values) == (values["nodes.sort.samples"] == 3)
        assert "nodes.sort.retrieve" not in values


@pytest.mark.parametrize("race", [True, False])
def test_losers_are_stopped_early_and_never_win(race: bool, tmp_path: Path) -> None:
    good = {"Plain.": 0.3, "Best.": 0.95, **{f"Bad {i}.": 0.05 for i in range(12)}}

    def planted(request: Request) -> float:
        return good[str(request.messages[0]["content"]).split("\n")[0]]

    report, _lm = plant(
        tmp_path,
        planted,
        {"optuna": {"race": race, "trials": 60}},
        calls=900,
        search={"nodes.sort.instructions": list(good)},
        rows=(8, 40, 20),
    )
    assert report.winner.get("nodes.sort.instructions") == "Best." and report.gain_shown
    stopped = [e for e in evaluations(tmp_path) if not e["complete"]]
    assert all(e["n"] < 40 and e["score"] < 0.6 for e in stopped)
    assert len(stopped) >= 5 if race else not stopped


def test_repeats_cost_nothing_and_end_the_search(tmp_path: Path) -> None:
    space = {"nodes.sort.instructions": ["Plain.", "One.", "Two."]}
    report, lm = plant(
        tmp_path, skill, {"optuna": {"trials": 10_000, "race": False, "patience": 20}}, calls=5000, search=space
    )
    tested = 0 if report.winner.get("nodes.sort.instructions") == "Plain." else 80
    assert report.status == "finished" and lm.requests == 3 * 24 + tested


def told(folder: Path) -> list[str]:
    store = Store(folder / "run.db")
    try:
        rows = store.rows("select data from events where kind = 'optimizer_told' order by id")
        messages = [json.loads(row["data"])["message"] for row in rows]
        return [message for message in messages if not message.startswith("share of each setting")]
    finally:
        store.close()


@pytest.mark.parametrize("sampler", ["tpe", "random", "qmc"])
def test_friction_15_repeats_do_not_count_as_trials(sampler: str, tmp_path: Path) -> None:
    """A dozen candidates were asked for, the space has sixteen, and the budget pays for all of them."""
    space = {"nodes.sort.instructions": [*GAINS, "Six.", "Seven."], "nodes.sort.show_values": [False, True]}
    for seed in range(3):
        folder = tmp_path / str(seed)
        settings = {"trials": 12, "sampler": sampler, "race": False}
        report, _ = plant(folder, lambda r: 0.5, {"optuna": settings}, calls=3000, seed=seed, search=space)
        assert len(candidates(folder)) == 12 and told(folder) == [], report.lines()


def test_a_space_that_is_used_up_is_told(tmp_path: Path) -> None:
    space = {"nodes.sort.instructions": ["Plain.", "One.", "Two."]}
    plant(tmp_path, skill, {"optuna": {"trials": 12}}, calls=3000, search=space)
    (message,) = told(tmp_path)
    assert message.startswith("3 of 12 trials: of the last samples, 20 were tried before, so the space seems")


def test_a_budget_that_ends_the_search_is_not_called_an_exhausted_space(tmp_path: Path) -> None:
    space = {"nodes.sort.instructions": [*GAINS, "Six.", "Seven."], "nodes.sort.show_values": [False, True]}
    plant(tmp_path, lambda r: 0.5, {"optuna": {"trials": 50, "race": False}}, calls=400, search=space)
    (message,) = told(tmp_path)
    assert "cost more than is left, so the budget ends the search" in message and "exhausted" not in message


@pytest.mark.parametrize(
    ("sampler", "pick"), [("tpe", "score"), ("tpe", "knee"), ("nsga2", "cheapest"), ("nsga2", "knee"), ("qmc", "score")]
)
def test_several_objectives_give_a_pareto_set_and_a_pick(sampler: str, pick: str, tmp_path: Path) -> None:
    def by_demos(request: Request) -> float:
        return 0.3 + 0.08 * min(len(demos_of(request)), 8)

    report, _ = plant(
        tmp_path,
        by_demos,
        {"optuna": {"sampler": sampler, "trials": 16}},
        calls=700,
        objectives=["score", "tokens"],
        pick=pick,
        rows=(24, 24, 24),
    )
    front = [(p["score"], -p["tokens"]) for p in report.pareto]
    assert len(front) > 1 and report.winner.hash in {p["workflow"] for p in report.pareto}
    for a in front:
        assert not any(b != a and b[0] >= a[0] and b[1] >= a[1] for b in front), "a point beats another one"
    every = [(e["candidate"], e["score"]) for e in evaluations(tmp_path)]
    assert max(score for _, score in every) == max(front)[0], "the best score is not on the front"
    assert all(e["complete"] for e in evaluations(tmp_path)), "with several objectives nothing is stopped"
    chosen = next(p for p in report.pareto if p["workflow"] == report.winner.hash)
    if pick == "score":
        assert chosen["score"] == max(front)[0]
    if pick == "cheapest":
        baseline = report.baseline["val"]
        assert chosen["tokens"] == min(p["tokens"] for p in report.pareto if p["score"] >= baseline)


def test_the_run_database_is_a_storage_of_optuna(tmp_path: Path) -> None:
    import optuna

    report, _ = plant(tmp_path, skill, {"optuna": {"trials": 8}}, calls=600, search=SPACE)
    storage = f"sqlite:///{tmp_path / 'run.db'}"
    (name,) = optuna.get_all_study_names(storage)
    study = optuna.load_study(study_name=name, storage=storage)
    assert report.run in name or name.endswith("optuna")
    assert len(study.trials) == 8 and study.direction.name == "MAXIMIZE"
    complete = {e["score"] for e in evaluations(tmp_path) if e["complete"]}
    assert study.best_value in complete and study.best_value <= report.best["val"]


#: Few candidates have it: the best one has 0.69.
LEVEL = 0.5


def share_that_meets(folder: Path, seed: int, told: bool) -> float:
    """The share of candidates whose score on val meets the level of the file. told: the sampler is told what is missed,
    as it is; else this mechanism is taken out."""
    with pytest.MonkeyPatch.context() as patch:
        if not told:
            patch.setattr("workbench_optuna.optimizer.missed_levels", lambda levels, evaluation: {})
        plant(
            folder,
            skill,
            {"optuna": {"trials": 40}},
            calls=2000,
            seed=seed,
            search=SPACE,
            rows=(40, 40, 12),
            objectives=["score", "tokens"],
            targets={"score": LEVEL},
        )
    scores = [e["score"] for e in evaluations(folder)]
    return sum(score >= LEVEL for score in scores) / len(scores)


@pytest.mark.long
@pytest.mark.slow
def test_levels_of_the_file_are_constraints_of_the_sampler(tmp_path: Path) -> None:
    shares = [
        [share_that_meets(tmp_path / f"{seed}{told}", seed, told) for told in (True, False)] for seed in range(10)
    ]
    differences = [told - without for told, without in shares]
    assert statistics.mean(differences) > 0 and lower_bound(differences) > 0, shares


def test_what_a_candidate_misses_is_kept_with_its_trial(tmp_path: Path) -> None:
    import optuna

    levels = {"score": LEVEL, "tokens": 1000}
    plant(tmp_path, skill, {"optuna": {"trials": 6}}, calls=600, search=SPACE, rows=(8, 8, 8), targets=levels)
    storage = f"sqlite:///{tmp_path / 'run.db'}"
    (name,) = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=name, storage=storage).trials
    for trial in trials:
        assert trial.constraints == {"score": pytest.approx(max(0.0, 1 - trial.values[0] / LEVEL)), "tokens": 0.0}
    assert len({trial.constraints["score"] for trial in trials}) > 1


@pytest.mark.parametrize(("sampler", "package"), [("gp", "torch"), ("cmaes", "cmaes")])
def test_a_missing_package_is_named_before_anything_is_paid(
    sampler: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == package else find(name, *a))
    with pytest.raises(SpecError, match=rf"needs the package {package}.*\[samplers\]"):
        plant(tmp_path, skill, {"optuna": {"sampler": sampler}}, calls=300)
    assert not (tmp_path / "run.db").exists()


def test_cmaes_searches_numbers(tmp_path: Path) -> None:
    pytest.importorskip("cmaes")
    space = {
        "nodes.sort.decoding.temperature": {"float": [0.0, 1.5]},
        "nodes.sort.decoding.top_p": {"float": [0.05, 1.0]},
    }
    report, _ = plant(tmp_path, skill, {"optuna": {"sampler": "cmaes", "trials": 15}}, calls=600, search=space)
    assert report.status == "finished" and report.candidates > 10


@pytest.mark.parametrize("seed", range(12))
def test_candidates_are_stopped_where_optunas_wilcoxon_pruner_stops_them(seed: int) -> None:
    """Of the same scores, after each row: smooth ones, halves, and 0/1."""
    import random
    import warnings

    import optuna

    from workbench_optuna.pruning import P_THRESHOLD, STARTUP_STEPS, make_race

    draw = random.Random(seed)
    values = ([draw.random() for _ in range(9)], [0.0, 0.5, 1.0], [0.0, 1.0])[seed % 3]
    best, scores = ([draw.choice(values) * weight for _ in range(30)] for weight in (1.0, 0.6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        pruner = optuna.pruners.WilcoxonPruner(p_threshold=P_THRESHOLD, n_startup_steps=STARTUP_STEPS)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    first, second = study.ask(), study.ask()
    for step, score in enumerate(best):
        first.report(score, step)
    study.tell(first, sum(best) / len(best))
    asked = SimpleNamespace(trial=second, reported=0)
    stop = make_race(cast(Any, SimpleNamespace(study=study)), cast(Any, asked), {})
    for n in range(1, 31):
        assert stop(scores[:n]) == second.should_prune(), n
