"""How often sealed rows were tested before, by whatever run of the same database."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.mails import mails
from tests.helpers.planted import PlantedLM, plant

from workbench import BudgetSpent, Optimizer, Patch, Study, Workflow
from workbench.evaluation import EvalOptions, evaluate
from workbench.lm import Request
from workbench.proof import Report, level_after, paired_proof
from workbench.run import Options, estimate, optimize, prepare, resume

SPACE = {"nodes.sort.instructions": ["Plain.", "Better."], "nodes.sort.samples": [1, 2, 3]}


def better(request: Request) -> float:
    return 0.9 if "Better" in str(request.messages[0]) else 0.3


@pytest.mark.slow
def test_each_test_of_a_change_on_the_same_rows_is_a_look(tmp_path: Path) -> None:
    first, lm = plant(tmp_path, better, {"random": {"trials": 4}}, calls=600, search=SPACE)
    assert first.gain_shown and first.earlier_tests == [] and not warned(first)

    def again(*sets: tuple[str, Any]) -> Report:
        return optimize(
            tmp_path / "workflow.yaml",
            database=tmp_path / "run.db",
            pool=lm,
            options=Options(list(sets), str(tmp_path / "o.yaml")),
        )

    second = again(("seed", 1))
    assert second.changes and second.earlier_tests == [first.run]
    assert f"sealed rows once before (run {first.run})" in warned(second) and "p must be below 0.025" in warned(second)
    assert second.proof is not None and second.proof.alpha == 0.025
    third = again(("rounds", 2))
    assert third.earlier_tests == [first.run, second.run] == third.as_dict()[
        "looks"
    ] and "p must be below 0.0083" in warned(third)

    unchanged = again(("search", {"nodes.sort.instructions": ["Plain."]}))
    assert not unchanged.changes and unchanged.earlier_tests == [] and not warned(unchanged), "no gain, no claim"
    assert again(("seed", 2)).earlier_tests == [first.run, second.run, third.run], (
        "and a test of the baseline does not count"
    )

    def rewrite(change: Any) -> None:
        lines = [json.loads(line) for line in (tmp_path / "test.jsonl").read_text().splitlines()]
        (tmp_path / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in change(lines)))

    before = (tmp_path / "test.jsonl").read_text()
    for what, change in (
        ("one row fewer", lambda rows: rows[1:]),
        ("a field added", lambda rows: [{**row, "added": i} for i, row in enumerate(rows)]),
        ("another order", lambda rows: rows[::-1]),
        ("other spelling", lambda rows: [{**row, "text": row["text"].upper() + "!"} for row in rows]),
    ):
        (tmp_path / "test.jsonl").write_text(before)
        rewrite(change)
        assert len(again().earlier_tests) >= 3, what
    rewrite(lambda rows: [{"text": f"other {i} topic0 word0: a a-thing", "label": "a"} for i in range(40)])
    assert again().earlier_tests == [], "rows of its own"


def test_friction_19_an_eval_on_the_sealed_rows_is_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F8: three wordings are tried on test, and then one of them is optimized."""
    plant(tmp_path, better, {"random": {"trials": 1}}, calls=600, search=SPACE)
    lm = PlantedLM(better)
    monkeypatch.setattr("workbench.lm.pool.LMPool.get", lambda self, spec: lm)

    def score(split: str, *sets: tuple[str, str]) -> None:
        evaluate(tmp_path / "workflow.yaml", options=EvalOptions([*sets], split), database=tmp_path / "new.db")

    for wording in ("One.", "Two.", "Three."):
        score("test", ("nodes.sort.instructions", wording))
    score("test")  # of what is there: nothing chosen
    score("val", ("nodes.sort.instructions", "Four."))
    report = optimize(
        tmp_path / "workflow.yaml", database=tmp_path / "new.db", pool=lm, options=Options(out=str(tmp_path / "o.yaml"))
    )
    assert report.changes and len(report.earlier_tests) == 3
    assert report.proof is not None and report.proof.alpha == pytest.approx(0.05 / 12)


