"""`tune`: another optimizer's settings are searched, trials that fall behind are stopped, what they leave goes to
others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from tests.helpers.planted import lower_bound, plant

from workbench import Optimizer, Patch, Study, Workflow
from workbench.lm import Request
from workbench.plugins import plugins
from workbench.run import Options, optimize
from workbench.store import Store
from workbench_optuna.tune import Tune


class Climb(Optimizer):
    """Writes instructions of one style, longer each time: of the right style, longer ones are better."""

    style: str = Field("plain", description="of the instructions")
    weight: float = Field(1.0, description="how good its instructions are, up to 3")
    steps: int = Field(6, ge=1, description="candidates at most")

    async def optimize(self, study: Study) -> Workflow:
        for step in range(1, self.steps + 1):
            text = f"{self.style} {self.weight:.3f} " + "x" * step
            candidate = study.workflow.patched(Patch({"nodes.sort.instructions": text}, note=f"step {step}"))
            if not study.affords(candidate):
                break
            await study.evaluate(candidate)
        return study.best


def skill(request: Request) -> float:
    """0.3, and 0.1 more for each step of the best style at a weight of 2; every other style is worth nothing."""
    style, _, rest = str(request.messages[0]["content"]).partition(" ")
    if style != "bold":
        return 0.3
    weight, _, steps = rest.partition(" ")
    return 0.3 + 0.1 * steps.count("x") * max(0.0, 1 - abs(float(weight) - 2) / 1.5)


@pytest.fixture(autouse=True)
def climb(monkeypatch: pytest.MonkeyPatch) -> None:
    known, names = plugins().get, plugins().names
    monkeypatch.setattr(plugins(), "get", lambda kind, name: Climb if name == "climb" else known(kind, name))
    monkeypatch.setattr(plugins(), "names", lambda kind: [*names(kind), *(["climb"] if kind == "optimizers" else [])])


SPACE = {"style": ["plain", "bold", "odd"], "weight": {"float": [0.0, 3.0]}}


def told(folder: Path) -> list[str]:
    with Store(folder / "run.db") as store:
        rows = store.rows("select data from events where kind = 'optimizer_told' order by id")
        return [json.loads(row["data"])["message"] for row in rows]


@pytest.mark.slow
def test_it_finds_settings_that_the_optimizer_does_better_with(tmp_path: Path) -> None:
    """Against the optimizer as written, at the same ceiling of calls, over eight seeds."""
    gains = []
    for seed in range(8):
        scores = []
        for name, optimizer in (
            ("plain", "climb"),
            ("tune", {"tune": {"optimizer": "climb", "search": SPACE, "trials": 8}}),
        ):
            report, _ = plant(tmp_path / f"{name}{seed}", skill, optimizer, calls=1600, seed=seed)
            assert report.status in ("finished", "budget") and report.spent["calls"] <= 1600
            scores.append(report.as_dict()["best"]["test"]["score"])
        gains.append(scores[1] - scores[0])
    assert lower_bound(gains) > 0.1, gains


@pytest.mark.slow
def test_trials_that_fall_behind_are_stopped_and_what_they_leave_goes_to_others(tmp_path: Path) -> None:
    spent = []
    for race in (False, True):
        folder = tmp_path / str(race)
        tune = {
            "optimizer": {"climb": {"style": "bold", "weight": 2.0}},
            "trials": 8,
            "race": race,
            "search": {"style": ["plain", "odd"], "weight": {"float": [0.0, 3.0]}},
        }
        report, _ = plant(folder, skill, {"tune": tune}, calls=4000)
        found = [line for line in told(folder) if line.startswith("trial")]
        assert len(found) == 8 and "as written" in found[0]
        assert any("stopped" in line for line in found[3:]) == race and not any("stopped" in line for line in found[:3])
        assert report.as_dict()["best"]["test"]["score"] > 0.6  # the first trial is what was written
        spent.append(report.spent["calls"])
    assert spent[1] < spent[0]


@pytest.mark.parametrize("ceiling", [{"calls": 900}, {"tokens": 40_000}])
@pytest.mark.parametrize("trials", [1, 2])
def test_what_the_last_trial_finds_is_not_lost_where_the_budget_ends_it(
    trials: int, ceiling: dict[str, int], tmp_path: Path
) -> None:
    """The optimizer goes on as long as it can: whether its share ends or the run's own budget, its best counts."""
    written = {"style": "bold" if trials == 1 else "plain", "weight": 2.0, "steps": 1000}
    tune = {"optimizer": {"climb": written}, "search": {"style": ["bold"]}, "trials": trials, "race": False}
    report, _ = plant(tmp_path, skill, {"tune": tune}, budget=ceiling, calls=100_000)
    assert report.status in ("finished", "budget") and report.as_dict()["best"]["test"]["score"] > 0.8


