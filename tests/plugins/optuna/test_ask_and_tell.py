"""Ask-and-tell on a search space."""

from __future__ import annotations

import pytest
from tests.helpers.spaces import space, workflow

from workbench.workflow import setting_at
from workbench_optuna.sampler import Searcher


def test_a_searcher_first_asks_for_the_start_itself_and_for_it_with_all_demos() -> None:
    domains = {
        "nodes__sort__demos": {"demos": 4},
        "nodes__sort__samples": {"int": [1, 5]},
        "nodes__sort__instructions": {"choice": [["x"], "Plain."]},
    }
    start = workflow(instructions="Plain.")
    searcher = Searcher(space(**domains), start, seed=1, starts=True)
    first, second = searcher.ask(), searcher.ask()
    assert first.workflow.get("nodes.sort.instructions") == "Plain."
    assert setting_at(first.workflow, "nodes.sort.samples") == 1 and not first.workflow.get("nodes.sort.demos", [])
    assert second.workflow.get("nodes.sort.retrieve") == 4 and second.workflow.get("nodes.sort.samples") == 1


def test_the_same_seed_asks_for_the_same_candidates() -> None:
    def asked(seed: int) -> list[str]:
        searcher = Searcher(space(nodes__sort__demos={"demos": 8}), workflow(), seed=seed, startup=3)
        found = []
        for i in range(8):
            one = searcher.ask()
            searcher.tell(one, i / 8)
            found.append(one.workflow.hash)
        return found

    assert asked(3) == asked(3) != asked(4)


@pytest.mark.parametrize(
    "sampler", [pytest.param(s, marks=pytest.mark.slow if s == "gp" else ()) for s in Searcher.SAMPLERS]
)
def test_every_sampler_is_told_constraints_without_a_warning(sampler: str, recwarn: pytest.WarningsRecorder) -> None:
    if sampler in ("cmaes", "gp"):
        pytest.importorskip({"cmaes": "cmaes", "gp": "torch"}[sampler])
    domains = {"nodes__sort__decoding__temperature": {"float": [0.0, 1.0]}}
    searcher = Searcher(space(**domains), workflow(), seed=1, sampler=sampler, startup=2)
    recwarn.clear()  # of what is experimental
    for number in range(6):
        searcher.tell(searcher.ask(), number / 4, constraints={"score": 0.5 - number / 4, "missed by all": 0.5})
    assert [str(one.message) for one in recwarn] == []


def test_a_trial_that_another_searcher_has_ended_stays_as_it_is() -> None:
    searcher = Searcher(space(nodes__sort__demos={"demos": 8}), workflow(), seed=1)
    asked = searcher.ask()
    searcher.study.tell(asked.number, 0.25)
    searcher.tell(asked, 0.5, constraints={"score": 0.1})
    assert searcher.study.trials[0].value == 0.25 and not searcher.study.trials[0].constraints
