"""One rollout: all its rows, one reward, one score. What choosers, filters, thresholds and divisors make of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.grpo_runs import needs_torch

from workbench.lm import Response
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import CallRecord, Span, Trace
from workbench_training.batch import describe_figures, describe_step, replay_success
from workbench_training.dpo import DPO
from workbench_training.papers.faft import Feedback
from workbench_training.rewards import GUARDS, Guard, RewardTerm, Rollout, score
from workbench_training.rollouts.study_rollouts import PolicyRollout, scores_differ
from workbench_training.rollouts.token_rows import RolloutRows, Row
from workbench_training.sft import SFT

EXAMPLE = Example("t", {"text": "q", "label": "yes"})
METRIC = RewardTerm(kind="metric")


def row(prompt: str, answer: str, reward: float | None, rollout: int = 0, agent: str = "n") -> Row:
    ids = tuple(map(ord, answer))
    return Row(tuple(map(ord, prompt)), ids, (1,) * len(ids), (-0.5,) * len(ids), reward, "t", rollout, agent)


def run_of(number: int, reward: float | None, *turns: tuple[str, str], agent: str = "n") -> RolloutRows:
    return RolloutRows(tuple(row(p, a, reward, number, agent) for p, a in turns), reward)


def told(chosen: Sequence[RolloutRows]) -> dict[str, list[str]]:
    """By comparison: `reward: prompt answer, ...` of each side."""
    found: dict[str, list[str]] = {}
    for side in chosen:
        text = ", ".join(f"{''.join(map(chr, r.prompt_ids))}{''.join(map(chr, r.token_ids))}" for r in side.rows)
        found.setdefault(side.rows[0].task, []).append(f"{side.reward:g}: {text}")
    return found


def drawn(
    answer: str, metric: float | None, tokens: int, *, number: int = 0, finish: str = "stop", failure: Any = None
) -> Rollout:
    response = Response(answer, finish, 1, tokens, 0.0)
    call = CallRecord(({"role": "user", "content": "q"},), response, "task", "m", False, 0.0)
    trace = Trace("t", [Span("n", "N", {}, calls=[call])])
    return PolicyRollout(EXAMPLE, Result(EXAMPLE, metric, failure, trace=trace), number)


def scored(parts: Sequence[RewardTerm], made: list[Rollout], guards: Sequence[Guard] = GUARDS) -> list[Rollout]:
    async def judge(*args: Any, **more: Any) -> Any:
        return Response("score: 5", "stop", 1, 1, 0.0)

    asyncio.run(score(made, parts, guards, SimpleNamespace(show=lambda row: {}, __call__=judge)))  # type: ignore[arg-type]
    return made


# Pairs


def test_a_pair_compares_whole_runs_that_begin_with_one_prompt() -> None:
    """Three calls a run, as of a node in a `loop`: the last answer of one is never compared with another's first."""
    better = run_of(0, 1.0, ("A", "1"), ("B", "2"), ("C", "3"))
    worse = run_of(1, 0.0, ("A", "4"), ("B", "5"), ("C", "6"))
    middle = run_of(2, 0.5, ("A", "7"), ("B", "8"), ("C", "9"))
    chosen = DPO().choose([middle, worse, better])
    assert told(chosen) == {"t pair 0": ["1: A1, B2, C3", "0: A4, B5, C6"]}
    rewritten = run_of(1, 0.0, ("A", "4"), ("x", "5"))
    assert told(DPO().choose([better, rewritten])) == {"t pair 0": ["1: A1, B2, C3", "0: A4, x5"]}


