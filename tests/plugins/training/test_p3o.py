"""P3O: its clip by hand, its first update beside RLOO's, what must not matter, and learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.grpo_runs import needs_torch

needs_torch()

import torch  # noqa: E402
from tests.helpers.grpo_worlds import bandit, sevens  # noqa: E402

from workbench_training.advantages import compute_advantages  # noqa: E402
from workbench_training.loss import Pairs, policy_loss  # noqa: E402
from workbench_training.objective import Objective  # noqa: E402
from workbench_training.papers.p3o import CLIP, pairwise_loss  # noqa: E402
from workbench_training.presets import make_objective  # noqa: E402
from workbench_training.rollouts.token_rows import Row  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.training]


def pairs_of(logp: Any, rewards: Any, old: Any = None, ref: Any = None, groups: Any = None) -> Pairs:
    old = logp.detach() if old is None else old
    groups = ["t"] * len(rewards) if groups is None else groups
    return Pairs(logp, torch.ones_like(logp), old, old if ref is None else ref, rewards, groups, 0, 1.0)


# The clip by hand: CLIP is 0.2, and a pair's term weighs a half


@pytest.mark.parametrize(
    ("ratios", "rewards", "value", "slopes", "share"),
    [
        ((0.05, -0.05), (1, 0), -0.05, (-0.5, 0.5), 0),  # within the band: the ratios cancel, d is 0.1
        ((0.1, 0.05), (1, 0), -0.0290459, (-0.5809171, 0.5809171), 0),  # exp(0.15) = 1.1618342
        ((0.4, 0.0), (1, 0), -0.12, (0, 0), 1),  # the better has gained enough: exp(0.4) is 1.2, d is 0.2
        ((0.4, 0.0), (0, 1), 0.24, (0.6, -0.6), 0),  # the worse has gained: min(-0.4, -0.2), and it is pushed back
        ((-0.3, -0.3), (1, 0), 0.0, (-0.4, 0.4), 0),  # both rarer by the same: d = 0, exp(-0.6) is 0.8
        ((0.4, 0.4), (2, 0), 0.0, (-1.2, 1.2), 0),  # twice the difference of rewards, twice the gradient
        ((-0.4, 0.4), (1, 0), 0.4, (-0.5, 0.5), 0),  # far off the wrong way: no clip
    ],
)
def test_the_clip_by_hand(ratios: Any, rewards: Any, value: float, slopes: Any, share: float) -> None:
    """Each answer's log-ratio is spread over two tokens."""
    assert CLIP == 0.2
    old = torch.tensor([[-1.0, -2.0], [-0.5, -1.5]], dtype=torch.double)
    change = torch.tensor([[0.25 * r, 0.75 * r] for r in ratios], dtype=torch.double)
    logp = (old + change).requires_grad_()
    loss, figures = pairwise_loss(pairs_of(logp, rewards, old), 0.0)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(value, abs=1e-6) and logp.grad is not None
    assert logp.grad[:, 0].tolist() == pytest.approx(slopes, abs=1e-6)
    assert torch.equal(logp.grad[:, 0], logp.grad[:, 1])
    assert figures == {"pairs": 1.0, "clipped": share}


def test_the_divergence_of_the_whole_answer_is_taken_off_its_reward() -> None:
    logp = torch.tensor([[-1.0, -1.0], [-2.0, -1.0]], requires_grad=True)
    ref = torch.tensor([[-2.0, -1.5], [-2.0, -1.0]])
    loss, _ = pairwise_loss(pairs_of(logp, (1.0, 0.0), ref=ref), 0.5)
    loss.backward()
    left = 1.0 - 0.5 * 1.5  # the log-ratio of the better answer is 1.5, that of the worse 0
    assert logp.grad is not None and logp.grad[:, 0].tolist() == pytest.approx([-left / 2, left / 2])


def test_the_first_update_is_that_of_rloo() -> None:
    """For the answers of one prompt, up to a factor: the mean over pairs is the leave-one-out baseline."""
    torch.manual_seed(0)
    rewards = [0.0, 1.0, 0.25, 3.0]
    rows = [Row((1,), (2,), (1,), (-1.0,), r, "t", i) for i, r in enumerate(rewards)]
    ours, theirs = (torch.randn(4, 3).requires_grad_() for _ in range(2))
    pairwise_loss(pairs_of(ours, rewards), 0.0)[0].backward()
    objective = make_objective("rloo", {"beta": 0.0})
    values = torch.tensor(compute_advantages(rows, objective), dtype=torch.float)
    policy_loss(theirs, values, torch.ones(4, 3), objective)[0].backward()
    assert ours.grad is not None and theirs.grad is not None
    found = ours.grad / theirs.grad
    assert torch.allclose(found, found[0, 0].expand_as(found), rtol=1e-5) and float(found[0, 0]) > 0


def test_a_shift_of_a_prompts_rewards_changes_nothing() -> None:
    """To the last bit. REINFORCE, which raises answers by their rewards as they are, is changed by it: the control."""
    torch.manual_seed(3)
    start, old = torch.randn(4, 3), torch.randn(4, 3)
    groups, plain, shifted = ["t", "t", "u", "u"], [0.0, 1.0, 0.5, 0.0], [3.0, 4.0, -1.0, -1.5]
    reinforce = Objective.model_validate({"surrogate": "likelihood", "baseline": "none", "scale": "none"})

    def gradients(rewards: list[float]) -> tuple[Any, Any]:
        ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
        pairwise_loss(pairs_of(ours, rewards, old, groups=groups), 0.0)[0].backward()
        policy_loss(theirs, torch.tensor(rewards), torch.ones(4, 3), reinforce, old=old)[0].backward()
        return ours.grad, theirs.grad

    (ours, theirs), (ours_shifted, theirs_shifted) = gradients(plain), gradients(shifted)
    assert torch.equal(ours, ours_shifted) and ours.abs().max() > 1e-3
    assert (theirs - theirs_shifted).abs().max() > 0.05


def test_answers_without_a_score_make_no_pair() -> None:
    logp = torch.zeros(3, 1, requires_grad=True)
    loss, figures = pairwise_loss(pairs_of(logp, [1.0, float("nan"), 0.0]), 0.0)
    loss.backward()
    assert logp.grad is not None and figures["pairs"] == 1.0 and logp.grad.flatten().tolist() == [-0.5, 0.0, 0.5]
    alone, figures = pairwise_loss(pairs_of(logp, [1.0, float("nan"), 1.0]), 0.0)
    assert figures["pairs"] == 0.0 and float(alone.detach()) == 0.0


@pytest.mark.parametrize(("epochs", "steps"), [(1, 40), (2, 28)])
def test_it_learns_to_emit_a_digit(tmp_path: Path, epochs: int, steps: int) -> None:
    """As the other algorithms: share of 7 in eight characters, chance at first, at least 0.9 over the last four steps.
    The divergence is that of the whole answer, so its weight is small here."""
    objective = make_objective("p3o", {"pair_beta": 1e-3})
    log = bandit(tmp_path, sevens, steps=steps, objective=objective, learning={"epochs": epochs}).history
    assert log[0]["reward"] < 0.1
    assert sum(f["reward"] for f in log[-4:]) / 4 >= 0.9, [round(f["reward"], 2) for f in log]
    assert any(f["clipped"] > 0 for f in log if "clipped" in f) == (epochs > 1)
