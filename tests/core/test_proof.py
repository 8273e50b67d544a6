"""The statistics of the proof, against independent references and by simulation."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from workbench.proof import describe, interval, paired_proof


def binary_scores(wins: int, losses: int, both: int, neither: int) -> tuple[list[float], list[float]]:
    baseline = [0.0] * wins + [1.0] * losses + [1.0] * both + [0.0] * neither
    winner = [1.0] * wins + [0.0] * losses + [1.0] * both + [0.0] * neither
    return baseline, winner


@pytest.mark.parametrize("counts", [(50, 8, 90, 52), (3, 9, 5, 5), (6, 0, 0, 4), (5, 0, 0, 5), (0, 0, 3, 3)])
def test_mcnemar_by_hand_made_counts(counts):
    wins, losses, both, neither = counts
    proof = paired_proof(*binary_scores(*counts))
    total = wins + losses
    tail = sum(math.comb(total, k) for k in range(min(wins, losses) + 1)) / 2**total
    assert proof.p == pytest.approx(min(1.0, 2 * tail))
    assert proof.test == "McNemar, exact"
    assert (proof.wins, proof.losses, proof.ties) == (wins, losses, both + neither)
    assert proof.diff == pytest.approx((wins - losses) / sum(counts))
    assert proof.baseline_mean == pytest.approx((losses + both) / sum(counts))
    assert proof.winner_mean == pytest.approx((wins + both) / sum(counts))


def test_shown_and_its_words():
    proof = paired_proof(*binary_scores(50, 8, 90, 52))
    assert proof.shown and proof.ci95[0] > 0.14 and proof.ci95[1] < 0.29
    assert describe(proof).startswith("The gain is shown: +0.210 [+0.")
    assert "McNemar, exact" in describe(proof) and "200 sealed test rows" in describe(proof)


def test_five_wins_cannot_show_a_gain_and_six_can():
    assert not paired_proof(*binary_scores(5, 0, 0, 0)).shown
    assert paired_proof(*binary_scores(6, 0, 0, 0)).shown
    assert not paired_proof([0.2] * 5, [0.3] * 5).shown, "equal graded differences are no better evidence"
    assert paired_proof([0.2] * 6, [0.3] * 6).shown


def test_a_loss_is_never_shown():
    proof = paired_proof(*binary_scores(0, 30, 5, 5))
    assert proof.p < 1e-6 and proof.diff < 0 and not proof.shown


def test_infrastructure_failures_leave_both_sides():
    proof = paired_proof([1.0, None, 0.0, 0.0], [None, 1.0, 1.0, 0.0])
    assert (proof.n, proof.n_excluded, proof.baseline_mean, proof.winner_mean) == (2, 2, 0.0, 0.5)
    assert "(2 more left out)" in describe(proof)
    nothing = paired_proof([None, 1.0], [1.0, None])
    assert nothing.n == 0 and nothing.n_excluded == 2 and not nothing.shown and nothing.smallest_gain is None
    assert "no test row" in describe(nothing)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="paired"):
        paired_proof([1.0], [1.0, 0.0])
    with pytest.raises(ValueError, match="finite"):
        paired_proof([1.0, 0.5], [float("nan"), 0.5])


@pytest.mark.parametrize("seed", range(6))
def test_wilcoxon_without_ties_is_scipys_exact_test(seed):
    rng = np.random.default_rng(seed)
    differences = rng.normal(0.02, 0.1, size=8 + 7 * seed)
    baseline = np.full(len(differences), 0.5)
    proof = paired_proof(baseline.tolist(), (baseline + differences).tolist())
    assert proof.p == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue)
    assert proof.test == "Wilcoxon signed-rank, exact"


@pytest.mark.parametrize("seed", range(6))
def test_wilcoxon_with_ties_enumerates_all_signs(seed):
    rng = np.random.default_rng(seed)
    tenths = rng.integers(-3, 6, size=11)
    proof = paired_proof([0.3] * 11, [0.3 + t / 10 for t in tenths])
    nonzero = tenths[tenths != 0]
    ranks = stats.rankdata(abs(nonzero))
    seen = abs(ranks[nonzero > 0].sum() - ranks[nonzero < 0].sum())
    signs = itertools.product((-1, 1), repeat=len(nonzero))
    expected = np.mean([abs(np.dot(s, ranks)) >= seen - 1e-9 for s in signs])
    assert proof.p == pytest.approx(expected)


def test_many_pairs_use_the_normal_approximation():
    rng = np.random.default_rng(1)
    differences = np.round(rng.normal(0.01, 0.1, size=400), 2)
    proof = paired_proof([0.5] * 400, (0.5 + differences).tolist())
    nonzero = differences[differences != 0]
    assert proof.p == pytest.approx(stats.wilcoxon(nonzero, method="asymptotic", correction=True).pvalue)
    assert "normal approximation" in proof.test


def test_exact_and_approximate_agree_where_they_meet():
    rng = np.random.default_rng(2)
    differences = rng.normal(0.01, 0.1, size=200)
    proof = paired_proof([0.5] * 200, (0.5 + differences).tolist())
    assert proof.test.endswith("exact")
    assert proof.p == pytest.approx(stats.wilcoxon(differences, method="asymptotic").pvalue, abs=0.002)


def test_rounding_of_binary_fractions_is_no_difference():
    proof = paired_proof([0.1 + 0.2, 0.5], [0.3, 0.5])
    assert (proof.wins, proof.losses, proof.ties, proof.p) == (0, 0, 2, 1.0)


def test_the_interval_depends_on_the_seed_alone():
    rng = np.random.default_rng(3)
    a, b = rng.random(60).tolist(), rng.random(60).tolist()
    assert paired_proof(a, b, seed=1) == paired_proof(a, b, seed=1)
    assert paired_proof(a, b, seed=1).ci95 != paired_proof(a, b, seed=2).ci95
    assert paired_proof(a, b, seed=1).ci95 == pytest.approx(paired_proof(a, b, seed=2).ci95, abs=0.02)


def test_the_interval_is_scipys_bca():
    rng = np.random.default_rng(4)
    a, b = rng.random(80), rng.beta(3, 1, 80)
    ours = paired_proof(a.tolist(), b.tolist()).ci95
    reference = stats.bootstrap((b - a,), np.mean, n_resamples=20_000, method="BCa", rng=rng).confidence_interval
    assert ours == pytest.approx((reference.low, reference.high), abs=0.006)


@pytest.mark.parametrize(
    "pair", [([0.5] * 4, [0.5] * 4), ([0.0], [1.0]), ([0.25], [0.5]), ([0.1] * 9, [0.4] * 9), ([0.0] * 50, [0.0] * 49 + [0.5])]
)  # fmt: skip
def test_edge_cases_stay_finite_and_ordered(pair):
    proof = paired_proof(*pair)
    assert all(math.isfinite(x) for x in (*proof.ci95, proof.p, proof.diff))
    assert proof.ci95[0] <= proof.diff + 1e-12 and proof.diff - 1e-12 <= proof.ci95[1]
    json.loads(json.dumps(dataclasses.asdict(proof), allow_nan=False))
    assert "gain is" in describe(proof)


def test_words_without_evidence():
    assert "scored the same on each of 4 sealed test rows" in describe(paired_proof([0.5] * 4, [0.5] * 4))
    few = paired_proof(*binary_scores(2, 1, 1, 1))
    assert few.smallest_gain is None and "cannot show a gain; use more test rows" in describe(few)
    some = paired_proof(*binary_scores(22, 18, 100, 60))
    assert f"a gain of about {some.smallest_gain:.2g} in 4 of 5 cases" in describe(some)


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (7, 10), (10, 10), (130, 200), (1, 1)])
def test_interval_of_a_share_is_wilsons(hits, n):
    reference = stats.binomtest(hits, n).proportion_ci(method="wilson")
    assert interval([1.0] * hits + [0.0] * (n - hits)) == pytest.approx((reference.low, reference.high), abs=1e-9)


def test_interval_of_a_mean():
    rng = np.random.default_rng(5)
    scores = rng.beta(2, 3, 150)
    low, high = interval(scores.tolist())
    reference = stats.t.interval(0.95, 149, scores.mean(), stats.sem(scores))
    assert (low, high) == pytest.approx(reference, abs=0.006)
    assert interval([]) == (0.0, 1.0) and interval([0.4]) == (0.0, 1.0)


# Simulations. Their bounds are 3 standard errors wide, so that a right program passes for any seed but few.


def test_the_interval_covers_the_true_difference():
    rng = np.random.default_rng(6)
    runs, true = 400, 0.42 * 0.25 - 0.08 * 0.05
    covered = 0
    for _ in range(runs):
        baseline = rng.beta(2, 2, 60)
        winner = baseline + rng.choice([0.0, 0.25, -0.05], p=[0.5, 0.42, 0.08], size=60)
        low, high = paired_proof(baseline.tolist(), winner.tolist()).ci95
        covered += low <= true <= high
    assert covered / runs == pytest.approx(0.95, abs=0.035)


@pytest.mark.parametrize("kind", ["binary", "graded", "coarse"])
@pytest.mark.parametrize("n", [8, 60])
def test_a_gain_that_is_not_there_is_rarely_shown(kind, n):
    rng = np.random.default_rng(n)
    runs, false = 600, 0
    for _ in range(runs):
        both = rng.random((2, n))
        if kind != "graded":
            both = np.round(both) if kind == "binary" else np.round(both * 4) / 4
        proof = paired_proof(both[0].tolist(), both[1].tolist())
        assert not proof.shown or proof.p < 0.05
        false += proof.shown
    assert false / runs <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / runs), "two-sided: half of 5% are gains"


@pytest.mark.parametrize(("n", "share"), [(40, 0.3), (200, 0.2), (400, 0.05)])
def test_power_at_the_smallest_gain_binary(n, share):
    rng = np.random.default_rng(7)
    discordant = round(share * n)
    gain = paired_proof(*binary_scores(discordant // 2, discordant - discordant // 2, n - discordant, 0)).smallest_gain
    assert gain is not None
    share = max(share, gain)
    chances = [(share + gain) / 2, (share - gain) / 2, 1 - share]
    runs = 300
    shown = sum(paired_proof(*binary_scores(*rng.multinomial(n, chances), 0)).shown for _ in range(runs))
    assert shown / runs == pytest.approx(0.8, abs=0.08)


@pytest.mark.parametrize("n", [30, 150])
def test_power_at_the_smallest_gain_graded(n):
    rng = np.random.default_rng(8)
    noise = rng.normal(0, 0.2, n)
    gain = paired_proof([0.5] * n, (0.5 + (noise - noise.mean()) / noise.std(ddof=1) * 0.2).tolist()).smallest_gain
    assert gain == pytest.approx((1.95996 + 0.84162) * 0.2 / math.sqrt(n), rel=1e-4)
    runs = 300
    shown = sum(paired_proof([0.5] * n, rng.normal(0.5 + gain, 0.2, n).tolist()).shown for _ in range(runs))
    assert shown / runs == pytest.approx(0.8, abs=0.1)


def test_the_smallest_gain_of_few_rows_is_honest():
    assert paired_proof(*binary_scores(1, 1, 3, 0)).smallest_gain is None, "5 rows can show nothing"
    ten = paired_proof(*binary_scores(1, 1, 8, 0)).smallest_gain
    assert ten is not None and 0.6 < ten < 0.9, "6 wins of 10 rows are needed"
    assert stats.binom.sf(5, 10, ten) == pytest.approx(0.8, abs=0.01)


def test_importing_it_is_cheap():
    code = "import sys, workbench.proof; print('numpy' in sys.modules, 'scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_rows_that_only_the_winner_left_unanswered_count_against_a_gain() -> None:
    """A winner that is right where it answers, and too slow to answer on half of the rows."""
    baseline = [1.0] * 48 + [0.0] * 32
    winner: list[float | None] = [None if i % 2 else 1.0 for i in range(80)]
    proof = paired_proof(baseline, winner)
    assert (proof.n, proof.n_excluded, proof.n_silent) == (40, 40, 40) and proof.diff > 0 and proof.p < 0.05
    assert not proof.shown and "on 40 of those left out only the winner had no answer" in describe(proof)
    few: list[float | None] = [None if i < 2 else 1.0 for i in range(80)]
    assert paired_proof(baseline, few).shown, "two lost rows do not hide a gain of 30 rows"
    both = paired_proof([None if i % 2 else b for i, b in enumerate(baseline)], winner)
    assert both.shown and both.n_silent == 0, "a server that fails both says nothing about either"