def test_runs_that_begin_differently_are_compared_where_their_prompts_are_equal_or_not_at_all() -> None:
    one, two = run_of(0, 1.0, ("A", "1"), ("C", "2")), run_of(1, 0.0, ("B", "3"), ("C", "4"))
    assert told(DPO().choose([one, two])) == {"t pair 0": ["1: C2", "0: C4"]}
    apart = [run_of(0, 1.0, ("A", "1")), run_of(1, 0.0, ("B", "2"))]
    assert DPO().choose(apart) == [] and "no two were given the same prompt" in DPO().explain_unused(apart)
    states = [*apart, run_of(2, 0.0, ("A", "3")), run_of(3, 0.25, ("B", "4"))]
    assert told(DPO().choose(states)) == {
        "t pair 0": ["1: A1", "0: A3"],
        "t pair 2": ["0.25: B4", "0: B2"],
    }, "from each first prompt the best and the worst"
    agents = [run_of(0, 1.0, ("A", "1"), agent="a"), run_of(1, 0.0, ("A", "2"), agent="b")]
    assert DPO().choose(agents) == [], "nor are the answers of two agents"


def test_a_rollout_in_several_comparisons_counts_once() -> None:
    """Two runs that share three prompts after the first give six sides, which are not `6 of 2 rollouts`."""
    runs = [
        run_of(0, 1.0, ("A", "1"), ("B", "2"), ("C", "3"), ("D", "4")),
        run_of(1, 0.0, ("X", "5"), ("B", "6"), ("C", "7"), ("D", "8")),
    ]
    chosen = DPO().choose(runs)
    assert len(chosen) == 6 and {side.origin for side in chosen} == {("t", 0), ("t", 1)}


def test_two_runs_of_the_same_tokens_are_no_pair_whatever_they_earned() -> None:
    runs = [run_of(0, 1.0, ("A", "1"), ("B", "2")), run_of(1, 0.0, ("A", "1"), ("B", "2"))]
    assert DPO().choose(runs) == [] and "wrote different tokens" in DPO().explain_unused(runs)
    runs = [run_of(0, 1.0, ("A", "1"), ("B", "2"), ("C", "3")), run_of(1, 0.0, ("X", "4"), ("B", "2"), ("C", "5"))]
    assert told(DPO().choose(runs)) == {"t pair 0": ["1: C3", "0: C5"]}, "nor are their answers to one prompt"


@pytest.mark.parametrize(
    "runs",
    [
        [run_of(0, None, ("A", "1")), run_of(1, -0.5, ("A", "2"))],
        [run_of(0, None, ("A", "1")), run_of(1, 0.5, ("A", "2"))],
        [run_of(0, math.nan, ("A", "1")), run_of(1, 0.5, ("A", "2"))],
        [run_of(0, None, ("A", "1")), run_of(1, None, ("A", "2"))],
        [run_of(0, 1.0, ("A", "1")), run_of(1, 1.0, ("A", "2"))],
        [RolloutRows((), 1.0), run_of(1, 0.0, ("A", "2"))],
        [],
    ],
    ids=["a penalty", "a reward", "no number", "nobody", "equal", "no rows", "empty"],
)
def test_an_unscored_run_is_neither_better_nor_worse(runs: list[RolloutRows]) -> None:
    assert DPO().choose(runs) == [] and DPO().explain_unused(runs) == ""
    assert SFT.model_validate({"threshold": 0.0}).choose([run for run in runs if run.reward is None]) == []


def test_rows_of_two_rollouts_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of 2 rollouts"):
        RolloutRows((row("A", "1", 1.0, 0), row("A", "2", 1.0, 1)), 1.0)


def test_a_loss_over_pairs_sums_over_the_rows_of_a_run() -> None:
    needs_torch()
    import torch

    from workbench_training.loss import Pairs, preference_loss
    from workbench_training.papers.orpo import log_odds, odds_ratio_loss

    logp = torch.tensor([[-1.0, -2.0], [-3.0, 9.0], [-0.5, 9.0]], requires_grad=True)
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    ref = torch.full((3, 2), -1.0)
    pairs = Pairs(logp, mask, logp.detach(), ref, [1.0, 1.0, 0.0], ["t"] * 3, 0, 4.0, [0, 0, 1])
    loss, figures = preference_loss(pairs, 0.1)
    gain = (-1.0 - 2.0 - 3.0 + 3.0) - (-0.5 + 1.0)
    assert float(loss.detach()) == pytest.approx(-math.log(1 / (1 + math.exp(-0.1 * gain)))) and figures == {
        "pairs": 1.0
    }
    loss.backward()
    assert logp.grad is not None
    assert logp.grad[0, 0] == logp.grad[0, 1] == logp.grad[1, 0] == -logp.grad[2, 0]
    odds, _ = odds_ratio_loss(pairs, 0.5)
    margin = log_odds(torch.tensor(-2.0)) - log_odds(torch.tensor(-0.5))
    assert float(odds.detach()) == pytest.approx(2.0 - 0.5 * float(torch.nn.functional.logsigmoid(margin)), abs=1e-6)


