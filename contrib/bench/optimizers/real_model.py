"""A real small model on real data: our optimizers beside DSPy's own, all with the same number of task calls.

    prefix_server.py --server lm_server.py --model SMOLLM2_FOLDER --port 8112
    python contrib/bench/optimizers/real_model.py --data DATA_FOLDER --out results.jsonl --tasks banking77
    bbh:sports_understanding

Both sides talk to the same server, see the same rows, and are tested on the same rows that neither has seen. Each
finished (task, method, seed) is one line of the results file and is not run again; `--table` prints the table. Several
of these commands may run side by side on one server and one file, each with methods of its own.
DSPy runs natively, with its own prompts; sizes are chosen so that it spends about as many calls as we do.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import tempfile
import time
import urllib.request
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workbench.proof import interval, paired_proof

#: All edits of the structure, named since there is a `search:` for the demos.
EDITS = [
    "ensemble",
    "insert",
    "merge",
    "model",
    "reason",
    "refine",
    "remove",
    "replace",
    "restore",
    "rewire",
    "split",
    "tool",
    "unwrap",
    "verify",
]

#: Ours as they stand in a workflow file. `NAME@templates` takes proposals from templates instead of the model itself.
OURS: dict[str, list[Any]] = {
    "bootstrap": [{"bootstrap": {"self_generated": False}}],
    "optuna": ["optuna"],
    "memory": ["memory"],
    "evolve": ["evolve"],
    "prompt_mcts": [{"bootstrap": {"self_generated": False, "trials": 3}}, "prompt_mcts"],
    "fgo": [{"bootstrap": {"self_generated": False, "trials": 3}}, "fgo"],
    "self_consistency": [{"bootstrap": {"self_generated": False}}],
    "structure": [{"mcts": {"initial": 6, "edits": EDITS}}],
}
#: What is changed in the winner before it is tested: five answers are drawn, and the most frequent one counts.
AFTERWARDS = {"self_consistency": {"nodes.answer.samples": 5, "nodes.answer.decoding.temperature": 0.7}}
PROPOSING = ("evolve", "prompt_mcts", "fgo")
DSPYS = ("dspy_baseline", "dspy_bootstrap_random_search", "dspy_mipro", "dspy_gepa")
METHODS = ("baseline", *OURS, *(f"{name}@templates" for name in PROPOSING), *DSPYS)


def rows_of(task: str, data: Path, seed: int) -> tuple[list[dict], list[dict], list[dict], list[str]]:
    """(train, val, test, allowed values) of a task; the split is seeded and the same for all methods."""
    if task == "banking77":
        # 25 rows a class are there, so 60 + 60 + 150 rows take eleven classes. The first ones in the list of
        # categories, whatever they are.
        classes = json.loads((data / "banking77/categories.json").read_text())[:11]
        rows = [r for r in _read(data / "banking77") if r["labels"]["category"] in classes]
        found = [{"text": r["inputs"]["text"], "label": r["labels"]["category"]} for r in rows]
        sizes = (60, 60, 150)
    else:
        name = task.removeprefix("bbh:")
        rows = [r for r in _read(data / "bbh") if r["meta"]["task"] == name]
        found = [{"text": r["inputs"]["input"], "label": r["labels"]["target"]} for r in rows]
        sizes = (40, 40, 59)
    random.Random(f"{task}:{seed}").shuffle(found)
    a, b, c = sizes
    return found[:a], found[a : a + b], found[a + b : a + b + c], sorted({r["label"] for r in found})


def _read(folder: Path) -> list[dict]:
    return [json.loads(line) for f in ("train", "dev") for line in open(folder / f"{f}.jsonl", encoding="utf-8")]


class Server:
    """The server's own count (`prefix_server.py`) of the requests and tokens of one name of the model."""

    def __init__(self, url: str, model: str):
        self.url, self.model = url.removesuffix("/v1") + "/stats", model

    def stats(self) -> dict[str, int]:
        with urllib.request.urlopen(self.url) as answer:
            found = json.loads(answer.read())
        return {k: found.get(f"{k}:{self.model}", 0) for k in ("requests", "prompt_tokens", "completion_tokens")}


