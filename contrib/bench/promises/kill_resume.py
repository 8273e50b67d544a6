"""Kills runs at random moments and at every named step, resumes them, and compares with a run never killed.

    python contrib/bench/promises/kill_resume.py --kills 100

Passes if every run ends with the same winner, scores, gain and ledger as the one never killed; if what the server saw
beyond the ledger is at most what was in flight at the kills; and if no recorded call was sent again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from kill_at import STEPS
from simulated_server import SimulatedServer

from workbench_testing import write_task

CONCURRENCY = 4
CLI = [sys.executable, str(Path(__file__).parent / "kill_at.py")]


def prepare(folder: Path, base: str, calls: int = 1000) -> None:
    """The simulated task, with bootstrap and optuna as optimizers, served by a simulated server."""
    path = write_task(folder, budget={"calls": calls}, seed=1, rows=(16, 16, 24))
    spec = json.loads(path.read_text())
    spec["lm"] = {"model": "openai/simulated", "api_base": base, "timeout": 2, "concurrency": CONCURRENCY}
    spec["optimize"] = [{"bootstrap": {"trials": 4}}, {"optuna": {"trials": 6}}]
    path.write_text(json.dumps(spec))


def start(folder: Path, resume: bool, kill_at: str = "") -> subprocess.Popen[str]:
    command = (
        ["resume", "last", "--db", "run.db"]
        if resume
        else ["optimize", "workflow.yaml", "--db", "run.db", "--out", "out.yaml"]
    )
    env = {**os.environ, "WORKBENCH_KILL_AT": kill_at}
    return subprocess.Popen(
        [*CLI, *command, "--json"], cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def begun(folder: Path) -> bool:
    """Whether there is a run to resume: a kill may come before its row was written."""
    import sqlite3

    if not (folder / "run.db").exists():
        return False
    connection = sqlite3.connect(folder / "run.db")
    try:
        return connection.execute("select count(*) from runs").fetchone()[0] > 0
    except sqlite3.Error:
        return False
    finally:
        connection.close()


def finish(folder: Path) -> dict[str, Any]:
    process = start(folder, begun(folder))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def comparable(report: dict[str, Any]) -> dict[str, Any]:
    """What must be the same however often a run was killed: everything but times and unknown outcomes."""

    def timeless(value: Any) -> Any:
        if isinstance(value, dict):
            drop = ("seconds", "unknown", "maybe_tokens", "maybe_usd", "run", "database", "workflow")
            drop += ("latency", "p95_latency")
            return {
                k: timeless(v) for k, v in value.items() if k not in drop or (k == "workflow" and len(str(v)) == 16)
            }
        return value

    return timeless({k: report[k] for k in ("status", "baseline", "best", "gain", "spent", "candidates", "changes")})


def check(folder: Path, server: SimulatedServer, before: int, kills: int, whole: dict[str, Any]) -> int:
    """Resume to the end and compare; returns the number of requests that were paid twice."""
    report = finish(folder)
    seen, ledger, unknown = server.requests - before, report["spent"]["calls"], report["spent"]["unknown"]
    assert comparable(report) == comparable(whole), (comparable(report), comparable(whole))
    assert seen - ledger <= unknown <= kills * CONCURRENCY, (seen, ledger, unknown, kills)
    assert (folder / "out.yaml").read_text().startswith("# workbench run")
    again = finish(folder)  # a finished run, resumed once more: nothing is sent
    assert server.requests - before == seen and comparable(again) == comparable(whole)
    return seen - ledger


def random_kills(folder: Path, rng: random.Random, kills: int, seconds: float) -> int:
    """Kill at random moments until `kills` kills are done or the run has ended; returns how many were."""
    done = 0
    while done < kills:
        process = start(folder, begun(folder))
        time.sleep(rng.uniform(0.0, seconds))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if process.returncode == 0:
            break
        done += 1
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.01)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with SimulatedServer(latency=args.latency) as server, tempfile.TemporaryDirectory() as root:
        reference = Path(root) / "whole"
        prepare(reference, server.base)
        begun_at = time.monotonic()
        whole = finish(reference)
        seconds = time.monotonic() - begun_at
        assert server.requests == whole["spent"]["calls"]
        print(f"never killed: {whole['spent']['calls']} calls in {seconds:.1f} s, winner {whole['best']['workflow']}")
        done, twice, runs = 0, 0, 0
        while done < args.kills:
            folder, before = Path(root) / f"random{runs}", server.requests
            prepare(folder, server.base)
            kills = random_kills(folder, rng, min(10, args.kills - done), seconds)
            twice += check(folder, server, before, kills, whole)
            done, runs = done + kills, runs + 1
        print(f"random: {done} kills in {runs} runs, {twice} requests sent twice; all ended as if never killed")
        for step in STEPS:
            for count in (1, 7) if not step.startswith(("report", "replace")) else (1,):
                folder, before = Path(root) / f"{step}{count}", server.requests
                prepare(folder, server.base)
                kills = 0
                for _ in range(2):  # the same step again while resuming
                    process = start(folder, begun(folder), f"{step}:{count}")
                    process.communicate(timeout=120)
                    kills += process.returncode == -signal.SIGKILL
                assert kills, f"{step}:{count} was never reached"
                twice = check(folder, server, before, kills, whole)
                print(f"{step}:{count}: {kills} kills, {twice} requests sent twice; ended as if never killed")


if __name__ == "__main__":
    main()
