"""Our CPU time per evaluated example as a run grows: 10, 100 and 1,000 candidates.

    python contrib/bench/speed/optimizer_overhead.py [OPTIMIZER ...]

The language model is a formula in this process (a planted world), so all CPU time is ours: optimizer, runtime, ledger,
store. Each run is a process of its own, in which a small one went before (imports). Target: at most 2 ms an example.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

#: How many candidates each optimizer is asked for, and in which world.
RUNS: dict[str, tuple[str, Any]] = {
    "random": ("facets", lambda n: {"trials": n}),
    "optuna": ("settings", lambda n: {"trials": n}),
    "bootstrap": ("facets", lambda n: {"trials": n}),
    "evolve": ("rules", lambda n: {"trials": n}),
    "rewrite": ("rules", lambda n: {"rounds": max(1, n // 2), "patience": 1000}),
    "fgo": ("rules", lambda n: {"rounds": max(1, n // 40), "optimizer": {"rewrite": {"width": 1, "rounds": 8}}}),
    "memory": ("retrieval", lambda n: {"trials": max(1, min(100, n // 4))}),
    "prompt_mcts": ("rules", lambda n: {"rounds": max(1, n // 6)}),
    "textgrad": ("rules", lambda n: {"steps": n, "patience": 100}),
    "forge": ("functions", lambda n: {"steps": min(100, n), "patience": 100}),
}
SIZES = (10, 100, 1000)


def one(name: str, size: int) -> dict[str, Any]:
    """Run in this process; seconds of CPU, examples evaluated, candidates."""
    from workbench.plugins import plugins
    from workbench.run import Options, optimize
    from workbench.store import Store
    from workbench_bench.run_world import SimulatedPool, _write
    from workbench_bench.sizes import ROWS
    from workbench_bench.worlds import WORLDS

    world, parameters = RUNS[name]
    plugins().get("optimizers", name)
    with tempfile.TemporaryDirectory() as folder:
        file = _write(Path(folder), WORLDS[world], {name: parameters(size)}, 1_000_000, 0, ROWS)
        begun = time.process_time()
        optimize(
            file,
            database=Path(folder) / "run.db",
            pool=SimulatedPool(WORLDS[world]),
            options=Options(out=str(Path(folder) / "out.yaml"), allow_unproved=True),
        )
        cpu = time.process_time() - begun
        store = Store(Path(folder) / "run.db")
        row = store.row("select count(*) as n from candidates")
        done = store.row("select sum(n) as n from evaluations")
        calls = store.row("select count(*) as n from calls")
        store.close()
    assert row and done and calls
    return {"cpu": cpu, "examples": max(done["n"], calls["n"]), "candidates": row["n"]}


def main() -> None:
    if len(sys.argv) == 4 and sys.argv[1] == "--one":
        one(sys.argv[2], SIZES[0])  # what is imported or made once for a process is no cost of an example
        print(json.dumps(one(sys.argv[2], int(sys.argv[3]))))
        return
    print("| optimizer | candidates | examples evaluated | CPU per example |\n| --- | --- | --- | --- |")
    for name in sys.argv[1:] or RUNS:
        for size in SIZES:
            done = subprocess.run(
                [sys.executable, __file__, "--one", name, str(size)], capture_output=True, text=True, check=True
            )
            found = json.loads(done.stdout.splitlines()[-1])
            ms = 1000 * found["cpu"] / found["examples"]
            print(f"| {name} | {found['candidates']} | {found['examples']} | {ms:.2f} ms |", flush=True)


if __name__ == "__main__":
    main()
