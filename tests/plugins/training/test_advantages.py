"""The advantages of grpo, against TRL's and against tables by hand; and how calls become rows."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from workbench_training.advantages import (
    compute_advantages,
    compute_step_returns,
    compute_token_advantages,
    update_multipliers,
)
from workbench_training.objective import Objective
from workbench_training.presets import make_objective
from workbench_training.rollouts.token_rows import Row, build_rows, hash_prompt

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL and torch warn of what they will change some day


def row(reward: float | None, task: str = "t", rollout: int = 0, agent: str = "a", turn: int = 0, **more: Any) -> Row:
    return Row((1, 2), (3, 4), (1, 1), (-1.0, -1.0), reward, task, rollout, agent, turn, **more)


def group(*rewards: float | None, task: str = "t") -> list[Row]:
    return [row(r, task, i) for i, r in enumerate(rewards)]


# Against TRL


@pytest.mark.parametrize(("scale", "name"), [("group", "std"), ("batch", "batch_std"), ("none", "none")])
def test_advantages_equal_those_of_a_training_step_of_trl(
    tmp_path: Any, scale: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    from tests.helpers.tiny_lm import make_tokenizer, save
    from trl import GRPOConfig, GRPOTrainer

    rng = random.Random(5)
    given: list[float | None] = [rng.choice([0.0, 0.5, 1.0, 2.0]) for _ in range(12)]
    given[4:8] = [1.0] * 4  # a group without differences
    given[9] = None  # one that could not be scored
    seen: list[Any] = []

    class Watched(GRPOTrainer):
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            seen.append(inputs["advantages"].clone())
            return super()._compute_loss(model, inputs)

    config = GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=12,
        num_generations=4,
        max_completion_length=3,
        max_steps=1,
        use_cpu=True,
        bf16=False,
        report_to=[],
        disable_tqdm=True,
        scale_rewards=scale,
        shuffle_dataset=False,
    )
    Watched(
        model=str(save(tmp_path / "model")),
        reward_funcs=lambda completions, **_: given,
        args=config,
        train_dataset=datasets.Dataset.from_dict({"prompt": ["a", "b", "c"]}),
        processing_class=make_tokenizer(),
    ).train()
    monkeypatch.setattr("workbench_training.advantages.EPS", 1e-4)  # TRL's
    rows = [r for i, task in enumerate("abc") for r in group(*given[4 * i : 4 * i + 4], task=task)]
    found = compute_advantages(rows, Objective(scale=name))  # type: ignore[arg-type]
    order = sorted(range(12), key=lambda i: (found[i], i))
    assert sorted(seen[0].tolist()) == pytest.approx([found[i] for i in order], abs=1e-5)  # TRL may shuffle the rows
    assert np.abs(found).max() > 0.3


# Advantages by hand


def test_grpo_by_hand() -> None:
    found = compute_advantages(group(0.0, 1.0, 1.0, 0.0), Objective())
    s = math.sqrt(1 / 3)  # Bessel's deviation of 0, 1, 1, 0
    assert found.tolist() == pytest.approx([-0.5 / s, 0.5 / s, 0.5 / s, -0.5 / s], rel=1e-5)
    assert compute_advantages(group(1.0, 1.0, 1.0), Objective()).tolist() == [0.0] * 3
    assert compute_advantages(group(1.0, None, 0.0, float("nan")), Objective(scale="none")).tolist() == [
        0.5,
        0.0,
        -0.5,
        0.0,
    ]


def test_scales_by_hand() -> None:
    rows = [*group(0.0, 2.0), *group(5.0, 5.0, task="u")]
    raw = np.std([0, 2, 5, 5], ddof=1)
    centred = np.std([-1, 1, 0, 0], ddof=1)
    assert compute_advantages(rows, Objective(scale="batch_std")).tolist() == pytest.approx(
        [-1 / raw, 1 / raw, 0, 0], rel=1e-5
    )
    assert compute_advantages(rows, Objective(scale="batch_centred_std")).tolist() == pytest.approx(
        [-1 / centred, 1 / centred, 0, 0], rel=1e-5
    )
    assert compute_advantages(group(1.0, 2.0, 6.0), make_objective("rloo")).tolist() == pytest.approx([-3.0, -1.5, 4.5])
    whole = compute_advantages(rows, make_objective("reinforce++"))
    assert whole.tolist() == pytest.approx([(r - 3) / raw for r in (0, 2, 5, 5)], rel=1e-5)


def test_gigpo_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rollouts of two steps; both begin in state x, then the one is in y and the other in z."""
    steps = [
        row(1.0, rollout=0, turn=0, anchor="x"),
        row(1.0, rollout=0, turn=1, anchor="y"),
        row(0.0, rollout=1, turn=0, anchor="x"),
        row(0.0, rollout=1, turn=1, anchor="z"),
    ]
    monkeypatch.setattr("workbench_training.advantages.GAMMA", 0.5)
    assert compute_step_returns(steps, 0.5).tolist() == [0.5, 1.0, 0.0, 0.0]
    # Episode: 1 and 0 around 0.5. Step: in x, 0.5 and 0 around 0.25; y and z were seen once: 0, not their returns.
    assert compute_advantages(steps, make_objective("gigpo")).tolist() == pytest.approx(
        [0.5 + 0.25, 0.5, -0.5 - 0.25, -0.5]
    )