INSTRUCTIONS = {
    "banking77": [
        "Classify the customer's message.",
        "Which topic is this bank customer's message about? Answer with one of the topics and nothing else.",
        "Read the message and give the category that fits it best.",
        "You work at a bank. Sort the message into its category.",
    ],
    "bbh": [
        "Answer the question.",
        "Read the question carefully and answer with one of the allowed values and nothing else.",
        "Think about the question, then give the right answer.",
        "You are an expert. Answer correctly and briefly.",
    ],
}


def ours(task: str, method: str, seed: int, url: str, calls: int, splits: tuple[Any, ...]) -> dict[str, Any]:
    """One run of ours: search with `calls` calls, then the winner on the test rows (not part of the calls)."""
    from workbench.evaluation import EvalOptions, evaluate
    from workbench.run import Options, optimize

    train, val, test, labels = splits
    folder = Path(tempfile.mkdtemp())
    for name, rows in (("train", train), ("val", val), ("test", test), ("one", test[:1])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    instructions = INSTRUCTIONS[task.split(":")[0]]
    spec = {
        "name": f"{task} {method}",
        "lm": {"model": "openai/local", "api_base": url, "timeout": 600, "concurrency": 16},
        "data": {"train": "train.jsonl", "val": "val.jsonl", "test": "one.jsonl"},
        "metric": "exact_match(label)",
        "nodes": {"answer": {"predict": f"text -> label: Literal{labels}", "instructions": instructions[0]}},
        "budget": {"calls": calls},
        "seed": seed,
        "concurrency": 16,
    }
    if method == "optuna":
        spec["search"] = {
            "nodes.answer.instructions": instructions,
            "nodes.answer.demos": {"demos": 8},
            "nodes.answer.samples": {"int": [1, 3], "step": 2},
        }
    name, _, proposer = method.partition("@")
    spec["optimize"] = OURS.get(name, ["random"])
    if proposer:
        spec["roles"] = {"proposer": f"{proposer}/instructions"}
    if name in ("evolve", "structure"):
        spec["search"] = {"nodes.answer.demos": {"demos": 8}}
    file = folder / "workflow.yaml"
    file.write_text(json.dumps(spec), encoding="utf-8")
    spent, path = {"calls": 0}, file
    if method != "baseline":
        report = optimize(file, options=Options(out=str(folder / "best.yaml")), database=folder / "run.db")
        spent, path = report.spent, folder / "best.yaml"
    changed = list(AFTERWARDS.get(name, {}).items())
    sets = [
        *changed,
        ("data", {"train": "train.jsonl", "val": "val.jsonl", "test": "test.jsonl"}),
        ("budget", {"calls": 100_000}),
        ("optimize", ["random"]),
    ]
    found = evaluate(path, options=EvalOptions(sets, "test"), database=folder / "test.db")
    rows = found.to_pandas()
    return {
        "scores": [float(score) for score in rows["score"].fillna(0.0)],
        "failures": found.failures,
        "tokens_per_row": found.cost["tokens"],
        "search": spent,
        "changes": [c[0] for c in report.changes] if method != "baseline" else [],
    }


def dspys(task: str, method: str, seed: int, url: str, splits: tuple[Any, ...]) -> dict[str, Any]:
    """One run of DSPy's own optimizer on DSPy's own program."""
    from typing import Literal

    import dspy

    train, val, test, labels = splits
    model = f"{task.replace(':', '-')}-{method}-{seed}"  # a name of its own: several runs may share the server
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)  # DSPy's own default, but new for each run
    lm = dspy.LM(f"openai/{model}", api_base=url, api_key="none", temperature=0.0, max_tokens=64)
    dspy.configure(lm=lm, max_errors=10_000)  # a small model breaks DSPy's formats often; that is no reason to stop
    logging.getLogger("dspy").setLevel(logging.CRITICAL)
    fields: Any = {"text": (str, dspy.InputField()), "label": (Literal[tuple(labels)], dspy.OutputField())}
    make: Any = dspy.Signature
    program: Any = dspy.Predict(make(fields, INSTRUCTIONS[task.split(":")[0]][0]))
    sets = [[dspy.Example(**r).with_inputs("text") for r in rows] for rows in (train, val, test)]

    def metric(gold: Any, pred: Any, trace: Any = None) -> float:
        return float(str(getattr(pred, "label", "")).strip() == gold.label)

    server, notes = Server(url, model), ""
    before = server.stats()
    if method == "dspy_bootstrap_random_search":
        from dspy.teleprompt import BootstrapFewShotWithRandomSearch

        optimizer: Any = BootstrapFewShotWithRandomSearch(
            metric=metric,
            max_bootstrapped_demos=4,
            max_labeled_demos=8,
            num_candidate_programs=3,
            num_threads=16,
            max_errors=10_000,
        )
        program = optimizer.compile(program, trainset=sets[0], valset=sets[1])
    elif method == "dspy_mipro":
        program, notes = _mipro(program, metric, lm, sets, seed)
    elif method == "dspy_gepa":
        program, notes = _gepa(program, lm, sets, seed)
    after = server.stats()
    scores = []
    with dspy.context(lm=lm):
        evaluate = dspy.Evaluate(
            devset=sets[2], metric=metric, num_threads=16, display_progress=False, failure_score=0.0, max_errors=10_000
        )
        scores = [float(r[2]) for r in evaluate(program).results]
    end = server.stats()
    return {
        "scores": scores,
        "failures": {},
        "notes": notes,
        "tokens_per_row": sum(end[k] - after[k] for k in ("prompt_tokens", "completion_tokens")) / len(test),
        "search": {
            "calls": after["requests"] - before["requests"],
            "prompt_tokens": after["prompt_tokens"] - before["prompt_tokens"],
            "completion_tokens": after["completion_tokens"] - before["completion_tokens"],
        },
    }


