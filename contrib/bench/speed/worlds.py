"""Processor time of a live step: episodes of a world that does nothing, beside the same calls without a world.

    python contrib/bench/speed/worlds.py [--episodes 1000] [--steps 50] [--at-once 64]

A scripted model answers at once, in this process. "Calls alone" is the same node in a `loop` of as many rounds, with
the same prompts; what `play` needs above that is the cost of the worlds: effects in the journal, pipes, and the
processes of worlds themselves, which are counted with their forks. The machine's other work is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import resource
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.base.concurrency import run_in_loop
from workbench.ledger import Ledger
from workbench.lm import LMPool, Request, Response
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import Workflow, node_tree

WORLD = """
class Corridor:
    def reset(self, task):
        self.at, self.done = 0, False
        return "room 0"

    def step(self, action):
        self.at += 1
        return f"room {self.at}"

    def score(self):
        return 1.0
"""


class Walker:
    """Counts on from the first number that it is shown, so that no two prompts of an episode are the same."""

    identity, concurrency = "walker", 64

    async def complete(self, request: Request) -> Response:
        shown = re.search(r"(?:action|observation): \D*(\d+)", str(request.messages[-1]["content"]))
        assert shown is not None
        return Response(f"action: {int(shown[1]) + 1}", "stop", 5, 2, 0.0)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def aclose(self) -> None:
        pass


class Pool(LMPool):
    """Gives everybody the walker."""

    def get(self, spec: Any) -> Any:
        return Walker()


def processor_seconds() -> tuple[float, float]:
    """(of this process, of those that have ended)."""
    own, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, ended.ru_utime + ended.ru_stime


def measure(node: Mapping[str, Any], episodes: int, at_once: int, folder: Path) -> tuple[float, float, float]:
    """(processor seconds of this process, of the worlds, seconds of the clock) for all episodes."""
    workflow, free = Workflow({"nodes": {"act": node_tree(node)}}, folder), asyncio.Semaphore(at_once)

    async def main() -> tuple[float, float, float]:
        store = Store(Path(tempfile.mkdtemp(dir=folder)) / "bench.db")
        store.execute("insert into runs (run, status, started, spec, options) values ('b', 'running', '', '', '')")
        runtime = Runtime(Ledger(store, 1, BudgetSpec()), lm_spec("openai/walker"), {}, Pool())
        program = Program(workflow, runtime)

        async def episode(number: int) -> None:
            async with free:
                outcome = await program.run(Example(str(number), {"name": str(number)}))
            assert outcome.failure is None, outcome.message

        (own, ended), begun = processor_seconds(), time.perf_counter()
        await asyncio.gather(*map(episode, range(episodes)))
        await runtime.aclose()
        runtime.ledger.close()
        store.close()
        after, clock = processor_seconds(), time.perf_counter() - begun
        return after[0] - own, after[1] - ended, clock

    return run_in_loop(main())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=64)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "corridor.py").write_text(WORLD)
        ask = {"predict": "observation, name -> action"}
        play = {"play": "python:corridor.py:Corridor", "task": {"name": "name"}, "of": ask, "max_steps": args.steps}
        loop = {"loop": {"predict": "action, name -> action"}, "carry": {"action": "0"}, "rounds": args.steps}
        steps = args.episodes * args.steps
        for what, node in (("calls alone", loop), ("live worlds", play)):
            own, worlds, clock = measure(node, args.episodes, args.at_once, folder)
            print(
                f"{what}: {args.episodes} episodes of {args.steps} steps, {args.at_once} at once: {clock:.1f} s; "
                f"a step {1000 * own / steps:.2f} ms of this process, {1000 * worlds / steps:.2f} ms of worlds"
            )


if __name__ == "__main__":
    main()
