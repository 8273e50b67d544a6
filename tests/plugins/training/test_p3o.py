"""P3O: both clips by hand, the pairwise gradient against its textbook form, what must not matter, and learning."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from workbench_training.advantages import compute_advantages, compute_answer_rewards, group_answers
from workbench_training.objective import Objective, make_objective
from workbench_training.rollouts.token_rows import Row

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.helpers.grpo_worlds import bandit, sevens  # noqa: E402
from tests.helpers.tiny_lm import save  # noqa: E402
from tests.plugins.training.test_learner import learner, moved, some_rows  # noqa: E402

from workbench_training.learner import Learner  # noqa: E402
from workbench_training.loss import find_pairs, pairwise_loss, policy_loss, preference_loss  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
P3O = make_objective("p3o", {"beta": 0.0})
WIDE = {"clip_low": 1e9, "clip_high": 1e9}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(tmp_path_factory.mktemp("model") / "base", 1))


def rows_with(*rewards: float | None, task: str = "t") -> list[Row]:
    return [Row((1,), (2,), (1,), (-1.0,), reward, task, i) for i, reward in enumerate(rewards)]


def loss_of(logp: Any, rewards: Any, objective: Objective, old: Any = None, mask: Any = None, rows: Any = None) -> Any:
    """The loss of answers of one row each, by default of one group."""
    mask = torch.ones_like(logp) if mask is None else mask
    made = rows or rows_with(*rewards)
    return pairwise_loss(logp, logp.new_tensor(rewards), mask, group_answers(made, objective), objective, old=old)


# The clips, by hand: eps is 0.2, and a pair's term weighs a half


TABLE = [
    # clip, log-ratios, rewards, loss, its gradient in the two log-ratios, share of clipped pairs
    ("joint", (0.05, -0.05), (1, 0), -0.05, (-0.5, 0.5), 0),  # within the band: rho_1 rho_2 = 1, d = 0.1
    ("joint", (0.1, 0.05), (1, 0), -0.0290459, (-0.5809171, 0.5809171), 0),  # exp(0.15) = 1.1618342
    ("joint", (0.4, 0.0), (1, 0), -0.12, (0, 0), 1),  # the better has gained enough: exp(0.4) is 1.2, d is 0.2
    ("joint", (0.4, 0.0), (0, 1), 0.24, (0.6, -0.6), 0),  # the worse has gained: min(-0.4, -0.2), and it is pushed back
    ("joint", (0.0, 0.4), (0, 1), -0.12, (0, 0), 1),  # the first case, the other way round
    ("joint", (-0.3, -0.3), (1, 0), 0.0, (-0.4, 0.4), 0),  # both rarer by the same: d = 0, exp(-0.6) is 0.8
    ("joint", (0.4, 0.4), (2, 0), 0.0, (-1.2, 1.2), 0),  # both likelier by the same
    ("joint", (-0.4, 0.4), (1, 0), 0.4, (-0.5, 0.5), 0),  # far off the wrong way: the ratios cancel
    ("joint", (0.4, 0.0), (1, 1), 0.0, (0, 0), 1),  # nothing to tell apart
    ("separate", (0.1, -0.1), (1, 0), -0.1, (-0.5, 0.5), 0),
    ("separate", (0.4, 0.0), (1, 0), -0.12, (0, 0.6), 1),  # the better is clipped, the worse goes on
    ("separate", (0.0, -0.4), (1, 0), -0.08, (-0.4, 0), 1),  # the worse is clipped: 0.8 * (0 + 0.2) / 2
    ("separate", (0.4, 0.0), (0, 1), 0.24, (0.6, -0.6), 0),  # D < 0 and likelier: min(-0.4, -0.2)
    ("separate", (-0.4, 0.0), (0, 1), -0.08, (0, -0.4), 1),  # D < 0 and rarer: clipped
    ("separate", (0.4, -0.4), (1, 0), -0.192, (0, 0), 1),  # 1.2 * 0.8 * (0.2 + 0.2) / 2
    ("separate", (-0.4, 0.4), (1, 0), 0.384, (-0.48, 0.48), 0),  # 0.8 * 1.2 * 0.8 / 2
    ("separate", (-0.3, -0.3), (1, 0), 0.032, (-0.32, 0), 1),  # 0.8 * 0.8 * (-0.3 + 0.2) / 2
]


@pytest.mark.parametrize(("clip", "ratios", "rewards", "value", "slopes", "share"), TABLE)
def test_clips_by_hand(clip: str, ratios: Any, rewards: Any, value: float, slopes: Any, share: float) -> None:
    """Each answer's log-ratio is spread over two drawn tokens; one of a tool stands between, and counts nothing."""
    old = torch.tensor([[-1.0, -500.0, -2.0], [-0.5, 3.0, -1.5]], dtype=torch.double)
    change = torch.tensor([[0.25 * r, 700.0, 0.75 * r] for r in ratios], dtype=torch.double)
    mask = torch.tensor([[1.0, 0.0, 1.0]] * 2, dtype=torch.double)
    logp = (old + change).requires_grad_()
    loss, figures = loss_of(logp, rewards, make_objective("p3o", {"beta": 0.0, "pair_clip": clip}), old, mask)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(value, abs=1e-6)
    assert logp.grad is not None
    assert logp.grad[:, 0].tolist() == pytest.approx(slopes, abs=1e-6) and (logp.grad[:, 1] == 0).all()
    assert torch.equal(logp.grad[:, 0], logp.grad[:, 2])
    assert figures == {"pairs": 1.0, "clipped": share}