@pytest.mark.parametrize(("calls", "count"), [(240, 6), (193, 5), (155, 4), (60, 0)])
def test_fewer_trials_are_run_where_the_shares_of_all_would_be_too_small_and_that_is_told(
    calls: int, count: int, tmp_path: Path
) -> None:
    """What is left: the calls less 24 of the baseline and of as many of 40 rows of test as are set aside."""
    report, _ = plant(tmp_path, skill, {"tune": {"optimizer": "climb", "search": SPACE, "trials": 8}}, calls=calls)
    lines = told(tmp_path)
    assert f": {count} trials are run, not 8. All of them take at least" in lines[0] and report.status in (
        "finished",
        "budget",
    )
    assert sum(line.startswith("trial ") for line in lines) <= count
    assert not count or any(line.startswith("trial 1: ") for line in lines)


@pytest.mark.slow
def test_where_nothing_helps_no_gain_is_claimed(tmp_path: Path) -> None:
    for seed in range(4):
        report, _ = plant(
            tmp_path / str(seed),
            lambda r: 0.4,
            {"tune": {"optimizer": "climb", "search": SPACE}},
            calls=1200,
            seed=seed,
        )
        assert not report.gain_shown


@pytest.mark.slow
def test_settings_of_training_are_tuned(tmp_path: Path) -> None:
    """Two trainings of a tiny model with their own weights; the better one is proved like any candidate."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.helpers.tiny_lm import save

    base = save(tmp_path / "base", 1, positions=512)
    plant(tmp_path / "rows", lambda r: 0.3, "random", calls=300, rows=(6, 4, 6))
    grpo = {
        "rewards": [{"kind": "length", "tokens": 3}],
        "guards": ["empty"],
        "device": "cpu",
        "schedule": {"steps": 2, "tasks": 2, "rollouts": 2, "evaluate_every": 1},
        "learning": {"rate": 1e-3},
    }
    spec = json.loads((tmp_path / "rows" / "workflow.yaml").read_text()) | {
        "lm": f"hf:{base}",
        "budget": {"calls": 900},
        "nodes": {"sort": {"predict": "text -> label", "decoding": {"max_tokens": 6}}},
        "optimize": [
            {
                "tune": {
                    "optimizer": {"grpo": grpo},
                    "trials": 2,
                    "search": {"learning.rate": {"float": [1e-5, 1e-2], "log": True}},
                }
            }
        ],
    }
    (tmp_path / "rows" / "tuned.yaml").write_text(json.dumps(spec))
    report = optimize(
        tmp_path / "rows" / "tuned.yaml", database=tmp_path / "run.db", options=Options(out=str(tmp_path / "o.yaml"))
    )
    assert report.status == "finished", report.error
    (first, second) = (line for line in told(tmp_path) if line.startswith("trial"))
    assert "as written" in first and "learning.rate" in second
    assert len(list((tmp_path / "run-weights").glob("run-*"))) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"search": {"max_demo": {"int": [1, 2]}}}, "there is no setting 'max_demo'. Did you mean 'max_demos'?"),
        ({"search": {"max_demos": {"int": [-3, 2]}}}, "bootstrap does not take max_demos"),
        ({"search": {"max_demos": {"choice": [1, "many", 4]}}}, "bootstrap does not take max_demos"),
        ({"search": {"max_demos": {"demos": 3}}}, "give int, float or choice"),
        ({"optimizer": {"tune": {}}, "search": {"trials": [1]}}, "tune cannot tune itself"),
        ({"optimizer": "optuna"}, "say what is searched"),
        ({"optimizer": {"bootstrap": {"trials": "zero"}}, "search": {"trials": [1]}}, "bootstrap does not take trials"),
        ({"optimizer": "grpo", "search": {"learning.rat": [1.0]}}, "Did you mean 'learning.rate'?"),
        ({"optimizer": "nothing", "search": {"trials": [1]}}, "there is no optimizer 'nothing'"),
    ],
)
def test_what_cannot_be_tuned_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        Tune.model_validate(settings)
