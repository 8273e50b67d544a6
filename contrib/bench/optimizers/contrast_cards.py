"""Lines on confusable labels, made from the rows of train without a model: does a real model gain by them?

    python contrib/bench/peers/llama_server.py MODEL.gguf 8190
    python contrib/bench/optimizers/contrast_cards.py --server http://127.0.0.1:8190 --rows rows/banking

--rows: a folder that contrib/bench/peers/rows.py writes. Each form of lines is appended to the instruction and scored
on val. The labels that are confused are those of the unchanged instruction on train.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from workbench.evaluation import EvalOptions, evaluate, read_rows
from workbench.proof import paired_proof
from workbench.store import ReadOnlyStore, read_report

#: Confused pairs, and words of a label, that lines are made of.
PAIRS, WORDS = 10, 6
Row = Mapping[str, Any]


def run(folder: Path, spec: Mapping[str, Any], instructions: str, split: str) -> list[dict[str, Any]]:
    """The rows of a split with their scores and answers."""
    file, database = folder / "workflow.yaml", folder / "runs.db"
    node = {**spec["nodes"]["answer"], "instructions": instructions}
    file.write_text(json.dumps({**spec, "nodes": {"answer": node}}))
    found = evaluate(file, options=EvalOptions(split=split), database=database).run
    with ReadOnlyStore(database) as store:
        row = store.find_run(found)
        return list(read_rows(store, row, read_report(row)))


def find_words(train: Sequence[Row], labels: Sequence[str]) -> dict[str, list[str]]:
    """The words of each label that others have least, by the ratio of their shares."""
    by_label, total, size = defaultdict[str, Counter[str]](Counter), Counter[str](), Counter[str]()
    for row in train:
        size[row["label"]] += 1
        for word in {*re.findall(r"[a-z']{3,}", row["text"].lower())}:
            by_label[row["label"]][word] += 1
            total[word] += 1

    def weight(label: str, word: str) -> float:
        own, others = by_label[label][word], total[word] - by_label[label][word]
        ratio = (own + 0.5) / (size[label] + 1) / ((others + 0.5) / (len(train) - size[label] + 1))
        return ratio * math.sqrt(own)

    known = {label: [word for word, count in by_label[label].items() if count > 1] for label in labels}
    return {label: sorted(known[label], key=lambda w: -weight(label, w))[:WORDS] for label in labels}


def forms(train: Sequence[Row], labels: Sequence[str], wrong: Sequence[Row]) -> dict[str, list[str]]:
    """The lines of each form. wrong: rows of train with what was said."""
    words, texts = find_words(train, labels), defaultdict[str, list[str]](list)
    misread = defaultdict[tuple[str, str], list[str]](list)
    for row in train:
        texts[row["label"]].append(f'"{row["text"]}"')
    for row in wrong:
        misread[row["label"], row["said"]].append(f'"{row["text"]}"')
    pairs = sorted(misread, key=lambda pair: -len(misread[pair]))[:PAIRS]
    return {
        "contrast, with misread rows": [f"- {a}, not {b}: {'; '.join(misread[a, b][:2])}" for a, b in pairs],
        "contrast, with words": [
            f"- {a}, not {b}: it says {', '.join(w for w in words[a] if w not in words[b])}" for a, b in pairs
        ],
        "labels, with two rows": [f"- {label}: e.g. {'; '.join(texts[label][:2])}" for label in labels],
        "labels, with words": [f"- {label}: {', '.join(words[label])}" for label in labels],
        "words, with labels": [f"- If it says {', '.join(words[label][:4])}: {label}" for label in labels],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="http://127.0.0.1:8190")
    parser.add_argument("--rows", type=Path, required=True)
    args = parser.parse_args()
    task = json.loads((args.rows / "task.json").read_text())
    train = [json.loads(line) for line in (args.rows / "train.jsonl").open()]
    lm = {"model": "local/model", "api_base": f"{args.server}/v1", "timeout": 900, "concurrency": 4, "max_tokens": 40}
    spec = {
        "name": "cards",
        "lm": lm,
        "data": {name: f"{name}.jsonl" for name in ("train", "val", "test")},
        "metric": "exact_match(label)",
        "nodes": {"answer": {"predict": f"text -> label: Literal{task['labels']}"}},
    }
    start = task["instructions"]
    with TemporaryDirectory() as made:
        folder = Path(made)
        for name in ("train", "val", "test"):
            shutil.copy(args.rows / f"{name}.jsonl", folder)
        said = run(folder, spec, start, "train")
        wrong = [
            {**row["fields"], "said": row["prediction"]["label"]}
            for row in said
            if row["prediction"] and row["score"] is not None and row["score"] < 1 and row["fields"]
        ]
        before = [row["score"] for row in run(folder, spec, start, "val")]
        print(f"unchanged: {sum(s or 0.0 for s in before) / len(before):.3f}", flush=True)
        for name, lines in forms(train, task["labels"], wrong).items():
            after = [row["score"] for row in run(folder, spec, "\n".join([start, *lines]), "val")]
            found = paired_proof(before, after)
            low, high = found.ci95
            print(f"{name}: {found.winner:.3f}, {found.diff:+.3f} [{low:+.3f}, {high:+.3f}]", flush=True)


if __name__ == "__main__":
    main()
