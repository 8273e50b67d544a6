"""Memory of training, counted with fake tensors, and on a GPU measured beside it.

    python contrib/bench/training/memory.py [--case 1.5b] [--case 7b-lora]     # counts, on any machine
    python contrib/bench/training/memory.py --device cuda [--case ...]         # and measures on a GPU

A line of JSON for each case: GiB by what holds them, as counted for the passes that the case makes; and of two real
updates with random weights what stays allocated between them, and the most within the second, with the seconds that it
took. `--toy` does the same with a tiny model, on a CPU, where nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

sys.path.insert(0, str(Path(__file__).parents[3]))
from shapes import save_shape
from tests.helpers.tiny_lm import save

from workbench_training.learner import Learner
from workbench_training.model.memory_count import GIB, PolicyShape, count_memory
from workbench_training.model.policy import Policy
from workbench_training.presets import make_objective
from workbench_training.rollouts.token_rows import Row
from workbench_training.settings import Learning, Lora


@dataclass(frozen=True)
class Case:
    """A model's shape, an adapter or none, and the rows of an update, `at_once` of which pass together."""

    shape: str
    lora: bool
    rows: int
    tokens: int
    at_once: int


CASES = {"1.5b": Case("1.5b", False, 16, 4096, 4), "7b-lora": Case("7b", True, 1, 16384, 1)}
TOY = Case("toy", False, 4, 64, 2)


def counted(case: Case, base: Path) -> dict[str, float]:
    shape = PolicyShape(AutoConfig.from_pretrained(base), Lora.model_validate({}) if case.lora else None)
    found = count_memory(shape, rows=case.at_once, tokens=case.tokens)
    parts = {**asdict(found), "resting": found.resting, "most": found.most}
    return {name: round(size / GIB, 3) for name, size in parts.items()}


def measured(case: Case, base: Path, device: str) -> dict[str, Any]:
    """Two updates with all that training has: policy, AdamW, micro-batches."""
    lora = Lora.model_validate({}) if case.lora else None
    policy = Policy(str(base), lora=lora, device=device)
    learning = Learning.model_validate({"micro_tokens": case.at_once * case.tokens})
    learner, count = Learner(policy, make_objective("grpo"), learning), case.tokens - 1
    rows = [
        Row((1,), tuple((7 * i + j) % 50 + 5 for j in range(count)), (1,) * count, (-1.0,) * count, 0.0, "t", i)
        for i in range(case.rows)
    ]
    advantages = [1.0 if i % 2 else -1.0 for i in range(case.rows)]
    learner.step(rows, advantages, 0)
    on_gpu = device != "cpu"
    resting = torch.cuda.memory_allocated() if on_gpu else 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    passes, update = list[int](), learner.optimizer.step

    def noted() -> None:
        passes.append(torch.cuda.max_memory_allocated() if on_gpu else 0)
        update()

    learner.optimizer.step = noted  # type: ignore[method-assign]
    begun = time.perf_counter()
    learner.step(rows, advantages, 1)
    if not on_gpu:
        return {"learned": learner.skipped == 0}
    torch.cuda.synchronize()
    return {
        "gpu": torch.cuda.get_device_name(),
        "resting": round(resting / GIB, 3),
        "most_in_passes": round(passes[0] / GIB, 3),
        "most": round(torch.cuda.max_memory_allocated() / GIB, 3),
        "reserved": round(torch.cuda.max_memory_reserved() / GIB, 3),
        "seconds": round(time.perf_counter() - begun, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--toy", action="store_true")
    options = parser.parse_args()
    for name in ["toy"] if options.toy else options.case or CASES:
        case = TOY if options.toy else CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            if options.toy:
                base = save(Path(folder) / name, 0)
            else:
                base = save_shape(Path(folder) / name, case.shape, positions=32768, weights=options.device != "cpu")
            found = {"case": name, **asdict(case), "counted": counted(case, base)}
            if options.toy or options.device != "cpu":
                found["measured"] = measured(case, base, options.device)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