def test_choosing_a_model_on_the_sealed_rows_is_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Friction 19: the workflow is the same for each model, so its hash does not tell."""
    plant(tmp_path, better, {"random": {"trials": 1}}, calls=600, search=SPACE)
    lm = PlantedLM(better)
    monkeypatch.setattr("workbench.lm.pool.LMPool.get", lambda self, spec: lm)
    for model in ("openai/a", "openai/b", "openai/planted"):  # the last is that of the file
        options = EvalOptions([("lm.model", model)], "test")
        evaluate(tmp_path / "workflow.yaml", options=options, database=tmp_path / "new.db")
    report = optimize(
        tmp_path / "workflow.yaml", database=tmp_path / "new.db", pool=lm, options=Options(out=str(tmp_path / "o.yaml"))
    )
    assert len(report.earlier_tests) == 2


class Tries(Optimizer):
    """Tries these instructions one after the other, until the budget ends."""

    instructions: list[str]

    async def optimize(self, study: Study) -> Workflow:
        for text in self.instructions:
            await study.evaluate(study.workflow.patched(Patch({"nodes.sort.instructions": text})))
        raise BudgetSpent("calls", 1, 2)


def test_a_resumed_run_looks_again_only_if_it_tests_another_winner(tmp_path: Path) -> None:
    plant(tmp_path, better, {"random": {"trials": 1}}, calls=900)
    lm = PlantedLM(lambda r: 0.95 if "Best" in str(r.messages[0]) else better(r))
    database, options, seen = tmp_path / "two.db", Options(out=str(tmp_path / "o.yaml")), []
    for texts in (["Better."], ["Better."], ["Better.", "Best."]):
        tries = [("tries", Tries(instructions=texts))]
        report = (
            resume("last", database=database, pool=lm, options=options, optimizers=tries)
            if seen
            else optimize(tmp_path / "workflow.yaml", database=database, pool=lm, options=options, optimizers=tries)
        )
        assert report.status == "budget"
        seen.append((report.winner.get("nodes.sort.instructions"), report.earlier_tests))
    assert seen == [("Better.", []), ("Better.", []), ("Best.", [report.run])]


@pytest.mark.parametrize(("wins", "looks", "shown"), [(6, 0, True), (6, 2, False), (12, 2, True), (3, 0, False)])
def test_a_gain_must_hold_over_all_looks(wins: int, looks: int, shown: bool) -> None:
    """P6: --require-gain asks the same question as the report answers."""
    alpha = level_after(["a1b2"] * looks)
    proof = paired_proof([0.0] * 40, [1.0] * wins + [0.0] * (40 - wins), alpha=alpha)
    assert proof.shown is shown


def test_a_test_that_grows_by_resumes_is_a_look_each_time(tmp_path: Path) -> None:
    """A budget that allows a part of the test, then more: whoever stops when a gain shows has looked each time."""
    plant(tmp_path, better, {"random": {"trials": 1}}, calls=900)
    lm = PlantedLM(better)
    database, seen = tmp_path / "two.db", list[tuple[int, int]]()
    for calls in (100, 115, 115, 300):
        tries = [("tries", Tries(instructions=["Better."]))]
        options = Options([("budget.calls", calls)], str(tmp_path / "o.yaml"), allow_unproved=True)
        report = (
            resume("last", database=database, pool=lm, options=options, optimizers=tries)
            if seen
            else optimize(tmp_path / "workflow.yaml", database=database, pool=lm, options=options, optimizers=tries)
        )
        seen.append((report.test_rows, len(report.earlier_tests)))
    rows = [n for n, _ in seen]
    assert 0 < rows[0] < rows[1] == rows[2] < rows[3] == 40, rows
    assert [looks for _, looks in seen] == [0, 1, 1, 2]


def warned(report: Report) -> str:
    return "".join(w for w in report.warnings if "scored on these sealed rows" in w)


LONG = "{} wrote about topic1 word1 since the thing that was ordered last week has not come yet: a {}-thing"


def rows_of_words(label: str = "abcd", count: int = 40) -> list[dict[str, Any]]:
    """Rows that differ in more than a word."""
    names = [
        f"{a}{b}" for a in ("anna", "ben", "cleo", "dora", "emil") for b in ("x", "y", "z", "u", "v", "w", "s", "t")
    ]
    parts = ("in the morning", "before noon", "at night", "on a sunday")
    made = [f"{n} {parts[i % 4]} {n[::-1]} {names[i - 7]}" for i, n in enumerate(names[:count])]
    return [{"text": LONG.format(text, label[i % 4]), "label": label[i % 4]} for i, text in enumerate(made)]


def write_rows(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def run_on(folder: Path, lm: PlantedLM, *sets: tuple[str, Any]) -> Report:
    options = Options(list(sets), str(folder / "o.yaml"), allow_unproved=True)
    return optimize(folder / "workflow.yaml", database=folder / "run.db", pool=lm, options=options)


EDITS = {
    "another word": lambda text: text.replace("ordered", "bought"),
    "one more": lambda text: "please " + text,
    "a hidden character": lambda text: text.replace("thing that", "th\u200bing that"),
    "a letter of another script": lambda text: text.replace("ordered", "оrdered"),
}


def test_an_edit_of_the_rows_does_not_wipe_the_record_of_their_tests(tmp_path: Path, subtests: pytest.Subtests) -> None:
    _, lm = plant(tmp_path, better, {"random": {"trials": 4}}, calls=600, search=SPACE)
    write_rows(tmp_path, "test", rows_of_words())
    first = run_on(tmp_path, lm)
    assert first.changes and first.earlier_tests == []
    for name, edit in EDITS.items():
        with subtests.test(name):
            folder = tmp_path / name
            shutil.copytree(tmp_path, folder, ignore=lambda *_: ["o.yaml", *EDITS])
            write_rows(folder, "test", [{**row, "text": edit(row["text"])} for row in rows_of_words()])
            assert run_on(folder, lm, ("seed", 1)).earlier_tests == [first.run]


def test_another_input_field_does_not_wipe_it_either(tmp_path: Path) -> None:
    _, lm = plant(tmp_path, better, {"random": {"trials": 4}}, calls=600, search=SPACE)
    write_rows(tmp_path, "test", rows_of_words())
    first = run_on(tmp_path, lm)
    for name in ("train", "val", "test"):
        rows = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        write_rows(tmp_path, name, [{"lang": "en", **row} for row in rows])
    labels = "label: Literal['a', 'b', 'c', 'd']"
    node = {"predict": f"lang, text -> {labels}", "instructions": "Plain."}
    assert run_on(tmp_path, lm, ("nodes.sort", node), ("seed", 1)).earlier_tests == [first.run]


def test_each_candidate_scored_on_rows_that_were_val_is_a_look(tmp_path: Path) -> None:
    """evidence, finding 4: best of 60 on val, then the same rows as test: 25% false claims, and no look."""
    space = {"nodes.sort.instructions": ["Plain.", *(f"Other {i}." for i in range(5)), "Better."]}
    _, lm = plant(tmp_path, better, {"random": {"trials": 1}}, calls=600, search=space)
    kept = {name: (tmp_path / f"{name}.jsonl").read_text() for name in ("val", "test")}
    (tmp_path / "run.db").unlink()
    write_rows(tmp_path, "val", rows_of_words())
    search = run_on(tmp_path, lm, ("optimize", [{"random": {"trials": 7}}]), ("budget.calls", 2000))
    scored = search.candidates - 1
    assert scored >= 2
    write_rows(tmp_path, "test", [{**row, "text": row["text"] + "!"} for row in rows_of_words()])
    (tmp_path / "val.jsonl").write_text(kept["val"])
    only = ("search", {"nodes.sort.instructions": ["Plain.", "Better."]})
    report = run_on(tmp_path, lm, only, ("optimize", [{"random": {"trials": 3}}]))
    assert report.changes and report.earlier_tests == [search.run] * scored
    assert report.proof is not None and report.proof.alpha == pytest.approx(0.05 / (scored * (scored + 1)))


def test_an_eval_on_val_is_a_look_once_these_rows_are_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, lm = plant(tmp_path, better, {"random": {"trials": 4}}, calls=600, search=SPACE)
    (tmp_path / "run.db").unlink()
    monkeypatch.setattr("workbench.lm.pool.LMPool.get", lambda self, spec: lm)
    swapped = ("data", {"train": "train.jsonl", "val": "test.jsonl", "test": "val.jsonl"})
    for wording in ("One.", "Two.", "Plain."):
        sets = [swapped, ("nodes.sort.instructions", wording)]
        evaluate(tmp_path / "workflow.yaml", options=EvalOptions(sets, "val"), database=tmp_path / "run.db")
    report = run_on(tmp_path, lm)
    assert report.changes and len(report.earlier_tests) == 2, "the file's own wording chose nothing"


def test_a_branch_from_a_candidate_that_was_tested_on_these_rows_counts_its_test(tmp_path: Path) -> None:
    """evidence, finding 6: a score that was seen is not random any more."""
    from workbench.run import branch_run
    from workbench.store import Store

    first, lm = plant(tmp_path, better, {"random": {"trials": 4}}, calls=600, search=SPACE)
    assert first.changes
    store = Store(tmp_path / "run.db")
    best = {"nodes.sort.instructions": ["Better.", "Better Best."]}
    name = branch_run(store, first.run, None, [("search", best), ("seed", 5)])
    store.close()
    lm.skill = lambda r: 0.99 if "Best" in str(r.messages[0]) else better(r)
    options = Options(out=str(tmp_path / "b.yaml"), allow_unproved=True)
    report = resume(name, database=tmp_path / "run.db", pool=lm, options=options)
    assert report.changes and report.earlier_tests == [first.run]


def test_the_levels_of_all_later_tests_add_up_to_that_of_the_first() -> None:
    levels = [level_after(["run"] * k) for k in range(2000)]
    assert levels[0] == 0.05 and levels[1] == 0.025 and levels == sorted(levels, reverse=True)
    assert sum(levels[1:]) == pytest.approx(0.05, rel=1e-3) and sum(levels[1:]) <= 0.05


def test_train_rows_of_another_question_on_a_passage_are_no_looks(tmp_path: Path) -> None:
    """Optimizers score train rows a few at a time, which do not show by themselves that all share the passage."""
    passage = " ".join(f"clause {w} of the contract" for w in "abcdefghij")
    rows = [{"context": passage, "question": f"who pays {n}: a {'abcd'[i % 4]}-thing", "label": "abcd"[i % 4]}
            for i, n in enumerate(f"{a}{b}{c}" for a in "xyz" for b in "klmnop" for c in "rstu")]  # fmt: skip
    plant(tmp_path, better, {"random": {"trials": 1}}, calls=600, search=SPACE)
    (tmp_path / "run.db").unlink()
    node = {"predict": "context, question -> label: Literal['a', 'b', 'c', 'd']", "instructions": "Plain."}

    class Batches(Optimizer):
        async def optimize(self, study: Study) -> Workflow:
            for i in range(0, 12, 2):
                made = study.workflow.patched(Patch({"nodes.sort.instructions": f"Try {i}."}))
                await study.evaluate(made, study.train[i : i + 2])
            return study.best

    lm, sets = PlantedLM(better), [("nodes.sort", node), ("search", {"nodes.sort.instructions": ["Plain.", "Better."]})]
    for name, part in (("train", rows[:24]), ("val", rows[24:40]), ("test", rows[40:])):
        write_rows(tmp_path, name, part)
    options = Options(sets, str(tmp_path / "o.yaml"), allow_unproved=True)
    optimize(tmp_path / "workflow.yaml", database=tmp_path / "run.db", pool=lm, options=options,
             optimizers=[("batches", Batches())])  # fmt: skip
    assert run_on(tmp_path, lm, *sets, ("optimize", [{"random": {"trials": 3}}])).earlier_tests == []


@pytest.mark.slow
def test_evals_on_val_are_no_tests_of_other_mails_with_a_body_of_theirs_new_user_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path, better, {"random": {"trials": 2}}, calls=1500, search=SPACE)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in mails(200)))
    spec = yaml.safe_load((tmp_path / "workflow.yaml").read_text())
    spec["data"] = {"file": "rows.jsonl", "split": {"train": 60, "val": 60, "test": 80}}
    spec["nodes"]["sort"]["predict"] = "Subject, Body -> label"
    (tmp_path / "workflow.yaml").write_text(yaml.safe_dump(spec))
    lm = PlantedLM(better)
    monkeypatch.setattr("workbench.lm.pool.LMPool.get", lambda self, spec: lm)
    for number in range(10):
        options = EvalOptions([("nodes.sort.instructions", f"wording {number}")])
        evaluate(tmp_path / "workflow.yaml", options=options, database=tmp_path / "new.db")

    def lines() -> list[str]:
        task, optimizers = prepare(tmp_path / "workflow.yaml")[2:4]
        return [line for line in estimate(task, optimizers, tmp_path / "new.db")["lines"] if "p must" in line]

    assert lines() == []
    report = optimize(
        tmp_path / "workflow.yaml", database=tmp_path / "new.db", pool=lm, options=Options(out=str(tmp_path / "o.yaml"))
    )
    assert report.earlier_tests == [], "no sealed row was scored before"
    evaluate(
        tmp_path / "workflow.yaml",
        options=EvalOptions([("nodes.sort.instructions", "tried")], "test"),
        database=tmp_path / "other.db",
    )
    again = optimize(
        tmp_path / "workflow.yaml",
        database=tmp_path / "other.db",
        pool=lm,
        options=Options(out=str(tmp_path / "p.yaml")),
    )
    assert len(again.earlier_tests) == 1, "this one was"
