"""Ask-and-tell on a search space."""

from __future__ import annotations

from typing import Any

from workbench.spec import DomainSpec
from workbench.study import Searcher
from workbench.task import Example, Space
from workbench.workflow import Workflow, setting

TRAIN = tuple(Example(str(i), {"text": f"row {i}", "label": "ab"[i % 2]}) for i in range(20))


def workflow(**node: Any) -> Workflow:
    from pathlib import Path

    from workbench.workflow import node_tree

    def fail(path: Any, message: str, hint: str | None) -> Exception:
        return AssertionError(message)

    tree = node_tree({"predict": "text -> label: Literal['a', 'b']", **node}, fail)
    return Workflow({"lm": {}, "nodes": {"sort": tree}}, Path("."))


def space(**domains: Any) -> Space:
    return Space({k.replace("__", "."): DomainSpec.model_validate(v) for k, v in domains.items()}, TRAIN)


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
    assert setting(first.workflow, "nodes.sort.samples") == 1 and not first.workflow.get("nodes.sort.demos", [])
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