def test_a_run_that_stands_for_itself_has_one_share_of_a_mean_over_sequences() -> None:
    """Five rows of one rollout weigh as much as one row of another."""
    needs_torch()
    import torch

    from workbench_training.objective import Objective
    from workbench_training.step_loss import StepLoss, Terms

    rows = [*(row("A", "12", 1.0, 0) for _ in range(5)), row("A", "3", 0.0, 1)]
    for changes, share in (({}, 0.5), ({"aggregate": "constant", "max_tokens": 2}, 2.5), ({"count": "row"}, 5 / 6)):
        objective = Objective.model_validate(changes)
        logp = torch.zeros((6, 2), requires_grad=True)
        mask = torch.tensor([[1.0, 1.0]] * 5 + [[1.0, 0.0]])
        advantages = torch.ones((6, 2)) * mask
        of_rows = StepLoss(objective, rows, range(6))
        loss, _ = of_rows.compute(Terms(logp, advantages, mask, logp.detach(), None, None, [*range(6)]))
        loss.backward()
        assert logp.grad is not None and float(-logp.grad[:5].sum()) == pytest.approx(share), changes


# Filters and thresholds


@pytest.mark.parametrize(
    "more",
    [
        RewardTerm(kind="length", weight=-0.1, tokens=16),
        RewardTerm(kind="overlong", tokens=5),
        RewardTerm(kind="judge", weight=0.2),
    ],
    ids=lambda term: term.kind,
)
@pytest.mark.parametrize("metric", [0.0, 1.0], ids=["all wrong", "all right"])
def test_a_group_is_silent_where_the_metric_tells_no_rollouts_apart(more: RewardTerm, metric: float) -> None:
    """Eight answers of 3 to 5 tokens: their rewards differ, and not because one of them is better."""
    found = [drawn("yes", metric, 3 + n % 3, number=n) for n in range(8)]
    terms = [METRIC, more] if more.kind != "judge" else [METRIC, RewardTerm(kind="length", weight=-0.5, tokens=9)]
    scored(terms, found)
    assert len({r.reward for r in found}) > 1 and not scores_differ(found)
    assert describe_step([found], [], 0)["silent"] == 1.0
    mixed = scored(terms, [drawn("yes", float(n == 0), 3 + n % 3, number=n) for n in range(8)])
    assert scores_differ(mixed) and describe_step([found, mixed], [], 0)["silent"] == 0.5


def test_the_term_that_says_what_is_right_is_found() -> None:
    exact = RewardTerm(kind="exact_match")
    length = RewardTerm(kind="length", weight=-1.0, tokens=16)
    apart = [drawn("yes", 1.0, 4), drawn("no", 1.0, 4)]
    assert scores_differ(scored([length, exact], apart)), "without the metric, the next best term counts"
    assert not scores_differ(scored([exact, METRIC, length], [drawn("yes", 1.0, 4), drawn("no", 1.0, 5)]))
    guarded = scored([METRIC], [drawn("yes", 1.0, 4), drawn("", 1.0, 4)])
    assert [r.score for r in guarded] == [1.0, 0.0], "an answer that a guard refused is not right"
    masked = scored([METRIC, length], [drawn("yes", 1.0, 4, finish="length")] * 2, ["mask_truncated"])
    assert [r.score for r in masked] == [None, None] and not scores_differ(masked)
    assert describe_step([masked], [], 0)["unscored"] == 2.0