def test_the_bounds_may_differ() -> None:
    """A joint clip looks at the better answer's gain, so only the upper bound acts on it, in whatever order rows
    come."""
    objective = make_objective("p3o", {"beta": 0.0, "clip_low": 0.1, "clip_high": 0.3})
    for ratios, rewards, moves in [((0.25, 0.0), (1.0, 0.0), True), ((0.35, 0.0), (1.0, 0.0), False)]:
        for order in ([0, 1], [1, 0]):
            logp = torch.tensor([[ratios[i]] for i in order], requires_grad=True)
            loss_of(logp, [rewards[i] for i in order], objective, torch.zeros(2, 1))[0].backward()
            assert logp.grad is not None and bool(logp.grad.any()) == moves


def test_an_overflowing_ratio_is_clipped_too() -> None:
    logp = torch.tensor([[200.0], [0.0]], requires_grad=True)
    loss, _ = loss_of(logp, [0.0, 1.0], P3O, torch.zeros(2, 1))
    loss.backward()
    assert torch.isfinite(loss) and logp.grad is not None and logp.grad.flatten().tolist() == pytest.approx([0.6, -0.6])


# The gradient


def policy(theta: Any) -> Any:
    """Log-probabilities of six answers of two tokens each: a first token of two, and a second of three after it."""
    first, second = torch.log_softmax(theta[:2], 0), torch.log_softmax(theta[2:].view(2, 3), 1)
    return torch.stack([torch.stack([first[a], second[a, b]]) for a in range(2) for b in range(3)])


REWARDS = [0.0, 1.0, 0.25, -2.0, 3.0, 1.0]


@pytest.mark.parametrize("clip", ["joint", "separate"])
def test_it_is_the_policy_gradient(clip: str) -> None:
    """Theorem 1: under any old policy the pairwise gradient is the gradient of the expected reward. The old policy
    draws each of six answers with 1/6, so the mean over all distinct pairs is 6/5 of the expectation over two draws."""
    torch.manual_seed(0)
    objective = make_objective("p3o", {"beta": 0.0, "pair_clip": clip, **WIDE})
    theta = torch.randn(8, dtype=torch.double, requires_grad=True)
    old = torch.full((6, 2), 1.0, dtype=torch.double) * torch.tensor([1 / 2, 1 / 3]).log()
    (found,) = torch.autograd.grad(-loss_of(policy(theta), REWARDS, objective, old)[0], theta)
    expected = (policy(theta).sum(-1).exp() * torch.tensor(REWARDS, dtype=torch.double)).sum()
    (wanted,) = torch.autograd.grad(expected, theta)
    assert torch.allclose(found * 5 / 6, wanted, atol=1e-6) and wanted.abs().max() > 0.1