def _mipro(program: Any, metric: Any, lm: Any, sets: list[Any], seed: int) -> tuple[Any, str]:
    """MIPROv2. It raises where its proposer's answers cannot be read, as a small model's often cannot; then once more
    with the plainest proposer that it has, and if that raises too, the program stays as it was."""
    from dspy.teleprompt import MIPROv2

    plain = {f"{name}_aware_proposer": False for name in ("program", "data", "tip", "fewshot")}
    notes = []
    for options in ({}, plain):
        optimizer = MIPROv2(
            metric=metric,
            auto=None,
            num_candidates=4,
            max_bootstrapped_demos=4,
            max_labeled_demos=8,
            num_threads=16,
            seed=seed,
            verbose=False,
            max_errors=10_000,
            prompt_model=lm.copy(max_tokens=512),
        )
        try:
            found = optimizer.compile(
                program,
                trainset=sets[0],
                valset=sets[1],
                num_trials=7,
                minibatch=True,
                minibatch_size=20,
                minibatch_full_eval_steps=4,
                **options,
            )
            return found, "; ".join(notes)
        except Exception as error:
            notes.append(f"raised {type(error).__name__} with {options or 'its defaults'}: {str(error)[:300]}")
    return program, "; ".join(notes)


def _gepa(program: Any, lm: Any, sets: list[Any], seed: int) -> tuple[Any, str]:
    """GEPA with the same model as its reflection model, asked in the form that a small model can answer: its default
    proposer takes JSON alone. The program stays as it was where GEPA raises."""
    import dspy

    from workbench_dspy.proposals import ProposalAdapter
    from workbench_dspy_seam.programs import instruction_proposer

    def metric(gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
        right = str(getattr(pred, "label", "")).strip() == gold.label
        return dspy.Prediction(score=float(right), feedback="Right." if right else f"Wrong: the label is {gold.label}.")

    optimizer = dspy.GEPA(
        metric=metric,
        max_metric_calls=400,
        num_threads=16,
        seed=seed,
        reflection_lm=lm.copy(temperature=1.0, max_tokens=512),
        instruction_proposer=instruction_proposer(ProposalAdapter()),
    )
    try:
        return optimizer.compile(program, trainset=sets[0], valset=sets[1]), ""
    except Exception as error:
        return program, f"raised {type(error).__name__}"


def table(out: Path) -> str:
    """Means over all test rows of all seeds with 95% intervals; the paired gain is against our baseline's rows."""
    found = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    lines = [
        "| task | method | seeds | test score | against our baseline | search calls | search tokens | tokens a row |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for task in dict.fromkeys(r["task"] for r in found):
        base = {r["seed"]: r["scores"] for r in found if r["task"] == task and r["method"] == "baseline"}
        for method in METHODS:
            mine = sorted((r for r in found if r["task"] == task and r["method"] == method), key=lambda r: r["seed"])
            if not mine:
                continue
            scores = [s for r in mine for s in r["scores"]]
            low, high = interval(scores)
            pairs = [
                (b, s) for r in mine if r["seed"] in base for b, s in zip(base[r["seed"]], r["scores"], strict=True)
            ]
            proof = paired_proof([a for a, _ in pairs], [b for _, b in pairs])
            gain = f"{proof.diff:+.3f} [{proof.ci95[0]:+.3f}, {proof.ci95[1]:+.3f}]" if method != "baseline" else ""
            calls = sum(r["search"]["calls"] for r in mine) / len(mine)
            tokens = sum(
                r["search"].get("prompt_tokens", 0) + r["search"].get("completion_tokens", 0) for r in mine
            ) / len(mine)
            row = sum(r["tokens_per_row"] for r in mine) / len(mine)
            lines.append(
                f"| {task} | {method} | {len(mine)} | {sum(scores) / len(scores):.3f} [{low:.3f}, {high:.3f}] | {gain} "
                f"| {calls:.0f} | {tokens:,.0f} | {row:.0f} |"
            )
    return "\n".join([*lines, "", *_against(found)])


def _against(found: list[dict[str, Any]]) -> list[str]:
    """Each of ours against each of DSPy's on the same rows of the same seeds."""
    lines = ["| task | ours | DSPy's | seeds | difference on the same rows |", "| --- | --- | --- | --- | --- |"]
    scores = {(r["task"], r["method"], r["seed"]): r["scores"] for r in found}
    for task in dict.fromkeys(r["task"] for r in found):
        for one in (m for m in METHODS if m.split("@")[0] in OURS):
            for other in DSPYS[1:]:
                seeds = [s for s in range(100) if (task, one, s) in scores and (task, other, s) in scores]
                if seeds:
                    pairs = [[x for s in seeds for x in scores[task, m, s]] for m in (other, one)]
                    proof = paired_proof(*pairs)
                    lines.append(
                        f"| {task} | {one} | {other} | {len(seeds)} | {proof.diff:+.3f} "
                        f"[{proof.ci95[0]:+.3f}, {proof.ci95[1]:+.3f}] |"
                    )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8112/v1")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("real_model.jsonl"))
    parser.add_argument("--tasks", nargs="+", default=["banking77", "bbh:sports_understanding"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--table", action="store_true", help="only print the table")
    args = parser.parse_args()
    done = (
        {(r["task"], r["method"], r["seed"]) for r in map(json.loads, args.out.read_text().splitlines())}
        if args.out.exists()
        else set()
    )
    for seed in args.seeds if not args.table else ():
        for task in args.tasks:
            splits = rows_of(task, args.data, seed)
            for method in args.methods:
                if (task, method, seed) in done:
                    continue
                begun = time.monotonic()
                if method.startswith("dspy"):
                    found = dspys(task, method, seed, args.url, splits)
                else:
                    found = ours(task, method, seed, args.url, args.calls, splits)
                line = {
                    "task": task,
                    "method": method,
                    "seed": seed,
                    "with": f"dspy {version('dspy')}, {date.today()}",  # a peer's defaults change underneath
                    **found,
                    "seconds": round(time.monotonic() - begun),
                }
                with args.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(
                    task,
                    method,
                    seed,
                    f"{sum(found['scores']) / len(found['scores']):.3f}",
                    line["seconds"],
                    "s",
                    flush=True,
                )
    print(table(args.out))


if __name__ == "__main__":
    main()
