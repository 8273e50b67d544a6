"""Any two evaluations, runs or candidates are compared row by row."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.evaluation.conftest import WriteFile, echo
from tests.helpers.planted import LABELS, PlantedLM, plant
from tests.helpers.scripted import Script

from workbench.cli import cli
from workbench.cli.progress import print_evaluation
from workbench.errors import LMError, StoreError
from workbench.evaluation import (
    Difference,
    EvalOptions,
    EvalReport,
    compare_sides,
    evaluate,
    evaluate_matrix,
    judge_score,
    not_worse,
    parse_axis,
    read_side,
    write_markdown,
)
from workbench.evaluation.compare import ScoredRow, Side
from workbench.lm import Request
from workbench.proof import Report, paired_proof
from workbench.store import Evaluations, ReadOnlyStore, Store


def always(request: Request) -> str:
    """Right on every row: knows that odd words are `other`."""
    word = echo(request)
    return word if int(word[len("label: w") :]) % 2 == 0 else "label: other"


def side(scores: dict[str, float | None], name: str = "a", clusters: dict[str, str] | None = None) -> Side:
    rows = {key: ScoredRow(key, score, (clusters or {}).get(key, key)) for key, score in scores.items()}
    return Side(name, name, "val", "hash", "data", rows, {})


def test_friction_9_two_evals_are_compared_by_the_paired_test(write: WriteFile, tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    first = evaluate(write(), options=EvalOptions(split="all"), database=database, pool=Script(echo))
    second = evaluate(write(), options=EvalOptions(split="all"), database=database, pool=Script(always))
    store = ReadOnlyStore(database)
    a, b = read_side(store, first.run), read_side(store, "last")
    (found,) = compare_sides([a, b])
    store.close()
    reference = paired_proof([r.score for r in a.rows.values()], [b.rows[k].score for k in a.rows])
    assert found.proof.diff == reference.diff == second.score - first.score == 0.5
    assert found.p == reference.p and found.shown == "gain" and (len(found.better), found.worse) == (18, [])


def test_rows_are_paired_by_what_they_hold_whatever_their_file_and_order(write: WriteFile, tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    first = evaluate(write(), options=EvalOptions(split="all"), database=database, pool=Script(echo))
    elsewhere = write(tmp_path / "there", data={"test": "rows.jsonl"})
    lines = (tmp_path / "there" / "rows.jsonl").read_text().splitlines()
    (tmp_path / "there" / "rows.jsonl").write_text(
        "\n".join([*reversed(lines[:30]), '{"word": "w77", "label": "w77"}'])
    )
    second = evaluate(elsewhere, options=EvalOptions(split="all"), database=database, pool=Script(echo))
    store = ReadOnlyStore(database)
    (found,) = compare_sides([read_side(store, first.run), read_side(store, second.run)])
    store.close()
    assert found.proof.n_rows == 30 and found.only == 7 and found.proof.diff == 0.0


WORDS = (
    "amber birch cedar delta ember fjord grove heron ivory jade kelp lotus maple north ocean pearl quartz river".split()
)


def long_text(i: int) -> str:
    """Twelve words and more, of which no two rows share many."""
    return " ".join(WORDS[(i * 5 + k * (i % 7 + 1)) % len(WORDS)] + str(i) for k in range(12)) + f" no {i}"


def other_text(change: Callable[[str], str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda row: {**row, "word": change(row["word"])}


#: What another file makes of a row, and whether it is the same row.
OTHER_FILES: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], bool]] = {
    "numbered": (lambda row: {"row": row["label"][1:], **row}, True),
    "other_order": (lambda row: dict(reversed(row.items())), True),
    "capitals_and_spaces": (other_text(lambda text: f" {text.upper().replace(' ', '  ')}"), True),
    "unseen_characters": (other_text(lambda text: text.replace(" ", " \u200b")), True),
    "a_word_more": (other_text(lambda text: text.replace(" ", " indeed ", 1)), True),
    "input_renamed": (lambda row: {"text": row["word"], "label": row["label"]}, True),
    "input_more": (lambda row: {**row, "lang": "en"}, True),
    "label_mended": (lambda row: {**row, "label": "mended"}, False),
    "another_number": (other_text(lambda text: text.replace("no ", "no 7")), False),
    "another_question": (
        other_text(lambda text: text.rpartition("no")[0][:-30] + "and why does nobody tell us"),
        False,
    ),
}


@pytest.mark.parametrize("change", OTHER_FILES)
def test_rows_are_the_same_by_the_rule_of_the_splits(change: str, write: WriteFile, tmp_path: Path) -> None:
    database, runs = tmp_path / "a.db", list[str]()
    made, same = OTHER_FILES[change]
    predicts = {"input_renamed": "text -> label", "input_more": "word, lang -> label"}
    for folder, map_row in (("here", dict[str, Any]), ("there", made)):
        predict = predicts.get(change, "word -> label") if folder == "there" else "word -> label"
        file = write(tmp_path / folder, data={"test": "rows.jsonl"}, nodes={"say": {"predict": predict}})
        rows = [map_row({"word": long_text(i), "label": f"w{i}"}) for i in range(20)]
        (tmp_path / folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        options = EvalOptions(split="all")
        runs.append(evaluate(file, options=options, database=database, pool=Script(lambda _: "label: w3")).run)
    store = ReadOnlyStore(database)
    sides = [read_side(store, run) for run in runs]
    store.close()
    if same:
        (found,) = compare_sides(sides)
        assert (found.proof.n_rows, found.only, found.proof.diff) == (20, 0, 0.0)
    else:
        with pytest.raises(StoreError, match="share no rows: they are of different data"):
            compare_sides(sides)


def test_rows_of_other_data_are_not_compared(write: WriteFile, tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    first = evaluate(write(), database=database, pool=Script(echo))
    other = write(tmp_path / "there")
    (tmp_path / "there" / "rows.jsonl").write_text(
        "".join(json.dumps({"word": f"w{i + 90}", "label": "x"}) + "\n" for i in range(36))
    )
    second = evaluate(other, database=database, pool=Script(echo))
    third = evaluate(write(), database=database, pool=Script(echo), options=EvalOptions(split="test"))
    store = ReadOnlyStore(database)
    with pytest.raises(StoreError, match="share no rows: they are of different data"):
        compare_sides([read_side(store, first.run), read_side(store, second.run)])
    with pytest.raises(StoreError, match=f"of different splits; RUN@SPLIT names another one, e.g. {first.run}@test"):
        compare_sides([read_side(store, first.run), read_side(store, third.run)])
    with pytest.raises(StoreError, match="stored no rows of test; it has rows of val"):
        read_side(store, f"{first.run}@test")
    store.close()


def test_several_comparisons_are_adjusted_by_holm() -> None:
    """The example by hand: p-values p1 <= p2 <= p3 become 3 p1, 2 p2 and p3, each at least the one before."""
    base = {f"r{i}": 0.0 for i in range(20)}
    sides = [side(base)]
    for wins in (12, 6, 7):
        sides.append(side({key: float(i < wins) for i, key in enumerate(base)}, f"w{wins}"))
    plain = {wins: paired_proof([0.0] * 20, [1.0] * wins + [0.0] * (20 - wins)).p for wins in (12, 6, 7)}
    found = {d.second: d for d in compare_sides(sides)}
    assert found["w12"].p == pytest.approx(3 * plain[12])
    assert found["w7"].p == pytest.approx(2 * plain[7])
    assert found["w6"].p == pytest.approx(max(2 * plain[7], plain[6]))
    assert [found[n].shown for n in ("w12", "w7", "w6")] == ["gain", "gain", "gain"]
    weak = side({key: float(i < 6) for i, key in enumerate(base)}, "weak")
    many = compare_sides(
        [sides[0], *(side(dict(weak.rows and {k: r.score for k, r in weak.rows.items()}), f"s{i}") for i in range(4))]
    )
    assert [d.shown for d in many] == [""] * 4 and compare_sides([sides[0], weak])[0].shown == "gain"


def test_rows_of_one_cluster_count_once() -> None:
    base = {f"r{i}": 0.0 for i in range(12)}
    better = dict.fromkeys(base, 1.0)
    one = dict.fromkeys(base, "same")
    assert compare_sides([side(base), side(better)])[0].shown == "gain"
    (found,) = compare_sides([side(base, clusters=one), side(better, clusters=one)])
    assert found.proof.n == 1 and found.shown == ""


def test_a_loss_is_called_one_and_no_difference_is_called_nothing() -> None:
    base = {f"r{i}": float(i % 2) for i in range(40)}
    worse = dict.fromkeys(base, 0.0)
    assert compare_sides([side(base), side(worse)])[0].shown == "loss"
    assert compare_sides([side(base), side(base)])[0].shown == ""


@pytest.mark.parametrize(
    ("changed", "margin", "passes"),
    [
        ({}, 0.05, True),  # 200 equal rows
        ({f"r{i}": 0.0 for i in range(20)}, 0.05, False),
        ({f"r{i}": 0.0 for i in range(20)}, 0.25, True),
        ({f"r{i}": None for i in range(30)}, 0.05, False),  # a server that failed proves nothing
    ],
)
def test_not_worse_wants_the_loss_ruled_out(changed: dict[str, float | None], margin: float, passes: bool) -> None:
    base: dict[str, float | None] = {f"r{i}": 1.0 for i in range(200)}
    assert not_worse(side(base), side({**base, **changed}), margin)[0] == passes


def test_rows_that_the_second_side_lacks_count_against_it() -> None:
    base: dict[str, float | None] = {f"r{i}": 1.0 for i in range(200)}
    assert not not_worse(side(base), side({k: v for k, v in base.items() if int(k[1:]) >= 30}))[0]


def skill(request: Request) -> float:
    return 0.9 if "Better" in str(request.messages[0]) else 0.2


def improve(folder: Path, trials: int = 3) -> Report:
    """A run that chooses the better of two wordings by its rows of val."""
    space = {"nodes.sort.instructions": ["Better.", "Plain."]}
    return plant(folder, skill, {"random": {"trials": trials}}, calls=900, search=space)[0]


def test_a_run_of_optimize_is_compared_with_its_own_baseline_and_with_evals(tmp_path: Path) -> None:
    report = improve(tmp_path)
    database = ["--db", str(tmp_path / "run.db")]
    done = CliRunner().invoke(cli, ["compare", "last", "--json", *database])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)["compared"][0]
    assert report.proof is not None and found["diff"] == pytest.approx(report.proof.diff) and found["shown"] == "gain"
    named = CliRunner().invoke(
        cli, ["compare", f"{report.run}:baseline@val", f"{report.run}:{report.winner.hash[:8]}@val", *database]
    )
    assert named.exit_code == 0 and "2 against 1: +" in named.output, named.output
    assert named.output.count("chosen on these rows: no evidence") == 1 and "better\n" not in named.output
    missing = CliRunner().invoke(cli, ["compare", report.run, f"{report.run}:ffff", *database])
    assert "no candidate 'ffff'" in str(missing.exception)


def test_a_row_that_one_side_could_not_answer_is_left_out_and_counted(write: WriteFile, tmp_path: Path) -> None:
    def breaks(request: Request) -> str:
        if "w3" in str(request.messages[-1]["content"]).split():
            raise LMError("timeout", "late")
        return echo(request)

    database = tmp_path / "a.db"
    options = EvalOptions(split="all")
    evaluate(write(), options=options, database=database, pool=Script(echo))
    evaluate(write(), options=options, database=database, pool=Script(breaks))
    store = ReadOnlyStore(database)
    runs = [row["run"] for row in store.list_runs()]
    (found,) = compare_sides([read_side(store, run) for run in reversed(runs)])
    store.close()
    assert found.proof.n_excluded == 1 and found.proof.n_rows == 35


def test_a_run_without_a_result_is_not_compared_by_the_mean_of_its_candidates(tmp_path: Path) -> None:
    """As one that was killed: its rows are those of every candidate."""
    improve(tmp_path, trials=2)
    store = Store(tmp_path / "run.db")
    store.execute("update runs set report = null, checksum = null, status = 'running'")
    with pytest.raises(StoreError, match=r"\(optimize\) has no result yet; name a candidate of it"):
        read_side(store, "last@val")
    assert read_side(store, "last:baseline@val").rows
    store.close()


@pytest.mark.parametrize("change", ["score = 7", 'cost = \'{"tokens": "x"}\'', "cost = '{\"tokens\": null}'"])
def test_damaged_rows_end_in_a_message(write: WriteFile, tmp_path: Path, change: str) -> None:
    evaluate(write(), database=tmp_path / "a.db", pool=Script(echo))
    store = Store(tmp_path / "a.db")
    store.execute(f"update results set {change}, checksum = null")
    with pytest.raises(StoreError, match="table results.* is damaged"):
        read_side(store, "last")
    store.close()


# Rows by whose scores a side was chosen


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    """A run that chose a candidate by its rows of val."""
    folder = tmp_path_factory.mktemp("chosen")
    report = improve(folder)
    assert report.winner.hash != report.baseline["workflow"]
    return folder, report


def score(
    folder: Path, report: Report, split: str, better: bool = True, name: str = "w", data: dict[str, str] | None = None
) -> EvalReport:
    """Evaluate the winner, or the baseline, from a file of its own. data: of that file."""
    spec = yaml.safe_load((folder / "workflow.yaml").read_text())
    spec["data"] = data or spec["data"]
    del spec["search"]
    if better:
        spec["nodes"]["sort"]["instructions"] = report.winner.nodes["sort"]["instructions"]
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(spec))
    pool = PlantedLM(skill)
    return evaluate(folder / f"{name}.yaml", options=EvalOptions(split=split), database=folder / "run.db", pool=pool)


def compared(folder: Path, *names: str) -> Difference:
    store = ReadOnlyStore(folder / "run.db")
    try:
        return compare_sides([read_side(store, name) for name in names])[0]
    finally:
        store.close()


def test_a_candidate_on_the_rows_that_it_was_chosen_by_is_no_evidence(chosen: tuple[Path, Report]) -> None:
    folder, report = chosen
    found = compared(folder, f"{report.run}:baseline@val", f"{report.run}@val")
    assert found.proof.shown and not found.shown and not found.evidence
    assert found.chosen == found.proof.n_rows and found.chosen_in == report.run
    assert (found.as_dict()["shown"], found.as_dict()["evidence"]) == ("", False)
    sealed = compared(folder, f"{report.run}:baseline@test", f"{report.run}@test")
    assert sealed.evidence and sealed.shown == "gain" and sealed.chosen == 0


def test_the_choice_of_another_run_counts_and_rows_that_took_no_part_are_left(chosen: tuple[Path, Report]) -> None:
    """The winner in a file of its own is evaluated on the rows that the run chose it by."""
    folder, report = chosen
    val, plain = score(folder, report, "val"), score(folder, report, "val", better=False)
    assert val.workflow == report.winner.hash
    found = compared(folder, plain.run, val.run)
    assert not found.evidence and found.chosen_in == report.run
    both = [score(folder, report, "all", better) for better in (False, True)]
    found = compared(folder, both[0].run, both[1].run)
    assert found.evidence and found.shown == "gain" and found.chosen and found.proof.n_rows + found.chosen == both[0].n
    assert found.proof.n_rows >= report.test_rows
    shown = CliRunner().invoke(cli, ["compare", both[0].run, both[1].run, "--db", str(folder / "run.db")]).output
    assert f"{found.chosen} rows were val or train of run {report.run}" in shown and "they are left out" in shown


def test_rows_of_train_of_other_data_share_nothing(tmp_path: Path) -> None:
    """Of those that an optimizer looked at, no more than score and id are stored."""
    sides = [replace(side({f"{n}": 1.0}), data_hash=f"{n}") for n in range(2)]
    with pytest.raises(StoreError, match="share no rows: they are of different data"):
        compare_sides(sides)


def test_the_choice_counts_in_another_file_of_the_same_rows(chosen: tuple[Path, Report]) -> None:
    """With a column more, a sign more, and under another split."""
    folder, report = chosen
    rows = [json.loads(line) for line in (folder / "val.jsonl").read_text().splitlines()]
    changed = [{"number": n, **row, "text": f" {row['text']}!"} for n, row in enumerate(rows)]
    changed += [{**row, "text": f"Good day, my friends, {row['text']}"} for row in changed[:3]]  # each is left out
    fresh = [
        {"number": -n, "text": f"fresh {n} topic{n % 8}: a {LABELS[0]}-thing", "label": LABELS[0]} for n in range(12)
    ]
    (folder / "gate.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*changed, *fresh]))
    runs = [score(folder, report, "all", better, "g", {"test": "gate.jsonl"}) for better in (False, True)]
    found = compared(folder, *(run.run for run in runs))
    assert found.evidence and (found.chosen, found.proof.n_rows) == (len(changed), 12) and found.chosen_in == report.run


def test_rows_of_train_that_an_optimizer_saw_took_part_too(chosen: tuple[Path, Report]) -> None:
    """They are stored without a key: they are known by their id in the same data."""
    folder, report = chosen
    runs = [score(folder, report, "train", better).run for better in (False, True)]
    found = compared(folder, *runs)
    assert found.evidence and not found.chosen, "random search looks at no row of train"
    store = Store(folder / "run.db")
    seen = [row.example for row in read_side(store, runs[0]).rows.values()][:5]
    baseline = str(report.baseline["workflow"])  # its scores made demos of the winner, say
    scores = [(place, example, 1.0, None) for place, example in enumerate(seen)]
    number = store.find_run(report.run)["id"]

    async def write() -> None:
        Evaluations(store, number).add_train(baseline, 0, scores)

    asyncio.run(write())
    store.close()
    assert compared(folder, *runs).chosen == 5


def test_the_baseline_of_a_run_was_not_chosen_by_its_rows(chosen: tuple[Path, Report]) -> None:
    folder, report = chosen
    plain = score(folder, report, "val", better=False)
    found = compared(folder, plain.run, f"{report.run}:baseline@val")
    assert found.evidence and found.chosen == 0


def test_a_gate_on_rows_that_a_side_was_chosen_by_fails_and_says_why(chosen: tuple[Path, Report]) -> None:
    folder, report = chosen
    val = score(folder, report, "val")
    store = ReadOnlyStore(folder / "run.db")
    sides = read_side(store, f"{report.run}:baseline@val"), read_side(store, val.run)
    store.close()
    passed, found = not_worse(*sides, 0.9)
    assert not passed and found.proof.lowest > -0.9, "it would have passed"
    write_markdown([val], folder / "t.md", (passed, found))
    assert "chosen on these rows: no evidence" in (folder / "t.md").read_text()
    assert not_worse(*(replace(side, chosen={}) for side in sides), 0.9)[0]
    output = io.StringIO()
    with redirect_stdout(output):
        print_evaluation(val, (passed, found), as_json=False, quiet=False)
    assert "chosen on these rows: no evidence" in output.getvalue() and f"of run {report.run}" in output.getvalue()


def test_a_minimum_is_held_against_the_rows_that_no_run_chose_by(
    chosen: tuple[Path, Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, report = chosen
    runs = [score(folder, report, split).run for split in ("val", "all")]
    with ReadOnlyStore(folder / "run.db") as store:
        val, every = (read_side(store, run) for run in runs)
    passed, why = judge_score(val, 0.01)
    assert not passed and why.startswith(
        f"There is nothing to judge: all {len(val.rows)} rows were val or train of run"
    )
    fresh = [row.score for name, row in every.rows.items() if name not in every.chosen and row.score is not None]
    mean = sum(fresh) / len(fresh)
    assert 0 < len(every.chosen) < len(every.rows) and f"{mean:.3f}" != f"{every.score:.3f}"
    for least, word in ((mean - 0.001, "not below"), (mean + 0.001, "below")):
        passed, why = judge_score(every, least)
        assert passed == (word == "not below") and why.startswith(
            f"The score {mean:.3f} is {word} --min-score {least:g}."
        )
        assert f"{len(every.chosen)} rows were val or train of run {report.run}" in why and "left out" in why
    assert judge_score(replace(every, chosen={}), 0.01) == (True, "")
    asked = ["eval", str(folder / "w.yaml"), "--split", "val", "--min-score", "0.01", "--db", str(folder / "run.db")]
    monkeypatch.setattr("workbench.lm.pool.make_lm", PlantedLM(skill).get)
    gated = CliRunner().invoke(cli, asked)
    assert gated.exit_code == 100 and "There is nothing to judge" in gated.stderr


def test_a_matrix_with_a_cell_that_was_chosen_by_its_rows_says_so(chosen: tuple[Path, Report]) -> None:
    folder, report = chosen
    score(folder, report, "val")
    axis = parse_axis(f"nodes.sort.instructions=Plain.,{report.winner.nodes['sort']['instructions']}")
    options, pool = EvalOptions(split="val"), PlantedLM(skill)
    cells = evaluate_matrix(folder / "w.yaml", [axis], options=options, database=folder / "run.db", pool=pool)
    names = [cell.run for cell in cells]
    found = compared(folder, *names)
    assert not found.evidence and found.shown == ""
