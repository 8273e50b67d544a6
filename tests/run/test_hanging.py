"""What never answers ends by its deadline, and a second signal ends the process whatever hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workbench.base.concurrency import remaining_seconds, run_in_thread
from workbench.errors import NodeError
from workbench_kit.acting import load_tool

ROWS = "".join(f'{{"text": "row {n}", "label": "a"}}\n' for n in range(30))
HANGS = """
import re, time
def look(text: str) -> str:
    open("hangs", "w").close()
    time.sleep(600)
def freeze(text: str) -> str:
    open("hangs", "w").close()
    re.search("(a+)+$", "a" * 60 + "b")  # in C, with Python's lock
def score(example, prediction):
    time.sleep(600)
"""


def project(
    folder: Path, *, metric: str = "exact_match(label)", timeout: float = 300, agent: bool = True, tool: str = "look"
) -> Path:
    (folder / "rows.jsonl").write_text(ROWS)
    (folder / "code.py").write_text(HANGS)
    node = f"{{tool: 'python:code.py:{tool}', output: label}}" if agent else "{predict: 'text -> label'}"
    (folder / "w.yaml").write_text(
        f"name: hangs\nlm: bundled/nano\ntimeout: {timeout}\nmetric: {metric}\n"
        "data: {file: rows.jsonl, split: {train: 10, val: 10, test: 10}}\n"
        f"nodes:\n  sort: {node}\nbudget: {{calls: 100}}\n"
    )
    return folder / "w.yaml"


def workbench(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "workbench", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_blocking_function_ends_by_its_deadline_and_knows_it() -> None:
    async def main() -> float | None:
        with pytest.raises(TimeoutError):
            await run_in_thread(lambda: time.sleep(60), 0.05)
        return await run_in_thread(remaining_seconds, 7.0)

    left = asyncio.run(main())
    assert left is not None and 0 < left <= 7.0
    assert remaining_seconds() is None


def test_errors_come_through_a_thread() -> None:
    def stop() -> None:
        raise StopIteration("x")

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(run_in_thread(stop, 5))
    with pytest.raises(KeyError):
        asyncio.run(run_in_thread(lambda: {}["x"], 5))


@pytest.mark.slow
def test_a_tool_that_does_not_return_fails_its_row(tmp_path: Path) -> None:
    project(tmp_path, timeout=0.3)
    with workbench("run", "w.yaml", "--example", "1", folder=tmp_path) as process:
        said, _ = process.communicate(timeout=60)
    assert "no result within 0.3 s" in said and process.returncode != 0


@pytest.mark.slow
def test_a_metric_that_does_not_return_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    project(tmp_path, metric="python:code.py:score", timeout=0.2, agent=False)
    with workbench("eval", "w.yaml", folder=tmp_path) as process:
        said, _ = process.communicate(timeout=60)
    assert "no score within 0.2 s" in said and process.returncode == 2


@pytest.mark.fault("signals")
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("number", "tool", "code"),
    [(signal.SIGINT, "look", 130), (signal.SIGTERM, "look", 130), (signal.SIGTERM, "freeze", -signal.SIGKILL)],
)
def test_two_signals_end_a_run_whose_tool_hangs(tmp_path: Path, number: int, tool: str, code: int) -> None:
    project(tmp_path, tool=tool)
    with workbench("optimize", "w.yaml", folder=tmp_path) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (tmp_path / "hangs").exists():
            time.sleep(0.1)
        assert (tmp_path / "hangs").exists(), "no tool was called"
        os.kill(process.pid, number)
        time.sleep(0.5)
        os.kill(process.pid, number)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "workbench resume" in said


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("import time\ntime.sleep(600)\n", marks=pytest.mark.slow),
        "print('\\x1b]52;c;x\\x07', flush=True)\n",
    ],
)
def test_an_mcp_server_that_does_not_answer_is_ended(tmp_path: Path, source: str) -> None:
    pytest.importorskip("mcp")
    mark = f"serve_{tmp_path.name}.py"
    (tmp_path / mark).write_text(source)
    tool = load_tool(f"mcp:python {mark}#pay", tmp_path)
    with pytest.raises(NodeError, match="pay: "):
        asyncio.run(tool({}, 4.0))
    begun = time.monotonic()
    while subprocess.run(["pgrep", "-f", mark], capture_output=True).stdout:  # one that was killed takes its time
        assert time.monotonic() - begun < 20, "the server lives on"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_baseline_without_a_usable_answer_is_warned_of(tmp_path: Path) -> None:
    project(tmp_path, agent=False)
    with workbench(
        "optimize", "w.yaml", "--set", "nodes.sort.predict=text -> label: dict[str, int]", folder=tmp_path
    ) as process:
        said, _ = process.communicate(timeout=60)
    assert "the baseline gave no answer that can be scored on any of the 10 rows of val: unparsed 10" in said, said
