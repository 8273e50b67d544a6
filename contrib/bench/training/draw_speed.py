"""Speed of drawing: in this process, and on a vLLM server; and how long the server takes for new weights and for sleep.

    python contrib/bench/training/draw_speed.py --device cuda --case 1.5b             # random weights
    python contrib/bench/training/draw_speed.py --device cuda --model FOLDER --lora --sleep
    python contrib/bench/training/draw_speed.py --model FOLDER --server '/opt/vllm/bin/vllm serve'
    python contrib/bench/training/draw_speed.py --toy                                 # on a CPU, a stand-in for vLLM

A line of JSON for each place: tokens a second (the median of `--rounds`, the first left out), and for a server the
seconds until it has started, and those of each transfer of weights (with the probe) and of each sleep. Random weights
seldom end an answer, so that all of them have `--tokens` tokens, which flatters batching without refill.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[3]))
from shapes import SHAPES, save_shape
from tests.helpers.tiny_lm import save

from workbench.lm import Request
from workbench_training.model.policy import Policy
from workbench_training.serving.policy_lm import Engine, LocalEngine
from workbench_training.serving.server_setup import make_transfer
from workbench_training.serving.vllm_engine import Limits, ServerEngine
from workbench_training.serving.vllm_server import ManagedServer
from workbench_training.serving.weight_transfer import list_options, resolve_transfer
from workbench_training.settings import Lora, ServerSettings


async def draw(engine: Engine, options: argparse.Namespace) -> list[float]:
    """Tokens a second of each round: so many prompts, `--rollouts` answers to each."""
    found = []
    for number in range(options.rounds + 1):
        requests = [
            Request(
                ({"role": "user", "content": f"{number} {i // options.rollouts} " + "abc " * options.prompt},),
                temperature=1.0,
                max_tokens=options.tokens,
                replica=i % options.rollouts,
            )
            for i in range(options.rows)
        ]
        begun = time.perf_counter()
        answers = await asyncio.gather(*map(engine.complete, requests))
        found.append(sum(a.completion_tokens for a in answers) / (time.perf_counter() - begun))
    return found[1:]


async def measure_here(policy: Policy, options: argparse.Namespace) -> dict[str, Any]:
    engine = LocalEngine(policy.generator, 0, options.rows)
    try:
        return {"where": "process", "tokens_per_second": round(statistics.median(await draw(engine, options)), 1)}
    finally:
        await engine.aclose()


async def measure_server(base: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The server starts before the policy is loaded, as in a training."""
    settings = ServerSettings.model_validate(
        {
            "command": options.server,
            "transfer": options.transfer,
            "memory": options.memory,
            "arguments": options.argument,
        }
    )
    kind = resolve_transfer(settings, lora=options.lora, device=options.device)
    flags, environment = list_options(kind, sleep=options.sleep, rank=16, adapters=1)
    server, begun = ManagedServer(str(base), settings, folder / "server.log", flags, environment), time.perf_counter()
    try:
        await server.start()
        found: dict[str, Any] = {"where": "server", "transfer": kind, "start": round(time.perf_counter() - begun, 1)}
        policy = load(base, options)
        limits = Limits(concurrency=options.rows)
        transfer = make_transfer(kind, policy, "p", folder / "weights")
        engine = ServerEngine(server.url, "p", policy, transfer, limits, sleep=options.sleep)
        try:
            await engine.at(0)
            speeds, sync, sleep = await draw(engine, options), list[float](), list[float]()
            for version in range(1, options.rounds + 1):
                begun = time.perf_counter()
                await engine.rest()
                sleep.append(time.perf_counter() - begun)
                begun = time.perf_counter()
                await engine.at(version)
                sync.append(time.perf_counter() - begun)
        finally:
            await engine.aclose()
    finally:
        await server.aclose()
    found |= {"tokens_per_second": round(statistics.median(speeds), 1), "sync": [round(s, 3) for s in sync]}
    return found | ({"sleep": [round(s, 3) for s in sleep]} if options.sleep else {})


def load(base: Path, options: argparse.Namespace) -> Policy:
    return Policy(str(base), lora=Lora.model_validate({}) if options.lora else None, device=options.device)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a checkpoint; in place of a case with random weights")
    parser.add_argument("--case", choices=SHAPES, default="0.5b")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--server", default="vllm serve", help="what starts it; empty: none")
    parser.add_argument("--transfer", default="auto", choices=["auto", "ipc", "reload"])
    parser.add_argument("--memory", type=float, default=0.45)
    parser.add_argument(
        "--argument", action="append", default=[], help="for the server, e.g. --argument=--enforce-eager"
    )
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--sleep", action="store_true")
    parser.add_argument("--rows", type=int, default=128, help="answers in flight")
    parser.add_argument("--rollouts", type=int, default=8, help="answers to one prompt")
    parser.add_argument("--prompt", type=int, default=32, help="words of a prompt")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--toy", action="store_true")
    options = parser.parse_args()
    if options.toy:
        options.server, options.sleep = f"{sys.executable} -m tests.helpers.vllm_stand_in", True
        options.rows, options.tokens, options.rounds, options.prompt = 8, 8, 2, 2
    return options


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.toy:
            base = save(folder / "base", 0)
        else:
            base = Path(options.model) if options.model else save_shape(folder / "base", options.case)
        if options.server:
            print(json.dumps(asyncio.run(measure_server(base, folder, options))), flush=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        print(json.dumps(asyncio.run(measure_here(load(base, options), options))), flush=True)


if __name__ == "__main__":
    main()
