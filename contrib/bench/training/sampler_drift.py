"""Sampler and trainer apart: how far rounding takes them, and what training does then, with and without correction.

    python contrib/bench/training/sampler_drift.py            # measures, with bundled/nano
    python contrib/bench/training/sampler_drift.py --learn    # trains, in the bandit of the tests

measured: rollouts of bundled/nano on tickets, drawn and scored in float32 or in bfloat16 (autocast). The figures are
those that each step of a training logs, and of the test of a server's weights: the largest mean |log-ratio| and the
largest divergence of any 8 consecutive tokens.

learned: a random Llama of 0.1 million weights is trained for 60 steps to write sevens, of which eight earn 1. What
draws is computed in bfloat16, is one version behind, or has noise of deviation 2 on its logits. Reported are the last
four steps' rewards, and what the policy earns when it is sampled itself.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.helpers.drifting_samplers import Bfloat16Sampler, LaggingSampler, PerturbedSampler, sample_policy
from tests.helpers.grpo_worlds import bandit, sevens

from workbench_engine.generation import Row as Drawn
from workbench_nano.provider import WEIGHTS
from workbench_training.correction import Drift, compute_log_ratio, measure_gap
from workbench_training.model.logprobs import log_probabilities
from workbench_training.model.policy import Policy
from workbench_training.presets import make_objective
from workbench_training.rollouts.token_rows import Row, collate

TICKETS = Path(__file__).parents[3] / "workflows/data/tickets.jsonl"
KINDS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SAMPLERS = {"bfloat16": Bfloat16Sampler, "one version behind": LaggingSampler, "noise": PerturbedSampler}
PROBE = 8


def measure(drawn_in: str, scored_in: str, tickets: int = 40, rollouts: int = 8, longest: int = 64) -> dict[str, Any]:
    """The drift of rollouts of bundled/nano."""
    policy = Policy(str(WEIGHTS), device="cpu")
    policy.mixed = lambda cached=True: autocast(drawn_in)  # type: ignore[method-assign]
    texts = [json.loads(line)["text"] for line in TICKETS.read_text(encoding="utf-8").splitlines()[:tickets]]
    prompts = [
        policy.generator.encode([{"role": "user", "content": f"Sort the support ticket by topic.\n\n{text}"}])
        for text in texts
    ]
    drawn = [Drawn(prompt, longest, 1.0, 1.0, (), i) for i, prompt in enumerate(prompts * rollouts)]
    drift, rows = Drift(), list[Any]()
    for start in range(0, len(drawn), 32):
        some = drawn[start : start + 32]
        policy.generator.generate(some)
        batch = collate([Row((*r.prompt_ids,), (*r.ids,), (1,) * len(r.ids), (*r.logprobs,), 0.0, "t") for r in some])
        with torch.no_grad(), autocast(scored_in):
            log_ratio = compute_log_ratio(log_probabilities(policy.inner, batch)[0], batch.sampled, batch.mask)
        drift.add(log_ratio, batch.mask, torch.ones(len(some), dtype=torch.bool), True)
        rows += [row[mask > 0].numpy() for row, mask in zip(log_ratio, batch.mask, strict=True)]
    probes = [measure_gap(row[i : i + PROBE]) for row in rows for i in range(0, len(row) - PROBE + 1, PROBE)]
    worst = dict(zip(("probe_gap_max", "probe_kl_max"), map(max, zip(*probes, strict=True)), strict=True))
    tokens = np.concatenate(rows)
    return {
        "tokens": len(tokens),
        "largest": float(np.abs(tokens).max()),
        "share_above_0.05": float((np.abs(tokens) > 0.05).mean()),
        **drift.figures(),
        **worst,
    }


def autocast(kind: str) -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16, enabled=kind == "bfloat16")


def learn(sampler: str, corrected: bool, seed: int, steps: int = 60) -> tuple[float, float]:
    """(reward of the last four steps, reward of the policy when it is sampled itself)."""
    objective = make_objective("grpo", {"correction": corrected})
    with tempfile.TemporaryDirectory() as folder:
        made = bandit(Path(folder), sevens, seed=seed, steps=steps, objective=objective, sampler=SAMPLERS[sampler])
        return statistics.mean(f["reward"] for f in made.history[-4:]), sample_policy(made, sevens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learn", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.learn:
        for sampler in SAMPLERS:
            for corrected in (True, False):
                found = [learn(sampler, corrected, seed) for seed in range(options.seeds)]
                last, own = ([round(x, 3) for x in side] for side in zip(*found, strict=True))
                print(json.dumps({"sampler": sampler, "corrected": corrected, "last": last, "own": own}), flush=True)
        return
    for drawn_in in KINDS:
        for scored_in in KINDS:
            found = {name: float(f"{value:.4g}") for name, value in measure(drawn_in, scored_in).items()}
            print(json.dumps({"drawn": drawn_in, "scored": scored_in, **found}), flush=True)


if __name__ == "__main__":
    main()
