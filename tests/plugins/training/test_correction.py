"""Correction of sampling: weights by hand and against TRL's own, what it leaves alone, and what it saves."""

from __future__ import annotations

import inspect
import math
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.grpo_worlds import TextSource, bandit, sevens  # noqa: E402
from tests.plugins.training.test_learner import ADVANTAGES, base, learner, moved, some_rows  # noqa: E402, F401
from tests.plugins.training.test_losses import LOSSES, tensors, trl_trainer  # noqa: E402, F401

from workbench_training import correction as module, step_loss  # noqa: E402
from workbench_training.correction import (  # noqa: E402
    Drift,
    compute_log_ratio,
    is_corrected,
    measure_gap,
    weigh_tokens,
)
from workbench_training.loss import policy_loss  # noqa: E402
from workbench_training.objective import Objective  # noqa: E402
from workbench_training.presets import PRESETS, make_objective  # noqa: E402
from workbench_training.rewards import Rollout  # noqa: E402
from workbench_training.rollouts.token_rows import Row, collate  # noqa: E402
from workbench_training.settings import Learning  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


# Weights


def test_weights_by_hand() -> None:
    """Three rows: one within all bounds, one with a token over the cap, one that is far too unlikely as a whole."""
    ratio = torch.tensor([[1.5, 0.8, 1.0], [3.0, 0.5, 1.0], [0.4, 0.4, 7.0]])
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    log_ratio = ratio.log() * mask
    weight, truncated, left_out = weigh_tokens(log_ratio, mask)
    wanted = torch.tensor([[1.5, 0.8, 1.0], [2.0, 0.5, 1.0], [0.0, 0.0, 0.0]])
    assert torch.allclose(weight, wanted)
    assert truncated.tolist() == [[False] * 3, [True, False, False], [False] * 3]
    assert left_out.tolist() == [False, False, True]
    long, all_ones = torch.full((1, 20), 0.9).log(), torch.ones(1, 20)
    assert weigh_tokens(long, all_ones)[2].tolist() == [False], "0.9 on average, though 0.12 as a product"


def test_masked_tokens_and_tokens_without_a_number_weigh_one() -> None:
    before, sampled = torch.full((1, 4), -1.0), torch.tensor([[-1.5, -9.0, math.nan, -math.inf]])
    log_ratio = compute_log_ratio(before, sampled, torch.tensor([[1.0, 0.0, 1.0, 1.0]]))
    assert log_ratio.tolist() == [[0.5, 0.0, 0.0, 0.0]]


def weights_of_trl(cap: float, old: Any, sampled: Any, mask: Any) -> Any:
    """What the lines of TRL's trainer compute that correct vLLM's sampling."""
    from types import SimpleNamespace

    from trl import GRPOTrainer

    source = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    begin = source.index("per_token_logps_diff = (old_per_token_logps - sampling_per_token_logps)")
    lines = source[
        source.rindex("\n", 0, begin) + 1 : source.index("# Compute the per-token log probabilities for the ref")
    ]
    trainer = SimpleNamespace(
        vllm_importance_sampling_mode="token_truncate",
        vllm_importance_sampling_clip_min=None,
        vllm_importance_sampling_clip_max=cap,
    )
    names: dict[str, Any] = {
        "torch": torch,
        "math": math,
        "self": trainer,
        "mask": mask,
        "old_per_token_logps": old,
        "sampling_per_token_logps": sampled,
    }
    exec(textwrap.dedent(lines), names)
    return names["vllm_importance_sampling_ratio"]


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "cispo"])
def test_corrected_losses_and_gradients_equal_trls(
    trl_trainer: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    loss_type: str,
) -> None:
    """TRL's `token_truncate` leaves no row out."""
    monkeypatch.setattr(module, "CAP", 1.5)
    monkeypatch.setattr(module, "LOW", 0.0)
    monkeypatch.setattr(module, "HIGH", math.inf)
    objective = Objective.model_validate({**LOSSES[loss_type], "beta": 0.05})
    for seed in range(4):
        data = tensors(seed)
        sampled = data["old"] + 0.3 * torch.randn(data["old"].shape, generator=torch.Generator().manual_seed(seed))
        theirs = weights_of_trl(1.5, data["old"], sampled, data["mask"])
        weight, _, _ = weigh_tokens(compute_log_ratio(data["old"], sampled, data["mask"]), data["mask"])
        assert ((weight - theirs) * data["mask"]).abs().max() < 1e-5
        value, gradient = loss_and_gradient(data, objective, weight)
        expected, wanted = loss_of_trl(trl_trainer, data, loss_type, objective, theirs)
        assert abs(value - expected) < 1e-6 * max(1.0, abs(float(expected))) and (gradient - wanted).abs().max() < 1e-5
        plain, _ = loss_and_gradient(data, objective, None)
        assert abs(plain - expected) > 1e-4, "nothing to compare"


