"""The proof by a judge: PPI++ against its authors' package, planted biases, and what an uncalibrated judge may say."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from workbench.errors import SpecError
from workbench.proof import Claim, paired_proof
from workbench_kit.labels import (
    MIN_LABELS,
    JudgedRow,
    Label,
    answer_key,
    check_judge,
    describe_judged,
    mean_labels,
    place_in_draw,
    powered_mean,
    read_labels,
    whole_labellers,
)

BENCH = Path(__file__).parents[2] / "contrib" / "bench" / "promises" / "judged.py"


def planted(n: int, others: int, bias: float, tie: float) -> tuple[list[float], list[float], list[float]]:
    """Labels, the judge's scores of them, and those of other units, by a formula. tie: how far scores follow labels."""
    label = [math.sin(1.7 * i) * 0.5 + (0.1 if i % 3 else -0.2) for i in range(n + others)]
    score = [tie * y + bias + 0.3 * math.cos(2.3 * i) for i, y in enumerate(label)]
    return label[:n], score[:n], score[n:]


@pytest.mark.parametrize(
    ("of", "weight", "estimate", "low", "high"),
    [  # by ppi-python 0.2.3 (`ppi_mean_pointestimate`, `ppi_mean_ci`, alpha 0.05), its authors' package
        ((40, 400, 0.1, 0.9), 0.743968514, -0.003152354, -0.075739334, 0.069434627),
        ((100, 900, 0.1, 0.5), 0.775337299, -0.003342670, -0.062759222, 0.056073881),
        ((30, 60, -0.3, 0.0), 0.0, -0.003697645, -0.141321180, 0.133925890),
        ((50, 25, 0.2, 1.0), 0.251624297, 0.001413001, -0.090438038, 0.093264039),
        ((35, 300, 0.0, -0.8), 0.0, 0.008228492, -0.119957849, 0.136414832),
    ],
)
def test_ppi_plus_plus_is_that_of_its_authors(
    of: tuple[int, int, float, float], weight: float, estimate: float, low: float, high: float
) -> None:
    labels, scores, others = planted(*of)
    found = powered_mean(labels, scores, others)
    assert found.weight == pytest.approx(weight, abs=2e-9)
    assert found.estimate == pytest.approx(estimate, abs=2e-9)
    # Theirs has the variances of a population, and the normal distribution; ours is a little wider.
    theirs = (high - low) / 2 / 1.959963985
    rest = np.var(np.array(labels) - weight * np.array(scores)) / len(labels)
    assert theirs == pytest.approx(math.sqrt(rest + weight**2 * np.var(others) / len(others)), abs=1e-8)
    rest_of_sample = rest * len(labels) / (len(labels) - 1)
    ours = math.sqrt(rest_of_sample + weight**2 * np.var(others, ddof=1) / len(others))
    assert found.error == pytest.approx(ours, abs=1e-8)
    ours_low, ours_high = found.interval()
    assert ours_low < low and ours_high > high and ours_high - ours_low < 1.1 * (high - low)


@pytest.mark.parametrize("freedom", [1, 2, 5, 30, 999])
def test_students_t(freedom: int) -> None:
    mean = replace(powered_mean([0.0, 1.0], [0.0, 1.0], []), error=1.0, labelled=freedom + 1)
    for t in (-7.0, -0.3, 0.01, 1.0, 3.5, 40.0):
        assert replace(mean, estimate=t).p == pytest.approx(2 * stats.t.sf(abs(t), freedom), rel=1e-10)
    for share in (0.01, 0.025, 0.5, 0.9, 0.975, 0.9995):
        assert mean.quantile(share) == pytest.approx(stats.t.ppf(share, freedom), rel=1e-9, abs=1e-9)


