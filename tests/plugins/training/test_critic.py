"""PPO, POAD and ArCHer: what the critic learns, what the policy learns from it, and that a kill changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.grpo_runs import (  # noqa: E402
    SMALL as SMALL_RUN,
    learned_rows,
    run,
    write,
)
from tests.helpers.grpo_worlds import bandit, sevens, without_clock  # noqa: E402
from tests.helpers.tiny_lm import save, save_taught  # noqa: E402

from workbench.errors import PluginError  # noqa: E402
from workbench.run import find_obstacles, prepare  # noqa: E402
from workbench_training.critic import token_critic  # noqa: E402
from workbench_training.critic.learner import CriticLearner  # noqa: E402
from workbench_training.critic.returns import split_trajectories  # noqa: E402
from workbench_training.critic.token_critic import compute_value_errors  # noqa: E402
from workbench_training.grpo import GRPO  # noqa: E402
from workbench_training.model.policy import Policy  # noqa: E402
from workbench_training.objective import Objective  # noqa: E402
from workbench_training.papers.archer import turn_critic  # noqa: E402
from workbench_training.presets import PRESETS, make_objective  # noqa: E402
from workbench_training.rollouts.token_rows import Row, collate  # noqa: E402
from workbench_training.scale.distributed import learner_for  # noqa: E402
from workbench_training.settings import Learning, Lora  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
#: A small critic that learns fast, for models of some thousand weights.
SMALL: dict[str, Any] = {"widths": (64,), "rate": 3e-3, "epochs": 4}


def objective(name: str, **critic: Any) -> Objective:
    return make_objective(name, {"critic": {**SMALL, **critic}})


def make_learner(folder: Path, of: Objective, rate: float = 1e-3, lora: Lora | None = None) -> CriticLearner:
    base = folder / "base"
    if not base.exists():
        save(base, 0)
    policy = Policy(str(base), device="cpu", seed=0, lora=lora)
    made = learner_for(policy, of, Learning.model_validate({"rate": rate}))
    assert isinstance(made, CriticLearner)
    return made


def rows_of_two_states(version: int) -> list[Row]:
    """Answers of three tokens, of which there are two, to the prompts `a`, which earns 1, and `b`, which earns 0."""
    rng, rows = np.random.default_rng(version), []
    for n in range(16):
        ids = tuple(int(i) for i in rng.integers(5, 7, 3))
        rows.append(
            Row((3, 20 + n % 2, 1, 4), ids, (1, 1, 1), (-3.0,) * 3, float(n % 2 == 0), str(n % 2), n, version=version)
        )
    return rows


@pytest.mark.parametrize("name", ["ppo", "poad"])
def test_values_become_what_states_are_worth(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy does not move. Values of tokens go to 1 after one prompt and to 0 after the other, so that the
    advantages vanish, which with returns alone would stay."""
    monkeypatch.setattr(token_critic, "CLIP", 1e9)
    monkeypatch.setattr(token_critic, "normalise", lambda values: values)
    learner = make_learner(tmp_path, objective(name, gamma=1.0), rate=1e-12)
    for step in range(40):
        figures = learner.step(rows_of_two_states(step), [0.0] * 16, step)
    rows = rows_of_two_states(40)
    advantages = learner.critic.compute_advantages(rows)
    (values,) = learner.critic.read(rows, "token", "v")
    assert np.abs(values[::2, :3] - 1).max() < 0.05 and np.abs(values[1::2, :3]).max() < 0.05
    assert figures["value_explained"] > 0.99 and np.abs(advantages).max() < 0.05


def test_values_are_clipped_by_hand() -> None:
    """Returns of 1, values that were 0: within the clip, beyond it on the way, and beyond it the wrong way."""
    values = torch.tensor([0.1, 0.5, -0.5], requires_grad=True)
    errors = compute_value_errors(values, torch.zeros(3), torch.ones(3))
    assert torch.allclose(errors, 0.5 * torch.tensor([0.81, 0.64, 2.25]))
    errors.sum().backward()
    assert values.grad is not None and torch.allclose(values.grad, torch.tensor([-0.9, 0.0, -1.5]))
    assert torch.equal(compute_value_errors(values, values, torch.ones(3)), 0.5 * (values - 1) ** 2)


