"""Published designs whose agents act in live worlds: each is right, and wrong where its mechanism is taken out.

The numbers in the names are those of the documents that list the designs.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
from tests.helpers.gallery_tried import GALLERY
from tests.helpers.scripted import Script

from workbench.api import optimize
from workbench.run import Options


def test_the_information_of_an_experiment_is_that_of_the_linear_gaussian_model() -> None:
    """By nested Monte Carlo and in closed form: half the logarithm of 1 + (weights * prior / noise)^2."""
    spec = importlib.util.spec_from_file_location("worlds", GALLERY / "worlds.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    spring = module.Spring()
    for weights in (1, 3, 10):
        exact = 0.5 * math.log(1 + (weights * spring.PRIOR[1] / spring.NOISE) ** 2)
        assert spring.information(weights, 600) == pytest.approx(exact, abs=0.12), weights


#: Programs as a model might write them: one that cannot be read, one that looks at the wrong thing, one that is good.
PROGRAMS = [
    "def value(state, goal): return [",
    "def value(state, goal):\n    return [float(-len(stacks)) for stacks in state['children']]",
    """def value(state, goal):
    below = {b: a for stack in goal for a, b in zip(['table', *stack], stack)}
    found = []
    for stacks in state['children']:
        wrong = 0
        for stack in stacks:
            right = True
            for a, b in zip(['table', *stack], stack):
                right = right and below[b] == a
                wrong += not right
        found.append(float(wrong))
    return found""",
]


@pytest.mark.slow
def test_122_the_best_of_the_sampled_heuristics_drives_the_planner(tmp_path: Path) -> None:
    """Blind search solves no row within its expansions, the good heuristic of the three solves all."""

    def propose(programs: list[str]) -> Script:
        return Script(lambda request: f"```python\n{programs[len(script.requests) % len(programs)]}\n```")

    for number, (programs, solved) in enumerate(((PROGRAMS, 1.0), (PROGRAMS[:2], 0.0))):
        script = propose(programs)
        report = optimize(
            GALLERY / "llm_heuristics.yaml",
            options=Options(allow_unproved=True, out=str(tmp_path / f"{number}.yaml")),
            database=tmp_path / f"{number}.db",
            pool=script,
        )
        assert report.status == "finished" and report.baseline["val"] == 0.0 and report.best["val"] == solved
        source = report.winner.get("nodes.plan.nodes.value.source")
        assert ("below" in source) == (solved == 1.0)
