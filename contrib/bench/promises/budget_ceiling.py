"""Runs under many ceilings against a server that fails in every way at 10% each: never one request too many.

    python contrib/bench/promises/budget_ceiling.py --ceilings 1 2 3 5 10 50 100 300 1000

Passes if no run sends more requests than its ceiling, every run ends normally (exit code 0) with a report, and the
result file is a workflow that validates.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from simulated_server import FAULTS, SimulatedServer

from workbench_testing import write_task

CLI = [sys.executable, "-c", "from workbench.cli import main; main()"]


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of workbench in a process of its own."""
    return subprocess.run([*CLI, *words], cwd=folder, capture_output=True, text=True, timeout=600)


def run(folder: Path, ceiling: int, faults: dict[str, float], seed: int) -> tuple[int, dict[str, Any]]:
    """(requests that the server saw, report) of one run in a process of its own."""
    with SimulatedServer(faults, seed=seed) as server:
        path = write_task(folder, budget={"calls": ceiling}, seed=seed)
        spec = json.loads(path.read_text())
        spec["lm"] = {"model": "openai/simulated", "api_base": server.base, "timeout": 0.4, "concurrency": 8}
        spec["optimize"], spec["concurrency"] = [{"random": {"trials": 100}}], 8
        spec["proof"] = {"when_unchanged": "test"}  # so that the ceiling is always reached
        path.write_text(json.dumps(spec))
        done = call(folder, "optimize", "workflow.yaml", "--out", "out.yaml", "--allow-unproved", "--json")
        report = json.loads(done.stdout.splitlines()[-1])
        if report["status"] == "failed":  # all that the ceiling allowed fell to faults
            assert done.returncode == 1 and "was answered before the budget ended" in report["error"], report["error"]
            assert sum(report["spent"]["failed"].values()) == server.requests
            return server.requests, report
        assert done.returncode == 0, f"ceiling {ceiling}: exit {done.returncode}\n{done.stderr[-2000:]}"
        valid = call(folder, "validate", "out.yaml")
        assert valid.returncode == 0, valid.stderr
        return server.requests, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ceilings", type=int, nargs="+", default=[*range(1, 21), 50, 100, 200, 400, 700, 1000])
    parser.add_argument("--each", action="store_true", help="each kind of fault alone at 10%%, instead of all together")
    args = parser.parse_args()
    mixes = [{kind: 0.1} for kind in FAULTS] if args.each else [{kind: 0.9 / len(FAULTS) / 2 for kind in FAULTS}]
    for faults in mixes:
        for ceiling in args.ceilings:
            with tempfile.TemporaryDirectory() as folder:
                seen, report = run(Path(folder), ceiling, faults, seed=ceiling)
                assert seen <= ceiling, f"{seen} requests with a ceiling of {ceiling}"
                name = next(iter(faults)) if args.each else "all faults"
                print(
                    f"{name}: ceiling {ceiling}, seen {seen}, {report['status']}, test n={report['best']['test']['n']}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
