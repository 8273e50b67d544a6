"""A journal of many calls: memory stays flat, lookups stay fast, and a replay is quick.

python contrib/bench/speed/journal_size.py --calls 100000
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path

from workbench.ledger import Ledger
from workbench.lm import Request
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench_testing import SimulatedLM


def request(index: int) -> Request:
    return Request(
        ({"role": "system", "content": "Label it."}, {"role": "user", "content": f"text: row {index}\nlabel:"})
    )


def megabytes() -> float:
    """Resident memory now, not at its peak."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


async def course(calls: int, folder: Path) -> None:
    spec, lm = lm_spec("openai/simulated"), SimulatedLM(concurrency=256)
    store = Store(folder / "run.db")
    store.execute("insert into runs (run, status, started, spec, options) values ('b', 'running', '', '', '')")
    ledger = Ledger(store, 1, BudgetSpec())
    marks = []
    begun = time.perf_counter()
    for start in range(0, calls, 500):
        await asyncio.gather(
            *(ledger.call(lm, request(i), "task", spec) for i in range(start, min(start + 500, calls)))
        )
        lm.texts.clear()  # the simulation's own notes are not what is measured
        lm.keys.clear()
        if (start + 500) % (calls // 5) == 0:
            marks.append(megabytes())
    print(
        f"written: {calls / (time.perf_counter() - begun):,.0f} calls a second; memory in MB at each fifth: "
        f"{', '.join(f'{m:.0f}' for m in marks)}"
    )
    again = Ledger(store, 1, BudgetSpec())
    begun, before = time.perf_counter(), lm.requests
    for index in range(calls):
        await again.call(lm, request(index), "task", spec)
    seconds = time.perf_counter() - begun
    assert lm.requests == before, "a recorded call was sent again"
    rng, times = random.Random(0), []
    for _ in range(2000):
        key = request(rng.randrange(calls)).key(lm.identity)
        begun = time.perf_counter()
        assert store.row("select * from calls where run_id = 1 and key = ?", key) is not None
        times.append(time.perf_counter() - begun)
    print(
        f"replayed: {calls / seconds:,.0f} calls a second; lookup median {statistics.median(times) * 1e3:.3f} ms, "
        f"99% {sorted(times)[int(len(times) * 0.99)] * 1e3:.3f} ms; memory {megabytes():.0f} MB; "
        f"database {(folder / 'run.db').stat().st_size / 1e6:.0f} MB"
    )
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(course(parser.parse_args().calls, Path(folder)))


if __name__ == "__main__":
    main()
