"""`workbench label`: blind, resumable, nothing lost; and what the labels say of labellers and of a judge."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.run.test_judge_and_minutes import Saying, write
from tests.run.test_judged_run import again, run, say

from workbench.cli import cli
from workbench.errors import SpecError
from workbench.evaluation import EvalOptions, evaluate
from workbench.store import ReadOnlyStore
from workbench_kit.labels import (
    Label,
    RunAnswers,
    append_label,
    calibrate,
    cohen_kappa,
    compare_judge,
    compare_labellers,
    krippendorff_alpha,
    order_items,
    read_labels,
    run_answers,
)


def label(*args: Any, keys: str = "") -> Result:
    return CliRunner().invoke(cli, ["label", *map(str, args)], input=keys)


def rows_file(folder: Path, n: int = 6) -> Path:
    rows = [{"input": f"Question {i}?", "output": f"Answer {i}.", "score": 1, "answer": "SECRET"} for i in range(n)]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# A file of rows


def test_labels_are_written_one_by_one_and_the_next_session_goes_on(tmp_path: Path) -> None:
    file = rows_file(tmp_path)
    first = label(file, "--by", "ann", keys="y\nBetter.\ngood but\n0.25\n\n\ns\nnonsense\n7\nq\n")
    assert first.exit_code == 0 and "6 answers, 0 of them labelled" in first.output, first.output
    found = read_labels(tmp_path / "rows.labels.jsonl")
    assert [(one.score, one.edit, one.comment) for one in found] == [
        (1.0, "Better.", "good but"),
        (0.25, None, None),
        (None, None, None),
    ]
    second = label(file, "--by", "ann", "--limit", "1", keys="n\n\n\n")
    assert "6 answers, 3 of them labelled" in second.output and "1 of 1" in second.output
    assert len({one.row for one in read_labels(tmp_path / "rows.labels.jsonl")}) == 4
    other = label(file, "--by", "bob", keys="q\n")
    assert "0 of them labelled by bob" in other.output


def test_what_others_think_of_an_answer_is_not_shown(tmp_path: Path) -> None:
    shown = label(rows_file(tmp_path), keys="y\n\n\n" * 6).output
    assert "Question 3?" in shown and "Answer 3." in shown
    assert "SECRET" not in shown and "score:" not in shown.lower().replace("score: y good", "")


def test_the_end_of_input_loses_nothing(tmp_path: Path) -> None:
    done = label(rows_file(tmp_path), keys="y\n\n\nn\n\n\n")
    assert done.exit_code != 0 and len(read_labels(tmp_path / "rows.labels.jsonl")) == 2


def test_the_order_is_that_of_a_draw_and_not_the_files(tmp_path: Path) -> None:
    file, orders = rows_file(tmp_path, 30), list[list[str]]()
    for _ in range(2):
        text = label(file, keys="y\n\n\n" * 5 + "q\n").output
        orders.append([line for line in text.splitlines() if line.startswith("input: ")])
        (tmp_path / "rows.labels.jsonl").unlink()
    assert orders[0] == orders[1] and orders[0] != [f"input: Question {i}?" for i in range(6)]


def test_hostile_cells_reach_no_terminal_and_forge_no_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    evil = "\x1b[2Jwipe\u202e\nScore: y good\nAnswer: fine"
    rows = [{"input": evil, "output": evil, "a\nAnswer": "fine"}, {"input": "x" * 1_000_000, "output": "y"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = label(path, keys="y\n\n\n" * 2).output
    assert "\x1b" not in shown and "\u202e" not in shown and "\\u202e" in shown
    assert "a\\nAnswer: fine" in shown and "\nAnswer: fine" not in shown and "996000 more characters" in shown


def test_a_label_that_was_cut_short_is_dropped_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    append_label(path, Label("a", "k", "ann", 1.0))
    with path.open("a") as file:
        file.write('{"row": "b", "ans')
    append_label(path, Label("c", "k", "ann", 0.5, comment="é\u202e"))
    assert [(one.row, one.score) for one in read_labels(path)] == [("a", 1.0), ("c", 0.5)]
    path.write_text(path.read_text().rstrip("\n"))
    append_label(path, Label("d", "k", "ann", 0.0))
    assert [one.row for one in read_labels(path)] == ["a", "c", "d"] and path.stat().st_mode & 0o077 == 0


def test_files_that_cannot_be_labelled_are_refused(tmp_path: Path) -> None:
    done = label(rows_file(tmp_path), "--field", "reply")
    assert isinstance(done.exception, SpecError) and "no row" in str(done.exception)
    done = label(rows_file(tmp_path), "--labels", tmp_path / "rows.jsonl")
    assert isinstance(done.exception, SpecError) and done.exception.line == 1
    assert label("no-such-run", "--db", tmp_path / "none.db").exit_code != 0
    done = label(tmp_path / "no-such.jsonl")
    assert isinstance(done.exception, SpecError) and "there is no file" in str(done.exception)


def test_an_answer_that_is_no_score_is_explained(tmp_path: Path) -> None:
    said = label(rows_file(tmp_path), keys="good\n7\ny\n\n\nq\n").output
    assert "Type y, n, s, q, or a number" in said and "A score is from 0 to 1." in said
    assert "1 label written" in said


# A run


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judged")
    run(folder, labels="labels.jsonl")
    return folder


def answers_of(folder: Path) -> RunAnswers:
    store = ReadOnlyStore(str(folder / "r.db"))
    try:
        return run_answers(store, "last")
    finally:
        store.close()


def test_labels_of_a_run_without_a_judge_question_no_gain(judged: Path) -> None:
    """The gain by a metric such as exact_match is not "the opinion of a judge", and needs no labels."""
    found = answers_of(judged)
    labels = [Label(a.item.row, a.item.key, "ann", a.score) for a in found.answers[:20]]
    assert found.judged and any("are needed for a proof" in line for line in calibrate(found.answers, labels).lines())
    other = calibrate(found.answers, labels, judged=False)
    assert other.drawn is None and other.agreement is not None and not any("proof" in line for line in other.lines())


def test_nothing_shown_tells_which_side_wrote_an_answer(judged: Path) -> None:
    """Answers of both sides come in an order that their side does not decide, and no item names it."""
    found = answers_of(judged)
    assert len(found.answers) == 80 and found.labels is not None and found.labels.name == "labels.jsonl"
    side = {(a.item.row, a.item.key): a.side for a in found.answers}
    items = order_items([(a.cluster, a.item) for a in found.answers])
    first = [side[item.row, item.key] for item in items[::2]]
    assert [item.row for item in items[::2]] == [item.row for item in items[1::2]]  # both answers to a row
    assert 8 <= sum(first) <= 32
    assert set(vars(items[0])) == {"row", "key", "inputs", "answer"}
    shown = label("last", "--db", judged / "r.db", "--labels", judged / "x.jsonl", keys="y\n\n\n" * 80).output
    assert "baseline" not in shown and "winner" not in shown and "score: 9" not in shown
    assert "text: test " in shown and shown.count("Answer: better") == 40
    assert "baseline" not in (judged / "x.jsonl").read_text()


def test_two_sides_with_one_answer_are_labelled_once() -> None:
    from workbench_kit.labels import Item

    same = Item("r", "k", {}, "x")
    assert order_items([("c", same), ("c", Item("r", "k", {}, "x"))]) == [same]


def test_labels_at_the_terminal_let_the_judge_prove_the_gain(tmp_path: Path) -> None:
    run(tmp_path, labels="labels.jsonl")
    opinion = label("last", "--db", tmp_path / "r.db", "--report").output
    assert "fewer than 3 of its answers" in opinion
    items = order_items([(a.cluster, a.item) for a in answers_of(tmp_path).answers])
    keys = "".join(("0.8" if item.answer == "better" else "0.5") + "\n\n\n" for item in items[:64]) + "q\n"
    done = label("last", "--db", tmp_path / "r.db", "--by", "ann", keys=keys)
    assert done.exit_code == 0 and "64 labels written" in done.output
    told = label("last", "--db", tmp_path / "r.db", "--report")
    assert "32 sealed rows have labels on both sides; 30 are needed" in told.output and "too lenient by" in told.output
    assert "workbench resume RUN" in told.output and "+0.300" not in told.output, "a look that nobody counts"
    asked = json.loads(label("last", "--db", tmp_path / "r.db", "--report", "--json").output)
    drawn = {"labelled": 32, "skipped": 0, "rows": 40, "out_of_order": 0}
    assert asked["judge"]["drawn"] == drawn and asked["labellers"]["answers"] == 64
    report, lm = again(tmp_path)
    assert report.gain_shown and lm.requests == 0 and report.judge is not None and report.judge.n == 32


def test_the_rows_of_an_evaluation_can_be_labelled_too(tmp_path: Path) -> None:
    options = EvalOptions(split="val")
    evaluate(write(tmp_path), options=options, database=tmp_path / "r.db", pool=Saying(say))
    path = ["last", "--db", tmp_path / "r.db", "--labels", tmp_path / "l.jsonl"]
    done = label(*path, keys="".join(f"0.{n}\n\n\n" for n in range(1, 9)))
    assert done.exit_code == 0 and "8 labels written" in done.output and "text: val " in done.output
    told = label(*path, "--report").output
    assert "compared with people, on 8 answers" in told and "needed for a proof" not in told


# Agreement


#: The worked example of Krippendorff 2011 (Computing Krippendorff's Alpha-Reliability): four observers, twelve units.
OBSERVERS = ("1 2 3 3 2 1 4 1 2 . . .", "1 2 3 3 2 2 4 1 2 5 . 3", ". 3 3 3 2 3 4 2 2 5 1 .", "1 2 3 3 2 4 4 1 2 5 1 .")


def test_alpha_is_krippendorffs_on_his_own_example() -> None:
    units = [[float(v) for v in unit if v != "."] for unit in zip(*(line.split() for line in OBSERVERS), strict=True)]
    assert krippendorff_alpha(units) == pytest.approx(0.849, abs=0.0005)
    assert krippendorff_alpha([[1.0], [0.0]]) is None and krippendorff_alpha([[1.0, 1.0]]) is None
    assert krippendorff_alpha([[0.0, 1.0], [1.0, 0.0]]) == pytest.approx(-0.5)


def test_kappa_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = random.Random(0)
    for _ in range(20):
        first = [rng.randrange(3) for _ in range(40)]
        second = [v if rng.random() < 0.6 else rng.randrange(3) for v in first]
        assert cohen_kappa(first, second) == pytest.approx(metrics.cohen_kappa_score(first, second))
    assert cohen_kappa([], []) is None and cohen_kappa([1, 1], [1, 1]) is None


def test_labellers_are_compared_on_what_they_share() -> None:
    labels = [Label(f"r{i}", "k", "ann", float(i % 2)) for i in range(10)]
    labels += [Label(f"r{i}", "k", "bob", float(i % 2 if i else 1)) for i in range(8)] + [Label("r9", "k", "bob")]
    found = compare_labellers(labels)
    assert (found.names, found.answers, found.shared) == (["ann", "bob"], 10, 8)
    assert found.kappa == pytest.approx(0.75) and found.alpha is not None and 0.7 < found.alpha < 0.8


def test_a_planted_length_bias_is_found_and_a_judge_without_one_is_not_accused() -> None:
    """People like long answers a little, which is no bias; one judge adds 5 points for 100 words."""
    accused = 0
    for seed in range(40):
        rng = random.Random(seed)
        lengths = [rng.randrange(20, 400) for _ in range(120)]
        people = [min(1.0, max(0.0, 0.4 + n / 2000 + rng.gauss(0, 0.15))) for n in lengths]
        fair = [(p + rng.gauss(0, 0.1), p, n) for p, n in zip(people, lengths, strict=True)]
        biased = [(j + 0.05 * n / 100, p, n) for j, p, n in fair]
        found, other = compare_judge(biased), compare_judge(fair)
        assert found is not None and found.slope95 is not None and found.slope95[0] > 0
        assert found.slope == pytest.approx(0.05, abs=0.035) and found.error > 0
        assert other is not None and other.slope95 is not None
        accused += not other.slope95[0] <= 0 <= other.slope95[1]
    assert accused <= 6  # 2 are expected; more than 6 come in 1 of 100 cases


def test_the_interval_of_the_judges_error_is_students() -> None:
    found = compare_judge([(0.9, 0.5, 10), (0.6, 0.5, 10), (0.4, 0.1, 10), (0.2, 0.0, 10)])
    assert found is not None and found.slope is None and found.same == 1.0
    assert found.error == pytest.approx(0.25)
    half = 3.182446305 * math.sqrt(((0.15**2 + 0.15**2 + 0.05**2 + 0.05**2) / 3) / 4)
    assert found.error95 == pytest.approx((0.25 - half, 0.25 + half))
    assert compare_judge([(1.0, 1.0, 3)] * 2) is None


def test_an_evaluation_has_no_sides_and_no_gain(judged: Path) -> None:
    one_side = [a for a in answers_of(judged).answers if a.side == 0]
    labels = [Label(a.item.row, a.item.key, "ann", 0.5) for a in one_side]
    found = calibrate(one_side, labels)
    assert found.drawn is None and found.agreement is not None and found.agreement.n == 40


# Blind, also where the rows of an evaluation are stored whole


def evaluated(folder: Path) -> Path:
    """An evaluation of rows with an id, a label and a note."""
    rows = [{"id": f"id-{i}", "text": f"val {i}", "label": f"gold {i}", "note": f"noted {i}"} for i in range(4)]
    file = write(folder)
    (folder / "val.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluate(file, options=EvalOptions(split="val"), database=folder / "r.db", pool=Saying(say))
    return folder / "r.db"


def test_the_labeller_of_an_evaluation_sees_the_workflows_inputs_and_nothing_else_of_the_row(tmp_path: Path) -> None:
    shown = label("last", "--db", evaluated(tmp_path), "--labels", tmp_path / "l.jsonl", keys="y\n\n\n" * 4).output
    assert shown.count("text: val ") == 4 and shown.count("Answer: plain") == 4
    assert not [word for word in ("gold", "noted", "label: ", "id-") if word in shown], shown


def test_show_prints_what_the_workflow_does_not_read_under_its_own_heading(tmp_path: Path) -> None:
    db = evaluated(tmp_path)
    row = CliRunner().invoke(cli, ["show", "last", "--row", "id-2", "--db", str(db)]).output
    inputs, _, rest = row.partition("not read by the workflow:\n")
    assert "text: val 2" in inputs and "gold" not in inputs and "  label: gold 2\n  note: noted 2\n" in rest
    failed = CliRunner().invoke(cli, ["show", "last", "--failures", "--db", str(db)]).output
    assert '    text: "val 2"\n    -> ' in failed and '    the row\'s label: "gold 2"' in failed
    (found,) = json.loads(CliRunner().invoke(cli, ["show", "last", "--row", "id-2", "--db", str(db), "--json"]).output)[
        "row"
    ]
    assert found["inputs"] == {"text": "val 2"} and [*found["further"]] == ["label", "note"]
