"""`fgo` divides: each part's proposer sees the rows of its part alone, and what the parts learned is put together.

No model: a function answers. A row is right where the instruction holds the word that its group wants. The proposer
names a word only where all failures that it is shown want the same one: mixed evidence tells it nothing.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.helpers.scripted import Script

from workbench.lm import Request
from workbench.run import Options, optimize

WORDS = ("amber", "birch", "cedar", "delta")
LABELS = ("a", "b", "c", "d")
TRAIN = 32


def play(request: Request) -> str:
    text = "\n".join(str(m["content"]) for m in request.messages)
    prompts = re.findall(r"<prompt>\n(.*?)\n</prompt>", text, re.DOTALL)
    if "Merge them into one text" in text:
        return f"<prompt>\nLabel. {' '.join(w for w in WORDS if any(w in p for p in prompts))}\n</prompt>"
    if "You write the instruction" in text:
        wanted = set(re.findall(r"- score 0\.00; task: .*?wants (\w+)", text))
        return f"<prompt>\n{prompts[0]} {wanted.pop() if len(wanted) == 1 else 'somehow'}\n</prompt>"
    question = str(request.messages[-1]["content"])
    right = LABELS.index(question.split("-thing")[0][-1])
    held = re.findall(r"wants (\w+)", question)[0] in str(request.messages[0]["content"])
    return LABELS[right if held else (right + 1) % 4]


def search(folder: Path, **settings: Any) -> tuple[Any, list[str]]:
    """The report, and what the proposer was asked."""
    for name, count in (("train", TRAIN), ("val", 16), ("test", 16)):
        rows = [
            {
                "text": f"{name}-{i} wants {WORDS[i % 4]}: a {LABELS[i // 4 % 4]}-thing",
                "label": LABELS[i // 4 % 4],
                "group": WORDS[i % 4],
            }
            for i in range(count)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "planted",
                "lm": {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1"},
                "data": {name: f"{name}.jsonl" for name in ("train", "val", "test")},
                "metric": "exact_match(label)",
                "nodes": {"sort": {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": "Label."}},
                "optimize": [{"fgo": {"rounds": 1, **settings}}],
                "budget": {"calls": 3000},
            }
        )
    )
    script = Script(play)
    report = optimize(file, database=folder / "run.db", pool=script, options=Options(out=str(folder / "o.yaml")))
    assert report.status in ("finished", "budget"), report.error
    return report, ["\n".join(str(m["content"]) for m in r.messages) for r in script.requests]


def seen(asked: list[str]) -> list[frozenset[str]]:
    """The rows that each rewrite was shown."""
    return [frozenset(re.findall(r"train-(\d+) ", text)) for text in asked if "You write the instruction" in text]


def test_dividing_finds_what_all_rows_at_once_hide(tmp_path: Path) -> None:
    """Each group by itself shows its word. Undivided, the same optimizer with the same budget learns none."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "whole").mkdir()
    divided, asked = search(tmp_path / "parts", by="group", size=TRAIN // 4)
    prompt = str(divided.winner.get("nodes.sort.instructions"))
    assert all(word in prompt for word in WORDS) and divided.best["test"]["score"] == 1.0
    merges = [set(WORDS) & set(re.findall(r"\w+", text)) for text in asked if "Merge them into one text" in text]
    assert {2, 4} <= {len(words) for words in merges}, (
        "what went into merges comes from different parts, and from merges"
    )

    whole, asked = search(tmp_path / "whole", size=1000)
    assert whole.best["val"] == whole.baseline["val"] == 0.0 and not whole.gain_shown
    assert not any("Merge them" in text for text in asked)


def test_a_proposer_sees_the_rows_of_one_part_alone_and_the_parts_are_all_of_train(tmp_path: Path) -> None:
    _, asked = search(tmp_path, size=8)
    shown = seen(asked)
    parts = set(shown)
    assert len(parts) == TRAIN // 8 and all(len(rows) == 8 for rows in parts)
    assert sorted(int(row) for rows in parts for row in rows) == list(range(TRAIN))
