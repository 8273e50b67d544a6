"""Kills workers of an executor at random moments, and drivers, and compares with a run in one process, never killed.

    python contrib/bench/promises/kill_workers.py [--executor ray] [--kills 20]

Passes if every run ends with the same winner, scores, gain and ledger; and if what the server saw beyond the ledger is
no more than the requests that are told as in flight at the kills.
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

from kill_resume import CONCURRENCY, begun, check, comparable, finish, prepare, start
from simulated_server import SimulatedServer

#: How the processes of workers look in a list of processes.
PATTERNS = {"ray": "ray::WorkerActor", "slurm": "submitit.core._submit"}
SETTINGS: dict[str, dict[str, Any]] = {"ray": {"workers": 2}, "slurm": {"workers": 2, "cluster": "local"}}


def prepare_with(folder: Path, base: str, executor: str) -> None:
    """The task of kill_resume.py, with rows in workers."""
    prepare(folder, base)
    path = folder / "workflow.yaml"
    spec = json.loads(path.read_text())
    spec["executor"] = {executor: {**SETTINGS[executor], **({"host": "127.0.0.1"} if executor == "slurm" else {})}}
    path.write_text(json.dumps(spec))


def workers(executor: str) -> list[int]:
    found = subprocess.run(["pgrep", "-f", PATTERNS[executor]], capture_output=True, text=True).stdout.split()
    return [int(pid) for pid in found if int(pid) != os.getpid()]


def kill_workers(folder: Path, rng: random.Random, executor: str, most: int) -> tuple[dict[str, Any], int]:
    """Run to the end, and kill workers meanwhile. Returns the report and the number of kills."""
    process, killed = start(folder, False), 0
    while process.poll() is None:
        time.sleep(rng.uniform(1.0, 3.0))
        if killed < most and (found := workers(executor)):
            try:
                os.kill(rng.choice(found), signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
    out, err = process.communicate()
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1]), killed


def kill_drivers(folder: Path, rng: random.Random, most: int, seconds: float) -> int:
    """Kill the driver and resume it, until the run ends or was killed often enough."""
    done = 0
    while done < most:
        process = start(folder, begun(folder))
        time.sleep(rng.uniform(2.0, seconds))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if process.returncode == 0:
            break
        done += 1
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executor", choices=PATTERNS, default="ray")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.3)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    with SimulatedServer(latency=asked.latency) as server, tempfile.TemporaryDirectory() as root:
        prepare(Path(root) / "whole", server.base)
        whole = finish(Path(root) / "whole")
        print(f"in one process: {whole['spent']['calls']} calls, winner {whole['best']['workflow']}", flush=True)
        done = runs = twice = told = 0
        while done < asked.kills:
            folder, before = Path(root) / f"workers{runs}", server.requests
            prepare_with(folder, server.base, asked.executor)
            report, killed = kill_workers(folder, rng, asked.executor, min(5, asked.kills - done))
            again, unknown = server.requests - before - report["spent"]["calls"], report["spent"]["unknown"]
            assert comparable(report) == comparable(whole), (comparable(report), comparable(whole))
            assert again <= unknown <= killed * CONCURRENCY, (again, unknown, killed)
            done, runs, twice, told = done + killed, runs + 1, twice + again, told + unknown
            print(f"workers: {done} kills, {twice} requests sent again, {told} told", flush=True)
        done = twice = 0
        while done < asked.kills:
            folder, before = Path(root) / f"drivers{runs}", server.requests
            prepare_with(folder, server.base, asked.executor)
            killed = kill_drivers(folder, rng, min(5, asked.kills - done), 15.0)
            twice += check(folder, server, before, killed, whole)
            done, runs = done + killed, runs + 1
            print(f"drivers: {done} kills, {twice} requests sent again; all ended as if never killed", flush=True)


if __name__ == "__main__":
    main()