def test_without_other_units_the_labels_alone_are_left() -> None:
    labels, scores, _ = planted(30, 0, 0.4, 1.0)
    found = powered_mean(labels, scores, [])
    assert (found.weight, found.estimate) == (0.0, pytest.approx(math.fsum(labels) / 30))
    assert found.error == found.label_error and found.labels_alone == pytest.approx(30)
    same = powered_mean([0.5] * 4, [0.1] * 4, [0.1] * 9)
    assert (same.estimate, same.error, same.p, same.interval()) == (0.5, 0.0, 0.0, (0.5, 0.5))
    with pytest.raises(ValueError, match="two or more"):
        powered_mean([0.5], [0.5], [0.5])


def judged(rows: list[JudgedRow]) -> Claim:
    return paired_proof(
        [r.judge[0] for r in rows], [r.judge[1] for r in rows], clusters=[r.cluster for r in rows], margin=0.05
    )


def gained(n: int, labels: int, people: float = 0.0, judge: float = 0.3) -> list[JudgedRow]:
    """Rows whose winner is better by so much, to people and to the judge, give or take a little."""
    made = []
    for i in range(n):
        off = 0.02 * math.sin(i)
        said = (0.4, 0.4 + people + off) if i < labels else (None, None)
        made.append(JudgedRow(i, (0.4, 0.4 + judge + off), said))
    return made


def test_a_judge_without_labels_shows_nothing_and_says_whose_opinion_it_is() -> None:
    for labels in (0, MIN_LABELS - 1):
        rows = gained(80, labels, people=0.3)
        alone = judged(rows)
        proof, check = check_judge(alone, rows)
        assert alone.shown and alone.loss_bounded and not proof.shown and not proof.loss_bounded
        assert not check.shown and (check.diff, check.n) == (alone.diff, labels)
        told = describe_judged(proof, check)
        assert "The gain is not shown" in told and "opinion of a judge" in told and "30 are needed" in told
    rows = gained(80, 30, people=0.3)
    proof, check = check_judge(judged(rows), rows)
    assert proof.shown and proof.loss_bounded and check.shown and "PPI++" in describe_judged(proof, check)


def test_labels_take_a_judges_bias_away() -> None:
    rows = gained(200, 60, people=0.0, judge=0.1)
    alone, (proof, check) = judged(rows), check_judge(judged(rows), rows)
    assert alone.shown and alone.diff == pytest.approx(0.1, abs=0.01)
    assert not proof.shown and proof.diff == pytest.approx(0.0, abs=0.005) and proof.ci95[0] < 0 < proof.ci95[1]
    assert check.diff == alone.diff and "The gain is not shown" in describe_judged(proof, check)
    loss = gained(200, 60, people=-0.2, judge=0.1)
    assert check_judge(judged(loss), loss)[0].ci95[1] < 0


def test_a_cluster_counts_once_and_has_a_label_if_all_its_rows_have() -> None:
    rows = [JudgedRow(r.cluster, r.judge, r.people) for r in gained(90, 40, people=0.3) for _ in range(3)]
    last = next(i for i, row in enumerate(rows) if row.cluster == 39)
    rows[last] = JudgedRow(39, rows[last].judge)
    proof, check = check_judge(judged(rows), rows)
    assert (proof.n, proof.n_rows, check.n) == (90, 270, 39)


def test_labels_count_as_far_as_they_follow_the_draw_and_the_report_says_which_row_lacks_them() -> None:
    """Who leaves out the labels that speak against the winner may show what they like."""
    rows = [replace(row, row=f"r{row.cluster}") for row in gained(100, 90, people=0.3)]
    for hole, counted in ((0, 0), (MIN_LABELS - 1, MIN_LABELS - 1), (50, 50)):
        left_out = [replace(row, people=(None, None)) if i == hole else row for i, row in enumerate(rows)]
        proof, check = check_judge(judged(left_out), left_out)
        assert (check.n, check.more["drawn"].later, check.more["drawn"].missing) == (counted, 89 - counted, f"r{hole}")
        assert proof.shown == (counted >= MIN_LABELS)
        assert f"{89 - counted} more with labels do not count: row r{hole}, drawn before" in describe_judged(
            proof, check
        )
    half = [replace(row, people=(0.4, None)) if i == 2 else row for i, row in enumerate(rows)]
    assert check_judge(judged(half), half)[1].n == 2


