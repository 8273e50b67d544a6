"""How long a large graph takes to check, and what the runtime adds for each node; independent nodes run at once.

    python contrib/bench/speed/large_graph.py [NODES]

The nodes do nothing, so all time is ours. Shapes: a chain; wide (all nodes but the last side by side); layers of 20
nodes, each of which reads all of the layer before it. Targets for 1,000 nodes: checked in 100 ms, at most 0.2 ms for a
node.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.ledger import Ledger
from workbench.plugins import plugins
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import NodeConfig, NodeKind, Workflow

LAYER = 20
SLEEP = 0.05


class NothingConfig(NodeConfig):
    """Settings of a node that does nothing."""

    writes: str
    reads: list[str] = []
    sleep: float = 0.0


class Nothing(NodeKind):
    """Gives a one, after a while if it is told to sleep."""

    Config = NothingConfig
    primary = "writes"

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.config.reads)

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.config.writes,)

    async def run(self, inputs: Mapping[str, Any], ctx: Any) -> Mapping[str, Any]:
        if self.config.sleep:
            await asyncio.sleep(self.config.sleep)
        return {self.config.writes: 1}


def chain(n: int) -> Workflow:
    return _workflow([[f"f{i - 1}"] if i else ["x"] for i in range(n)])


def wide(n: int, sleep: float = 0.0) -> Workflow:
    return _workflow([*([["x"]] * (n - 1)), [f"f{i}" for i in range(n - 1)]], sleep)


def layers(n: int) -> Workflow:
    starts = [(i // LAYER - 1) * LAYER for i in range(n)]
    return _workflow([[f"f{s + k}" for k in range(LAYER)] if s >= 0 else ["x"] for s in starts])


def _workflow(reads: list[list[str]], sleep: float = 0.0) -> Workflow:
    return Workflow(
        {
            "nodes": {
                f"n{i}": {"kind": "nothing", "writes": f"f{i}", "reads": r, "sleep": sleep} for i, r in enumerate(reads)
            }
        }
    )


def seconds(job: Callable[[], Any]) -> float:
    """Of the processor, since other work may have its turn, and without collecting the garbage of what ran before."""
    gc.collect()
    gc.disable()
    try:
        begun = time.process_time()
        job()
        return time.process_time() - begun
    finally:
        gc.enable()


def measure(workflow: Workflow, runs: int = 5) -> tuple[float, float]:
    """(seconds of the processor to check the graph and find its inputs, seconds of the fastest of several runs)."""
    checked = seconds(lambda: Workflow(workflow.tree, workflow.base).input_fields)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "bench.db")
        store.execute("insert into runs (run, status, started, spec, options) values ('b', 'running', '', '', '')")
        program = Program(workflow, Runtime(Ledger(store, 1, BudgetSpec()), lm_spec("bundled/nano")))

        async def main() -> float:
            times = []
            for _ in range(runs):
                begun = time.perf_counter()
                outcome = await program.run(Example("1", {"x": 1}))
                times.append(time.perf_counter() - begun)
                assert outcome.failure is None and len(outcome.trace.spans) == len(workflow.nodes)
            return min(times)

        try:
            return checked, asyncio.run(main())
        finally:
            store.close()


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    plugins()._tables["node_kinds"]["nothing"] = (Nothing, "bench")
    measure(chain(2))  # imports
    for shape in (chain, wide, layers):
        checked, ran = measure(shape(n))
        print(f"{shape.__name__:<8} {n} nodes: checked in {1000 * checked:.0f} ms, {1000 * ran / n:.3f} ms a node")
    _, ran = measure(wide(n, SLEEP))
    print(f"wide, each node sleeps {SLEEP:g} s: {ran:.3f} s; the ideal is {2 * SLEEP:g} s")


if __name__ == "__main__":
    main()
