"""Claims that a plugin makes on the sealed rows of a run (hook `register_claims`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import plant

import workbench
from workbench.plugins import Plugins
from workbench.plugins.manager import _entries
from workbench.proof import Claim, ClaimSource, Evidence, Kind, Report

GUARD = Kind(lambda claim, shown, why: [], proves=False, guards=True)


class Short(ClaimSource):
    """Claims that the winner failed on no row."""

    def find(self, tested: Evidence) -> Sequence[Claim]:
        failed = sum(winner.failure is not None for _, winner in tested.pairs)
        return [Claim("answered", n=len(tested.pairs), winner=1.0 - failed, shown=failed == 0, margin=0.1)]


class Strict(ClaimSource):
    def find(self, tested: Evidence) -> Sequence[Claim]:
        return [Claim("rules", GUARD, n=len(tested.pairs), why_not="the rules of the house are broken")]


class Broken(ClaimSource):
    def find(self, tested: Evidence) -> Sequence[Claim]:
        raise ZeroDivisionError("by hand")


class Proud(ClaimSource):
    def find(self, tested: Evidence) -> Sequence[Claim]:
        return [Claim("gain", n=len(tested.pairs), diff=1.0, ci95=(0.9, 1.0), shown=True)]


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, better: float, **sources: type[ClaimSource]) -> Report:
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


def test_a_plugin_replaces_no_gain_that_a_metric_without_a_judge_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = run(tmp_path, monkeypatch, 0.95, proud=Proud)
    assert report.proof is not None and report.proof.test != "none" and len(report.claims) == 1
    assert any("'proud' of a plugin are left out: ValueError: the name 'gain' is taken" in w for w in report.warnings)


def test_a_run_without_such_plugins_tells_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(tmp_path, monkeypatch, 0.95)
    assert {claim.name for claim in report.claims} == {"gain"} and "claims" not in report.as_dict()
