"""A run whose metric is a judge: it proves nothing before people's labels are there, and then at no further cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.run.test_judge_and_minutes import Saying, judging, write

from workbench import Optimizer, Patch, Study, Workflow
from workbench.lm import Request
from workbench.proof import Report, level_after
from workbench.run import Options, optimize, prepare, resume
from workbench.store import ReadOnlyStore
from workbench_kit.labels import answer_key, order_items, run_answers


class Once(Optimizer):
    """Tries one other wording."""

    async def optimize(self, study: Study) -> Workflow:
        await study.evaluate(study.workflow.patched(Patch({"nodes.s.instructions": "v2"})))
        return study.best


def say(request: Request) -> str:
    """A simulated judge who likes what is better, on some rows more than on others."""
    if judging(request):
        return "fine\nscore: " + ("9" if "better" in str(request.messages) else "4" if "7" in str(request) else "5")
    return "better" if "v2" in str(request.messages) else "plain"


def run(folder: Path, **proof: Any) -> Report:
    file = write(folder, test=40, proof=proof, budget={"calls": 600})
    return optimize(
        file,
        database=folder / "r.db",
        pool=Saying(say),
        optimizers=[("once", Once())],
        options=Options(out=str(folder / "o.yaml"), allow_unproved=True),
    )


def again(folder: Path) -> tuple[Report, Saying]:
    lm = Saying(say)
    options = Options(out=str(folder / "o.yaml"))
    return resume("last", database=folder / "r.db", pool=lm, optimizers=[("once", Once())], options=options), lm


def label(folder: Path, better: float, rows: int = 40) -> None:
    """People score `plain` with 0.5 and `better` with this, in the order of `workbench label`."""
    lines = [
        {"row": row, "answer": answer_key({"label": answer}, "label"), **more}
        for row in drawn(folder)[:rows]
        for answer, more in (
            ("plain", {"by": "ann", "score": 0.5}),
            ("better", {"by": "ann", "score": better}),
        )
    ]
    (folder / "labels.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def drawn(folder: Path) -> list[str]:
    """The sealed rows in the order in which they are labelled."""
    store = ReadOnlyStore(str(folder / "r.db"))
    try:
        items = order_items([(one.cluster, one.item) for one in run_answers(store, "last").answers])
        return [*dict.fromkeys(item.row for item in items)]
    finally:
        store.close()


def test_a_judge_decides_once_people_agree_and_nothing_is_paid_again(tmp_path: Path) -> None:
    first = run(tmp_path, labels="labels.jsonl")
    assert not first.gain_shown and first.judge is not None and first.judge.ci95[0] > 0
    assert "opinion of a judge" in "\n".join(first.lines()) and not first.proved
    kept = yaml.safe_load((tmp_path / "o.yaml").read_text())
    assert "instructions" not in kept["nodes"]["s"] and kept["proof"]["labels"] == "labels.jsonl"
    assert (tmp_path / "o.unproved.yaml").exists()

    label(tmp_path, better=0.8, rows=32)
    second, lm = again(tmp_path)
    assert second.gain_shown and second.proved and lm.requests == 0
    assert second.proof is not None and abs(second.proof.diff - 0.3) < 1e-9 and "PPI++" in second.proof.test
    assert second.as_dict()["judge"]["calibrated"]
    assert yaml.safe_load((tmp_path / "o.yaml").read_text())["nodes"]["s"]["instructions"] == "v2"


def test_people_who_see_no_gain_overrule_the_judge(tmp_path: Path) -> None:
    run(tmp_path, labels="labels.jsonl")
    label(tmp_path, better=0.5)
    second, _ = again(tmp_path)
    assert not second.gain_shown and second.judge is not None and second.judge.shown
    label(tmp_path, better=0.8, rows=29)
    third, _ = again(tmp_path)
    assert not third.gain_shown and third.judge is not None and third.judge.n == 29


@pytest.mark.slow
def test_each_report_with_other_labels_is_a_further_test_and_the_same_labels_are_none(tmp_path: Path) -> None:
    run(tmp_path, labels="labels.jsonl")
    levels: list[float] = []
    for rows in (29, 30, 30, 35, 32, 30):
        label(tmp_path, better=0.8, rows=rows)
        report, _ = again(tmp_path)
        assert report.proof is not None and report.judge is not None
        levels.append(report.proof.alpha)
    first, second, third = (level_after(["labels"] * looks) for looks in range(3))
    assert levels == [first, first, first, second, third, first]
    assert report.judge.more["looks"] == 0
    label(tmp_path, better=0.8, rows=35)
    assert "looked at once before" in "\n".join(again(tmp_path)[0].lines())


def test_labels_without_those_that_speak_against_the_winner_show_nothing(tmp_path: Path) -> None:
    run(tmp_path, labels="labels.jsonl")
    label(tmp_path, better=0.8)
    lines = (tmp_path / "labels.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "labels.jsonl").write_text("".join(line for i, line in enumerate(lines) if i // 2 % 7 != 5))
    report, _ = again(tmp_path)
    assert not report.gain_shown and report.judge is not None and report.judge.n == 5
    assert f"row {drawn(tmp_path)[5]}, drawn before them, has none" in "\n".join(report.lines())


def test_a_broken_file_of_labels_loses_no_report(tmp_path: Path) -> None:
    run(tmp_path, labels="labels.jsonl")
    (tmp_path / "labels.jsonl").write_text("nothing\n{}\n")
    found, lm = again(tmp_path)
    assert found.status == "finished" and not found.gain_shown and lm.requests == 0
    assert any("the labels are not used" in warning and "line 1" in str(warning) for warning in found.warnings)


def test_without_a_plugin_that_corrects_it_a_judge_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.proof.claims.claim_sources", list)
    run(tmp_path, labels="labels.jsonl")
    label(tmp_path, better=0.8)
    found, _ = again(tmp_path)
    assert not found.gain_shown and not found.proved and not found.as_dict()["judge"]["calibrated"]
    told = "\n".join(found.lines())
    assert "opinion of a judge, on 40 sealed test rows" in told and "It comes with workbench-watch: pip install" in told


def test_a_judge_without_labels_is_told_before_anything_is_paid(tmp_path: Path) -> None:
    warned = [prepare(write(tmp_path, **more))[2].dataset.warnings for more in ({}, {"proof": {"labels": "l.jsonl"}})]
    assert ["proves no gain" in "".join(told) for told in warned] == [True, False]


def test_the_path_of_labels_moves_with_the_file(tmp_path: Path) -> None:
    write(tmp_path, test=40, proof={"labels": "labels.jsonl"}, budget={"calls": 600})
    options = Options(out=str(tmp_path / "deeper" / "o.yaml"), allow_unproved=True)
    optimize(
        tmp_path / "w.yaml", database=tmp_path / "r.db", pool=Saying(say), optimizers=[("o", Once())], options=options
    )
    assert yaml.safe_load((tmp_path / "deeper" / "o.yaml").read_text())["proof"]["labels"] == "../labels.jsonl"
