"""Ask-and-tell on a search space."""

from __future__ import annotations

from tests.helpers.spaces import space, workflow

from workbench.study import Searcher
from workbench.workflow import setting_at


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
