"""Agents with many tools: what registering by name saves, and how often the right tool is among the five nearest.

    python contrib/bench/optimizers/many_tools.py --data DATA_FOLDER [--dense MODEL_FOLDER]

Data: ToolE, API-Bank and BFCL as rows of jsonl. No model is needed but for `--dense`, which embeds texts by the mean of
a checkpoint's last hidden states (transformers, torch). The agent is scripted: it calls the tool of the row's label.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.proof import interval
from workbench_kit.acting import Tool
from workbench_tools.toolset import ToolIndex, count_prompt_characters, find_crossover

Find = Callable[[str, int], list[str]]


def read(data: Path, name: str, split: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in open(data / name / f"{split}.jsonl", encoding="utf-8")]


def tool(name: str, description: str, arguments: Mapping[str, Any] | None = None) -> Tool:
    return Tool(name, description, {"properties": dict(arguments or {})}, lambda arguments: None)


def catalogues(data: Path) -> dict[str, list[Tool]]:
    """The tools of each set, each name once."""
    listed = json.loads((data / "toole/tools.json").read_text())
    toole = {name: text for part in listed.values() for name, text in part.items()}
    found = {"toole": [tool(name, text) for name, text in toole.items()]}
    apis = json.loads((data / "api_bank/api_docs.json").read_text())
    found["api_bank"] = [
        tool(n, str(a.get("description", "")), _mapping(a.get("input_parameters"))) for n, a in apis.items()
    ]
    functions = {
        f["name"]: f for split in ("train", "dev") for r in read(data, "bfcl", split) for f in r["inputs"]["functions"]
    }
    found["bfcl"] = [
        tool(n, f["description"], _mapping(f["parameters"].get("properties"))) for n, f in functions.items()
    ]
    return found


def _mapping(value: Any) -> dict[str, Any]:
    return {k: v if isinstance(v, dict) else {} for k, v in value.items()} if isinstance(value, dict) else {}


def questions(data: Path, name: str, split: str, known: Sequence[Tool]) -> list[tuple[str, str]]:
    """(question, name of the right tool); rows whose tool has no description are left out."""
    names = {t.name for t in known}
    rows = read(data, name, split)
    if name == "toole":
        found = [(r["inputs"]["query"], r["labels"]["tool"]) for r in rows]
    else:
        said = lambda r: " ".join(h["text"] for h in r["inputs"]["history"] if h.get("role") == "User")  # noqa: E731
        found = [(said(r), r["labels"]["api_name"]) for r in rows]
    return [(q, t) for q, t in found if t in names]


def by_bm25(tools: Sequence[Tool]) -> Find:
    """SQLite's own BM25 over names, descriptions and arguments."""
    database = sqlite3.connect(":memory:")
    database.execute("create virtual table tools using fts5(text, tokenize='porter unicode61')")
    texts = (" ".join([t.name, t.description, *t.schema.get("properties", {})]) for t in tools)
    database.executemany("insert into tools values (?)", ((t,) for t in texts))

    def find(text: str, count: int) -> list[str]:
        words = " OR ".join(f'"{w}"' for w in "".join(c if c.isalnum() else " " for c in text).split())
        rows = database.execute(
            "select rowid from tools where tools match ? order by bm25(tools) limit ?", (words, count)
        )
        return [tools[i - 1].name for (i,) in rows] if words else []

    return find


def by_vectors(tools: Sequence[Tool], folder: str) -> Find:
    """Cosine of mean last hidden states, centred on the mean of the tools (raw ones all point one way)."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

    def embed(texts: Sequence[str]) -> torch.Tensor:
        rows = []
        with torch.inference_mode():
            for text in texts:
                ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=256)
                rows.append(model(**ids).last_hidden_state[0].mean(0))
        return torch.stack(rows)

    matrix = embed([f"{t.name}: {t.description}" for t in tools])
    middle = matrix.mean(0)
    matrix = torch.nn.functional.normalize(matrix - middle, dim=1)

    def find(text: str, count: int) -> list[str]:
        scores = matrix @ torch.nn.functional.normalize(embed([text])[0] - middle, dim=0)
        return [tools[i].name for i in scores.topk(count).indices.tolist()]

    return find


def by_words(tools: Sequence[Tool], asked: Mapping[str, Sequence[str]]) -> Find:
    index = ToolIndex(tools, asked)
    return lambda text, count: index.nearest([text], count)


def recall(data: Path, sets: Mapping[str, list[Tool]], dense: str | None, rows: int) -> None:
    """Recall at 5 on held-out rows; three questions a tool from train where it says so."""
    print("| set | tools | rows | finder | recall@5 |\n| --- | --- | --- | --- | --- |")
    for name in ("toole", "api_bank"):
        tools = sets[name]
        held = questions(data, name, "dev", tools)[:rows]
        asked: dict[str, list[str]] = defaultdict(list)
        for question, right in questions(data, name, "train", tools):
            if len(asked[right]) < 3:
                asked[right].append(question)
        finders = {
            "BM25 (FTS5, porter)": by_bm25(tools),
            "words (nearest)": by_words(tools, {}),
            "words, 3 questions a tool (asked)": by_words(tools, asked),
        }
        if dense:
            finders[f"dense ({Path(dense).name}, mean state)"] = by_vectors(tools, dense)
        for label, find in finders.items():
            hits = [float(right in find(question, 5)) for question, right in held]
            low, high = interval(hits)
            print(
                f"| {name} | {len(tools)} | {len(held)} | {label} | {sum(hits) / len(hits):.3f} [{low:.3f}, "
                f"{high:.3f}] |",
                flush=True,
            )


def prompts(sets: Mapping[str, list[Tool]], fixed: int = 300) -> None:
    """Characters of a run that calls one tool, all shown against registered; mean of 20 draws of so many tools."""
    print("\n| set | tools | all shown | lazy | saved | pays from |\n| --- | --- | --- | --- | --- | --- |")
    for name, tools in sets.items():
        for count in (2, 5, 10, 20, 50, 100, len(tools)):
            if count > len(tools):
                continue
            draws = [random.Random(i).sample(tools, count) for i in range(20)]
            full, lazy = (sum(x) / 20 for x in zip(*(count_prompt_characters(d, fixed) for d in draws), strict=True))
            print(
                f"| {name} | {count} | {full:,.0f} | {lazy:,.0f} | {1 - lazy / full:+.0%} | "
                f"{find_crossover(tools, fixed)} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dense", help="a checkpoint whose mean hidden state embeds a text")
    parser.add_argument("--rows", type=int, default=500)
    args = parser.parse_args()
    sets = catalogues(args.data)
    recall(args.data, sets, args.dense, args.rows)
    prompts(sets)


if __name__ == "__main__":
    main()
