"""Each optimizer of a chain has its share of what is left of the budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, plant

from workbench.errors import BudgetSpent
from workbench.proof import Report
from workbench.run import Options, optimize, resume
from workbench.store import Store
from workbench.study import Optimizer, Study
from workbench.workflow import Patch, Workflow


class Greedy(Optimizer):
    """Evaluates new wordings until it may not; notes the calls before and after."""

    most: int = 1000
    log: list[tuple[int, int]]

    async def optimize(self, study: Study) -> Workflow:
        begun = study.ledger.spent.calls
        try:
            for number in range(self.most):
                wording = f"Wording {study.name} {begun} {number}."
                await study.evaluate(study.workflow.patched(Patch({"nodes.sort.instructions": wording})))
        except BudgetSpent:
            raise
        finally:
            self.log.append((begun, study.ledger.spent.calls))
        return study.best


def run_chain(folder: Path, *most: int, calls: int | None = 400, **given: Any) -> tuple[Report, list[tuple[int, int]]]:
    """24 val and 40 test rows: the baseline takes 24 calls, the proof about 82."""
    log: list[tuple[int, int]] = []
    chain = [(f"g{i}", Greedy.model_construct(most=n, log=log)) for i, n in enumerate(most)]
    folder.mkdir(exist_ok=True)
    sets = [("budget", {"calls": calls} if calls else {"minutes": 60}), *given.pop("sets", [])]
    plant(folder, lambda r: 0.3, {"random": {"trials": 1}}, calls=400, given={"optimizers": []})
    file, database = folder / "workflow.yaml", folder / "chain.db"
    options = Options(sets, out=str(folder / "o.yaml"), **given)
    return optimize(file, database=database, pool=PlantedLM(lambda r: 0.3), options=options, optimizers=chain), log


def spent_of(log: list[tuple[int, int]]) -> list[int]:
    return [after - before for before, after in log]


def test_optimizers_of_a_chain_share_what_is_left(tmp_path: Path) -> None:
    _, log = run_chain(tmp_path, 1000, 1000, 1000)
    assert spent_of(log) == [96, 96, 120], "98 each for 4 evaluations of 24; the last all"


def test_a_single_optimizer_has_the_whole_budget(tmp_path: Path) -> None:
    assert spent_of(run_chain(tmp_path, 1000)[1]) == [312], "400 less the baseline's 24 and what is set aside"


def test_what_one_leaves_over_goes_to_those_after_it(tmp_path: Path) -> None:
    assert spent_of(run_chain(tmp_path, 1, 1000, 1000)[1]) == [24, 120, 192]


def test_rounds_are_turns_that_share_too(tmp_path: Path) -> None:
    _, log = run_chain(tmp_path, 1000, 1000, sets=[("rounds", 3)])
    assert spent_of(log) == [48, 48, 48, 48, 48, 72]


def test_without_a_ceiling_that_can_be_shared_nothing_is_shared(tmp_path: Path) -> None:
    assert spent_of(run_chain(tmp_path, 5, 2, calls=None)[1]) == [120, 48]


def test_a_resumed_chain_repeats_itself_and_pays_nothing(tmp_path: Path) -> None:
    report, log = run_chain(tmp_path, 1000, 1000)
    again, lm = list[tuple[int, int]](), PlantedLM(lambda r: 0.3)
    chain = [(f"g{i}", Greedy.model_construct(most=1000, log=again)) for i in range(2)]
    repeated = resume("last", database=tmp_path / "chain.db", pool=lm, optimizers=chain)
    assert (again, lm.requests, repeated.winner) == (log, 0, report.winner)


def test_a_run_that_is_resumed_with_more_calls_repeats_the_shares_that_it_gave(tmp_path: Path) -> None:
    """Else what the second one was paid for would be searched anew."""
    _, log = run_chain(tmp_path, 1000, 1000)
    store = Store(tmp_path / "chain.db")
    store.execute("update runs set status = 'budget'")
    store.close()
    again, lm = list[tuple[int, int]](), PlantedLM(lambda r: 0.3)
    chain = [(f"g{i}", Greedy.model_construct(most=1000, log=again)) for i in range(2)]
    options = Options([("budget.calls", 600)])
    resume("last", database=tmp_path / "chain.db", pool=lm, optimizers=chain, options=options)
    assert again[0] == log[0] and again[1][0] == log[1][0] and again[1][1] > log[1][1] + 100


def test_the_end_of_a_share_ends_a_rollout_too(tmp_path: Path) -> None:
    """`study.run` has no evaluation that could be refused as a whole."""

    class Runs(Optimizer):
        async def optimize(self, study: Study) -> Workflow:
            for number in range(1000):
                other = study.workflow.patched(Patch({"nodes.sort.instructions": f"Wording {number}."}))
                await study.run(other, study.train[0])
            return study.best

    log: list[tuple[int, int]] = []
    plant(tmp_path, lambda r: 0.3, {"random": {"trials": 1}}, calls=400, given={"optimizers": []})
    chain = [("runs", Runs()), ("g", Greedy.model_construct(most=1000, log=log))]
    file, settings = tmp_path / "workflow.yaml", Options(out=str(tmp_path / "o.yaml"))
    report = optimize(
        file, database=tmp_path / "c.db", pool=PlantedLM(lambda r: 0.3), options=settings, optimizers=chain
    )
    assert report.candidates > 1 and log[0][0] <= 24 + 150


#: Of a proposer that answers with labels nothing is tried.
TEMPLATES = {"proposer": "templates/instructions"}


@pytest.mark.parametrize(
    "names", [["random", "random"], ["bootstrap", "random"], ["optuna", "evolve"], ["random", "fgo"]]
)
def test_the_second_of_a_chain_finds_calls(names: list[str], tmp_path: Path) -> None:
    report, _ = plant(tmp_path, lambda r: 0.3, names[0], calls=500, optimize=names, roles=TEMPLATES)
    store = Store(tmp_path / "run.db")
    made = {row["optimizer"].split("/")[0] for row in store.rows("select optimizer from candidates")}
    store.close()
    assert made >= {*names}, report.lines()