def rows_of_three_turns(version: int) -> list[Row]:
    """Three turns of one token: any, one that is right or wrong, any. The third prompt shows which it was; the end
    earns 1 if it was right. Each turn has tokens of its own."""
    rng, rows = np.random.default_rng(version), []
    for n in range(16):
        said = [int(rng.integers(5, 7)), int(rng.integers(10, 12)), int(rng.integers(15, 17))]
        seen = (30, 31, 32 + said[1] % 2)
        for turn in range(3):
            rows.append(
                Row(
                    *((3, seen[turn]), (said[turn],), (1,), (-3.0,), float(said[1] % 2 == 0), "t", n),
                    turn=turn,
                    version=version,
                )
            )
    return rows


def test_the_turn_that_decides_receives_the_credit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ArCHer: the first turn is worth the same whatever is said, the second decides, and after it all is known."""
    monkeypatch.setattr(turn_critic, "TAU", 0.3)
    more = {"gamma": 1.0, "warmup": 10**9, "epochs": 20}
    learner = make_learner(tmp_path, objective("archer", **more))
    for step in range(12):
        learner.step(rows_of_three_turns(step), [0.0] * 48, step)
    rows = rows_of_three_turns(12)
    gains = learner.critic.compute_advantages(rows)[:, 0].reshape(16, 3)
    right = np.array([row.reward == 1.0 for row in rows[::3]])
    decides = gains[right, 1].mean() - gains[~right, 1].mean()
    others = [abs(gains[right, k].mean() - gains[~right, k].mean()) for k in (0, 2)]
    assert abs(decides - 1.0) < 0.2 and max(others) < 0.1


def test_of_two_estimates_the_lower_one_counts_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ArCHer's advantage of a turn is min(q) - min(v), on each of its tokens."""
    learner = make_learner(tmp_path, objective("archer"))
    rows = rows_of_two_states(0)[:2]
    planted = {"v1": 0.5, "v2": 0.2, "q1": 1.0, "q2": 3.0}
    monkeypatch.setattr(
        learner.critic, "read", lambda rows, marks, *heads: [np.full((2, 4), planted[head]) for head in heads]
    )
    assert np.allclose(learner.critic.compute_advantages(rows), 0.8)


def test_turns_of_earlier_steps_are_learned_from_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ArCHer's buffer: a critic still learns what only an earlier step has shown."""
    errors = {}
    for replay in (1, 4):
        monkeypatch.setattr(turn_critic, "REPLAY", replay)
        learner = make_learner(tmp_path, objective("archer", warmup=10**9, epochs=20))
        first = [replace(row, reward=5.0) for row in rows_of_two_states(0)]
        learner.step(first, [0.0] * 16, 0)
        for step in (1, 2, 3):
            others = [replace(row, prompt_ids=(3, 40, 1, 4)) for row in rows_of_two_states(step)]
            learner.step(others, [0.0] * 16, step)
        errors[replay] = np.abs(learner.critic.read(first, "end", "q1")[0][:, 3] - 5.0).mean()
    assert errors[4] < 0.5 * errors[1]


def test_turns_of_steps_that_one_version_drew_stay_apart(tmp_path: Path) -> None:
    """With `staleness`, replayed rows and in self-play two steps may hold the same row, replica and version."""
    learner = make_learner(tmp_path, objective("archer", warmup=10**9))
    for _ in range(2):
        learner.step(rows_of_three_turns(0), [0.0] * 48, 0)
    recent = [row for rows in learner.critic.buffer for row in rows]
    assert len(recent) == 96 and len(split_trajectories(recent)) == 32


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("ppo", 0),
        pytest.param("ppo", 1, marks=pytest.mark.long),
        pytest.param("poad", 0, marks=pytest.mark.long),
        pytest.param("archer", 0, marks=pytest.mark.long),
    ],
)
def test_they_learn_to_emit_a_digit(tmp_path: Path, name: str, seed: int) -> None:
    more = {"warmup": 2, "epochs": 20} if name == "archer" else {}
    log = bandit(tmp_path, sevens, seed=seed, steps=60, objective=objective(name, **more)).history
    assert log[0]["reward"] < 0.1
    assert sum(f["reward"] for f in log[-4:]) / 4 >= 0.8


@pytest.mark.parametrize("name", ["ppo", "archer"])
def test_without_reward_nothing_is_learned(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_critic, "normalise", lambda values: values)
    more = {"warmup": 2} if name == "archer" else {}
    made = bandit(tmp_path, lambda text: 0.0, steps=10, objective=objective(name, **more))
    drawn = [sevens(text) for step, text in made.source.drawn if step >= 5]  # type: ignore[attr-defined]
    assert sum(drawn) / len(drawn) < 0.1