def test_long_rollouts_have_one_vote() -> None:
    """A rollout of three steps and one of one step: the mean is that of two rollouts, unless rows are counted."""
    steps = [row(1.0, rollout=0, turn=t) for t in range(3)] + [row(0.0, rollout=1)]
    assert compute_advantages(steps, Objective(scale="none")).tolist() == [0.5, 0.5, 0.5, -0.5]
    assert compute_advantages(steps, Objective(scale="none", count="row")).tolist() == [0.25, 0.25, 0.25, -0.75]


def test_dr_mas_by_hand() -> None:
    """Two agents whose rewards differ in scale: compared by agent, the small scale counts as much as the large one."""
    rows = [
        row(0.0, rollout=0, agent="a"),
        row(0.1, rollout=1, agent="a"),
        row(5.0, rollout=0, agent="b"),
        row(15.0, rollout=1, agent="b"),
        row(15.0, rollout=1, agent="b", turn=1),
    ]
    found = compute_advantages(rows, make_objective("dr_mas"))
    s = math.sqrt(100 / 3)  # of 5, 15, 15: an agent that acts twice has two votes
    h = math.sqrt(0.5)
    assert found.tolist() == pytest.approx([-0.5 / h, 0.5 / h, (5 - 35 / 3) / s, (10 / 3) / s, (10 / 3) / s], rel=1e-4)
    shared = compute_advantages(rows, make_objective("grpo", {"count": "row"}))
    assert abs(shared[0] - shared[1]) < 0.02  # together, agent a's difference all but vanishes


@pytest.mark.parametrize("algorithm", ["grpo", "gigpo", "dr_mas", "rloo", "dr_grpo"])
def test_a_single_rollout_teaches_nothing(algorithm: str) -> None:
    rows = [row(0.7, anchor="x"), row(0.9, "u", anchor="y")]
    assert compute_advantages(rows, make_objective(algorithm)).tolist() == [0.0, 0.0]


def test_with_one_agent_and_one_step_dr_mas_is_grpo_and_the_step_term_the_episode_term() -> None:
    rows = [row(r, task, i, anchor="x") for task in "tu" for i, r in enumerate((0.0, 0.4, 1.0))]
    grpo = compute_advantages(rows, make_objective("grpo"))
    assert compute_advantages(rows, make_objective("dr_mas")).tolist() == grpo.tolist()
    episode = compute_advantages(rows, make_objective("gigpo", {"step_weight": 0.0}))
    assert compute_advantages(rows, make_objective("gigpo")).tolist() == pytest.approx((2 * episode).tolist())


def test_shift_scale_and_order_of_rewards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench_training.advantages.EPS", 1e-9)
    rng = random.Random(0)
    for algorithm in (
        "grpo",
        "dr_grpo",
        "dapo",
        "lite_ppo",
        "rloo",
        "gigpo",
        "dr_mas",
        "reinforce++",
        "reinforce++_baseline",
    ):
        objective = make_objective(algorithm)
        rows = [row(rng.random(), rng.choice("tuv"), i, rng.choice("ab"), anchor="x") for i in range(24)]
        before = compute_advantages(rows, objective)
        moved = [Row.from_dict({**r.as_dict(), "reward": (r.reward or 0) + 3.0}) for r in rows]
        assert np.allclose(compute_advantages(moved, objective), before, atol=1e-6), algorithm
        larger = [Row.from_dict({**r.as_dict(), "reward": (r.reward or 0) * 7.0}) for r in rows]
        factor = 7.0 if objective.scale == "none" else 1.0
        assert np.allclose(compute_advantages(larger, objective), factor * before, atol=1e-6), algorithm
        order = rng.sample(range(24), 24)
        assert np.allclose(compute_advantages([rows[i] for i in order], objective), before[order]), algorithm