def test_the_order_of_the_draw_is_that_of_the_clusters_and_not_of_the_rows() -> None:
    rows = [replace(row, place=place_in_draw(str(row.cluster))) for row in gained(100, 0)]
    order = sorted(rows, key=lambda row: row.place)
    first = {row.cluster for row in order[:40]}
    assert first != set(range(40))
    labelled = [replace(row, people=(0.4, 0.7)) if row.cluster in first else row for row in rows]
    assert check_judge(judged(labelled), labelled)[1].n == 40


def test_skipped_answers_open_no_gap_and_count_by_the_worst_case() -> None:
    rows = gained(100, 60, people=0.2)
    few = [replace(row, people=(0.4, None), seen=(False, True)) if i in (3, 40) else row for i, row in enumerate(rows)]
    proof, check = check_judge(judged(few), few)
    whole, _ = check_judge(judged(rows), rows)
    assert (check.n, len(check.more["drawn"].skipped)) == (58, 2) and proof.shown
    assert proof.ci95[0] < whole.ci95[0] and proof.ci95[1] > whole.ci95[1] and proof.lowest < whole.lowest
    assert "2 rows with skipped answers count by the worst case" in describe_judged(proof, check)
    many = [replace(row, people=(None, None), seen=(True, True)) if i % 4 == 0 else row for i, row in enumerate(rows)]
    assert not check_judge(judged(many), many)[0].shown
    every = [
        replace(row, people=(0.4, 0.6)) if i else replace(row, seen=(True, True)) for i, row in enumerate(gained(60, 0))
    ]
    proof, check = check_judge(judged(every), every)
    assert (check.n, proof.n, proof.n_one_sided) == (59, 59, 1) and proof.shown


def test_other_labels_that_were_looked_at_before_are_told() -> None:
    rows = gained(100, 60, people=0.2)
    told = describe_judged(*check_judge(replace(judged(rows), alpha=0.025), rows, looks=1))
    assert "looked at once before, so p must be below 0.025" in told


@pytest.mark.parametrize("labels", [30, 60])
def test_at_most_one_null_run_in_forty_claims_a_gain_however_few_labels_hold_no_ruin(labels: int) -> None:
    assert 0.015 < bench().worst_two_valued(labels, shares=8) <= 0.025


def test_rows_that_one_side_alone_answered_count_by_the_worst_case() -> None:
    rows = [*gained(100, 50, people=0.1), *(JudgedRow(f"lost {i}", (0.4, None)) for i in range(20))]
    proof, _ = check_judge(judged(rows), rows)
    whole, _ = check_judge(judged(rows[:100]), rows[:100])
    assert whole.shown and not proof.shown and proof.ci95[0] < whole.ci95[0] and proof.ci95[1] > whole.ci95[1]
    assert proof.lowest < 0


def test_an_earlier_test_lowers_the_level_for_a_judge_too() -> None:
    labelled = [(0.4, 0.4 + (0.2 if i % 5 else -0.2)) if i < 90 else (None, None) for i in range(100)]
    rows = [JudgedRow(i, (0.4, 0.5), people) for i, people in enumerate(labelled)]
    proof, _ = check_judge(judged(rows), rows)
    assert 1e-12 < proof.p < 0.05 and proof.shown
    assert not check_judge(replace(judged(rows), alpha=1e-12), rows)[0].shown


def test_a_rare_disaster_that_no_label_shows_is_allowed_for() -> None:
    rows = gained(200, 40, people=0.02)
    proof, _ = check_judge(judged(rows), rows)
    assert proof.ci95[0] > 0 and proof.p < 0.001 and not proof.shown and proof.lowest < 0
    assert proof.smallest_gain is not None and 0.03 < proof.smallest_gain < 0.15
    assert "rare bad answer" in describe_judged(proof, check_judge(judged(rows), rows)[1])


