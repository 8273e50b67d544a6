"""Decode steps of rollouts of several turns in this process, with and without refill, as counts and not as time.

    python contrib/bench/training/refill.py [--rollouts 64] [--turns 1 10 40] [--median 20] [--sigma 1.0] [--seed 0]

Each rollout asks for its turns one after the other; the tokens of a turn are drawn from a log-normal distribution. A
line of JSON for each number of turns: the steps of decoding that all rollouts take together where a batch ends with its
longest row (`static`) and where waiting rows join it (`refill`), the share of the batch's places that a step computes
(`busy`), and the steps that the longest rollout takes alone (`least`; the first token of a turn comes with its prompt).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.helpers.tiny_lm import make_model, make_tokenizer

from workbench.lm import Request
from workbench_engine.generation import Generator
from workbench_training.serving.policy_lm import LocalEngine


class Counting(Generator):
    """Counts the rows of each step of decoding. Answers end at their length alone."""

    def __init__(self) -> None:
        super().__init__(make_model(positions=4096), make_tokenizer())
        self.ends, self.steps = set(), list[int]()

    def _logits(self, ids: torch.Tensor, *more: Any) -> torch.Tensor:
        if ids.shape[1] == 1:
            self.steps.append(len(ids))
        return super()._logits(ids, *more)


async def draw(generator: Counting, lengths: list[list[int]], continuous: bool) -> None:
    """All rollouts at once, each with so many tokens in each of its turns."""
    engine = LocalEngine(generator, 0, len(lengths), continuous=continuous)

    async def rollout(number: int, turns: list[int]) -> None:
        for turn, tokens in enumerate(turns):
            said = ({"role": "user", "content": f"turn {turn}"},)
            await engine.complete(Request(said, 1.0, tokens, replica=number))

    await asyncio.gather(*(rollout(i, turns) for i, turns in enumerate(lengths)))
    await engine.aclose()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--turns", type=int, nargs="+", default=[1, 10, 40])
    parser.add_argument("--median", type=float, default=20.0, help="tokens of a turn")
    parser.add_argument("--sigma", type=float, default=1.0, help="of the logarithm")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for turns in options.turns:
        rng = random.Random(options.seed)
        lengths = [
            [1 + round(options.median * rng.lognormvariate(0, options.sigma)) for _ in range(turns)]
            for _ in range(options.rollouts)
        ]
        found: dict[str, Any] = {"rollouts": options.rollouts, "turns": turns}
        for name in ("static", "refill"):
            generator = Counting()
            asyncio.run(draw(generator, lengths, name == "refill"))
            busy = sum(generator.steps) / (options.rollouts * len(generator.steps))
            found |= {name: len(generator.steps), f"{name}_busy": round(busy, 2)}
        found["least"] = max(sum(tokens - 1 for tokens in turn) for turn in lengths)
        found["ratio"] = round(found["static"] / found["refill"], 2)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
