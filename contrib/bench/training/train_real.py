"""A real small model trained on real tasks: SFT on labels, then GRPO, ours beside TRL's trainer from the same weights.

    python contrib/bench/training/train_real.py --model SMOLLM2_FOLDER --data DATA_FOLDER --out trained.jsonl --work
    weights/ python contrib/bench/training/train_real.py --toy --data DATA_FOLDER --out toy.jsonl --work toy/      (tiny
    weights, a CPU)

Tasks: `bfcl` (one call of one function, BFCL's simple_python; reward: Tool-N1's binary rule; scored by BFCL's lists of
allowed values) and `gsm8k` (reward and score: the last number is the answer). Both sides draw the same number of
rollouts from the same prompts, and are scored by `workbench` on the same sealed rows. Each finished (task, seed) is one
line. `--minutes` gives both sides the same time in place of the same number of rollouts. `--resets` makes ours a
prolonged run (preset `prorl`) and tells how often the reference was reset. What steps take, and memory, `trl_speed.py`
measures. `--vllm` lets vLLM draw on both sides, beside training on one GPU: for ours a server with `--memory` of it,
for TRL its colocated engine with as much. Everything else of TRL is as it ships, gradient checkpointing included.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.evaluation import EvalOptions, evaluate, read_rows
from workbench.proof import interval, paired_proof
from workbench.run import Options, optimize, prepare
from workbench.store import ReadOnlyStore, read_report
from workbench_engine.generation import free_device_memory
from workbench_training import trainer

TOOLS = (
    "You can call one function. Think in one sentence between <think> and </think>, then write one call as JSON with "
    "name and arguments between <tool_call> and </tool_call>."
)
SUMS = "Solve the problem step by step. End with a line #### and the answer."

#: TRL's engine in the process that trains.
COLOCATED: dict[str, Any] = {"use_vllm": True, "vllm_mode": "colocate"}

#: The metrics and rewards of both sides, as the workflow and TRL import them.
METRICS = '''
import json, re

def called(example, prediction, trace):
    """BFCL: the right function, no unknown argument, each value one of those allowed."""
    blocks = re.findall(r"<tool_call>(.*?)</tool_call>", prediction["text"], flags=re.DOTALL)
    try:
        call = json.loads(blocks[-1])
        ((name, allowed),) = json.loads(example["allowed"]).items()
        given = call["arguments"]
        known = call["name"] == name and set(given) <= set(allowed)
        return float(known and all(given[k] in v if k in given else "" in v for k, v in allowed.items()))
    except (IndexError, KeyError, TypeError, ValueError):
        return 0.0

def solved(example, prediction, trace):
    numbers = re.findall(r"-?\\d+(?:\\.\\d+)?", prediction["text"].replace(",", ""))
    return float(bool(numbers) and float(numbers[-1]) == float(example["answer"]))
'''


@dataclass(frozen=True)
class Sizes:
    train: int
    val: int
    test: int
    steps: int
    tasks: int
    rollouts: int
    tokens: int


REAL = {"bfcl": Sizes(140, 40, 150, 100, 16, 8, 256), "gsm8k": Sizes(200, 60, 300, 100, 16, 8, 256)}
TOY = Sizes(4, 2, 4, 4, 2, 2, 8)
AT_ONCE = 32  # rows that pass together in TRL: of 128, logits over 152,000 words would not fit beside vLLM
ENDLESS = 1_000_000  # steps, where time is what ends a training


def build_rows(task: str, data: Path, sizes: Sizes, seed: int) -> list[list[dict[str, Any]]]:
    """Rows of train, val and test, drawn by the seed."""
    folder = data / task
    parts = ((folder / f"{part}.jsonl").read_text(encoding="utf-8") for part in ("train", "dev"))
    raw = [json.loads(line) for text in parts for line in text.split("\n") if line]
    found = []
    for row in raw:
        if task == "gsm8k":
            solution = re.sub(r"<<.*?>>", "", row["labels"]["solution"])
            found.append(
                {
                    "question": row["inputs"]["question"],
                    "text": solution,
                    "answer": row["labels"]["answer"].replace(",", ""),
                }
            )
        elif row["meta"]["category"] == "simple_python":
            found.append(_call_row(row))
    if len(found) < sizes.train + sizes.val + sizes.test:
        raise SystemExit(f"{task} has {len(found)} rows, and {sizes.train} + {sizes.val} + {sizes.test} are wanted")
    random.Random(f"{task}:{seed}").shuffle(found)
    ends = [sizes.train, sizes.train + sizes.val, sizes.train + sizes.val + sizes.test]
    return [found[a:b] for a, b in zip([0, *ends[:2]], ends, strict=True)]


def _call_row(row: Mapping[str, Any]) -> dict[str, Any]:
    ((name, allowed),) = row["labels"]["ground_truth"][0].items()
    call = {"name": name, "arguments": {k: v[0] for k, v in allowed.items() if v[0] != ""}}
    question = row["inputs"]["question"][0][-1]["content"]
    return {
        "question": f"Functions: {json.dumps(row['inputs']['functions'])}\n{question}",
        "text": f"<think>The function {name} answers this.</think>\n<tool_call>{json.dumps(call)}</tool_call>",
        "calls": [call],
        "allowed": json.dumps({name: allowed}),
    }


def write(folder: Path, task: str, splits: list[list[dict[str, Any]]], sizes: Sizes, seed: int) -> dict[str, Any]:
    """Rows and metrics on the disk; the workflow without its model and optimizers."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in zip(("train", "val", "test"), splits, strict=True):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    (folder / "scores.py").write_text(METRICS, encoding="utf-8")
    return {
        "name": f"{task} trained",
        "metric": f"python:scores.py:{'solved' if task == 'gsm8k' else 'called'}",
        "data": {name: f"{name}.jsonl" for name in ("train", "val", "test")},
        "nodes": {
            "say": {
                "predict": "question -> text",
                "instructions": SUMS if task == "gsm8k" else TOOLS,
                "decoding": {"max_tokens": sizes.tokens},
            }
        },
        "budget": {"calls": 10_000_000},
        "seed": seed,
        "concurrency": 256,
    }