def test_within_the_band_it_is_the_textbook_formula() -> None:
    """(r_1 - r_2) rho_1 rho_2 grad log(pi_1 / pi_2) / 2, the mean over all ordered pairs, each gradient by itself."""
    torch.manual_seed(1)
    theta = (torch.randn(8, dtype=torch.double) * 0.5).requires_grad_()
    old = policy(theta).detach() - torch.randn(6, 2, dtype=torch.double) * 0.02
    logs = policy(theta).sum(-1)
    slopes = [torch.autograd.grad(log, theta, retain_graph=True)[0] for log in logs]
    rho = (logs - old.sum(-1)).exp().detach()
    wanted = (
        sum(
            (REWARDS[i] - REWARDS[j]) * rho[i] * rho[j] * (slopes[i] - slopes[j]) / 2
            for i, j in itertools.permutations(range(6), 2)
        )
        / 30
    )
    for clip in ("joint", "separate"):
        objective = make_objective("p3o", {"beta": 0.0, "pair_clip": clip})
        (found,) = torch.autograd.grad(-loss_of(policy(theta), REWARDS, objective, old)[0], theta)
        assert torch.allclose(found, wanted, atol=1e-9)


def test_at_the_first_update_it_is_that_of_finite_differences() -> None:
    torch.manual_seed(2)
    theta = torch.randn(8, dtype=torch.double)

    def value(at: Any) -> float:
        logs = policy(at).sum(-1).tolist()
        found = [(REWARDS[i] - REWARDS[j]) * (logs[i] - logs[j]) / 2 for i, j in itertools.combinations(range(6), 2)]
        return sum(found) / len(found)

    steps = torch.eye(8, dtype=torch.double) * 1e-5
    wanted = [(value(theta + s) - value(theta - s)) / 2e-5 for s in steps]
    theta.requires_grad_()
    (found,) = torch.autograd.grad(-loss_of(policy(theta), REWARDS, P3O)[0], theta)
    assert found.tolist() == pytest.approx(wanted, abs=1e-7)


def test_a_shift_of_a_prompts_rewards_changes_nothing() -> None:
    """To the last bit. REINFORCE, which raises answers by their rewards as they are, is changed by it: the control."""
    torch.manual_seed(3)
    start, old, mask = torch.randn(6, 3), torch.randn(6, 3), torch.ones(6, 3)
    plain = [*rows_with(0.0, 1.0, 0.25, 0.5), *rows_with(1.0, 0.0, task="u")]
    shifted = [replace(r, reward=(r.reward or 0.0) + (3.0 if r.task == "t" else -1.5)) for r in plain]

    def gradient(rows: list[Row], objective: Objective) -> Any:
        logp = start.clone().requires_grad_()
        values = torch.tensor(compute_advantages(rows, objective), dtype=torch.float)
        if objective.surrogate == "pairwise":
            answers = group_answers(rows, objective)
            loss, _ = pairwise_loss(
                logp, compute_answer_rewards(values, mask, answers, objective), mask, answers, objective, old=old
            )
        else:
            loss, _ = policy_loss(logp, values, mask, objective, old=old)
        loss.backward()
        return logp.grad

    for clip in ("joint", "separate"):
        objective = make_objective("p3o", {"beta": 0.0, "pair_clip": clip})
        assert torch.equal(gradient(plain, objective), gradient(shifted, objective))
        assert gradient(plain, objective).abs().max() > 1e-3
    reinforce = Objective.model_validate({"surrogate": "likelihood", "baseline": "none", "scale": "none"})
    assert (gradient(plain, reinforce) - gradient(shifted, reinforce)).abs().max() > 0.05


# What counts as an answer, and what it earned


