"""A real small model that learns the labels of a real task, with a sealed proof, beside TRL and examples in its prompt.

    python contrib/bench/peers/rows.py DATA rows
    python contrib/bench/training/sft_real.py --model SMOLLM2_FOLDER --rows rows/toole --out sft.jsonl

`sft`: an adapter, trained on the labels of the rows of train. `trl`: TRL's SFTTrainer on the same chats, its adapter as
large, for as many seconds as the whole run of `sft` took, with TRL's defaults (batches of 8, a rate that falls from
2e-5 to zero); `trl_rate`: with our rate, too. TRL chooses no step by val. `bootstrap`: the same rows as examples in the
prompt, with 400 calls of search. All have the same sealed rows, and begin with the same model and prompt. Each finished
arm is a line and is not run again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.evaluation import EvalOptions, evaluate
from workbench.proof import paired_proof
from workbench.run import Options, optimize, prepare
from workbench.store import ReadOnlyStore
from workbench_training.rollouts.sft_data import label_examples

SPLITS = ("train", "val", "test")
RATE = 1e-3  # of our adapter
ARMS: dict[str, dict[str, Any]] = {
    "sft": {
        "source": "labels",
        "labels": {"label": "label"},
        "epochs": 6,
        "evaluate_every": 2,
        "lora": {},
        "learning": {"rate": RATE},
    },
    "bootstrap": {},
}
#: By arm of TRL: what its settings have besides its defaults.
THEIRS: dict[str, dict[str, Any]] = {"trl": {}, "trl_rate": {"learning_rate": RATE, "lr_scheduler_type": "constant"}}


def write(arm: str, model: Path, rows: Path, seed: int, folder: Path, **more: Any) -> Path:
    """Write the workflow file of an arm, with its rows beside it. more: entries of the file."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in SPLITS:
        shutil.copy(rows / f"{name}.jsonl", folder)
    task = json.loads((rows / "task.json").read_text())
    answer = {"predict": f"text -> label: Literal{task['labels']}", "instructions": task["instructions"]}
    spec = {
        "name": f"{rows.name} by {arm}",
        "lm": {"model": f"hf:{model.resolve()}", "max_tokens": 32},
        "data": {name: f"{name}.jsonl" for name in SPLITS},
        "metric": "exact_match(label)",
        "nodes": {"answer": answer},
        "seed": seed,
    }
    file = folder / "workflow.yaml"
    file.write_text(json.dumps(spec | more, indent=1))
    return file


def run(arm: str, model: Path, rows: Path, seed: int, folder: Path) -> dict[str, Any]:
    """Run one optimizer; its report, and the scores of the winner on the sealed rows."""
    calls = 400 + 2 * sum(1 for _ in (rows / "test.jsonl").open())
    file = write(arm, model, rows, seed, folder, optimize=[{arm: ARMS[arm]}], budget={"calls": calls})
    begun = time.monotonic()
    report = optimize(file, database=folder / "run.db", options=Options(out=str(folder / "out.yaml")))
    print("\n".join(report.lines()), flush=True)
    found = report.as_dict()
    return {
        "task": rows.name,
        "arm": arm,
        "seed": seed,
        "before": found["baseline"],
        "after": found["best"],
        "gain": found["gain"],
        "scores": sealed_scores(folder / "run.db", found["best"]["workflow"]),
        "first": sealed_scores(folder / "run.db", found["baseline"]["workflow"]),
        "calls": report.spent["calls"],
        "seconds": round(time.monotonic() - begun),
    }


