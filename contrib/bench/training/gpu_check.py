"""Numbers of training on a GPU beside those on the CPU, with a small random model. Exits with 1 where one is off.

    python contrib/bench/training/gpu_check.py                   # on a GPU
    python contrib/bench/training/gpu_check.py --device cpu      # fewer rows, a smaller model: shows that it runs

A line for each check: the gradient of a step of the learner (all weights and an adapter; layers kept and recomputed;
rows whole and split) in float32, as a distance, and in bfloat16, as a cosine; draws of batches in fixed shape, which a
GPU replays as a graph, beside those of batches that grow; rows that join; and how far the log-probabilities of drawing
and training are apart.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.helpers.tiny_lm import save

from workbench.lm import Request
from workbench_engine import fixed_batch
from workbench_engine.fixed_batch import FixedBatch
from workbench_engine.generation import Generator, Refill, Row as Drawn
from workbench_training.learner import Learner
from workbench_training.model.policy import Policy
from workbench_training.presets import make_objective
from workbench_training.rollouts.token_rows import Row, collate
from workbench_training.serving.policy_lm import LocalEngine
from workbench_training.settings import Learning, Lora

FAILED = list[str]()


def told(name: str, value: float, bound: float, least: bool = False) -> None:
    """Print a number and what it must not exceed, or reach."""
    right = value >= bound if least else value <= bound
    print(f"{'ok  ' if right else 'OFF '} {name}: {value:.3g} ({'>=' if least else '<='} {bound:g})", flush=True)
    if not right:
        FAILED.append(name)


@contextmanager
def exactly(on: bool) -> Iterator[None]:
    """Products in float32, also on a GPU."""
    mixed = Policy.mixed
    if on:
        Policy.mixed = lambda self, cached=True: torch.autocast(self.device.type, enabled=False)  # type: ignore[method-assign]
    try:
        yield
    finally:
        Policy.mixed = mixed  # type: ignore[method-assign]


def make_rows() -> list[Row]:
    """Three prompts for twelve rows, answers of 1 to 60 tokens."""
    rng, found = random.Random(0), []
    prompts = [tuple(rng.randrange(5, 40) for _ in range(n)) for n in (30, 170, 90)]
    for i in range(12):
        n = rng.randrange(1, 60)
        answer = tuple(rng.randrange(5, 40) for _ in range(n))
        found.append(Row(prompts[i % 3], answer, (1,) * n, (-4.0,) * n, float(i % 2), str(i % 3), i))
    return found


def gradient(base: str, device: str, lora: Lora | None, checkpointing: bool, tokens: int) -> torch.Tensor:
    """Of a step, over all trained weights."""
    policy = Policy(base, device=device, lora=lora, seed=0, dtype="float32", checkpointing=checkpointing)
    learner, found = Learner(policy, make_objective("dapo"), Learning(micro_tokens=tokens)), list[torch.Tensor]()
    learner.optimizer = SimpleNamespace(  # type: ignore[assignment]
        step=lambda: found.extend(p.grad.cpu().flatten() for p in policy.trained.values()),
        zero_grad=lambda **how: [setattr(p, "grad", None) for p in policy.trained.values()],
        param_groups=learner.optimizer.param_groups,
    )
    rows = make_rows()
    learner.step(rows, [1.0 if i % 2 else -0.7 for i in range(len(rows))], 0)
    return torch.cat(found)


def check_gradients(base: str, device: str) -> None:
    for lora in (None, Lora(rank=4)):
        with exactly(True):
            wanted = gradient(base, "cpu", lora, False, 16384)
        for checkpointing in (False, True):
            for tokens in (16384, 100):
                name = f"gradient, {'adapter' if lora else 'all weights'}, {checkpointing=}, passes of {tokens}"
                with exactly(True):
                    found = gradient(base, device, lora, checkpointing, tokens)
                told(f"{name}, float32", float((found - wanted).norm() / wanted.norm()), 1e-4)
                rounded = gradient(base, device, lora, checkpointing, tokens)
                cosine = torch.nn.functional.cosine_similarity(rounded, wanted, dim=0)
                told(f"{name}, bfloat16", float(cosine), 0.999, least=True)


def some(count: int) -> list[Drawn]:
    rng = random.Random(1)
    return [
        Drawn(
            [rng.randrange(5, 40) for _ in range(rng.randrange(3, 200))],
            rng.randrange(1, 200),
            1.0,
            1.0,
            (),
            i,
        )
        for i in range(count)
    ]


def drawn(generator: Generator, fixed: bool, count: int) -> tuple[list[Drawn], list[FixedBatch]]:
    """Rows of which a third runs at once, and the batches in fixed shape that there were."""
    rows, made, begin, devices = some(count), list[FixedBatch](), FixedBatch.__init__, fixed_batch.DEVICES
    waiting = rows[count // 3 :]

    def take(running: int) -> list[Drawn]:
        found = waiting[: max(0, count // 3 - running)]
        del waiting[: len(found)]
        return found

    def watched(self: FixedBatch, *given: Any) -> None:
        begin(self, *given)
        made.append(self)

    fixed_batch.DEVICES = (generator.device.type,) if fixed else ()
    FixedBatch.__init__ = watched  # type: ignore[method-assign]
    try:
        generator.generate(rows[: count // 3], Refill(take))
    finally:
        FixedBatch.__init__, fixed_batch.DEVICES = begin, devices  # type: ignore[method-assign]
    return rows, made


def check_draws(base: str, device: str, count: int) -> None:
    """In float32 nearly all tokens must be the same: a draw close to an edge may fall to its other side."""
    generator = Generator.load(base, device=device, dtype="float32")
    generator.ends = set()
    plain, _ = drawn(generator, False, count)
    for name, looks in (("graph", False), ("a model that cannot be captured", True)):
        real = generator._logits
        if looks:

            def looking(*given: Any, real: Any = real) -> torch.Tensor:
                assert float(given[0].sum()) >= 0  # the host waits for a number
                return real(*given)

            generator._logits = looking  # type: ignore[method-assign]
        rows, made = drawn(generator, True, count)
        generator._logits = real  # type: ignore[method-assign]
        same = [a.ids == b.ids for a, b in zip(plain, rows, strict=True)]
        told(f"{name}: rows with the same tokens", sum(same) / len(same), 0.97, least=True)
        gaps = [
            abs(x - y)
            for a, b, is_same in zip(plain, rows, same, strict=True)
            if is_same
            for x, y in zip(a.logprobs, b.logprobs, strict=True)
        ]
        told(f"{name}: largest gap of log-probabilities", max(gaps), 1e-3)
        told(f"{name}: batches in fixed shape", len(made), 1, least=True)
        on_gpu = device != "cpu" and not looks
        told(f"{name}: captured", sum(b._captures for b in made) / len(made), float(on_gpu), least=on_gpu)


def check_drift(base: str, device: str) -> None:
    """Between log-probabilities of what draws and of what learns, in nats, as a training in bfloat16 has it."""
    for lora in (None, Lora(rank=4)):
        policy = Policy(base, device=device, lora=lora, seed=0)
        policy.generator.ends = set()

        async def draw(policy: Policy = policy) -> Any:
            engine = LocalEngine(policy.generator, 0, 32)
            asked = [
                Request(({"role": "user", "content": "ab" * (i % 40 + 1)},), 1.0, 100, replica=i) for i in range(64)
            ]
            try:
                return await asyncio.gather(*map(engine.complete, asked))
            finally:
                await engine.aclose()

        answers = asyncio.run(draw())
        rows = [
            Row(tuple(r.prompt_ids), tuple(r.token_ids), (1,) * len(r.token_ids), tuple(r.logprobs), 1.0, "t", i)
            for i, r in enumerate(answers)
        ]
        batch = collate(rows, policy.device)
        gaps = (policy.sampling_log_probabilities(batch) - batch.sampled)[batch.mask.bool()].abs()
        told(f"drift, {'adapter' if lora else 'all weights'}: mean of {len(gaps)} tokens", float(gaps.mean()), 0.01)
        told(f"drift, {'adapter' if lora else 'all weights'}: largest", float(gaps.max()), 0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args().device
    with tempfile.TemporaryDirectory() as folder:
        shape, count = ({}, 12) if device == "cpu" else ({"hidden": 256, "layers": 4}, 120)
        base = str(save(Path(folder) / "base", 1, positions=1024, **shape))
        check_gradients(base, device)
        check_draws(base, device, count)
        check_drift(base, device)
    sys.exit(f"{len(FAILED)} of these are off" if FAILED else 0)


if __name__ == "__main__":
    main()