def test_constraints_weigh_costs_and_multipliers_move_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench_training.advantages.MAX", 2.0)
    monkeypatch.setattr("workbench_training.advantages.GAIN", 0.0)
    monkeypatch.setattr("workbench_training.advantages.RATE", 0.5)
    limits = {"tokens": 10.0}
    objective = Objective(scale="none", constraints=limits)
    rows = [row(1.0, rollout=0, costs={"tokens": 30.0}), row(0.0, rollout=1, costs={"tokens": 10.0})]
    assert compute_advantages(rows, objective, {"tokens": 0.0}).tolist() == [0.5, -0.5]
    assert compute_advantages(rows, objective, {"tokens": 1.0}).tolist() == [(0.5 - 10) / 2, (-0.5 + 10) / 2]
    up = update_multipliers({"tokens": 0.25}, rows, limits)
    assert up == {"tokens": pytest.approx(0.25 + 0.5 * (20 - 10) / 10)}
    assert update_multipliers({"tokens": 1.9}, rows, limits) == {"tokens": 2.0}
    # With the proportional term: an excess of one budget adds the gain, costs below the budget take it off.
    monkeypatch.setattr("workbench_training.advantages.GAIN", 0.5)
    quick = objective
    assert compute_advantages(rows, quick, {"tokens": 0.5}).tolist() == [(0.5 - 10) / 2, (-0.5 + 10) / 2]
    assert compute_advantages(rows, quick, {"tokens": 9.0}).tolist() == [(0.5 - 2 * 10) / 3, (-0.5 + 2 * 10) / 3]
    short = [Row.from_dict({**r.as_dict(), "costs": {"tokens": r.costs["tokens"] / 10}}) for r in rows]
    assert compute_advantages(short, quick, {"tokens": 0.4}).tolist() == pytest.approx([0.5, -0.5])  # 0.4 - 0.5 * 0.8
    cheap = [row(1.0, costs={"tokens": 0.0})]
    assert update_multipliers({"tokens": 0.1}, cheap, limits) == {"tokens": 0.0}


def test_a_divergence_in_the_reward_falls_on_the_tokens_before_it() -> None:
    objective = Objective(kl_place="reward", beta=0.1)
    old, ref = torch.tensor([[1.0, 2.0, 3.0, 9.0]]), torch.zeros(1, 4)
    mask = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    found = compute_token_advantages(torch.tensor([5.0]), mask, objective, old, ref)
    assert found.tolist() == [pytest.approx([5 - 0.1 * 4, 0, 5 - 0.1 * 3, 0])]
    assert compute_token_advantages(torch.tensor([5.0]), mask, make_objective("grpo")).tolist() == [
        [5.0, 0.0, 5.0, 0.0]
    ]
    whole = compute_token_advantages(torch.tensor([5.0]), mask, make_objective("rloo"), old, ref)
    assert whole.tolist() == [pytest.approx([5 - 0.05 * 4, 0, 5 - 0.05 * 4, 0])]
    white = compute_token_advantages(torch.tensor([5.0]), mask, make_objective("reinforce++"), old, ref)
    assert white[mask > 0].mean().abs() < 1e-5 and white[mask > 0].std() == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(ValueError, match="log-probabilities"):
        compute_token_advantages(torch.tensor([5.0]), mask, objective)


# Rows


def step(agent: str, turn: int, prompt: list[int], tokens: list[int]) -> dict[str, Any]:
    return {
        "agent": agent,
        "turn": turn,
        "prompt_ids": prompt,
        "token_ids": tokens,
        "logprobs": [-0.5] * len(tokens),
        "text": "x",
    }


def test_turns_that_continue_are_one_row_with_the_tools_masked() -> None:
    steps = [step("a", 0, [1, 2], [3, 4]), step("b", 0, [9], [8]), step("a", 1, [1, 2, 3, 4, 70, 71], [5])]
    a, b = build_rows(steps, reward=1.0, task="t", rollout=2, version=3)
    assert (a.prompt_ids, a.token_ids, a.mask) == ((1, 2), (3, 4, 70, 71, 5), (1, 1, 0, 0, 1))
    assert a.logprobs == (-0.5, -0.5, 0.0, 0.0, -0.5) and a.drawn == 3 and a.version == 3
    assert (b.agent, b.token_ids, b.reward) == ("b", (8,), 1.0)
    single = build_rows(steps, reward={"a": 0.0, "b": 2.0}, task="t", rollout=2, version=3, merge=False)
    assert [(r.agent, r.turn, r.reward) for r in single] == [("a", 0, 0.0), ("b", 0, 2.0), ("a", 1, 0.0)]
    assert single[0].anchor == hash_prompt([1, 2]) != single[2].anchor


def test_a_history_that_was_tokenized_otherwise_forks_a_row() -> None:
    steps = [step("a", 0, [1, 2], [3, 4]), step("a", 1, [1, 2, 34, 70], [5]), step("a", 2, [1, 2, 34, 70, 5, 7], [6])]
    first, second = build_rows(steps, reward=1.0, task="t", rollout=0, version=0)
    assert first.token_ids == (3, 4) and first.mask == (1, 1)
    assert second.prompt_ids == (1, 2, 34, 70) and second.token_ids == (5, 7, 6) and second.mask == (1, 0, 1)


def test_rows_survive_json_and_refuse_ragged_fields() -> None:
    import json

    made = row(0.5, costs={"tokens": 3.0}, anchor="x")
    assert Row.from_dict(json.loads(json.dumps(made.as_dict()))) == made
    with pytest.raises(ValueError, match="differ in length"):
        Row((1,), (2, 3), (1,), (0.0, 0.0), 1.0, "t")
