"""Decode steps of the rollouts of a training on one and on several processes, as counts and not as time.

    python contrib/bench/training/ranks.py [--processes 1 2] [--rollouts 64 256] [--turns 1 10] [--median 20] [--seed 0]

Each rollout asks for its turns one after the other; the tokens of a turn are drawn from a log-normal distribution. As
in a training, 64 calls are in flight for each process. A line of JSON for each setting: the steps of decoding of the
process that takes most (`static`, `continuous`; where batches are static, processes also wait for each other after
each), the rows that each process draws, and the steps of one process divided by these. The processes are gloo's on a
CPU; a step of half of the rows is a step here, which on a GPU takes about as long, and on a CPU not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))


def count(place: Path, lengths: list[list[int]], continuous: bool) -> None:
    """One of the processes: the first asks for all rollouts. Writes how many steps and rows it decoded."""
    import torch

    from workbench_engine.generation import Generator, Row
    from workbench_training.model.policy import Policy
    from workbench_training.presets import make_objective
    from workbench_training.scale import distributed
    from workbench_training.scale.drawing import SpreadEngine
    from workbench_training.serving.policy_lm import LocalEngine
    from workbench_training.settings import Learning

    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    seen, logits, begin = {"steps": 0, "rows": 0}, Generator._logits, Generator._begin

    def computed(self: Generator, ids: torch.Tensor, *more: Any) -> torch.Tensor:
        seen["steps"] += ids.shape[1] == 1
        return logits(self, ids, *more)

    def begun(self: Generator, rows: list[Row]) -> Any:
        self.ends = set()  # answers end at their length alone
        seen["rows"] += len(rows)
        return begin(self, rows)

    Generator._logits, Generator._begin = computed, begun  # type: ignore[method-assign]

    def lead() -> int:
        policy = Policy(str(place / "base"), device="cpu")
        if size == 1:
            engine = LocalEngine(policy.generator, continuous=continuous)
        else:
            distributed.learner_for(policy, make_objective("grpo"), Learning())
            engine = SpreadEngine(policy, continuous=continuous)
        asyncio.run(draw(engine, lengths))
        return 0

    lead() if size == 1 else distributed.share(rank, size, lead)
    (place / f"seen-{rank}.json").write_text(json.dumps(seen))


async def draw(engine: Any, lengths: list[list[int]]) -> None:
    from workbench.lm import Request

    places = asyncio.Semaphore(engine.concurrency)

    async def rollout(number: int, turns: list[int]) -> None:
        for turn, tokens in enumerate(turns):
            async with places:
                said = ({"role": "user", "content": f"turn {turn}"},)
                await engine.complete(Request(said, 1.0, tokens, replica=number))

    await asyncio.gather(*(rollout(i, turns) for i, turns in enumerate(lengths)))
    await engine.aclose()


def measure(place: Path, processes: int, lengths: list[list[int]], continuous: bool) -> list[dict[str, int]]:
    """What each process counted."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = str(found.getsockname()[1])
    (place / "lengths.json").write_text(json.dumps(lengths))
    common = {**os.environ, "WORLD_SIZE": str(processes), "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    command = [sys.executable, "-W", "ignore", __file__, "--count", str(place), *(["--continuous"] * continuous)]
    jobs = [subprocess.Popen(command, env={**common, "RANK": str(rank)}) for rank in range(processes)]
    if codes := [code for job in jobs if (code := job.wait())]:
        raise SystemExit(f"a process ended with {codes[0]}")
    return [json.loads((place / f"seen-{rank}.json").read_text()) for rank in range(processes)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rollouts", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--turns", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--median", type=float, default=20.0, help="tokens of a turn")
    parser.add_argument("--sigma", type=float, default=1.0, help="of the logarithm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--continuous", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.count:
        return count(options.count, json.loads((options.count / "lengths.json").read_text()), options.continuous)
    from tests.helpers.tiny_lm import save

    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / "base", 0, positions=4096)
        for rollouts in options.rollouts:
            for turns in options.turns:
                rng = random.Random(options.seed)
                lengths = [
                    [1 + round(options.median * rng.lognormvariate(0, options.sigma)) for _ in range(turns)]
                    for _ in range(rollouts)
                ]
                alone: dict[str, int] = {}
                for processes in options.processes:
                    found: dict[str, Any] = {"rollouts": rollouts, "turns": turns, "processes": processes}
                    for name in ("static", "continuous"):
                        seen = measure(Path(folder), processes, lengths, name == "continuous")
                        found[name] = max(one["steps"] for one in seen)
                        alone.setdefault(name, found[name])
                        found |= {f"{name}_rows": [one["rows"] for one in seen]}
                        found |= {f"{name}_ratio": round(alone[name] / found[name], 2)}
                    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
