"""One arm of DSPy, in a venv with it alone or, for `--plain`, in ours.

    dspy_arm.py ARM ROWS URL SEED CALLS OUT [--plain]

--plain: prompts and reading of answers are workbench's, so that only the search is DSPy's. Sizes are the peers' own
defaults, made smaller where a search would not end within CALLS: a DSPy call may take two, the second as JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import dspy
import numpy as np
from rows import read_task, score

DEMOS: dict[str, Any] = {"max_bootstrapped_demos": 4, "max_labeled_demos": 8}


def count_words(texts: list[str]) -> Any:
    """Vectors for KNNFewShot where no embedding model is at hand: hashed words, in TF-IDF's place."""
    found = np.zeros((len(texts), 4096), dtype=np.float32)
    for row, text in zip(found, texts, strict=True):
        for word in text.lower().split():
            row[zlib.crc32(word.encode()) % 4096] += 1.0
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, kind in (("arm", str), ("rows", Path), ("url", str), ("seed", int), ("calls", int), ("out", Path)):
        parser.add_argument(name, type=kind)
    parser.add_argument("--plain", action="store_true")
    args = parser.parse_args()
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    logging.getLogger("dspy").setLevel(logging.ERROR)
    task, *parts = read_task(args.rows)
    train, val, test = ([dspy.Example(**row).with_inputs("text") for row in part] for part in parts)
    random.Random(args.seed).shuffle(train)  # the seed of those that have none

    def lm(**settings: Any) -> Any:
        most = 100 if task["labels"] else 512
        settings = {"temperature": 0.0, "max_tokens": most, "num_retries": 0, **settings}
        return dspy.LM("openai/model", api_base=f"{args.url}/v1", api_key="none", **settings)

    def metric(gold: Any, found: Any, trace: Any = None) -> float:
        return score(getattr(found, "label", ""), gold)

    def told(gold: Any, found: Any, *_: Any) -> Any:
        right = metric(gold, found)
        return dspy.Prediction(score=right, feedback="Right." if right else f"Wrong: the label is {gold.label}.")

    more: dict[str, Any] = {}
    if args.plain:
        from workbench_dspy.exported.predictor import PlainAdapter

        more["adapter"] = PlainAdapter()
    dspy.configure(lm=lm(), max_errors=10_000, **more)
    kind = Literal[tuple(task["labels"])] if task["labels"] else {"float": float, "str": str}[task["type"]]
    fields = {"text": (str, dspy.InputField()), "label": (kind, dspy.OutputField())}
    form = dspy.ChainOfThought if task.get("reasoning") else dspy.Predict
    start = program = form(dspy.Signature(fields, task["instructions"]))
    note = ""
    try:
        if args.arm == "bfrs":
            count = max(1, args.calls // ((1 if args.plain else 2) * len(val)) - 4)  # beside three without a search
            program = dspy.BootstrapFewShotWithRandomSearch(
                metric=metric, num_candidate_programs=count, num_threads=4, max_errors=10_000, **DEMOS
            ).compile(program, trainset=train, valset=val)
        elif args.arm == "mipro":
            proposer = lm(temperature=0.7, max_tokens=500)
            program = dspy.MIPROv2(
                metric=metric, auto=None, num_candidates=4, num_threads=4, seed=args.seed, prompt_model=proposer,
                verbose=False, max_errors=10_000, **DEMOS,
            ).compile(program, trainset=train, valset=val, num_trials=5, minibatch=False)  # fmt: skip
        elif args.arm == "gepa":
            proposer = lm(temperature=1.0, max_tokens=700)
            program = dspy.GEPA(
                metric=told,
                max_metric_calls=int(0.8 * args.calls),
                num_threads=4,
                seed=args.seed,
                reflection_lm=proposer,
            ).compile(program, trainset=train, valset=val)
        elif args.arm == "knn":
            program = dspy.KNNFewShot(
                8, train, dspy.Embedder(count_words), max_bootstrapped_demos=0, max_labeled_demos=8
            ).compile(program)
    except Exception as error:
        program, note = start, f"the start, since the search raised {type(error).__name__}: {str(error)[:300]}"
    found = dspy.Evaluate(
        devset=test, metric=metric, num_threads=4, display_progress=False, failure_score=0.0, max_errors=10_000
    )(program)
    scores = [float(result[2]) for result in found.results]
    args.out.write_text(json.dumps({"scores": scores, "note": note, "version": f"dspy {version('dspy')}"}))


if __name__ == "__main__":
    main()