def test_the_divergence_of_the_whole_answer_is_taken_off_its_reward() -> None:
    objective = make_objective("p3o", {"beta": 0.5})
    old, ref = torch.tensor([[-1.0, -9.0], [-2.0, -1.0]]), torch.tensor([[-2.0, -1.0], [-2.5, -1.5]])
    mask = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    two = rows_with(1.0, 0.0)
    found = compute_answer_rewards(torch.tensor([1.0, 0.0]), mask, group_answers(two, objective), objective, old, ref)
    assert found.tolist() == [1.0 - 0.5 * 1.0, 0.0 - 0.5 * (0.5 + 0.5)]
    one = [replace(r, rollout=0, turn=i, reward=1.0) for i, r in enumerate(two)]  # two turns of one rollout
    found = compute_answer_rewards(torch.tensor([1.0, 1.0]), mask, group_answers(one, objective), objective, old, ref)
    assert found.tolist() == [1.0 - 0.5 * 2.0] * 2
    with pytest.raises(ValueError, match="needs log-probabilities"):
        compute_answer_rewards(torch.tensor([1.0, 0.0]), mask, group_answers(two, objective), objective)
    with pytest.raises(ValidationError, match="give `kl_place: reward`"):
        make_objective("p3o", {"kl_place": "loss"})


def test_rows_of_one_rollout_are_one_answer() -> None:
    """Three turns as rows of their own have the loss and gradient of the one row that holds them all."""
    torch.manual_seed(4)
    logp, old = torch.randn(2, 6) * 0.1, torch.randn(2, 6) * 0.1
    whole = logp.clone().requires_grad_()
    value, _ = loss_of(whole, [0.5, 2.0], P3O, old)
    value.backward()
    rows = [Row((1,), (2,), (1,), (-1.0,), r, "t", i, turn=k) for i, r in enumerate((0.5, 2.0)) for k in range(3)]
    parts = logp.view(6, 2).clone().requires_grad_()
    split, figures = loss_of(parts, [0.5] * 3 + [2.0] * 3, P3O, old.view(6, 2), rows=rows)
    split.backward()
    assert float(split.detach()) == pytest.approx(float(value.detach()), abs=1e-6) and figures["pairs"] == 1.0
    assert whole.grad is not None and parts.grad is not None
    assert torch.allclose(parts.grad.view(2, 6), whole.grad, atol=1e-7) and whole.grad.abs().max() > 0.1
    alone = P3O.model_copy(update={"count": "row"})
    assert loss_of(parts, [0.5] * 3 + [2.0] * 3, alone, old.view(6, 2), rows=rows)[1]["pairs"] == 15.0


def test_what_was_not_scored_makes_no_pair() -> None:
    logp = torch.zeros(3, 1, requires_grad=True)
    loss, figures = loss_of(logp, [1.0, 0.0, 0.0], P3O, rows=rows_with(1.0, None, 0.0))
    loss.backward()
    assert logp.grad is not None and figures["pairs"] == 1.0 and logp.grad.flatten().tolist() == [-0.5, 0.0, 0.5]
    nothing, figures = loss_of(logp, [1.0, 0.0, 0.0], P3O, rows=rows_with(1.0, None, None))
    nothing.backward()
    assert figures["pairs"] == 0.0 and float(nothing.detach()) == 0.0
    assert find_pairs([1.0, float("nan"), 0.0], ["t"] * 3) == [(0, 2)]
    with pytest.raises(ValueError, match="use preference_loss or pairwise_loss"):
        policy_loss(logp, torch.ones(3), torch.ones(3, 1), P3O)


# Steps


def step_of(
    base: str,
    algorithm: str,
    rows: list[Row],
    values: list[float],
    changes: dict[str, Any] | None = None,
    **learning: Any,
) -> tuple[Learner, dict[str, float]]:
    made = learner(base, algorithm, changes={"beta": 0.0, **(changes or {})}, **learning)
    made.optimizer = torch.optim.SGD(list(made.policy.trained.values()), lr=0.1)
    made.rate = 0.1
    return made, made.step(rows, values, 0)


GROUPS = [
    replace(r, reward=reward) for r, reward in zip(some_rows(), [0.0, 1.0, 0.5, 0.5, 2.0, 0.0, 0.0, 1.0], strict=True)
]


