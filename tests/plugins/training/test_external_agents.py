"""Agents that exist are trained as they are: what passes the gateway becomes rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.grpo_runs import SMALL, WORKFLOWS, learned_rows, needs_torch, write

from workbench.run import Options, optimize
from workbench.study import make_optimizer


def train(folder: Path, optimizer: Any, **more: Any) -> tuple[Any, list[tuple[str, Any]]]:
    """The report of a training of the workflow files' stock agent, and what the optimizer told."""
    agent = {
        "external": "text -> label: Literal['billing', 'technical', 'shipping', 'returns', 'account']",
        "command": ["python", str(WORKFLOWS / "sorter.py")],
        "calls": 2,
    }
    path = write(folder, nodes={"agent": agent}, rows=(8, 8, 8), budget={"calls": 600}, **more)
    heard: list[tuple[str, Any]] = []

    def listen(event: str, data: dict[str, Any]) -> None:
        if event == "optimizer_told":
            heard.append((data["message"], data["figures"]))

    report = optimize(
        path,
        options=Options(out=str(folder / "out.yaml"), allow_unproved=True),
        database=folder / "run.db",
        listener=listen,
        optimizers=[("trained", make_optimizer(optimizer))],
    )
    return report, heard


def test_grpo_learns_from_the_calls_of_an_agent_that_names_temperature_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_torch()
    rows = learned_rows(monkeypatch)
    report, heard = train(tmp_path, {"grpo": SMALL})
    assert report.status == "finished", report.lines()
    assert len({(row.task, *row.token_ids) for row in rows}) > len({row.task for row in rows}), "all draws are the same"
    assert any("reward" in message for message, _ in heard)