@pytest.mark.parametrize("name", ["ppo", "archer"])
def test_killed_and_resumed_from_a_checkpoint_it_ends_with_the_same_bits(tmp_path: Path, name: str) -> None:
    settings: dict[str, Any] = {"schedule": {"save_every": 3}, "steps": 8}
    of = objective(name, **({"warmup": 1} if name == "archer" else {}))
    whole = bandit(tmp_path, sevens, objective=of, checkpoints="whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        bandit(tmp_path, sevens, objective=of, crash=5, **settings)
    again = bandit(tmp_path, sevens, objective=of, **settings)
    assert [f["step"] for f in again.history] == [3.0, 4.0, 5.0, 6.0, 7.0]
    assert again.learners[""].policy.digest() == whole.learners[""].policy.digest()
    assert without_clock(again.history) == without_clock(whole.history[3:])


def test_a_model_of_its_own_is_trained_and_the_policys_is_not(tmp_path: Path) -> None:
    save(tmp_path / "own", 1, hidden=32, layers=1)
    learner = make_learner(tmp_path, objective("ppo", model=str(tmp_path / "own"), rate=1e-3), rate=1e-12)
    policy = learner.policy.snapshot()
    before = {name: p.detach().clone() for name, p in learner.critic.model.trained.items()}
    first = learner.step(rows_of_two_states(0), [0.0] * 16, 0)["value_loss"]
    for step in range(1, 20):
        last = learner.step(rows_of_two_states(step), [0.0] * 16, step)["value_loss"]
    moved = {name.split(".")[0] for name, p in learner.critic.model.trained.items() if not torch.equal(p, before[name])}
    assert moved == {"trunk", "heads"} and last < first / 2
    for name, p in learner.policy.trained.items():
        assert torch.allclose(p, policy[name], atol=1e-9)


@pytest.mark.parametrize("adapter", [False, True])
def test_values_are_read_from_the_weights_that_training_began_with(tmp_path: Path, adapter: bool) -> None:
    """Updates of the policy move its states; those that heads were fitted to stay."""
    if adapter:
        pytest.importorskip("peft")
    learner = make_learner(tmp_path, objective("ppo"), lora=Lora.model_validate({"rank": 4}) if adapter else None)
    rows = rows_of_two_states(0)
    batch, first = collate(rows), learner.critic.read(rows, "token", "v")[0]
    states = learner.policy.states(batch)[0]
    with torch.no_grad():
        for p in learner.policy.trained.values():
            p.add_(0.5 * torch.ones_like(p))
    assert not torch.allclose(learner.policy.states(batch)[0], states, atol=1e-2)
    assert np.array_equal(learner.critic.read([*rows], "token", "v")[0], first)


def test_a_divergence_in_the_reward_is_taken_off_before_the_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_critic, "normalise", lambda values: values)
    monkeypatch.setattr(token_critic, "LAMBDA", 1.0)
    learner = make_learner(tmp_path, objective("ppo"))
    rows, penalty = rows_of_two_states(0), np.tile([0.1, 0.2, 0.4], (16, 1))
    plain, less = (learner.critic.compute_advantages(rows, given) for given in (None, penalty))
    assert np.allclose(plain - less, np.tile([0.7, 0.6, 0.4], (16, 1)))


def test_rows_that_were_not_scored_teach_nothing(tmp_path: Path) -> None:
    for name in ("ppo", "archer"):
        learner = make_learner(tmp_path, objective(name))
        rows = [replace(row, reward=None) for row in rows_of_two_states(0)]
        before = learner.critic.model.snapshot()
        learner.step(rows, [0.0] * 16, 0)
        assert not learner.critic.compute_advantages(rows).any()
        assert all(torch.equal(p, before[n]) for n, p in learner.critic.model.trained.items())


def test_an_update_that_is_not_finite_changes_nothing_and_is_counted(tmp_path: Path) -> None:
    learner = make_learner(tmp_path, objective("ppo", epochs=1))
    rows = [replace(row, reward=1e39) for row in rows_of_two_states(0)]  # infinite in 32 bits
    before = learner.critic.model.snapshot()
    assert learner.step(rows, [0.0] * 16, 0)["value_skipped"] == 4
    assert all(torch.equal(p, before[n]) for n, p in learner.critic.model.trained.items())


