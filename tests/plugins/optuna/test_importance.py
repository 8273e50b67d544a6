"""The importance of settings on planted problems, against fANOVA, and where nothing matters."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy
import pytest
from tests.helpers.planted import plant

from workbench.lm import Request
from workbench.store import RunRecord, Store
from workbench_optuna.importance import MIN_TRIALS, explain_scores

NAMES = ("words", "demos", "temperature", "shown")


def draw(top: str | None, seed: int, n: int = 24) -> list[tuple[dict[str, Any], float]]:
    """Trials at random; one setting, or none, has six times the effect of the others."""
    made, weights = random.Random(seed), {name: 0.3 if name == top else 0.05 for name in NAMES}
    if top is None:
        weights = dict.fromkeys(NAMES, 0.0)
    trials = list[tuple[dict[str, Any], float]]()
    for _ in range(n):
        parameters = {
            "words": made.choice("abcdef"),
            "demos": made.randint(0, 8),
            "temperature": made.uniform(0.0, 1.5),
            "shown": made.choice((True, False)),
        }
        effects = (
            parameters["words"] == "f",
            parameters["demos"] / 8,
            -abs(parameters["temperature"] - 0.3),
            parameters["shown"],
        )
        score = sum(weight * float(effect) for weight, effect in zip(weights.values(), effects, strict=True))
        trials.append((parameters, score + made.gauss(0, 0.04)))
    return trials


@pytest.mark.parametrize("top", NAMES)
def test_the_setting_that_matters_comes_first(top: str) -> None:
    firsts = [next(iter(explain_scores(draw(top, seed)))) for seed in range(16)]
    assert firsts.count(top) >= 14, firsts


def test_nothing_is_important_where_nothing_matters() -> None:
    shares = [max(explain_scores(draw(None, seed, n=40)).values()) for seed in range(16)]
    assert numpy.mean(shares) < 0.1, "without the correction for the number of groups it is 0.15"


def test_it_is_epsilon_squared() -> None:
    """(Between - (groups - 1) x mean square within) / total, as Okada 2013 writes it."""
    trials = [({"x": x}, y) for x, y in zip("aaaabbbbcccc", (1, 2, 3, 2, 4, 5, 4, 5, 9, 8, 9, 8), strict=True)]
    scores = numpy.array([y for _, y in trials], dtype=float)
    total = ((scores - scores.mean()) ** 2).sum()
    within = sum(((scores[i : i + 4] - scores[i : i + 4].mean()) ** 2).sum() for i in (0, 4, 8))
    assert explain_scores(trials)["x"] == pytest.approx((total - within - 2 * within / 9) / total)


def test_it_agrees_with_fanova() -> None:
    optuna = pytest.importorskip("optuna")
    pytest.importorskip("sklearn")
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    space = {
        "words": CategoricalDistribution([*"abcdef"]),
        "demos": IntDistribution(0, 8),
        "temperature": FloatDistribution(0.0, 1.5),
        "shown": CategoricalDistribution([True, False]),
    }
    agreed = 0
    for seed, top in ((seed, top) for seed in range(3) for top in NAMES):
        trials, study = draw(top, seed), optuna.create_study(direction="maximize")
        study.add_trials([optuna.trial.create_trial(params=p, distributions=space, value=y) for p, y in trials])
        theirs = optuna.importance.get_param_importances(
            study, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
        )
        agreed += next(iter(theirs)) == next(iter(explain_scores(trials)))
    assert agreed >= 11


def test_few_trials_and_equal_scores_say_nothing() -> None:
    assert explain_scores(draw("words", 0, n=MIN_TRIALS - 1)) == {} != explain_scores(draw("words", 0, n=MIN_TRIALS))
    assert explain_scores([(parameters, 0.5) for parameters, _ in draw("words", 0)]) == {}


def test_a_search_logs_it(tmp_path: Path) -> None:
    def skill(request: Request) -> float:
        return 0.9 if "Good." in str(request.messages[0]["content"]) else 0.2

    search = {"nodes.sort.instructions": ["Plain.", "Good."], "nodes.sort.decoding.temperature": {"float": [0.0, 1.0]}}
    plant(tmp_path, skill, {"optuna": {"trials": 16}}, calls=900, search=search)
    store = Store(tmp_path / "run.db")
    events = RunRecord(store, store.find_run("last")["id"]).read_events("optimizer_told")
    store.close()
    (told,) = [event for event in events if str(event["message"]).startswith("share of each setting")]
    assert told["figures"]["nodes.sort.instructions"] > 0.7 > 0.4 > told["figures"]["nodes.sort.decoding.temperature"]
    assert "spread of 16 scores: nodes.sort.instructions" in told["message"]
