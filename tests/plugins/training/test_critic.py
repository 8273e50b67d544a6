"""PPO, POAD and ArCHer: what the critic learns, what the policy learns from it, and that a kill changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.grpo_worlds import bandit, sevens  # noqa: E402
from tests.helpers.tiny_lm import save  # noqa: E402

from workbench.errors import PluginError  # noqa: E402
from workbench_training.critic.learner import CriticLearner  # noqa: E402
from workbench_training.model.policy import Policy  # noqa: E402
from workbench_training.objective import PRESETS, Objective, make_objective  # noqa: E402
from workbench_training.rollouts.token_rows import Row  # noqa: E402
from workbench_training.scale.distributed import learner_for  # noqa: E402
from workbench_training.settings import Learning  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
#: A small critic that learns fast, for models of some thousand weights.
SMALL: dict[str, Any] = {"widths": (64,), "rate": 3e-3, "epochs": 4}


def objective(name: str, **critic: Any) -> Objective:
    own = PRESETS[name].objective["critic"]
    return make_objective(name, {"critic": {**own, **SMALL, **critic}})


def make_learner(folder: Path, of: Objective, rate: float = 1e-3) -> CriticLearner:
    base = folder / "base"
    if not base.exists():
        save(base, 0)
    policy = Policy(str(base), device="cpu", seed=0)
    made = learner_for(policy, of, Learning.model_validate({"rate": rate}))
    assert isinstance(made, CriticLearner)
    return made


def rows_of_two_states(version: int, seed: int) -> list[Row]:
    """Answers of three tokens to the prompts `a`, which earns 1, and `b`, which earns 0, whatever is said."""
    rng = np.random.default_rng(seed)
    rows = []
    for n in range(16):
        prompt = (3, 20 + n % 2, 1, 4)
        ids = tuple(int(i) for i in rng.integers(5, 40, 3))
        rows.append(Row(prompt, ids, (1, 1, 1), (-3.0,) * 3, float(n % 2 == 0), str(n % 2), n, version=version))
    return rows


@pytest.mark.parametrize("name", ["ppo", "poad"])
def test_values_become_what_states_are_worth(tmp_path: Path, name: str) -> None:
    """The policy does not move. Values of tokens go to 1 after one prompt and to 0 after the other, so that the
    advantages vanish, which with returns alone would stay."""
    learner = make_learner(tmp_path, objective(name, clip=None, normalise=False, gamma=1.0), rate=1e-12)
    for step in range(40):
        figures = learner.step(rows_of_two_states(step, step), [0.0] * 16, step)
    rows = rows_of_two_states(40, 40)
    found = learner._estimate(rows, None)
    learner._passes.clear()
    values = found[3][:, :3]
    assert np.abs(values[::2] - 1).max() < 0.15 and np.abs(values[1::2]).max() < 0.15
    assert figures["value_explained"] > 0.9 and max(np.abs(a).max() for a in found[1]) < 0.2


def turns_of_a_walk(version: int, seed: int) -> list[Row]:
    """Three turns in a row of tokens; the second is right with even tokens, and the end earns 1 if it was."""
    rng = np.random.default_rng(seed)
    rows = []
    for n in range(16):
        said = [int(i) for i in rng.integers(5, 40, 3)]
        ids = (said[0], 30, said[1], 31, said[2])
        rows.append(
            Row((3, 20, 1, 4), ids, (1, 0, 1, 0, 1), (-3.0,) * 5, float(said[1] % 2 == 0), "t", n, version=version)
        )
    return rows


def test_the_turn_that_decides_receives_the_credit(tmp_path: Path) -> None:
    """ArCHer: the first turn is worth the same whatever is said, the second decides, after it all is known."""
    learner = make_learner(tmp_path, objective("archer", gamma=1.0, warmup=10**9, epochs=8, tau=0.5, rate=3e-3))
    for step in range(40):
        learner.step(turns_of_a_walk(step, step), [0.0] * 16, step)
    rows = turns_of_a_walk(40, 40)
    from workbench_training.rollouts.token_rows import collate

    found = learner._turn_advantages(rows, collate(rows)).numpy()
    right = np.array([row.reward == 1.0 for row in rows])
    decides = found[right, 2].mean() - found[~right, 2].mean()
    others = [abs(found[right, k].mean() - found[~right, k].mean()) for k in (0, 4)]
    assert decides > 0.5 and max(others) < 0.25 * decides and not found[:, [1, 3]].any()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", ["ppo", "poad", "archer"])
def test_they_learn_to_emit_a_digit(tmp_path: Path, name: str, seed: int) -> None:
    more = {"warmup": 2, "epochs": 4} if name == "archer" else {}
    log = bandit(tmp_path, sevens, seed=seed, steps=60, objective=objective(name, **more)).history
    assert log[0]["reward"] < 0.1
    assert sum(f["reward"] for f in log[-4:]) / 4 >= 0.8


@pytest.mark.parametrize("name", ["ppo", "archer"])
def test_without_reward_nothing_is_learned(tmp_path: Path, name: str) -> None:
    more = {"warmup": 2} if name == "archer" else {}
    made = bandit(tmp_path, lambda text: 0.0, steps=10, objective=objective(name, normalise=False, **more))
    drawn = [sevens(text) for step, text in made.source.drawn if step >= 5]  # type: ignore[attr-defined]
    assert sum(drawn) / len(drawn) < 0.1


@pytest.mark.parametrize("name", ["ppo", "archer"])
def test_killed_and_resumed_from_a_checkpoint_it_ends_with_the_same_bits(tmp_path: Path, name: str) -> None:
    settings: dict[str, Any] = {"course": {"save_every": 3}, "steps": 8}
    of = objective(name, **({"warmup": 1} if name == "archer" else {}))
    whole = bandit(tmp_path, sevens, objective=of, checkpoints="whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        bandit(tmp_path, sevens, objective=of, crash=5, **settings)
    again = bandit(tmp_path, sevens, objective=of, **settings)
    assert [f["step"] for f in again.history] == [3.0, 4.0, 5.0, 6.0, 7.0]
    assert again.learners[""].policy.digest() == whole.learners[""].policy.digest()
    assert again.history == whole.history[3:]


def test_a_model_of_its_own_is_trained_and_the_policys_is_not(tmp_path: Path) -> None:
    save(tmp_path / "own", 1, hidden=32, layers=1)
    learner = make_learner(tmp_path, objective("ppo", model=str(tmp_path / "own"), rate=1e-3), rate=1e-12)
    before = {name: p.detach().clone() for name, p in learner.values.trained.items()}
    policy = learner.policy.digest()
    first = learner.step(rows_of_two_states(0, 0), [0.0] * 16, 0)["value_loss"]
    for step in range(1, 20):
        last = learner.step(rows_of_two_states(step, step), [0.0] * 16, step)["value_loss"]
    moved = {name.split(".")[0] for name, p in learner.values.trained.items() if not torch.equal(p, before[name])}
    assert moved == {"trunk", "heads"} and last < first / 2
    assert policy == learner.policy.digest() or torch.allclose(*[next(iter(learner.policy.trained.values()))] * 2)


@pytest.mark.parametrize(
    "changes", [{"surrogate": "pairs"}, {"step_weight": 1.0}, {"constraints": {"tokens": {"budget": 4.0}}}]
)
def test_what_does_not_go_with_a_critic_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="critic"):
        make_objective("ppo", changes)


def test_several_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench_training.scale import distributed

    monkeypatch.setattr(distributed, "count_devices", lambda: 2)
    with pytest.raises(PluginError, match="without torchrun"):
        make_learner(tmp_path, objective("ppo"))