def loss_and_gradient(data: dict[str, Any], objective: Objective, weight: Any) -> tuple[Any, Any]:
    logp = data["logp"].clone().requires_grad_()
    loss, _ = policy_loss(
        logp, data["advantage"], data["mask"], objective, old=data["old"], ref=data["ref"], weight=weight
    )
    loss.backward()
    return loss.detach(), logp.grad


def loss_of_trl(
    trainer: Any, data: dict[str, Any], loss_type: str, objective: Objective, weight: Any
) -> tuple[Any, Any]:
    from tests.plugins.training.test_losses import theirs

    real = type(trainer)._compute_loss

    def corrected(model: Any, inputs: dict[str, Any]) -> Any:
        return real(trainer, model, {**inputs, "importance_sampling_ratio": weight})

    trainer.use_vllm, trainer.vllm_importance_sampling_correction, trainer._compute_loss = True, True, corrected
    try:
        return theirs(trainer, data, loss_type, objective)
    finally:
        trainer.use_vllm = False
        del trainer._compute_loss


# Steps


def agreeing(made: Any, apart: float = 0.0) -> list[Row]:
    """Rows whose sampler says what the policy says, to the last bit, or that plus some number."""
    rows = some_rows()
    found = made._log_probabilities(collate(rows), rows)
    return [
        replace(row, logprobs=tuple((float(p) - apart) * m for p, m in zip(found[i].tolist(), row.mask, strict=False)))
        for i, row in enumerate(rows)
    ]


@pytest.mark.parametrize("updates", [{}, {"epochs": 2, "minibatches": 3}], ids=["one update", "several"])
@pytest.mark.parametrize("algorithm", ["grpo", "dapo", "gspo", "cispo", "rloo"])
def test_where_sampler_and_trainer_agree_nothing_changes_at_all(
    base: str,  # noqa: F811
    algorithm: str,
    updates: dict[str, int],
) -> None:
    for apart, same in ((0.0, True), (0.3, False)):
        with_, without = (
            learner(base, algorithm, changes=changes, micro_tokens=10_000, **updates)
            for changes in ({}, {"correction": False})
        )
        rows = agreeing(with_, apart)
        for made in (with_, without):
            made.optimizer = torch.optim.SGD(list(made.policy.trained.values()), lr=0.1)  # AdamW would hide sizes
            made.rate = 0.1
            figures = made.step(rows, ADVANTAGES, 0)
        assert figures["off_policy_gap"] == pytest.approx(apart, abs=1e-4)
        assert (moved(with_, without) == 0.0) is same and moved(with_, learner(base)) > 0


