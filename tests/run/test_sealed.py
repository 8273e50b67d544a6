"""The seal of the test rows, and what becomes of a winner that is not proved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.helpers.planted import PlantedLM, Skill, plant

import workbench.task.dataset as dataset
from workbench import Optimizer, Patch, Study, Workflow
from workbench.cli import cli
from workbench.errors import SealBroken, StoreError
from workbench.lm import Request
from workbench.proof import Report, paired_proof
from workbench.run import Options, optimize, resume
from workbench.task import Example


def test_sealed_rows_open_before_and_after_a_search_and_not_during_one() -> None:
    rows = dataset.SealedRows([Example("1", {"text": "sealed text", "nested": {"a": [1]}})])
    assert len(rows) == 1 and rows.open()[0].fields == {"text": "sealed text", "nested": {"a": [1]}}
    with rows.sealed():
        assert len(rows) == 1
        with rows.sealed(), pytest.raises(SealBroken, match="before the search had ended"):
            rows.open()
        with pytest.raises(SealBroken):
            rows.open()
    assert rows.open() == rows.open() and not any("sealed text" in str(v) for v in vars(rows).values())


class Peeks(Optimizer):
    """Looks for the test rows in optimize or in ready."""

    when: str = "optimize"

    async def ready(self, study: Study) -> None:
        self.look(study, "ready")

    async def optimize(self, study: Study) -> Workflow:
        self.look(study, "optimize")
        return study.best

    def look(self, study: Study, when: str) -> None:
        if when == self.when:
            study.ledger.on_call.__self__.task.dataset.test.open()  # type: ignore[union-attr]


@pytest.mark.parametrize("when", ["ready", "optimize"])
def test_an_optimizer_that_breaks_the_seal_ends_its_run(when: str, tmp_path: Path) -> None:
    """P4."""
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=400)
    report = optimize(
        tmp_path / "workflow.yaml",
        database=tmp_path / "two.db",
        pool=PlantedLM(lambda r: 0.5),
        optimizers=[("peeks", Peeks(when=when))],
        options=Options(out=str(tmp_path / "o.yaml")),
    )
    assert report.status == "failed" and "sealed test rows were asked for" in (report.error or "")


class Offers(Optimizer):
    """Offers one candidate."""

    text: str

    async def optimize(self, study: Study) -> Workflow:
        await study.evaluate(study.workflow.patched(Patch({"nodes.sort.instructions": self.text})))
        return study.best


def lucky(test: float) -> Any:
    """A candidate that looks better on val than it is on test: 0.5 there, and this much on test."""

    def skill(request: Request) -> float:
        text = str(request.messages[-1]["content"])
        if "Lucky" in str(request.messages[0]):
            return test if "test" in text else 0.97
        return 0.5

    return skill


def run(folder: Path, skill: Any, name: str, **options: Any) -> Report:
    if not (folder / "workflow.yaml").exists():
        plant(folder, lambda r: 0.5, {"random": {"trials": 1}}, calls=600)
    return optimize(
        folder / "workflow.yaml",
        database=folder / f"{name}.db",
        pool=PlantedLM(skill),
        optimizers=[("offers", Offers(text="Lucky."))],
        options=Options(out=str(folder / f"{name}.yaml"), **options),
    )


def instructions(path: Path | str | None) -> str:
    assert path is not None
    return yaml.safe_load(Path(path).read_text())["nodes"]["sort"]["instructions"]


def test_what_is_not_proved_goes_beside_the_result(tmp_path: Path) -> None:
    """P8. The winner on val is no better on test: the result keeps the baseline, and says how to take the candidate."""
    start = instructions(run(tmp_path, lambda r: 0.5, "start").workflow)
    report = run(tmp_path, lucky(0.5), "o")
    assert report.changes and not report.proved and not report.loss_shown
    assert (
        instructions(report.workflow) == start
        and "This file keeps the baseline." in Path(report.workflow or "").read_text()
    )
    assert report.unproved == str(tmp_path / "o.unproved.yaml") == report.as_dict()["unproved"]
    assert (
        instructions(report.unproved) == "Lucky." and "The gain is not shown" in Path(report.unproved or "").read_text()
    )
    assert any("keeps the baseline" in line for line in report.lines())
    assert any(f"workbench resume {report.run} --keep-unproved" in line for line in report.lines())

    again = resume(
        report.run,
        database=tmp_path / "o.db",
        pool=PlantedLM(lucky(0.5)),
        optimizers=[("offers", Offers(text="Lucky."))],
        options=Options(keep_unproved=True),
    )
    assert again.spent["calls"] == report.spent["calls"], "nothing is paid again"
    assert instructions(again.workflow) == "Lucky." and again.unproved is None
    assert any("which contains the unproved changes" in line for line in again.lines())


def test_what_is_proved_is_the_result(tmp_path: Path) -> None:
    report = run(tmp_path, lucky(0.97), "o")
    assert report.proved and instructions(report.workflow) == "Lucky." and report.unproved is None
    assert not (tmp_path / "o.unproved.yaml").exists()


def test_a_loss_that_is_shown_is_said_and_offered_to_nobody(tmp_path: Path) -> None:
    report = run(tmp_path, lucky(0.03), "o")
    assert report.loss_shown and "The candidate that was best on val is WORSE on sealed data." in report.headline()
    assert instructions(report.workflow) != "Lucky." and report.unproved is None
    kept = run(tmp_path, lucky(0.03), "kept", keep_unproved=True)
    assert kept.loss_shown and instructions(kept.workflow) == "Lucky.", "who asks for it gets it"
    small = run(tmp_path, lucky(0.45), "small")
    assert not small.loss_shown and not any("WORSE" in line for line in small.headline())


def test_require_gain_asks_what_the_report_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(
        tmp_path,
        lambda r: 0.5,
        {"random": {"trials": 3}},
        calls=900,
        search={"nodes.sort.instructions": ["Plain.", "Lucky."]},
    )
    lm = PlantedLM(lucky(0.97))
    monkeypatch.setattr("workbench.lm.pool.LMPool.get", lambda self, spec: lm)
    words = [
        "optimize",
        str(tmp_path / "workflow.yaml"),
        "--db",
        str(tmp_path / "n.db"),
        "--out",
        str(tmp_path / "n.yaml"),
        "--require-gain",
        "--json",
    ]
    first = CliRunner().invoke(cli, words)
    assert first.exit_code == 0 and json.loads(first.stdout.splitlines()[-1])["gain"]["shown"]
    lm.skill = lucky(0.5)
    second = CliRunner().invoke(cli, [*words, "--seed", "4"])
    assert second.exit_code == 100 and not json.loads(second.stdout.splitlines()[-1])["gain"]["shown"]


def test_a_pick_by_cost_is_taken_if_its_saving_is_proved(tmp_path: Path) -> None:
    """P8: costs that decide a pick are proved too, and that the score is not much lower."""
    long = "Label it. " + "Take all the time that you need. " * 20
    plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=900, rows=(40, 24, 80))
    file = tmp_path / "workflow.yaml"
    spec = json.loads(file.read_text())
    spec["nodes"]["sort"]["instructions"] = long
    spec |= {"objectives": ["score", "tokens"], "pick": "cheapest"}
    file.write_text(json.dumps(spec))

    def by_row(request: Request) -> float:
        """Right or wrong whatever the instructions say."""
        return float("topic0" not in str(request.messages[-1]["content"]))

    def run_with(text: str, name: str, skill: Skill = by_row) -> Report:
        return optimize(
            file,
            database=tmp_path / f"{name}.db",
            pool=PlantedLM(skill),
            optimizers=[("offers", Offers(text=text))],
            options=Options(out=str(tmp_path / f"{name}.yaml")),
        )

    cheap = run_with("Short.", "cheap")
    assert cheap.saving is not None and cheap.saving.of == "tokens" and cheap.saving.diff < 0
    assert cheap.is_shown(cheap.saving) and cheap.proved and not cheap.gain_shown
    assert instructions(cheap.workflow).startswith("Short")
    assert any(
        "picked by score and cost. Its tokens are " in line and "; the saving is shown." in line
        for line in cheap.headline()
    )
    assert cheap.as_dict()["saving"]["shown"] is True
    worse = replace(cheap, claims=[paired_proof([1.0] * 40, [0.0] * 40), cheap.saving])
    assert worse.loss_shown and not worse.is_shown(worse.saving) and not worse.proved, "cheaper and worse is no saving"
    small = replace(cheap, claims=[paired_proof([1.0] * 4000, [0.0] * 40 + [1.0] * 3960), cheap.saving])
    assert small.proof is not None and small.proof.loss_bounded
    assert small.loss_shown and not small.is_shown(small.saving), "a small loss is one, too"

    runs = (run_with(f"Short {i}.", f"noisy{i}", lambda r: 0.75) for i in range(9))
    noisy = next(report for report in runs if report.changes and report.saving is not None and report.saving.shown)
    assert not noisy.loss_shown and not noisy.is_shown(noisy.saving) and not noisy.proved, (
        "nothing rules out a large loss"
    )
    assert any("It is cheaper, but its score may be lower by 0." in line for line in noisy.headline())
    assert instructions(noisy.workflow) == long


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_run_is_not_resumed_on_other_data(split: str, tmp_path: Path) -> None:
    """P9: no test asked for this."""
    _, lm = plant(tmp_path, lambda r: 0.5, {"random": {"trials": 1}}, calls=400)
    resume("last", database=tmp_path / "run.db", pool=lm)
    file = tmp_path / f"{split}.jsonl"
    file.write_text(file.read_text().replace("topic", "subject", 1))
    with pytest.raises(StoreError, match="data of run .* have changed since it started"):
        resume("last", database=tmp_path / "run.db", pool=lm)
