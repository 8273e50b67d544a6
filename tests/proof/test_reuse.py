"""How often sealed rows were tested before, by whatever run of the same database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, plant

from workbench import BudgetSpent, Optimizer, Patch, Study, Workflow
from workbench.lm import Request
from workbench.proof import Report, level_after, paired_proof
from workbench.run import Options, optimize, resume

SPACE = {"nodes.sort.instructions": ["Plain.", "Better."], "nodes.sort.samples": [1, 2, 3]}


def better(request: Request) -> float:
    return 0.9 if "Better" in str(request.messages[0]) else 0.3


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
    assert f"tested once before (run {first.run})" in warned(second) and "p must be below 0.025" in warned(second)
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
    from workbench.evaluation import EvalOptions, evaluate

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
    from workbench.evaluation import EvalOptions, evaluate

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
    return "".join(w for w in report.warnings if "sealed rows were tested" in w)
