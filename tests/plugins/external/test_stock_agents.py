"""The stock agents of contrib/agents: their files, their simulated model, and whole runs on those whose packages the
tests have. contrib/agents/run.py tries the others."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench.lm import Request
from workbench.run import Options, optimize
from workbench.study import make_optimizer
from workbench_testing.simulated import HELPFUL, SimulatedPool

ROOT = Path(__file__).parents[3]
AGENTS = ROOT / "contrib/agents"
FOLDERS = sorted(path.parent for path in AGENTS.glob("*/workflow.yaml"))


def load_simulate() -> Any:
    spec = importlib.util.spec_from_file_location("agents_simulate", AGENTS / "simulate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SimulatedAgentLM = load_simulate().SimulatedAgentLM
ROWS = [json.loads(line) for line in (AGENTS / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
#: Fewer rows than in the file, since a client takes a second to import.
SPLIT = {"train": 1, "val": 1, "test": 1}
TOOL = {"function": {"name": "look_up", "parameters": {"properties": {"words": {"type": "string"}}}}}


def test_there_are_agents_of_six_frameworks_and_more() -> None:
    assert len(FOLDERS) >= 8


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_stock_agent_knows_nothing_of_us_and_its_packages_are_pinned(folder: Path) -> None:
    (agent,) = folder.glob("agent.*")
    source = agent.read_text(encoding="utf-8")
    assert "workbench" not in source and "127.0.0.1" not in source and len(source.splitlines()) <= 45
    if (folder / "package.json").exists():
        pins = [*json.loads((folder / "package.json").read_text(encoding="utf-8"))["dependencies"].values()]
        assert pins and all(pin[0].isdigit() for pin in pins)
    else:
        lines = (folder / "requirements.txt").read_text(encoding="utf-8").split()
        assert lines and all("==" in line for line in lines)
    with workbench.load(folder / "workflow.yaml", pool=SimulatedPool(SimulatedAgentLM())):
        pass


def share_right(system: str | None, helps: bool = True) -> float:
    lm = SimulatedAgentLM(helps=helps)
    said = [] if system is None else [{"role": "developer", "content": system}]

    async def answer(text: str) -> str:
        return (await lm.complete(Request((*said, {"role": "user", "content": f"New task: {text}"})))).text

    return sum(asyncio.run(answer(row["text"])) == row["label"] for row in ROWS) / len(ROWS)


def test_the_gain_of_the_simulated_task_is_that_of_the_helpful_word_alone() -> None:
    plain, helped = share_right("Label it."), share_right(f"Label it {HELPFUL}.")
    assert plain == share_right(None) and 0.25 < plain < 0.45 and 0.5 < helped < 0.75
    assert share_right(f"Label it {HELPFUL}.", helps=False) == plain


def test_the_simulated_model_calls_a_tool_once_before_it_answers() -> None:
    asked = [{"role": "user", "content": ROWS[2]["text"]}]
    first = asyncio.run(SimulatedAgentLM().complete(Request(tuple(asked), tools=(TOOL,))))
    assert [call["name"] for call in first.tool_calls] == ["look_up"]
    assert json.loads(first.tool_calls[0]["arguments"]) == {"words": ROWS[2]["text"]}
    asked += [{"role": "assistant", "content": ""}, {"role": "tool", "content": f"Look {HELPFUL}."}]
    second = asyncio.run(SimulatedAgentLM().complete(Request(tuple(asked), tools=(TOOL,))))
    assert second.text and not second.tool_calls


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_a_stock_agent_is_improved_as_it_is(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    before = (AGENTS / name / "agent.py").read_bytes()
    report = optimize(
        AGENTS / name / "workflow.yaml",
        database=tmp_path / "run.db",
        optimizers=[("checked", make_optimizer({"rewrite": {"rounds": 1, "width": 2}}))],
        pool=SimulatedPool(SimulatedAgentLM()),
        options=Options(
            out=str(tmp_path / "out.yaml"),
            allow_unproved=True,
            sets=[("data.split", SPLIT)],
        ),
    )
    assert [address for address, _, _ in report.changes] == ["nodes.agent.slots.system.text"]
    assert (AGENTS / name / "agent.py").read_bytes() == before


def test_the_program_names_its_frameworks() -> None:
    done = subprocess.run(
        [sys.executable, str(AGENTS / "run.py"), "--help"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert all(folder.name in done.stdout for folder in FOLDERS)
