"""Kills runs of an agent behind the gateway at random moments, resumes them, and counts what its server was asked.

    python contrib/bench/promises/kill_gateway.py --kills 50

The agent is a program that is not changed; each row starts it, and its requests pass through the gateway as they are.
Passes if every run ends with the same winner, scores, gain and ledger as the one never killed; if the server was asked
all that it was asked then; and if what it was asked beyond that is no more than the ledger says was in flight at a
kill: each recorded call is paid once.
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
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[3]))  # for the agent of the tests

from kill_resume import begun, comparable
from simulated_server import SimulatedServer
from tests.helpers.external_agents import SORTER, write_agent

CONCURRENCY = 4
CLI = [sys.executable, "-c", "from workbench.cli import main; main()"]


def prepare(folder: Path, base: str) -> None:
    """The simulated task with an agent as its node, whose prompt is found and rewritten."""
    path = write_agent(folder, SORTER, rows=(6, 8, 8))
    spec = json.loads(path.read_text())
    spec["lm"] = {"model": "openai/simulated", "api_base": base, "timeout": 5, "concurrency": CONCURRENCY}
    spec["optimize"] = [{"rewrite": {"rounds": 1}}]
    path.write_text(json.dumps(spec))


def start(folder: Path) -> subprocess.Popen[str]:
    resumed, begin = ["resume", "last"], ["optimize", "workflow.yaml", "--out", "out.yaml"]
    command = [*CLI, *(resumed if begun(folder) else begin), "--db", "run.db", "--json"]
    env = {**os.environ, "WORKBENCH_TRUST": str(folder)}
    return subprocess.Popen(
        command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def finish(folder: Path) -> dict[str, Any]:
    process = start(folder)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def kill(folder: Path, seconds: float) -> bool:
    """Kill a run after some seconds. False if it had ended before."""
    process = start(folder)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def asked_since(server: SimulatedServer, before: Counter[str]) -> Counter[str]:
    with server.lock:
        return server.bodies - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--each", type=int, default=5, help="kills of one run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.05)
    args = parser.parse_args()
    rng, done, runs, twice = random.Random(args.seed), 0, 0, 0
    with SimulatedServer(latency=args.latency) as server, tempfile.TemporaryDirectory() as root:
        folder, clock = Path(root) / "whole", time.monotonic()
        prepare(folder, server.base)
        report, seconds = finish(folder), time.monotonic() - clock
        whole, asked = comparable(report), asked_since(server, Counter())
        assert asked.total() == report["spent"]["calls"], "a run that is never killed asks what it says"
        print(
            f"never killed: {asked.total()} calls in {seconds:.1f} s, winner {report['best']['workflow']}", flush=True
        )
        while done < args.kills:
            runs, folder, before = runs + 1, Path(root) / f"run{runs}", Counter(server.bodies)
            prepare(folder, server.base)
            kills = 0
            for _ in range(min(args.each, args.kills - done)):
                kills += kill(folder, rng.uniform(0.3, seconds))
            report, seen = finish(folder), asked_since(server, before)
            again, unknown = (seen - asked).total(), report["spent"]["unknown"]
            assert comparable(report) == whole, (comparable(report), whole)
            assert not asked - seen, "a call of the whole run was never made"
            assert again <= unknown <= kills * CONCURRENCY, (again, unknown, kills)
            done, twice = done + kills, twice + again
            print(f"{done} kills in {runs} runs", flush=True)
        print(f"{done} kills in {runs} runs: all ended as if never killed; {twice} requests in flight were sent again")


if __name__ == "__main__":
    main()
