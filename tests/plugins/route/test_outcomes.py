"""Labels and draws against plain counting."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st
from tests.helpers.route_worlds import LARGE, SMALL, planted_rows, row_of

from workbench_route.learn import Problem, fit_cost, make_labels
from workbench_route.outcomes import (
    Candidate,
    Row,
    Sample,
    complete_rows,
    draw_scores,
    first_answer,
    match_label,
    most_frequent,
    realised,
    shuffle_outcomes,
)
from workbench_route.reward import fit_reward, pick_by

SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=5)


def best_by_score(row: Row, model: str, positions: Sequence[int]) -> int:
    """A perfect proxy."""
    return max(positions, key=lambda i: row.samples[model][i].score)


def at_random(row: Row, model: str, positions: Sequence[int]) -> int:
    return random.Random(f"{row.id}{list(positions)}").choice(list(positions))


@given(SCORES, SCORES)
def test_a_match_is_the_share_of_pairs_that_are_no_worse(own: list[float], other: list[float]) -> None:
    counted = [a >= b for a, b in itertools.product(own, other)]
    assert match_label(own, other) == sum(counted) / len(counted)


@given(SCORES, st.integers(1, 5))
def test_draws_are_all_subsets_without_replacement(scores: list[float], n: int) -> None:
    row = row_of({"small": scores})
    found = draw_scores(row, Candidate("small", n), best_by_score)
    expected = [max(subset) for subset in itertools.combinations(scores, min(n, len(scores)))]
    assert sorted(found) == sorted(expected)


def test_many_draws_are_a_seeded_part_of_them() -> None:
    row = row_of({"small": [float(i % 2) for i in range(12)]})
    seen: list[tuple[int, ...]] = []

    def spy(_: Row, model: str, positions: Sequence[int]) -> int:
        seen.append(tuple(positions))
        return positions[0]

    first = draw_scores(row, Candidate("small", 5), spy)
    assert len(first) == 40 and all(len(set(s)) == 5 for s in seen)
    assert draw_scores(row, Candidate("small", 5), spy) == first


def test_labels_of_both_rules() -> None:
    row = row_of({"small": [1.0, 0.0], "large": [1.0]})
    scores = {c: [draw_scores(row, c, first_answer)] for c in (SMALL, LARGE)}
    assert make_labels(Problem([SMALL, LARGE], LARGE, "match"), scores, SMALL) == [0.5]
    assert make_labels(Problem([SMALL, LARGE], LARGE, "value"), scores, SMALL) == [0.5]


def oracle_score(rows: list[Row], n: int, pick: object) -> float:
    return statistics.fmean(s for row in rows for s in draw_scores(row, Candidate("small", n), pick))  # type: ignore[arg-type]


def test_more_samples_are_worth_more_under_a_perfect_proxy_and_nothing_under_a_random_one() -> None:
    rows = planted_rows(0, 400, draws=5)
    perfect = [oracle_score(rows, n, best_by_score) for n in range(1, 6)]
    assert perfect == sorted(perfect) and perfect[4] > perfect[0] + 0.2
    flat = [oracle_score(rows, n, at_random) for n in range(1, 6)]
    assert max(flat) - min(flat) < 0.04


@pytest.mark.slow
def test_a_learned_reward_is_worth_it_where_answers_show_whether_they_are_right_and_not_elsewhere() -> None:
    """It fails if the reward is replaced by chance: the gain is that over chance."""
    pytest.importorskip("sklearn")
    fresh = {proxy: planted_rows(1, 300, draws=4, proxy=proxy) for proxy in ("perfect", "none")}
    gains = {}
    for proxy, rows in fresh.items():
        reward, _ = fit_reward(planted_rows(0, 300, draws=4, proxy=proxy), "small", 0)
        assert reward is not None
        learned = statistics.fmean(realised(r, Candidate("small", 4), pick_by({"small": reward})).score for r in rows)
        gains[proxy] = learned - oracle_score(rows, 4, at_random)
    assert gains["perfect"] > 0.15 and abs(gains["none"]) < 0.05


def test_labels_of_several_answers_are_made_with_the_reward() -> None:
    pytest.importorskip("sklearn")
    rows = planted_rows(0, 200, draws=4, proxy="perfect")
    _, pick = fit_reward(rows, "small", 0)
    assert oracle_score(rows, 4, pick) > oracle_score(rows, 4, first_answer) + 0.15


def test_rewards_of_labels_have_not_seen_the_row() -> None:
    """With answers that can only be known by heart, the pick for labels is chance."""
    pytest.importorskip("sklearn")
    rng = random.Random(3)
    rows = []
    for i in range(80):
        samples = tuple(Sample(float(rng.random() < 0.5), 1.0, f"unique{i}x{k}") for k in range(4))
        rows.append(Row(str(i), f"question {i}", {"small": samples}))
    _, pick = fit_reward(rows, "small", 0)
    found = oracle_score(rows, 4, pick)
    assert abs(found - oracle_score(rows, 1, first_answer)) < 0.1


def test_without_a_reward_the_most_frequent_answer_is_taken() -> None:
    assert most_frequent(["a", "b", "b"]) == 1
    assert most_frequent([None, "b", "a"]) == 1
    assert most_frequent([None, None]) == 0
    row = Row("r", "t", {"m": tuple(Sample(s, 1.0, a) for s, a in ((0.0, "x"), (1.0, "y"), (1.0, "y")))})
    assert realised(row, Candidate("m", 3), pick_by({})) == Sample(1.0, 3.0, "y")


def test_a_failed_answer_is_taken_only_if_there_is_no_other() -> None:
    row = Row("r", "t", {"m": (Sample(0.0, 1.0, None), Sample(1.0, 1.0, "y"))})
    assert realised(row, Candidate("m", 2), pick_by({})).score == 1.0
    assert realised(row, Candidate("m", 2), first_answer).score == 1.0


def test_shuffled_outcomes_are_those_of_other_rows() -> None:
    rows = planted_rows(0, 60)
    shuffled = shuffle_outcomes(rows, 1)
    assert [r.text for r in shuffled] == [r.text for r in rows]
    assert sorted(id(r.samples) for r in shuffled) == sorted(id(r.samples) for r in rows)
    assert sum(a.samples is b.samples for a, b in zip(rows, shuffled, strict=True)) < 6


def test_rows_with_a_gap_are_left_out() -> None:
    rows = [row_of({"small": [1.0], "large": [1.0]}), row_of({"small": [1.0]})]
    assert complete_rows(rows, [SMALL, LARGE]) == rows[:1]


def test_costs_are_estimated_by_the_length_of_the_input() -> None:
    rows = [Row(str(i), "x" * (10 * i), {"m": (Sample(1.0, 5.0 + 0.3 * 10 * i, "a"),)}) for i in range(1, 30)]
    line = fit_cost(rows, "m")
    assert (line.fixed, line.per_character) == pytest.approx((5.0, 0.3))
    falling = [Row(str(i), "x" * i, {"m": (Sample(1.0, 100.0 - i, "a"),)}) for i in range(1, 30)]
    flat = fit_cost(falling, "m")
    assert flat.per_character == 0 and flat.fixed == pytest.approx(85.0)
    assert math.isclose(fit_cost(rows[:1], "m").estimate(10), 8.0)


def test_candidates_are_named_by_model_and_samples() -> None:
    for candidate in (Candidate("small"), Candidate("small", 3)):
        assert Candidate.named(candidate.name) == candidate
    assert Candidate("small", 3).name == "small*3"
