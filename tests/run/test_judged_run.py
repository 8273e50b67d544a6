"""A run whose metric is a judge: it proves nothing before people's labels are there, and then at no further cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from tests.run.test_judge_and_minutes import Saying, judging, write

from workbench import Optimizer, Patch, Study, Workflow
from workbench.evaluation import read_side
from workbench.lm import Request
from workbench.proof import Report, answer_key
from workbench.run import Options, optimize, prepare, resume
from workbench.store import Store


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


def label(folder: Path, report: Report, better: float, rows: int = 40) -> None:
    """People score `plain` with 0.5 and `better` with this."""
    lines = [
        {"row": row, "answer": answer_key({"label": answer}, "label"), **more}
        for row in ids(folder, report)[:rows]
        for answer, more in (
            ("plain", {"by": "ann", "score": 0.5}),
            ("better", {"by": "ann", "score": better}),
        )
    ]
    (folder / "labels.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def ids(folder: Path, report: Report) -> list[str]:
    store = Store(folder / "r.db")
    try:
        return [row.example for row in read_side(store, f"{report.run}:winner@test").rows.values()]
    finally:
        store.close()


def test_a_judge_decides_once_people_agree_and_nothing_is_paid_again(tmp_path: Path) -> None:
    first = run(tmp_path, labels="labels.jsonl")
    assert not first.gain_shown and first.judge is not None and first.judge.ci95[0] > 0
    assert "opinion of a judge" in "\n".join(first.lines()) and not first.proved
    kept = yaml.safe_load((tmp_path / "o.yaml").read_text())
    assert "instructions" not in kept["nodes"]["s"] and kept["proof"]["labels"] == "labels.jsonl"
    assert (tmp_path / "o.unproved.yaml").exists()

    label(tmp_path, first, better=0.8, rows=32)
    second, lm = again(tmp_path)
    assert second.gain_shown and second.proved and lm.requests == 0
    assert second.proof is not None and abs(second.proof.diff - 0.3) < 1e-9 and "PPI++" in second.proof.test
    assert second.as_dict()["judge"]["calibrated"]
    assert yaml.safe_load((tmp_path / "o.yaml").read_text())["nodes"]["s"]["instructions"] == "v2"


def test_people_who_see_no_gain_overrule_the_judge(tmp_path: Path) -> None:
    first = run(tmp_path, labels="labels.jsonl")
    label(tmp_path, first, better=0.5)
    second, _ = again(tmp_path)
    assert not second.gain_shown and second.judge is not None and second.judge.calibrated
    label(tmp_path, first, better=0.8, rows=29)
    third, _ = again(tmp_path)
    assert not third.gain_shown and third.judge is not None and third.judge.labelled == 29


def test_a_broken_file_of_labels_loses_no_report(tmp_path: Path) -> None:
    run(tmp_path, labels="labels.jsonl")
    (tmp_path / "labels.jsonl").write_text("nothing\n{}\n")
    found, lm = again(tmp_path)
    assert found.status == "finished" and not found.gain_shown and lm.requests == 0
    assert any("the labels are not used" in warning and "line 1" in str(warning) for warning in found.warnings)


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
