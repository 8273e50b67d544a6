"""Each loop on a run is stopped by a signal or killed, goes on with one command, and pays for nothing twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.lm_faults import ChatServer

AT_ONCE = 2
TEXTS = [{"text": f"letter {i}", "label": "none"} for i in range(40)]
RESUME = ["resume", "last"]
#: By loop: the command, and the one that goes on.
LOOPS: dict[str, tuple[list[str], list[str] | None]] = {
    "optimize": (["optimize", "w.yaml", "--out", "o.yaml"], RESUME),
    "eval": (["eval", "w.yaml", "--split", "val"], RESUME),
    "predict": (["predict", "w.yaml", "rows.jsonl", "--out", "answers.jsonl"], None),
    "redteam": (["redteam", "w.yaml"], None),
    "attribute": (["agent", "attribute", "last", "--method", "replay", "--repair", "fresh"], None),
    "synthesize": (["data", "synthesize", "towns.yaml", "--out", "made.jsonl"], None),
}


def write_files(folder: Path, base: str) -> None:
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in TEXTS))
    lm: dict[str, Any] = {"model": "openai/m", "api_base": base, "temperature": 0.7}
    task = {
        "name": "letters",
        "lm": lm,
        "data": {"file": "rows.jsonl", "split": {"train": 8, "val": 12, "test": 20}},
        "metric": "exact_match(label)",
        "nodes": {"sort": {"predict": "text -> label"}},
        "attacks": {"query": {"query": {"text": "cf"}, "success": {"trace": "differs"}}},
        "search": {"nodes.sort.instructions": [f"Sort it, way {i}." for i in range(4)]},
        "optimize": [{"random": {"trials": 3}}],
        "concurrency": AT_ONCE,
        "budget": {"calls": 1000},
        "proof": {"when_unchanged": "test"},
    }
    (folder / "w.yaml").write_text(yaml.safe_dump(task, sort_keys=False))
    (folder / "documents.jsonl").write_text("".join(json.dumps({"document": f"Town {i}."}) + "\n" for i in range(24)))
    towns = {
        "name": "towns",
        "lm": lm,
        "synthesize": {"from": "documents.jsonl", "rows": 24},
        "nodes": {"write": {"predict": "document -> question"}},
        "concurrency": AT_ONCE,
        "budget": {"calls": 60},
    }
    (folder / "towns.yaml").write_text(yaml.safe_dump(towns, sort_keys=False))


def workbench(folder: Path, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "workbench", *args, "--db", "run.db"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err, err
    return process.returncode, out + err


@pytest.fixture
def server() -> Any:
    with ChatServer(latency=0.05) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("loop", LOOPS)
def test_it_stops_goes_on_and_pays_for_nothing_twice(
    loop: str, number: signal.Signals, tmp_path: Path, server: ChatServer
) -> None:
    command, again = LOOPS[loop]
    sent = dict[str, int]()
    for name in ("whole", "stopped"):
        folder = tmp_path / name
        folder.mkdir()
        write_files(folder, server.base)
        if loop == "attribute":
            assert finish(workbench(folder, "eval", "w.yaml", "--split", "val"))[0] in (0, 1)
        before = server.requests
        process = workbench(folder, *command)
        if name == "stopped":
            while server.requests < before + 6 and process.poll() is None:
                time.sleep(0.002)
            process.send_signal(number)
            code, told = finish(process)
            assert code == (-9 if number == signal.SIGKILL else 130), told
            assert server.requests - before < sent["whole"], "it was stopped on its way"
            process = workbench(folder, *(again or command))
        code, told = finish(process)
        assert code in (0, 1, 101), told
        sent[name] = server.requests - before
    in_flight = AT_ONCE if number == signal.SIGKILL else 0  # of which nobody can know whether they were answered
    assert sent["whole"] <= sent["stopped"] <= sent["whole"] + in_flight
