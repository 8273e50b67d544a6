"""How often sealed rows were tested before, by whatever run of the same database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.planted import PlantedLM, plant

from workbench import BudgetSpent, Optimizer, Patch, Study, Workflow
from workbench.lm import Request
from workbench.looks import looks_warning
from workbench.proof import paired_proof
from workbench.report import Report
from workbench.run import Options, optimize, resume

SPACE = {"nodes.sort.instructions": ["Plain.", "Better."], "nodes.sort.samples": [1, 2, 3]}


def better(request: Request) -> float:
    return 0.9 if "Better" in str(request.messages[0]) else 0.3


def test_each_test_of_a_change_on_the_same_rows_is_a_look(tmp_path: Path) -> None:
    first, lm = plant(tmp_path, better, {"random": {"trials": 4}}, calls=600, search=SPACE)
    assert first.gain_shown and first.looks == [] and not warned(first)

    def again(*sets: tuple[str, Any]) -> Report:
        return optimize(tmp_path / "workflow.yaml", database=tmp_path / "run.db", pool=lm,
                        options=Options(list(sets), str(tmp_path / "o.yaml")))  # fmt: skip

    second = again(("seed", 1))
    assert second.changes and second.looks == [first.run]
    assert f"tested once before (run {first.run})" in warned(second) and "p should be below 0.025" in warned(second)
    third = again(("rounds", 2))
    assert third.looks == [first.run, second.run] == third.as_dict()["looks"] and "p should be below 0.017" in warned(
        third
    )

    unchanged = again(("search", {"nodes.sort.instructions": ["Plain."]}))
    assert not unchanged.changes and unchanged.looks == [] and not warned(unchanged), "no gain, no claim"
    assert again(("seed", 2)).looks == [first.run, second.run, third.run], "and a test of the baseline is no look"

    with (tmp_path / "test.jsonl").open("a") as file:
        file.write(json.dumps({"text": "test 40 topic0 word0: a a-thing", "label": "a"}) + "\n")
    assert again().looks == [], "other rows"


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
        report = (resume("last", database=database, pool=lm, options=options, optimizers=tries) if seen else
                  optimize(tmp_path / "workflow.yaml", database=database, pool=lm, options=options, optimizers=tries))  # fmt: skip
        assert report.status == "budget"
        seen.append((report.winner.get("nodes.sort.instructions"), report.looks))
    assert seen == [("Better.", []), ("Better.", []), ("Best.", [report.run])]


@pytest.mark.parametrize(("wins", "looks", "said"), [(6, 1, True), (12, 1, False), (3, 1, False)])
def test_a_gain_that_does_not_hold_over_all_looks_is_named(wins: int, looks: int, said: bool) -> None:
    proof = paired_proof([0.0] * 40, [1.0] * wins + [0.0] * (40 - wins))
    assert proof.shown == (wins > 5)
    assert ("and it is not" in looks_warning(["a1b2"] * looks, proof)) is said


def warned(report: Report) -> str:
    return "".join(w for w in report.warnings if "sealed rows were tested" in w)
