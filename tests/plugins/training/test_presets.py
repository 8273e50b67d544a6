"""Named algorithms mean their names: the constants of each, and that a step is another one where they change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.grpo_runs import SMALL, run

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.grpo_worlds import TextSource, bandit, sevens  # noqa: E402
from tests.plugins.training.test_learner import base, learner, moved, some_rows  # noqa: E402, F401

from workbench_training.advantages import compute_advantages  # noqa: E402
from workbench_training.grpo import GRPO  # noqa: E402
from workbench_training.learner import Learner  # noqa: E402
from workbench_training.presets import PRESETS, make_objective  # noqa: E402
from workbench_training.settings import Learning  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

#: What tells an algorithm from the others: (settings of the objective, of the schedule, updates of a step).
CONSTANTS: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "grpo": ({"clip_low": 0.2, "clip_high": 0.2, "scale": "std", "aggregate": "sequence"}, {"dynamic_sampling": 0}, 1),
    "dapo": (
        {"clip_low": 0.2, "clip_high": 0.28, "scale": "std", "aggregate": "token", "beta": 0.0},
        {"dynamic_sampling": 3},
        16,
    ),
    "lite_ppo": (
        {"scale": "batch_std", "baseline": "mean", "aggregate": "token", "clip_low": 0.2, "clip_high": 0.2},
        {"dynamic_sampling": 0},
        8,
    ),
    "gspo": ({"ratio": "sequence", "clip_low": 3e-4, "clip_high": 4e-4, "aggregate": "sequence", "beta": 0.0}, {}, 4),
    "cispo": ({"surrogate": "cispo", "clip_high": 5.0, "aggregate": "token", "beta": 0.0}, {}, 16),
    "prorl": (
        {
            "clip_low": 0.2,
            "clip_high": 0.4,
            "aggregate": "token",
            "beta": 1e-4,
            "kl": "k3",
            "kl_place": "loss",
            "resets": True,
        },
        {"dynamic_sampling": 3},
        4,
    ),
    "ppo": ({"aggregate": "token", "clip_low": 0.2, "clip_high": 0.2, "beta": 0.0}, {}, 1),
    "poad": ({"aggregate": "token", "clip_low": 0.2, "clip_high": 0.2}, {}, 4),
    "archer": ({"aggregate": "token"}, {}, 1),
    "dr_grpo": ({"scale": "none", "aggregate": "constant"}, {}, 1),
}


@pytest.mark.parametrize("algorithm", CONSTANTS)
def test_constants_of_an_algorithm(algorithm: str) -> None:
    objective, schedule, updates = CONSTANTS[algorithm]
    made = GRPO.model_validate({"algorithm": algorithm})
    assert {name: getattr(made.resolve_objective(), name) for name in objective} == objective
    assert {name: getattr(made.resolve_schedule(), name) for name in schedule} == schedule
    passes = {"ppo": 4}.get(algorithm, 1)
    assert (made.resolve_learning().minibatches, made.resolve_learning().epochs) == (updates, passes)


#: A constant, and another value that a step must tell from it.
DISTINGUISHING = [
    ("dapo", {"clip_high": 0.2}),
    ("dapo", {"aggregate": "sequence"}),
    ("prorl", {"clip_high": 0.28}),
    ("prorl", {"clip_low": 0.1}),
    ("prorl", {"beta": 0.0}),
    ("gspo", {"clip_low": 0.2, "clip_high": 0.2}),
    ("gspo", {"clip_high": 0.2}),
    ("gspo", {"ratio": "token"}),
    ("cispo", {"clip_high": 1.28}),
    ("cispo", {"surrogate": "clip"}),
    ("lite_ppo", {"scale": "std"}),
    ("lite_ppo", {"clip_high": 0.1, "clip_low": 0.1}),
]


def step(base: str, algorithm: str, changes: dict[str, Any], **learning: int) -> Learner:  # noqa: F811
    """A policy after two steps with the algorithm's updates, at a rate that takes ratios out of the bands."""
    made = learner(base, algorithm, changes=changes, **{**PRESETS[algorithm].learning, **learning})
    rows = some_rows(32)
    rewards = [float((7 * i) % 5) * (1 + i // 4) for i in range(32)]  # groups of unlike deviations
    rows = [type(row).from_dict({**row.as_dict(), "reward": reward}) for row, reward in zip(rows, rewards, strict=True)]
    for version in range(2):
        made.step(rows, compute_advantages(rows, made.objective).tolist(), version)
        rows = [type(row).from_dict({**row.as_dict(), "version": version + 1}) for row in rows]
    return made


@pytest.mark.parametrize(("algorithm", "changes"), DISTINGUISHING, ids=[f"{a} {c}" for a, c in DISTINGUISHING])
def test_a_step_is_another_one_where_a_constant_changes(
    base: str,  # noqa: F811
    algorithm: str,
    changes: dict[str, Any],
) -> None:
    assert moved(step(base, algorithm, {}), step(base, algorithm, changes)) > 1e-5


def test_with_one_update_clips_do_nothing(base: str) -> None:  # noqa: F811
    """The negative control: why the algorithms bring several."""
    for algorithm, changes in (("prorl", {"clip_high": 0.28}), ("gspo", {"clip_low": 0.2, "clip_high": 0.2})):
        one, other = (step(base, algorithm, c, minibatches=1) for c in ({}, changes))
        assert moved(one, other) == 0.0


def test_settings_in_the_file_win() -> None:
    given = GRPO.model_validate(
        {
            "algorithm": "dapo",
            "learning": {"rate": 1e-3},
            "policies": {"a": {"address": "nodes.a.lm", "learning": {"minibatches": 2}}, "b": {"address": "lm"}},
        }
    )
    found = {name: policy.learning for name, policy in given.resolve_policies().items()}
    assert found == {
        "a": Learning.model_validate({"minibatches": 2}),
        "b": Learning.model_validate({"rate": 1e-3, "minibatches": 16}),
    }
    one = GRPO.model_validate({"algorithm": "dapo", "learning": {"minibatches": 1}})
    assert one.resolve_policies()[""].learning == Learning.model_validate({"minibatches": 1})


def test_the_updates_of_an_algorithm_are_part_of_its_name() -> None:
    """Stored trainings of an algorithm that had one update a step are found again by those that still have one."""
    before = {**GRPO().identify(), "algorithm": "dapo"}
    assert before["learning"]["minibatches"] == 1
    assert GRPO.model_validate({"algorithm": "dapo", "learning": {"minibatches": 1}}).identify() == before
    now = GRPO.model_validate({"algorithm": "dapo"}).identify()
    assert now == {**before, "learning": {**before["learning"], "minibatches": 16}}
    policies = {"a": {"address": "nodes.a.lm", "learning": {"rate": 1e-3}}, "b": {"address": "lm"}}
    several = GRPO.model_validate({"algorithm": "dapo", "policies": policies}).identify()["policies"]
    assert several["a"]["learning"]["minibatches"] == 16 and several["b"]["learning"] is None


def test_the_updates_reach_the_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = Learner.step

    def watched(self: Learner, *args: Any, **more: Any) -> dict[str, float]:
        seen.append(self.learning.minibatches)
        return real(self, *args, **more)

    monkeypatch.setattr(Learner, "step", watched)
    heard: list[Any] = []
    schedule = {**SMALL["schedule"], "steps": 1, "tasks": 16}
    run(
        tmp_path,
        optimizers=[{"grpo": {"algorithm": "dapo", "schedule": schedule, "learning": {"rate": 1e-3}}}],
        rows=(16, 2, 2),
        heard=heard,
    )
    assert seen == [16]
    assert any("dynamic_sampling has no effect, since a step takes all 16 rows" in text for text, _ in heard)


class Scored(TextSource):
    """A candidate's score is what the last step's rollouts earned."""

    async def rollouts(self, *args: Any) -> Any:
        groups = await super().rollouts(*args)
        earned = [rollout.reward or 0.0 for group in groups for rollout in group]
        self.last = sum(earned) / len(earned)
        return groups

    async def submit(self, folders: Any, step: int, **how: Any) -> float | None:
        await super().submit(folders, step, **how)
        self.scores = [*getattr(self, "scores", []), self.last]
        return self.last


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_score_of_prorl_rises_over_two_resets(tmp_path: Path, seed: int) -> None:
    """The preset as it is, but for the least steps between two resets (4, not 200). The divergence brings both."""
    preset = PRESETS["prorl"]
    schedule = {**preset.schedule, "evaluate_every": 2}
    made = bandit(
        tmp_path,
        sevens,
        seed=seed,
        steps=24,
        rate=1e-3,
        texts="abcdefgh",
        world=Scored,
        objective=make_objective("prorl"),
        learning=dict(preset.learning),
        schedule=schedule,
        constants={"trainer.RESET_AFTER": 4},
    )
    resets = [int(t.split(":")[0].removeprefix("step ")) for t in made.told if "reference is reset (divergence" in t]  # type: ignore[attr-defined]
    assert len(resets) >= 2
    scores = dict(zip(range(2, 26, 2), made.source.scores, strict=True))  # type: ignore[attr-defined]
    assert scores[2] < 0.1
    assert scores[resets[0]] + 0.1 < scores[resets[1]] and scores[resets[0]] + 0.3 < scores[24]
    assert scores[24] >= scores[resets[1]] and scores[24] > 0.8
    assert max(figures.get("clipped", 0.0) for figures in made.history) > 0.0