def train(folder: Path, spec: Mapping[str, Any], lm: str, name: str, optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """`workbench optimize` with one optimizer; the winner's model, seconds, and what each step told."""
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps({**spec, "lm": {"model": lm, "concurrency": 256}, "optimize": [optimizer]}))
    told: list[dict[str, Any]] = []

    def listen(event: str, data: Mapping[str, Any]) -> None:
        if event == "optimizer_told" and data.get("figures"):
            told.append(dict(data["figures"]))

    begun = time.perf_counter()
    report = optimize(
        file,
        database=folder / f"{name}.db",
        listener=listen,
        options=Options(out=str(folder / f"{name}-best.yaml"), allow_unproved=True),  # scored apart, on all test rows
    )
    changed = report.winner.tree.get("lm") or lm
    free_device_memory()  # TRL's engine wants its share of what is free
    return {
        "lm": changed if isinstance(changed, str) else changed["model"],
        "seconds": time.perf_counter() - begun,
        "told": told,
    }


def scores(folder: Path, spec: Mapping[str, Any], lm: str, name: str) -> list[float]:
    """On the sealed rows, at temperature 0."""
    file = folder / f"test-{name}.yaml"
    file.write_text(json.dumps({**spec, "lm": {"model": lm, "concurrency": 256}}))
    database = folder / f"test-{name}.db"
    run = evaluate(file, options=EvalOptions(split="test"), database=database).run
    store = ReadOnlyStore(database)
    try:
        row = store.find_run(run)
        return [r["score"] or 0.0 for r in read_rows(store, row, read_report(row))]
    finally:
        store.close()


def trl(
    folder: Path, spec: Mapping[str, Any], lm: str, sizes: Sizes, options: argparse.Namespace, seed: int
) -> dict[str, Any]:
    """TRL's GRPOTrainer from the same weights on the prompts of the same node."""
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOTrainer

    from workbench_training.rewards import tool_n1

    sys.path.insert(0, str(folder))
    metrics = importlib.import_module("scores")

    file = folder / "trl.yaml"
    file.write_text(json.dumps({**spec, "lm": lm}))
    task = prepare(file)[2]
    node = task.workflow.enabled_nodes["say"]
    rows = [dict(e.fields) for e in task.dataset.train]
    prompts = [(node.training_chat(row) or [])[:-1] for row in rows]  # the chat that a rollout of ours begins with
    keep = [k for k in ("calls", "answer") if k in rows[0]]

    def reward(completions: list[Any], **columns: Any) -> list[float | None]:
        texts = [c[-1]["content"] for c in completions]
        if "calls" in columns:
            return [tool_n1(t, json.loads(wanted)) for t, wanted in zip(texts, columns["calls"], strict=True)]
        return [metrics.solved({"answer": a}, {"text": t}, None) for t, a in zip(texts, columns["answer"], strict=True)]

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if options.minutes and time.perf_counter() - begun > options.minutes * 60:
                control.should_training_stop = True

    columns = {k: [r[k] if isinstance(r[k], str) else json.dumps(r[k]) for r in rows] for k in keep}
    config = trl_config(folder, sizes, options, seed, cuda=torch.cuda.is_available())
    begun = time.perf_counter()
    trainer = GRPOTrainer(
        model=lm.removeprefix("hf:"),
        reward_funcs=reward,
        args=config,
        callbacks=[Clock()],
        train_dataset=Dataset.from_dict({"prompt": prompts, **columns}),
    )
    trainer.train()
    seconds = time.perf_counter() - begun
    trainer.save_model(str(folder / "trl-model"))
    curve = [round(entry["reward"], 4) for entry in trainer.state.log_history if "reward" in entry]
    return {"lm": f"hf:{folder / 'trl-model'}", "seconds": seconds, "curve": curve}