def test_a_step_whose_rollouts_have_no_reward_has_no_mean() -> None:
    lost = scored([METRIC], [drawn("yes", None, 4, failure="timeout", number=n) for n in range(3)])
    figures = describe_step([lost], [], 4)
    assert "reward" not in figures and "score" not in figures and figures["silent"] == 0.0
    line = describe_figures({**figures, "seconds": 1.0, "tokens_per_second": 0.0})
    assert line.startswith("step 5: no rewards, 3 rollouts without a reward; 1.0 s")


def test_each_role_is_told_apart_by_its_own_terms() -> None:
    group = scored([METRIC], [drawn("yes", 1.0, 4, number=n) for n in range(2)])
    for number, rollout in enumerate(group):
        assert isinstance(rollout, PolicyRollout)
        rollout.by_role["critic"] = Rollout(EXAMPLE, rollout.result, number, 0.5, right=float(number))
    assert scores_differ(group) and scores_differ(group, "critic") and not scores_differ(group, "writer")


def test_a_penalty_moves_no_threshold() -> None:
    """`sft`, FAFT's marker and ARPO's successes ask for the score."""
    terms = [METRIC, RewardTerm(kind="length", weight=-0.5, tokens=4)]
    right, wrong = scored(terms, [drawn("yes", 1.0, 4, number=0), drawn("no", 0.0, 4, number=1)])
    assert (right.reward, wrong.reward) == (0.5, -0.5)
    runs = [RolloutRows((row("A", "1", r.reward, r.replica),), r.reward, r.score) for r in (right, wrong)]
    assert SFT().choose(runs) == runs[:1]
    marker = Feedback.model_validate({})
    assert (marker.of(right, 1.0), marker.of(wrong, 1.0)) == (marker.positive, marker.negative)


def replayed(group: list[Rollout], stored: Sequence[Any]) -> tuple[bool, int]:
    """(whether a stored success replaces a rollout, how many successes are kept)"""
    rows = [[row("A", str(n), r.reward, n)] for n, r in enumerate(group)]
    found, kept = replay_success(group, rows, stored, version=0, draw="", most=9)
    return found[0] is not rows[0], len(kept)


def test_a_group_fails_by_its_scores_and_rollouts_without_a_reward_do_not_count() -> None:
    terms = [METRIC, RewardTerm(kind="length", weight=-0.9, tokens=4)]
    stored = [[row("A", "9", 1.0).as_dict()]]
    solved = scored(terms, [drawn("yes", 1.0, 4, number=n) for n in range(4)])
    assert [r.reward for r in solved] == pytest.approx([0.1] * 4)
    assert replayed(solved, stored) == (False, 5), "all right: penalties make no failure, and four successes are kept"
    failed = scored(terms, [drawn("no", 0.0, 4 + n, number=n) for n in range(4)])
    assert replayed(failed, stored) == (True, 1)
    lost = scored(terms, [drawn("yes", None, 4, failure="timeout") for _ in range(4)])
    assert [r.reward for r in lost] == [None] * 4
    assert replayed(lost, stored) == (False, 1), "nobody knows whether they failed"
    assert replayed([lost[0], *solved[1:]], []) == (False, 3)


def test_dynamic_sampling_redraws_and_leaves_out_what_the_metric_does_not_tell_apart(tmp_path: Path) -> None:
    """DAPO with a length penalty, where no answer is ever right: nothing is learned, least of all to say less."""
    needs_torch()
    from tests.helpers import grpo_worlds

    class Penalized(grpo_worlds.TextSource):
        """Each answer earns less the longer it is; the metric gives 0."""

        async def rollouts(self, *args: Any) -> list[list[Rollout]]:
            groups = await super().rollouts(*args)
            for rollout in (r for group in groups for r in group):
                rollout.right, rollout.reward = 0.0, -0.1 * len(rollout.text)
            return groups

    trainer = grpo_worlds.bandit(
        tmp_path,
        lambda text: 0.0,
        steps=2,
        world=Penalized,
        schedule={"dynamic_sampling": 2},
    )
    assert [figures["silent"] for figures in trainer.history] == [1.0, 1.0]
    assert all("loss" not in figures for figures in trainer.history)