def test_weights_are_those_at_the_start_of_the_step(base: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """In every update of a step, with the trainer's log-probabilities from before the first, and without gradient."""
    seen: list[Any] = []
    real = step_loss.policy_loss

    def watched(logp: Any, *args: Any, **more: Any) -> Any:
        seen.append((more["weight"], more["old"]))
        return real(logp, *args, **more)

    monkeypatch.setattr(step_loss, "policy_loss", watched)
    made = learner(base, "grpo", epochs=3, micro_tokens=10_000)
    rows = some_rows()
    batch = collate(rows)
    old = made._log_probabilities(batch, rows)
    wanted = weigh_tokens(compute_log_ratio(old, batch.sampled, batch.mask), batch.mask)[0]
    made.step(rows, ADVANTAGES, 0)
    assert len(seen) == 3 and moved(made, learner(base)) > 0
    for weight, before in seen:  # rows pass sorted by length
        for part, whole in ((weight, wanted), (before, old)):
            passed = {tuple(row) for row in part.mul(1e4).round().int().tolist()}
            width = part.shape[1]
            moving = {
                tuple(row)
                for row, a in zip(whole[:, :width].mul(1e4).round().int().tolist(), ADVANTAGES, strict=True)
                if a
            }
            assert passed == moving and not part.requires_grad
    assert (wanted[batch.mask > 0] - 1).abs().max() > 0.1


def test_rows_of_an_older_version_are_clipped_and_not_weighted(base: str) -> None:  # noqa: F811
    """Their ratio to the sampler is already the one that is clipped; a weight would count it twice."""
    made, control = learner(base, "grpo"), learner(base, "grpo", changes={"correction": False})
    rows = agreeing(made, 0.1)
    for one in (made, control):
        figures = one.step(rows, ADVANTAGES, 1)
    assert moved(made, control) == 0.0 and moved(made, learner(base)) > 0 and "off_policy_gap" not in figures


def test_only_losses_over_rows_are_corrected() -> None:
    plain = Learning.model_validate({})
    uncorrected = {name for name in PRESETS if not is_corrected(make_objective(name), plain)}
    assert uncorrected == {"p3o", "trpa"}
    assert not is_corrected(Objective(surrogate="likelihood"), plain)
    assert not is_corrected(Objective(correction=False), plain)
    assert not is_corrected(Objective(), Learning.model_validate({"temperature": 0.7}))


# Figures and alarms


def test_figures_of_a_step_by_hand() -> None:
    log_ratio = torch.tensor([[0.0, math.log(4.0), math.log(0.5)], [math.log(0.1), 0.0, 0.0], [9.0, 9.0, 9.0]])
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    fresh = torch.tensor([True, True, False])
    drift = Drift()
    drift.add(log_ratio, mask, fresh, True)
    found = drift.figures()
    logs = [0.0, math.log(4.0), math.log(0.5), math.log(0.1)]
    assert found["off_policy_gap"] == pytest.approx(sum(map(abs, logs)) / 4)
    assert found["off_policy_kl"] == pytest.approx(sum(math.exp(x) - 1 - x for x in logs) / 4)
    assert found["off_policy_ratio_mean"] == pytest.approx((1 + 4 + 0.5 + 0.1) / 4)
    assert found["off_policy_ratio_max"] == pytest.approx(4.0) and 3.5 < found["off_policy_ratio_p99"] < 4.0
    assert found["off_policy_truncated"] == 0.25 and found["off_policy_masked"] == 0.5
    twice = Drift()
    twice.merge(drift)
    twice.merge(drift)
    assert twice.figures() == pytest.approx(found | {"off_policy_ratio_p99": 4.0})
    assert Drift().figures() == {} and measure_gap([]) == (0.0, 0.0)
    assert all(map(math.isfinite, measure_gap([-1000.0, 1000.0])))


class Misremembered(TextSource):
    """The sampler reports other log-probabilities than the policy has: for one token of a row, or for all."""

    tokens, by = 10**9, 0.2

    def rows(self, rollout: Rollout, version: int) -> list[Row]:
        return [
            replace(r, logprobs=tuple(p - self.by * (i < self.tokens) for i, p in enumerate(r.logprobs)))
            for r in super().rows(rollout, version)
        ]


class OneToken(Misremembered):
    tokens = 1


class FarOff(Misremembered):
    by = 0.4


def alarms(made: Any) -> list[str]:
    return [text for text in made.told if "alarm" in text]


def test_a_token_apart_is_no_alarm_and_all_tokens_are(tmp_path: Path) -> None:
    """In bfloat16 single tokens are apart by 0.2 in nearly every step."""
    (alarm,) = alarms(bandit(tmp_path, sevens, steps=1, world=Misremembered, checkpoints="all"))
    assert "differ by 0.2 on average" in alarm
    one = bandit(tmp_path, sevens, steps=1, world=OneToken, checkpoints="one")
    assert not alarms(one) and one.history[0]["off_policy_ratio_max"] == pytest.approx(math.exp(0.2), rel=1e-3)
    gap = {"alarms.OFF_POLICY_GAP": 1.0}
    (alarm,) = alarms(bandit(tmp_path, sevens, steps=1, world=FarOff, checkpoints="kl", constants=gap))
    assert "divergence of sampling from training 0.0918 above 0.01" in alarm
    wide = {**gap, "alarms.OFF_POLICY_KL": 0.1}
    assert not alarms(bandit(tmp_path, sevens, steps=1, world=FarOff, checkpoints="no", constants=wide))


# What it saves


@pytest.mark.parametrize("sampler", [pytest.param("bfloat16", marks=pytest.mark.long), "one version behind"])
def test_small_drift_does_no_harm(tmp_path: Path, sampler: str) -> None:
    """The world is learned with correction; without it is, too, so that this claims nothing about its use."""
    from tests.helpers.drifting_samplers import Bfloat16Sampler, LaggingSampler, sample_policy

    made = bandit(
        tmp_path, sevens, sampler={"bfloat16": Bfloat16Sampler, "one version behind": LaggingSampler}[sampler]
    )
    assert max(f.get("off_policy_gap", 0.0) for f in made.history) > 1e-4, "there is no drift"
    assert sample_policy(made, sevens) > 0.9


@pytest.mark.long
def test_with_noise_in_the_sampler_only_corrected_training_learns(tmp_path: Path) -> None:
    """Noise of deviation 2 on all logits: with correction both seeds learn, without it not both do."""
    from tests.helpers.drifting_samplers import PerturbedSampler, sample_policy

    earned: dict[bool, list[float]] = {True: [], False: []}
    for corrected in earned:
        objective = make_objective("grpo", {} if corrected else {"correction": False})
        for seed in range(2):
            made = bandit(
                tmp_path / str(corrected),
                sevens,
                seed=seed,
                steps=60,
                objective=objective,
                sampler=PerturbedSampler,
                checkpoints=f"schedule{seed}",
            )
            earned[corrected].append(sample_policy(made, sevens))
    assert min(earned[True]) > 0.8, earned
    assert min(earned[False]) < 0.5 and sum(earned[False]) < sum(earned[True]) - 0.5, earned