def test_labels_for_every_row_are_a_proof_by_people() -> None:
    rows = gained(60, 60, people=0.2)
    proof, check = check_judge(judged(rows), rows)
    people = paired_proof([r.people[0] for r in rows], [r.people[1] for r in rows])
    assert proof == people and check.shown and proof.shown


# The simulation


def bench() -> Any:
    """contrib/bench/promises/judged.py, whose worlds are simulated."""
    spec = importlib.util.spec_from_file_location("judged_bench", BENCH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["judged_bench"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.slow
def test_simulated_judges_are_covered_and_save_labels_and_nothing_is_claimed_where_nothing_was_gained() -> None:
    made, runs = bench(), 300
    for world in made.WORLDS:
        found = made.measure(world, runs, labels=100)
        assert not made.failures(world, found, runs), (world.name, found)
        if world.bias and world.noise is not None:
            assert found["coverage_of_the_judge_alone"] < 0.05


# Files of labels


def test_the_last_label_of_each_labeller_counts_and_labellers_are_averaged(tmp_path: Path) -> None:
    lines = [("r", "a", "ann", 0.2), ("r", "a", "bob", 1.0), ("r", "a", "ann", 0.6), ("r", "b", "ann", None)]
    path = tmp_path / "labels.jsonl"
    path.write_text(
        "".join(json.dumps({"row": r, "answer": a, "by": b, "score": s}) + "\n" for r, a, b, s in lines) + '{"row": "r'
    )
    found = read_labels(path)
    assert [(one.by, one.score) for one in found] == [("bob", 1.0), ("ann", 0.6), ("ann", None)]
    assert mean_labels(found) == {("r", "a"): pytest.approx(0.8)}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not a label"),
        ("[1]", "a label is a JSON object"),
        ('{"row": "r", "answer": "a"}', "by"),
        ('{"row": "r", "answer": "a", "by": "x", "score": 1.5}', r"a number in \[0, 1\]"),
        ('{"row": "r", "answer": "a", "by": "x", "score": NaN}', r"a number in \[0, 1\]"),
        ('{"row": "r", "answer": "a", "by": "x", "score": true}', r"a number in \[0, 1\]"),
        ('{"row": 1, "answer": "a", "by": "x"}', "are texts"),
        ("[" * 100_000, "not a label"),
    ],
)
def test_a_wrong_line_of_labels_is_named(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text('{"row": "r", "answer": "a", "by": "x", "score": 1}\n' + line + "\n")
    with pytest.raises(SpecError, match=words) as caught:
        read_labels(path)
    assert caught.value.line == 2 and caught.value.hint


def test_an_answer_is_known_by_what_the_judge_reads_of_it() -> None:
    assert answer_key({"answer": "x", "thought": "a"}, "answer") == answer_key({"answer": "x"}, "answer")
    assert answer_key({"answer": "x", "thought": "a"}, None) != answer_key({"answer": "x"}, None)


def test_who_labels_some_rows_again_does_not_choose_what_they_show() -> None:
    """Only who saw all that the first labeller saw counts beside them; what is left is counted once."""
    ann = [Label(f"r{i}", side, "ann", 0.5) for i in range(10) for side in ("a", "b")]
    bob = [Label(f"r{i}", "b", "bob", 1.0) for i in range(3)]
    assert whole_labellers([*ann, *bob]) == ann
    skipped = [replace(one, score=None) if one.row == "r0" else one for one in ann]
    assert whole_labellers([*skipped, *bob]) == skipped, "what ann skipped stays skipped"
    both = [*ann, *(replace(one, by="cleo") for one in ann)]
    assert whole_labellers(both) == both
    shared = [*ann, *(Label(f"r{i}", side, "bob", 1.0) for i in range(10, 14) for side in ("a", "b"))]
    assert whole_labellers(shared) == shared, "two may share the work"
    third = [*shared, Label("r10", "a", "cleo", 0.0)]
    assert whole_labellers(third) == shared