def centred(rows: list[Row], algorithm: str) -> list[float]:
    return compute_advantages(rows, make_objective(algorithm)).tolist()


def test_the_first_update_is_rloos(base: str) -> None:
    """Through the model: groups as micro-batches against all rows in one, or row by row."""
    ours, _ = step_of(base, "p3o", GROUPS, centred(GROUPS, "p3o"))
    for size in (10_000, 24):
        theirs, _ = step_of(base, "rloo", GROUPS, centred(GROUPS, "rloo"), {"correction": None}, micro_tokens=size)
        assert moved(ours, theirs) < 1e-6
    assert moved(ours, learner(base)) > 1e-4


@pytest.mark.parametrize("clip", ["joint", "separate"])
def test_neither_the_split_nor_the_order_of_rows_matters(base: str, clip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three epochs, so that ratios leave the band; one micro-batch of all rows in place of one for each group."""
    changes, rows = {"pair_clip": clip}, GROUPS
    whole, figures = step_of(base, "p3o", rows, centred(rows, "p3o"), changes, epochs=3)
    assert figures["clipped"] > 0
    turned = [rows[i] for i in (7, 2, 5, 0, 3, 6, 1, 4)]
    assert moved(whole, step_of(base, "p3o", turned, centred(turned, "p3o"), changes, epochs=3)[0]) < 1e-5
    monkeypatch.setattr(Learner, "_micro_batches", lambda self, rows, chosen, spread: [list(chosen)])
    assert moved(whole, step_of(base, "p3o", rows, centred(rows, "p3o"), changes, epochs=3)[0]) < 1e-5


@pytest.mark.parametrize("algorithm", ["p3o", "trpa"])
def test_minibatches_hold_whole_groups(base: str, algorithm: str) -> None:
    rows = [replace(r, reward=float(i % 4)) for i, r in enumerate(GROUPS)]
    _, figures = step_of(base, algorithm, rows, centred(rows, algorithm), {"beta": 1e-3}, minibatches=2)
    assert figures["pairs"] == 6.0  # all pairs of four answers, in each of the two


def test_answers_that_could_not_be_scored_teach_trpa_nothing(base: str) -> None:
    rows = [replace(r, reward=None if i % 4 == 0 else r.reward) for i, r in enumerate(GROUPS)]
    _, figures = step_of(base, "trpa", rows, [0.0] * 8, {"beta": 1e-3})
    expected = find_pairs([r.reward for r in GROUPS if r.rollout % 4], [r.task for r in GROUPS if r.rollout % 4])  # type: ignore[misc]
    assert figures["pairs"] == len(expected) / 2
    with_nan, _ = preference_loss(
        torch.zeros(2, 1), torch.zeros(2, 1), torch.ones(2, 1), [1.0, float("nan")], ["t"] * 2, make_objective("trpa")
    )
    assert float(with_nan) == 0.0


# Training


@pytest.mark.parametrize(("clip", "epochs", "steps"), [("joint", 1, 40), ("joint", 2, 28), ("separate", 2, 28)])
def test_it_learns_to_emit_a_digit(tmp_path: Path, clip: str, epochs: int, steps: int) -> None:
    """As the other algorithms: share of 7 in eight characters, chance at first, at least 0.9 over the last four steps.

    With the preset's own beta of 0.05 a certain 7 would cost more than it earns: the divergence is that of the whole
    answer, eight times the logarithm of some 50 characters. So the best policy there draws a 7 with about 0.2.
    """
    objective = make_objective("p3o", {"pair_clip": clip, "beta": 1e-3})
    log = bandit(tmp_path, sevens, steps=steps, objective=objective, learning={"epochs": epochs}).history
    assert log[0]["reward"] < 0.1
    assert sum(f["reward"] for f in log[-4:]) / 4 >= 0.9, [round(f["reward"], 2) for f in log]
    assert any(f["clipped"] > 0 for f in log if "clipped" in f) == (epochs > 1)