def trl_config(folder: Path, sizes: Sizes, options: argparse.Namespace, seed: int, *, cuda: bool) -> Any:
    """TRL's settings: those of our side where both have them, and otherwise its own defaults."""
    from trl import GRPOConfig

    count = sizes.tasks * sizes.rollouts
    at_once = min(count, AT_ONCE)
    return GRPOConfig(
        output_dir=str(folder / "trl"),
        per_device_train_batch_size=at_once,
        gradient_accumulation_steps=count // at_once,
        seed=seed,
        num_generations=sizes.rollouts,
        max_completion_length=sizes.tokens,
        learning_rate=options.rate,
        max_steps=ENDLESS if options.minutes else sizes.steps,
        lr_scheduler_type="constant",
        beta=0.0,
        loss_type="grpo",
        use_cpu=not cuda,
        bf16=cuda,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        logging_steps=1,
        temperature=1.0,
        **(COLOCATED | {"vllm_gpu_memory_utilization": options.memory} if options.vllm else {}),
    )


def one(task: str, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    sizes = TOY if options.toy else REAL[task]
    folder = (options.work / f"{task}-{seed}").resolve()
    base = f"hf:{options.model.resolve()}"
    spec = write(folder, task, build_rows(task, options.data, sizes, seed), sizes, seed)
    learning = {"rate": options.rate}
    start = train(folder, spec, base, "sft", {"sft": {"source": "labels", "epochs": 1, "learning": {"rate": 2e-5}}})
    rewards = [{"kind": "metric"}] if task == "gsm8k" else [{"kind": "tool_n1", "target": "calls"}]
    schedule = {
        "steps": ENDLESS if options.minutes else sizes.steps,
        "tasks": sizes.tasks,
        "rollouts": sizes.rollouts,
        "evaluate_every": max(1, sizes.steps // 5),
    }
    if options.resets:
        trainer.RESET_AFTER = max(1, sizes.steps // 20)
        trainer.RESET_PATIENCE = 1  # a short run stalls once
    grpo = {
        "algorithm": "prorl" if options.resets else "grpo",
        "rewards": rewards,
        "schedule": schedule,
        "learning": learning,
    }
    grpo |= {"server": {"memory": options.memory}} if options.vllm else {}
    timed = {**spec, "budget": {"minutes": options.minutes}} if options.minutes else spec
    mine = train(folder, timed, start["lm"], "grpo", {"grpo": grpo})
    their = trl(folder, spec, start["lm"], sizes, options, seed)
    found = {
        name: scores(folder, spec, lm, name)
        for name, lm in (("base", base), ("sft", start["lm"]), ("ours", mine["lm"]), ("trl", their["lm"]))
    }
    return {
        "task": task,
        "seed": seed,
        "model": options.model.name,
        "scores": found,
        "told": mine["told"],
        "trl_curve": their["curve"],
        "seconds": {"sft": start["seconds"], "ours": mine["seconds"], "trl": their["seconds"]},
        "resets": sum(bool(t.get("reset")) for t in mine["told"]),
    }


def shown(row: Mapping[str, Any]) -> str:
    lines = [f"{row['task']}, seed {row['seed']}, {row['model']}: {len(row['scores']['base'])} sealed rows"]
    for name, values in row["scores"].items():
        low, high = interval(values)
        lines.append(f"  {name:<5} {sum(values) / len(values):.3f} [{low:.3f}, {high:.3f}]")
    for one_, other in (("sft", "ours"), ("trl", "ours")):
        proof = paired_proof(row["scores"][one_], row["scores"][other])
        lines.append(
            f"  {other} - {one_}: {proof.diff:+.3f} [{proof.ci95[0]:+.3f}, {proof.ci95[1]:+.3f}], p = {proof.p:.2g}"
        )
    times = ", ".join(f"{k} {v:.0f} s" for k, v in row["seconds"].items())
    return "\n".join([*lines, f"  {times}; {row['resets']} resets of the reference"])


def tiny(folder: Path) -> Path:
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from tests.helpers.tiny_lm import save

    return save(folder, 0, positions=4096)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a checkpoint in Hugging Face format")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("trained.jsonl"))
    parser.add_argument("--work", type=Path, default=Path("trained"), help="folder for weights and run databases")
    parser.add_argument("--tasks", nargs="+", default=["bfcl", "gsm8k"], choices=["bfcl", "gsm8k"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--rate", type=float, default=1e-6)
    parser.add_argument("--minutes", type=float, help="of training on each side, in place of a number of steps")
    parser.add_argument("--resets", action="store_true", help="a prolonged run with resets of the reference")
    parser.add_argument("--toy", action="store_true", help="tiny random weights and a few rows: shows that it runs")
    parser.add_argument("--vllm", action="store_true", help="vLLM draws on both sides, beside training on one GPU")
    parser.add_argument("--memory", type=float, default=0.45, help="the share of the GPU that vLLM may take")
    options = parser.parse_args()
    if options.vllm and importlib.util.find_spec("vllm") is None:
        parser.error("--vllm needs vLLM, and a GPU that it runs on")
    if options.toy:
        options.model = tiny(options.work / "tiny")
    elif options.model is None:
        parser.error("give --model, or --toy")
    for seed in options.seeds:
        for task in options.tasks:
            row = one(task, options, seed)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(shown(row), flush=True)


if __name__ == "__main__":
    main()
