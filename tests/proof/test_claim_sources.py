"""Claims that a plugin makes on the sealed rows of a run (hook `register_claims`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import plant

import workbench
from workbench.errors import PluginError, SpecError
from workbench.plugins import Plugins
from workbench.plugins.manager import _entries
from workbench.proof import Claim, ClaimSource, Evidence, Kind, Report
from workbench.run import Options, estimate, optimize, prepare
from workbench.study import Perturbation
from workbench.task import Example, Task
from workbench.workflow import Workflow

GUARD = Kind(lambda claim, shown, why: [], proves=False, guards=True)


class Short(ClaimSource):
    """Claims that the winner failed on no row."""

    def find(self, tested: Evidence) -> Sequence[Claim]:
        failed = sum(winner.failure is not None for _, winner in tested.pairs)
        return [Claim("answered", n=len(tested.pairs), winner=1.0 - failed, shown=failed == 0, margin=0.1)]


class Strict(ClaimSource):
    def find(self, tested: Evidence) -> Sequence[Claim]:
        return [Claim("rules", GUARD, n=len(tested.pairs), why_not="the rules of the house are broken")]


class Wordless(ClaimSource):
    """A guard that does not say why."""

    def find(self, tested: Evidence) -> Sequence[Claim]:
        return [Claim("rules", GUARD, n=len(tested.pairs))]


class Failing(ClaimSource):
    """A guard that cannot be tested."""

    guards = True

    def find(self, tested: Evidence) -> Sequence[Claim]:
        raise OSError("no such file")


class Broken(ClaimSource):
    def find(self, tested: Evidence) -> Sequence[Claim]:
        raise ZeroDivisionError("by hand")


class Proud(ClaimSource):
    def find(self, tested: Evidence) -> Sequence[Claim]:
        return [Claim("gain", n=len(tested.pairs), diff=1.0, ci95=(0.9, 1.0), shown=True)]


class Shout(Perturbation):
    def change_row(self, workflow: Workflow, row: Example) -> Example:
        return Example(row.id, {**row.fields, "text": f"LOUD {row['text']}"})


class Loud(ClaimSource):
    """Counts the runs of rows in capital letters, on both sides."""

    def perturbations(self, task: Task) -> Mapping[str, Perturbation]:
        return {"shout": Shout()}

    def find(self, tested: Evidence) -> Sequence[Claim]:
        sides = [result for pair in tested.pairs for result in pair if result.score is not None]
        loud = [one for result in sides if (one := result.perturbed["calm.shout"]).example["text"][:4] == "LOUD"]
        assert not any(result.example["text"].startswith("LOUD") for result in sides)
        return [Claim("loud", n=sum(one.score is not None for one in loud), shown=True)]


class Picky(ClaimSource):
    def check(self, task: Task) -> None:
        raise SpecError("the file names no rules of the house", path=("nodes",))

    def find(self, tested: Evidence) -> Sequence[Claim]:
        return []


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, better: float, **sources: type[ClaimSource] | str) -> Report:
    class Stranger:
        @workbench.hookimpl
        def register_claims(self, register: Any) -> None:
            for name, source in sources.items():
                register(name, source)

    known = Plugins(_entries(), extra=[("stranger", Stranger())])
    monkeypatch.setattr("workbench.proof.evidence.plugins", lambda: known)
    space = {"nodes.sort.instructions": ["Plain.", "Better."]}
    score = lambda request: better if "Better" in str(request.messages[0]) else 0.2  # noqa: E731
    report, _ = plant(folder, score, {"random": {"trials": 3}}, calls=600, search=space)
    return report


def test_a_plugin_proves_its_own_claim_and_all_presenters_tell_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = run(tmp_path, monkeypatch, 0.95, answered=Short, broken=Broken)
    claim, found = report.claim("answered"), report.as_dict()
    assert claim is not None and report.is_shown(claim) and report.gain_shown
    assert found["claims"]["answered"]["shown"] and found["claims"]["answered"]["n"] == claim.n == report.test_rows
    assert found["gain"]["shown"] and found["targets"] is None
    assert any(line.startswith("answered: 0 -> 1, ") and line.endswith(": shown") for line in report.headline())
    assert any("the claims 'broken' of a plugin are left out: ZeroDivisionError" in line for line in report.warnings)

    report.claims = [claim]
    assert report.proved, "without a gain, by this claim alone"
    report.objections = ["no proof: the agent remembers"]
    assert not report.proved and not report.as_dict()["claims"]["answered"]["shown"]


def test_a_guard_that_is_not_shown_ends_every_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(tmp_path, monkeypatch, 0.95, answered=Short, rules=Strict)
    assert report.proof is not None and report.proof.shown and not report.proved
    assert any("The gain is not shown: the rules of the house are broken. Its" in line for line in report.headline())


@pytest.mark.parametrize(
    ("source", "why"), [(Wordless, "rules is not shown"), (Failing, "the claims 'rules' could not be tested")]
)
def test_a_guard_without_words_or_that_fails_ends_every_claim_too(
    source: type[ClaimSource], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = run(tmp_path, monkeypatch, 0.95, rules=source)
    assert report.proof is not None and report.proof.shown and not report.proved and report.objection == why


def test_without_a_tested_row_no_claim_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(tmp_path, monkeypatch, 0.0, answered=Short)
    claim = report.claim("answered")
    assert report.test_rows == 0 and claim is not None and not claim.shown and not report.proved


@pytest.mark.parametrize("gone", ["absent", "broken"])
def test_targets_that_no_plugin_tests_are_an_objection_and_refused_beforehand(
    gone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Careless:
        @workbench.hookimpl
        def register_claims(self, register: Any) -> None:
            register("targets", "no_such_package:Levels")

    others = [entry for entry in _entries() if entry.name != "levels"]
    known = Plugins(others, extra=[("careless", Careless())] if gone == "broken" else [])
    for module in ("workbench.proof.evidence", "workbench.run.cost_estimate"):
        monkeypatch.setattr(f"{module}.plugins", lambda: known)
    given: dict[str, Any] = {"search": {"nodes.sort.instructions": ["Plain.", "Better."]}, "targets": {"score": 0.8}}
    score = lambda request: 0.95 if "Better" in str(request.messages[0]) else 0.2  # noqa: E731
    if gone == "broken":
        with pytest.raises(PluginError, match="no_such_package"):
            plant(tmp_path, score, {"random": {"trials": 3}}, calls=600, **given)
        return
    report, lm = plant(tmp_path, score, {"random": {"trials": 3}}, calls=600, **given)
    assert report.objection == "no plugin tested the `targets` of the file" and not report.proved
    with pytest.raises(SpecError, match="(?s)no installed plugin tests `targets`.*workbench-watch") as found:
        optimize(tmp_path / "workflow.yaml", database=tmp_path / "new.db", pool=lm, options=Options())
    assert found.value.path == ("targets",)


def test_a_plugin_replaces_no_gain_that_a_metric_without_a_judge_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = run(tmp_path, monkeypatch, 0.95, proud=Proud)
    assert report.proof is not None and report.proof.test != "none" and len(report.claims) == 1
    assert any("'proud' of a plugin are left out: ValueError: the name 'gain' is taken" in w for w in report.warnings)


def test_a_run_without_such_plugins_tells_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(tmp_path, monkeypatch, 0.95)
    assert {claim.name for claim in report.claims} == {"gain"} and "claims" not in report.as_dict()


def test_a_source_runs_sealed_rows_under_perturbations_which_the_estimate_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(tmp_path / "plain", monkeypatch, 0.95)
    report = run(tmp_path / "loud", monkeypatch, 0.95, calm=Loud)
    claim = report.claim("loud")
    assert claim is not None and claim.n == 2 * report.test_rows > 0
    assert report.spent["calls"] == plain.spent["calls"] + claim.n and report.gain_shown
    loud = estimate(*prepare(tmp_path / "loud" / "workflow.yaml")[2:])["proof_calls"]
    monkeypatch.undo()
    assert loud == 2 * estimate(*prepare(tmp_path / "loud" / "workflow.yaml")[2:])["proof_calls"]


def test_a_source_refuses_a_file_at_its_place_and_a_broken_one_refuses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SpecError, match="names no rules of the house") as found:
        run(tmp_path, monkeypatch, 0.95, picky=Picky)
    assert found.value.line is not None
    report = run(tmp_path, monkeypatch, 0.95, gone="no_such_package:Source")
    assert report.gain_shown and any("claims 'gone' of a plugin are left out" in line for line in report.warnings)
    with pytest.raises(PluginError, match="cannot be loaded"):  # the file asks for its claims
        run(tmp_path, monkeypatch, 0.95, seed="no_such_package:Source")