def run_theirs(arm: str, model: Path, rows: Path, seed: int, folder: Path, own: Mapping[str, Any]) -> dict[str, Any]:
    """Train with TRL for the seconds that our run took, and let workbench answer the sealed rows with what it made.

    own: the line of `sft`, whose baseline and sealed rows it is compared with.
    """
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    file, made = write(arm, model, rows, seed, folder), folder / "model"
    task = prepare(file)[2]
    chats = [
        label_examples(task.workflow, row, {"label": "label"}, ["answer"])[0].messages for row in task.dataset.train
    ]
    begun = time.monotonic()

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            control.should_training_stop = time.monotonic() - begun > own["seconds"]
            return control

    settings = SFTConfig(
        output_dir=str(folder / "trl"), seed=seed, use_cpu=True, bf16=False, report_to=[], disable_tqdm=True,
        save_strategy="no", num_train_epochs=1000, gradient_checkpointing=False, **THEIRS[arm],
    )  # fmt: skip
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(model),
        args=settings,
        train_dataset=Dataset.from_list([{"prompt": chat[:-1], "completion": chat[-1:]} for chat in chats]),
        processing_class=AutoTokenizer.from_pretrained(model),
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
        callbacks=[Clock()],
    )
    trainer.train()
    epochs, seconds = trainer.state.epoch, round(time.monotonic() - begun)
    trainer.model.merge_and_unload().save_pretrained(made)
    trainer.processing_class.save_pretrained(made)
    after = write(arm, made, rows, seed, folder / "after")
    evaluate(after, database=folder / "run.db", options=EvalOptions(split="test"))
    with ReadOnlyStore(folder / "run.db") as store:
        found = store.rows("select example, score from results order by id")
        scores = {row["example"]: row["score"] for row in found}
    proof = paired_proof([own["first"][row] for row in scores], [*scores.values()])
    return {
        "task": rows.name,
        "arm": arm,
        "seed": seed,
        "before": own["before"],
        "after": {"test": {"score": sum(scores.values()) / len(scores)}},
        "gain": {"diff": proof.diff, "ci95": proof.ci95},
        "scores": scores,
        "epochs": epochs,
        "seconds": seconds,
    }


def sealed_scores(database: Path, candidate: str) -> dict[str, float | None]:
    """The scores of a candidate on the sealed rows, by row."""
    with ReadOnlyStore(database) as store:
        rows = store.rows(
            "select example, score from results where evaluation_id in "
            "(select id from evaluations where split = 'test' and candidate = ?)",
            candidate,
        )
        return {row["example"]: row["score"] for row in rows}


def table(done: list[dict[str, Any]]) -> str:
    """The arms, and the differences of `sft` to the others on the same rows."""
    lines = []
    for one in done:
        low, high = one["gain"]["ci95"]
        before, after = one["before"]["test"]["score"], one["after"]["test"]["score"]
        gain = f"{one['gain']['diff']:+.3f} [{low:+.3f}, {high:+.3f}]"
        lines.append(f"| {one['task']} | {one['arm']} | {one['seed']} | {before:.3f} | {after:.3f} | {gain} |")
    arms = {(one["task"], one["seed"], one["arm"]): one["scores"] for one in done}
    for task, seed, arm in arms:
        if arm != "sft" and (own := arms.get((task, seed, "sft"))) is not None:
            proof = paired_proof([arms[task, seed, arm][row] for row in own], [*own.values()])
            low, high = proof.ci95
            lines.append(f"{task}, seed {seed}: sft less {arm} {proof.diff:+.3f} [{low:+.3f}, {high:+.3f}]")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arms", nargs="+", choices=[*ARMS, *THEIRS], default=[*ARMS, *THEIRS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    args = parser.parse_args()
    done = [json.loads(line) for line in args.out.open()] if args.out.exists() else []
    known = {(one["task"], one["arm"], one["seed"]) for one in done}
    for seed in args.seeds:
        for arm in args.arms:
            if (args.rows.name, arm, seed) not in known:
                folder = args.out.with_suffix("") / f"{args.rows.name}-{arm}-{seed}"
                if arm in THEIRS:
                    own = next(
                        one for one in done if (one["task"], one["arm"], one["seed"]) == (args.rows.name, "sft", seed)
                    )
                    found = run_theirs(arm, args.model, args.rows, seed, folder, own)
                else:
                    found = run(arm, args.model, args.rows, seed, folder)
                with args.out.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                done.append(found)
    print(table(done))


if __name__ == "__main__":
    main()
