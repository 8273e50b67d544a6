"""Structure and tools as kinds of change: tried on a share of the screening, and kept where they pay."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, candidates, demos_of, plant
from tests.helpers.scripted import make_workflow
from tests.plugins.families.test_families import plant_heard

from workbench.lm import Request, Response
from workbench.workflow import Workflow
from workbench_bench.worlds import asks_to_reason
from workbench_families.kinds import find_structures


class Planning(PlantedLM):
    """Writes a plan where a step asks for one."""

    async def complete(self, request: Request) -> Response:
        if "Write a short plan" in str(request.messages[0]["content"]):
            self.requests += 1
            name = "plan: " if asks_to_reason(request) else ""
            return Response(f"{name}First this, then that.", "stop", 9, 3, 0.0)
        return await super().complete(request)


def planned(request: Request) -> float:
    """A plan before the answer pays, and so do examples beside it: 0.9."""
    plan = "First this" in str(request.messages[-1]["content"])
    return 0.3 + 0.4 * plan + 0.025 * min(len(demos_of(request)), 8)


@pytest.fixture
def planning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.helpers.planted.PlantedLM", Planning)


def steps_of(workflow: Workflow) -> list[str]:
    return [name for name in workflow.nodes if name != "sort"]


@pytest.mark.usefixtures("planning")
def test_a_step_that_pays_is_the_start_of_the_rest(tmp_path: Path) -> None:
    report, said = plant_heard(tmp_path, planned, 6000)
    assert "structures, less the start:" in said and "insert nodes.sort field=plan" in said
    assert steps_of(report.winner) == ["sort_plan"] and report.gain_shown
    later = [one for one in candidates(tmp_path) if "nodes.sort.demos" in one]
    assert any("plan" in demo for one in later for demo in one["nodes.sort.demos"]), "successes of the new structure"


@pytest.mark.usefixtures("planning")
def test_a_small_budget_buys_no_structure(tmp_path: Path) -> None:
    report, said = plant_heard(tmp_path, planned, 700)
    assert "kinds of change" in said and "structures" not in said and not steps_of(report.winner)


def test_a_step_that_does_not_pay_is_left(tmp_path: Path) -> None:
    report, said = plant_heard(tmp_path, lambda r: 0.3 + 0.05 * min(len(demos_of(r)), 8), 4000)
    assert "structures, less the start:" in said and not steps_of(report.winner)
    assert all("nodes.sort_plan" not in one or len(one) <= 2 for one in candidates(tmp_path)), "nothing is built on it"


def test_edits_that_do_what_a_setting_does_are_left_out(tmp_path: Path) -> None:
    workflow = make_workflow({"sort": {"predict": "text -> label"}}, tmp_path)
    assert {*find_structures(workflow)} == {"refine", "insert"}
    notes = [made.patch.note for made in find_structures(workflow)["insert"] if made.patch]
    assert [note.split()[2] for note in notes] == ["field=plan", "field=notes"]


def test_tools_of_an_agent_are_tried_without(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        'def add(a: int, b: int) -> int:\n    """Add."""\n    return a + b\n\n\n'
        'def harm(a: int) -> int:\n    """Harm."""\n    return a\n'
    )
    tools = ["python:tools.py:add", "python:tools.py:harm"]
    workflow = make_workflow({"sort": {"agent": "text -> label", "tools": tools}}, tmp_path)
    without = [made.get("nodes.sort.tools") for made in find_structures(workflow)["tool"]]
    assert without == [[tools[1]], [tools[0]]]


@pytest.mark.slow
@pytest.mark.usefixtures("planning")
def test_it_beats_itself_without_structure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    differences = list[float]()
    for seed in range(4):
        reached = dict[str, Any]()
        for name in ("with", "without"):
            with monkeypatch.context() as patch:
                if name == "without":
                    patch.setattr("workbench_families.optimizer.find_structures", lambda workflow: {})
                report, _ = plant(tmp_path / f"{name}{seed}", planned, {"families": {}}, calls=6000, seed=seed)
            reached[name] = report.proof.winner if report.proof else 0.0
        differences.append(reached["with"] - reached["without"])
    assert statistics.mean(differences) > 0.15, differences
