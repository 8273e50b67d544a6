"""The statistics of the proof, against independent references and by simulation."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from workbench.proof import Claim, describe_proof, interval, paired_proof
from workbench.proof.bounded_mean import mean_p
from workbench.proof.statistics import BOUNDED_MEAN, MARGIN


def binary_scores(wins: int, losses: int, both: int, neither: int) -> tuple[list[float], list[float]]:
    baseline = [0.0] * wins + [1.0] * losses + [1.0] * both + [0.0] * neither
    winner = [1.0] * wins + [0.0] * losses + [1.0] * both + [0.0] * neither
    return baseline, winner


def enumerated_p(wins: int, losses: int, n: int) -> float:
    """The unconditional p by its definition: every table of wins and losses, over a fine grid of shares."""
    seen = abs(wins - losses) / math.sqrt(max(1, wins + losses))
    tables = [
        (a + b, math.comb(n, a) * math.comb(n - a, b))
        for a in range(n + 1)
        for b in range(n + 1 - a)
        if a + b and (a - b) / math.sqrt(a + b) >= seen - 1e-9
    ]
    chances = (
        sum(ways * (share / 2) ** m * (1 - share) ** (n - m) for m, ways in tables)
        for share in np.linspace(0.002, 1, 500)
    )
    return min(1.0, 2 * max(chances)) if wins != losses else 1.0


@pytest.mark.parametrize(
    "counts", [(14, 3, 7, 6), (3, 9, 5, 5), (6, 0, 0, 4), (5, 0, 0, 5), (5, 0, 10, 9), (0, 0, 3, 3)]
)
def test_binary_scores_have_the_unconditional_p_by_hand_made_counts(counts):
    wins, losses, both, neither = counts
    proof = paired_proof(*binary_scores(*counts))
    assert proof.p == pytest.approx(enumerated_p(wins, losses, sum(counts)), rel=2e-3)
    assert proof.test == "McNemar, exact unconditional"
    assert (proof.wins, proof.losses, proof.ties) == (wins, losses, both + neither)
    assert proof.diff == pytest.approx((wins - losses) / sum(counts))
    assert proof.baseline == pytest.approx((losses + both) / sum(counts))
    assert proof.winner == pytest.approx((wins + both) / sum(counts))


def test_shown_and_its_words():
    proof = paired_proof(*binary_scores(50, 8, 90, 52))
    assert proof.shown and proof.ci95[0] > 0.14 and proof.ci95[1] < 0.29
    assert describe_proof(proof).startswith("The gain is shown: +0.210 [+0.")
    assert "McNemar, exact unconditional" in describe_proof(proof) and "200 sealed test rows" in describe_proof(proof)


def test_five_wins_cannot_show_a_gain_and_six_can():
    assert not paired_proof(*binary_scores(5, 0, 0, 0)).shown
    assert paired_proof(*binary_scores(6, 0, 0, 0)).shown
    assert not paired_proof([0.2] * 6, [0.3] * 6).shown, "one row in ten may lose all, and was not seen in six"
    assert not paired_proof([0.2] * 38, [0.3] * 38).shown and paired_proof([0.2] * 39, [0.3] * 39).shown


def test_a_loss_is_never_shown():
    proof = paired_proof(*binary_scores(0, 30, 5, 5))
    assert proof.p < 1e-6 and proof.diff < 0 and not proof.shown


def test_infrastructure_failures_leave_both_sides():
    proof = paired_proof([1.0, None, 0.0, 0.0], [None, 1.0, 1.0, 0.0])
    assert (proof.n, proof.n_excluded, proof.baseline, proof.winner) == (2, 2, 0.0, 0.5)
    assert "(2 more left out)" in describe_proof(proof)
    nothing = paired_proof([None, 1.0], [1.0, None])
    assert nothing.n == 0 and nothing.n_excluded == 2 and not nothing.shown and nothing.smallest_gain is None
    assert "no test row" in describe_proof(nothing)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="paired"):
        paired_proof([1.0], [1.0, 0.0])
    for wrong in (float("nan"), -0.1, 1.1):
        with pytest.raises(ValueError, match=r"in \[0, 1\]"):
            paired_proof([1.0, 0.5], [wrong, 0.5])


def test_graded_scores_are_tested_by_their_mean_and_the_interval_agrees() -> None:
    rng = np.random.default_rng(3)
    seen = set()
    for n in (12, 40, 150):
        for gain in (0.0, 0.1, 0.2):
            a = rng.random(n) * 0.6
            proof = paired_proof(a.tolist(), np.clip(a + rng.normal(gain, 0.2, n), 0, 1).tolist())
            assert proof.test == BOUNDED_MEAN and "rank" not in describe_proof(proof)
            assert (proof.p < 0.05) == (not proof.ci95[0] <= 0 <= proof.ci95[1])
            assert proof.shown == (proof.ci95[0] > 0)
            seen.add(proof.shown)
    assert seen == {True, False}


def test_a_gain_needs_its_interval_above_zero_as_well_as_its_p(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = binary_scores(12, 2, 20, 10)
    assert paired_proof(*scores).shown
    for interval_, shown in (((-0.01, 0.4), False), ((0.0, 0.4), False), ((0.01, 0.4), True), ((-0.01, -0.005), False)):
        monkeypatch.setattr("workbench.proof.statistics.score_interval", lambda *_, found=interval_: found)
        assert paired_proof(*scores).shown is shown


def test_a_smaller_level_shows_less() -> None:
    scores = binary_scores(7, 0, 20, 13)
    assert paired_proof(*scores).p == pytest.approx(enumerated_p(7, 0, 40), rel=2e-3)
    assert paired_proof(*scores).shown and not paired_proof(*scores, alpha=0.05 / 12).shown
    assert "tested before, so p must be below 0.0042" in describe_proof(paired_proof(*scores, alpha=0.05 / 12))


def test_rows_of_one_cluster_count_once() -> None:
    """P2: six rows that stand ten times each are six rows."""
    baseline, winner = [0.0] * 60, [1.0] * 60
    assert paired_proof(baseline, winner).p < 1e-9
    proof = paired_proof(baseline, winner, clusters=[i // 10 for i in range(60)])
    assert (proof.n, proof.n_rows, proof.wins) == (6, 60, 6) and proof.p == pytest.approx(2 / 2**6)
    assert "on 60 sealed test rows in 6 clusters, each of which counts once" in describe_proof(proof)
    mixed = paired_proof([0.0, 0.0, 1.0], [1.0, 0.0, 1.0], clusters=["a", "a", "b"])
    assert (mixed.baseline, mixed.winner, mixed.test) == (0.5, 0.75, BOUNDED_MEAN)
    with pytest.raises(ValueError, match="paired"):
        paired_proof([1.0], [1.0], clusters=[1, 2])


def cheaper_world(rng: np.random.Generator, n: int, loss: float, changed: float, graded: bool) -> Claim:
    """A share of the rows is answered otherwise, some better and some worse, so that the mean is lower by `loss`."""
    step = rng.uniform(0.25, 0.5, n) if graded else np.ones(n)  # what a row's score changes by
    gap = loss / (0.375 if graded else 1.0)  # of the shares that get worse and better
    changed = max(changed, gap)
    draw = rng.random(n)
    worse, better = draw < (changed + gap) / 2, draw > 1 - (changed - gap) / 2
    baseline = np.full(n, 0.5) if graded else np.where(better, 0.0, 1.0)
    return paired_proof(baseline.tolist(), (baseline + (better * 1.0 - worse) * step).tolist())


@pytest.mark.slow
@pytest.mark.parametrize("graded", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("changed", [0.06, 0.2])
def test_a_loss_of_the_margin_is_hardly_ever_taken_for_none(graded: bool, changed: float) -> None:
    """At a true loss of MARGIN the bound errs in at most 2.5 of 100 cases; 3 standard errors are allowed for."""
    rng, runs = np.random.default_rng(5), 300 if not graded else 120
    wrong = sum(cheaper_world(rng, 200, MARGIN, changed, graded).loss_bounded for _ in range(runs))
    assert wrong <= runs * 0.025 + 3 * math.sqrt(runs * 0.025)


@pytest.mark.slow
def test_no_loss_is_found_to_be_none_with_enough_rows() -> None:
    rng = np.random.default_rng(6)
    assert sum(cheaper_world(rng, 600, 0.0, 0.1, False).loss_bounded for _ in range(100)) >= 90
    assert not paired_proof([1.0] * 72, [1.0] * 72).loss_bounded and paired_proof([1.0] * 73, [1.0] * 73).loss_bounded
    assert not paired_proof([], []).loss_bounded
    assert not paired_proof([0.0] * 200, [0.0] * 200).loss_bounded, "there is nothing to keep"


def test_the_bound_of_a_loss_keeps_the_level_that_earlier_tests_leave() -> None:
    scores = [1.0] * 80
    first, tenth = paired_proof(scores, scores), paired_proof(scores, scores, alpha=0.005)
    assert first.ci95[0] < first.lowest and first.loss_bounded, "the test of a gain is exact, that of a margin Tango's"
    assert tenth.lowest < first.lowest and not tenth.loss_bounded and tenth.ci95 == first.ci95
    silent: list[float | None] = [None] * 6
    assert not paired_proof([*scores, *[1.0] * 6], [*scores, *silent]).loss_bounded, "the worst is taken"


def test_a_test_of_graded_scores_looks_at_both_sides() -> None:
    """Who is worse has the p-value of who is better, and it is twice that of one side."""
    baseline, winner = [0.2, 0.5, 0.4, 0.1, 0.3, 0.6, 0.2, 0.4], [0.4, 0.6, 0.7, 0.1, 0.5, 0.7, 0.5, 0.3]
    up, down = paired_proof(baseline, winner), paired_proof(winner, baseline)
    one_side = mean_p([b - a for a, b in zip(baseline, winner, strict=True)], -1.0)
    assert up.p == pytest.approx(down.p) == pytest.approx(2 * one_side) and 0.001 < up.p < 1


def test_rounding_of_binary_fractions_is_no_difference():
    proof = paired_proof([0.1 + 0.2, 0.5], [0.3, 0.5])
    assert (proof.wins, proof.losses, proof.ties, proof.p) == (0, 0, 2, 1.0)


@pytest.mark.parametrize(
    "pair",
    [([0.5] * 4, [0.5] * 4), ([0.0], [1.0]), ([0.25], [0.5]), ([0.1] * 9, [0.4] * 9), ([0.0] * 50, [0.0] * 49 + [0.5])],
)
def test_edge_cases_stay_finite_and_ordered(pair):
    proof = paired_proof(*pair)
    assert all(math.isfinite(x) for x in (*proof.ci95, proof.p, proof.diff))
    assert proof.ci95[0] <= proof.diff + 1e-12 and proof.diff - 1e-12 <= proof.ci95[1]
    json.loads(json.dumps(proof.as_dict(), allow_nan=False))
    assert "gain is" in describe_proof(proof)


def test_words_without_evidence():
    assert "scored the same on each of 4 sealed test rows" in describe_proof(paired_proof([0.5] * 4, [0.5] * 4))
    few = paired_proof(*binary_scores(2, 1, 1, 1))
    assert few.smallest_gain is None and "can show no gain; use more test rows" in describe_proof(few)
    some = paired_proof(*binary_scores(22, 18, 100, 60))
    assert f"a gain of about {some.smallest_gain:.2g} in 4 of 5 cases" in describe_proof(some)
    equal = paired_proof([0.5] * 38, [0.6] * 38)  # one row more, and the gain is shown
    assert equal.smallest_gain is None and "can show only larger gains; use more test rows" in describe_proof(equal)
    assert paired_proof([0.5] * 39, [0.6] * 39).shown
    assert "on 1 sealed test row;" in describe_proof(paired_proof([0.0], [1.0]))
    assert "on 8 sealed test rows in 1 cluster, which counts once;" in describe_proof(
        paired_proof([0.0] * 8, [1.0] * 8, clusters=[0] * 8)
    )


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (7, 10), (10, 10), (130, 200), (1, 1)])
def test_interval_of_a_share_is_wilsons(hits, n):
    reference = stats.binomtest(hits, n).proportion_ci(method="wilson")
    assert interval([1.0] * hits + [0.0] * (n - hits)) == pytest.approx((reference.low, reference.high), abs=1e-9)


# Simulations. Their bounds are 3 standard errors wide, so that a right program passes for any seed but few.


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["binary", "graded", "coarse"])
@pytest.mark.parametrize("n", [8, 60])
def test_a_gain_that_is_not_there_is_rarely_shown(kind, n):
    rng = np.random.default_rng(n)
    runs, false = (600 if kind == "binary" else 150), 0
    for _ in range(runs):
        both = rng.random((2, n))
        if kind != "graded":
            both = np.round(both) if kind == "binary" else np.round(both * 4) / 4
        proof = paired_proof(both[0].tolist(), both[1].tolist())
        assert not proof.shown or proof.p < 0.05
        false += proof.shown
    assert false / runs <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / runs), "two-sided: half of 5% are gains"


@pytest.mark.slow
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


def test_the_smallest_gain_of_few_rows_is_honest():
    assert paired_proof(*binary_scores(1, 1, 3, 0)).smallest_gain is None, "5 rows can show nothing"
    ten = paired_proof(*binary_scores(1, 1, 8, 0)).smallest_gain
    assert not paired_proof(*binary_scores(4, 0, 6, 0)).shown and paired_proof(*binary_scores(5, 0, 5, 0)).shown
    assert ten is not None and stats.binom.sf(4, 10, ten) == pytest.approx(0.8, abs=0.01), (
        "5 wins of 10 rows are needed"
    )


def test_importing_it_is_cheap():
    code = "import sys, workbench.proof.statistics; print('numpy' in sys.modules, 'scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_rows_that_one_side_alone_left_unanswered_count_against_a_gain() -> None:
    """P7, on both sides. A winner that is right where it answers, and too slow to answer on half of the rows; and a
    baseline that went unanswered on rows that it may have got right."""
    baseline: list[float | None] = [1.0] * 48 + [0.0] * 32
    winner: list[float | None] = [None if i % 2 else 1.0 for i in range(80)]
    proof = paired_proof(baseline, winner)
    assert (proof.n, proof.n_excluded, proof.n_one_sided) == (40, 40, 40) and proof.diff > 0 and proof.p < 0.05
    assert not proof.shown and "40 of those left out were answered by one side alone" in describe_proof(proof)
    few: list[float | None] = [None if i < 2 else 1.0 for i in range(80)]
    assert paired_proof(baseline, few).shown, "two lost rows do not hide a gain of 30 rows"
    both = paired_proof([None if i % 2 else b for i, b in enumerate(baseline)], winner)
    assert both.shown and both.n_one_sided == 0, "a server that fails both says nothing about either"

    lost: list[float | None] = [1.0] * 20 + [0.0] * 10 + [None] * 20
    won: list[float | None] = [1.0] * 20 + [1.0] * 10 + [0.0] * 20
    proof = paired_proof(lost, won)
    assert proof.diff > 0 and proof.p < 0.05 and proof.n_one_sided == 20
    assert not proof.shown, "the baseline may have been right on all that it left unanswered"


@pytest.mark.parametrize("equal", [-0.3, 0.3])
def test_differences_that_are_all_equal_but_for_rounding_have_no_smallest_gain(equal: float) -> None:
    a = [0.1 + i / 90 for i in range(30)]
    proof = paired_proof([x + max(0, -equal) for x in a], [x + max(0, equal) for x in a])
    assert proof.smallest_gain is None and "e-1" not in describe_proof(proof).replace("p = ", "")


@pytest.mark.slow
@pytest.mark.parametrize(("n", "lost"), [(20, 0.01), (60, 0.01), (60, 0.02), (20, 0.05), (200, 0.02)])
def test_small_gains_paid_for_by_rare_total_losses_are_not_shown(n: int, lost: float) -> None:
    """P1: the true mean gain is 0. A test of ranks claims a gain in up to 83% of these; 1,000 runs each, and skewed
    nulls of more kinds: contrib/bench/promises/proof.py."""
    rng = np.random.default_rng(n)
    gain, runs = 0.9 * lost / (1 - lost), 100
    false = 0
    for _ in range(runs):
        falls = rng.random(n) < lost
        false += paired_proof([0.9] * n, np.where(falls, 0.0, 0.9 + gain).tolist()).shown
    assert false / runs <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 150])
def test_power_at_the_smallest_gain_graded(n: int) -> None:
    rng = np.random.default_rng(8)
    noise = rng.normal(0, 0.15, n)
    gain = paired_proof([0.5] * n, (0.5 + (noise - noise.mean()) / noise.std(ddof=1) * 0.15).tolist()).smallest_gain
    assert gain is not None
    runs = 100
    shown = sum(
        paired_proof([0.4] * n, np.clip(rng.normal(0.4 + gain, 0.15, n), 0, 1).tolist()).shown for _ in range(runs)
    )
    assert shown / runs == pytest.approx(0.8, abs=0.12)


@pytest.mark.slow
def test_the_interval_covers_the_true_difference() -> None:
    """Graded scores; at least 95%, since the bound leaves room for losses that were not seen."""
    rng = np.random.default_rng(6)
    runs, true = 150, 0.42 * 0.25 - 0.08 * 0.05
    covered = 0
    for _ in range(runs):
        baseline = rng.beta(2, 2, 60) * 0.7 + 0.05
        winner = baseline + rng.choice([0.0, 0.25, -0.05], p=[0.5, 0.42, 0.08], size=60)
        low, high = paired_proof(baseline.tolist(), winner.tolist()).ci95
        covered += low <= true <= high
    assert covered / runs >= 0.95 - 0.035


def test_a_metric_that_never_gives_more_shows_smaller_gains() -> None:
    """The largest loss is that of a whole score, from the highest to 0."""
    baseline, winner = [0.2] * 30, [0.3] * 30
    assert not paired_proof(baseline, winner).shown and paired_proof(baseline, winner, highest=0.5).shown
    wide, narrow = paired_proof(baseline, winner), paired_proof(baseline, winner, highest=0.5)
    assert narrow.p < wide.p and narrow.ci95[0] > wide.ci95[0] and narrow.ci95[1] < wide.ci95[1]
    assert narrow.p == pytest.approx(2 * (0.5 / 0.6) ** 30, rel=1e-6), "exact for equal gains"
    for wrong in ([0.6], [-0.1]):
        with pytest.raises(ValueError, match=r"in \[0, 0.5\]"):
            paired_proof([0.1], wrong, highest=0.5)
    silent: list[float | None] = [*[0.3] * 60, None]
    assert paired_proof([*[0.2] * 60, 0.2], silent, highest=0.5).shown, "what is not answered counts 0 or the highest"