def test_the_critic_alone_learns_in_its_warm_up(tmp_path: Path) -> None:
    learner = make_learner(tmp_path, objective("ppo", warmup=2))
    moved = []
    for step in range(3):
        before = learner.policy.digest()
        moved.append((learner.step(rows_of_two_states(step), [0.0] * 16, step), learner.policy.digest() != before))
    assert [changed for _, changed in moved] == [False, False, True]
    assert all("value_loss" in figures for figures, _ in moved) and "loss" not in moved[1][0]


def test_single_settings_of_a_critic_keep_the_others_of_its_algorithm() -> None:
    found = GRPO.model_validate({"algorithm": "archer", "critic": {"rate": 0.1}}).resolved_critic
    assert found is not None and (found.of, found.gamma, found.rate) == ("turn", 0.95, 0.1)
    assert GRPO.model_validate({"algorithm": "ppo", "schedule": {"rollouts": 1}}).resolve_schedule().rollouts == 1
    assert PRESETS["poad"].objective["critic"]["gamma"] == 0.95 and make_objective("grpo").critic is None


CONSTANTS = {
    "ppo": {"of": "token", "gamma": 1.0, "epochs": 4},
    "poad": {"of": "token", "gamma": 0.95, "minibatches": 4, "rate": 5e-5},
    "archer": {"of": "turn", "gamma": 0.95, "epochs": 50, "minibatches": 1, "warmup": 20, "rate": 1e-3},
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_of_an_algorithms_critic(name: str) -> None:
    found = make_objective(name).critic
    assert found is not None and {key: getattr(found, key) for key in CONSTANTS[name]} == CONSTANTS[name]


@pytest.mark.parametrize("name", ["poad", pytest.param("archer", marks=pytest.mark.long)])
def test_a_whole_run_trains_with_a_critic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seen, heard = learned_rows(monkeypatch), list[Any]()
    critic = {"rate": 3e-3, **({"warmup": 1} if name == "archer" else {})}
    agent = {"agent": "text -> label", "user": {"knows": ["label"]}, "max_steps": 2, "max_tokens": 24}
    other = save_taught(tmp_path / "user", ["yes", "no"], 1)
    grpo = {"algorithm": name, "schedule": SMALL_RUN["schedule"], "device": "cpu", "critic": critic}
    grpo |= {"guards": ["empty", "repeated"], "rewards": [{"kind": "length", "tokens": 40}]}
    report = run(
        tmp_path,
        heard=heard,
        lm=f"hf:{save_taught(tmp_path / 'base', ['say: a', 'say: bc', 'label: d'])}",
        roles={"user": f"hf:{other}"},
        nodes={"sort": agent},
        rows=(4, 2, 2),
        data={"label_as_input": True},  # the user knows it
        optimizers=[{"grpo": grpo}],
    )
    assert report.status == "finished" and {row.turn for row in seen} == {0, 1}
    figures = [figures for message, figures in heard if message.startswith("step ")]
    assert len(figures) == 4 and all(f["value_loss"] >= 0 for f in figures)
    assert any("terms of `rewards` besides the metric" in message for message, _ in heard)


def test_what_does_not_go_with_a_critic_is_refused() -> None:
    with pytest.raises(ValueError, match="a critic and a loss over pairs read rewards alone"):
        GRPO.model_validate({"algorithm": "ppo", "constraints": {"tokens": 4.0}})
    with pytest.raises(ValueError, match="grpo has no critic: take ppo, archer, poad"):
        GRPO.model_validate({"critic": {"rate": 1e-3}})


def test_several_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench_training.scale import distributed

    with pytest.raises(ValueError, match=r"remove `learning.fsdp`"):
        GRPO.model_validate({"algorithm": "ppo", "learning": {"fsdp": True}})
    monkeypatch.setattr(distributed, "count_devices", lambda: 2)
    with pytest.raises(PluginError, match="without torchrun"):
        make_learner(tmp_path, objective("ppo"))
    _, _, task, optimizers = prepare(write(tmp_path, optimizers=[{"grpo": {"algorithm": "ppo"}}]))
    assert any("without torchrun" in str(found) for found in find_obstacles(task, optimizers))


def test_a_model_with_other_tokens_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "own", 1)
    words = json.loads((tmp_path / "own/tokenizer.json").read_text())
    words["model"]["vocab"] |= {"a": words["model"]["vocab"]["b"], "b": words["model"]["vocab"]["a"]}
    (tmp_path / "own/tokenizer.json").write_text(json.dumps(words))
    with pytest.raises(PluginError, match="has other tokens than"):
        make_learner(tmp_path, objective("ppo", model=str(tmp_path / "own")))
