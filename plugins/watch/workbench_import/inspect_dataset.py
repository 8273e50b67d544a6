"""A dataset of Inspect: samples with input, target, choices, id and metadata, in CSV, JSON or JSONL."""

from __future__ import annotations

import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import SpecError
from workbench_import.imported import Imported, Wishes, as_list, parsed, read_table

#: Fields of a sample that only Inspect can use.
_OTHERS = ("sandbox", "files", "setup")


def read(path: Path, wishes: Wishes) -> Imported:
    """Return the samples as rows, and a workflow of one node that answers them. Raises SpecError."""
    samples = read_table(path)
    if not samples or "input" not in samples[0]:
        known = ", ".join(samples[0]) if samples else "none"
        raise SpecError(f"{path.name} has no samples with `input`; fields: {known}", hint="Rename the columns.")
    found = Imported({})
    choices = [_list(sample.get("choices")) for sample in samples]
    chosen = all(choices)
    rows = [_row(i, sample, choices[i] if chosen else [], found) for i, sample in enumerate(samples)]
    rows = [row for row in rows if row]
    if chosen:
        letters = list(string.ascii_uppercase[: max(map(len, choices))])
        signature = f"input, choices -> answer: Literal{letters}"
        told, metric = "Choose the right answer.", "exact_match(answer)"
    else:
        signature, told, metric = "input -> answer", "", "normalized_match(answer)"
        if any(choices):
            found.left.append(f"choices of {sum(map(bool, choices))} samples: the others have none")
        if not wishes.metric:
            found.guessed.append("the metric: normalized_match(answer); the scorer is in the task's Python (--metric)")
    node = {"predict": signature, **({"instructions": told} if told else {})}
    found.tree = {"name": "imported", "metric": wishes.metric or metric, "nodes": {"answer": node}}
    found.tree["budget"] = {"calls": max(1000, 10 * len(rows))}
    found.rows = rows
    found.taken.append(f"{len(rows)} samples{' with choices' if chosen else ''}")
    found.left.append("solvers, scorers and tools: they are in the task's Python")
    found.guessed.append("the language model: bundled/nano; name yours under `lm`")
    for name in _OTHERS:
        if count := sum(bool(sample.get(name)) for sample in samples):
            found.left.append(f"{name} of {count} samples")
    return found


def _row(number: int, sample: Mapping[str, Any], choices: list[Any], found: Imported) -> dict[str, Any]:
    """Return a row; empty for a sample without input or target."""
    target = _list(sample.get("target"))
    text = _input(sample["input"]) if sample.get("input") is not None else ""
    if not text or not target:
        found.left.append(f"sample {number + 1}: no {'target' if text else 'input'}")
        return {}
    row: dict[str, Any] = {"input": text, "answer": target[0] if len(target) == 1 else target}
    if choices:
        row["choices"] = "\n".join(f"{letter}) {c}" for letter, c in zip(string.ascii_uppercase, choices, strict=False))
    if sample.get("id") not in (None, ""):
        row["id"] = str(sample["id"])
    if metadata := parsed(sample.get("metadata")):
        row["metadata"] = metadata
    return row


def _input(value: Any) -> str:
    """Return a question: a text, or the messages of a chat with their roles."""
    value = parsed(value) if isinstance(value, str) and value.lstrip().startswith("[{") else value
    if not is_list(value):
        return str(value)
    messages = [m for m in value if is_dict(m)]
    if len(messages) == 1:
        return _content(messages[0])
    return "\n".join(f"{m.get('role', 'user')}: {_content(m)}" for m in messages)


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if is_list(content):
        return "\n".join(str(part.get("text", "")) for part in content if is_dict(part))
    return str(content or "")


def _list(value: Any) -> list[Any]:
    """Return a list, which a CSV cell may have as JSON, or a single value as a list."""
    return as_list(parsed(value) if isinstance(value, str) and value.lstrip().startswith("[") else value)
