"""Whole runs on agents that are not changed: they are observed, improved, resumed and proved as any workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.external_agents import CLIENT, SORTER, SYSTEM, write_agent

from workbench import plugins
from workbench.proof import Report
from workbench.run import Options, optimize, resume
from workbench.study import make_optimizer
from workbench.testing.simulated import HELPFUL, Killed, SimulatedLM, SimulatedPool


def improve(path: Path, optimizer: Any, lm: SimulatedLM, *, again: bool = False) -> Report:
    settings: dict[str, Any] = {
        "database": path.parent / "run.db",
        "optimizers": [("checked", make_optimizer(optimizer))],
        "pool": SimulatedPool(lm),
        "options": Options(out=str(path.parent / "out.yaml"), allow_unproved=True, keep_unproved=True),
    }
    return resume("last", **settings) if again else optimize(path, **settings)


def written(path: Path) -> dict[str, Any]:
    """The settings of the agent in the result."""
    return yaml.safe_load((path.parent / "out.yaml").read_text(encoding="utf-8"))["nodes"]["agent"]


def test_the_prompt_of_an_agent_is_found_and_improved_without_a_change_of_the_agent(tmp_path: Path) -> None:
    path = write_agent(tmp_path, SORTER, rows=(12, 24, 60), calls=600)
    report = improve(path, {"rewrite": {"rounds": 4}}, SimulatedLM())
    slot = written(path)["slots"]["system"]
    assert slot["match"] == SYSTEM.replace("2026-11-23", "{{1}}") and HELPFUL in slot["text"]
    assert report.proved, report.lines()
    assert (tmp_path / "agent.py").read_text(encoding="utf-8") == SORTER


def test_where_prompts_make_no_difference_no_gain_is_shown(tmp_path: Path) -> None:
    path = write_agent(tmp_path, SORTER, rows=(12, 24, 60), calls=600)
    assert not improve(path, {"rewrite": {"rounds": 4}}, SimulatedLM(helps=False)).proved
