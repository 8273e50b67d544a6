"""Writes rows, and a valid starter workflow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.base.files import open_whole, write_whole
from workbench.errors import SpecError
from workbench.run import prepare
from workbench.task import dump_yaml
from workbench_kit.answers import guess_type

Row = dict[str, Any]

#: Minimum rows: one each for train, val and test.
MIN_ROWS = 3
#: Shares of train, val and test.
SHARES = (0.25, 0.25, 0.5)


def write_rows(out: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines, the file whole or not at all. Lone surrogates are escaped, as JSON allows."""
    with open_whole(out, errors="backslashreplace", newline="\n") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def row_paths(out: Path, split: str) -> dict[str, Path]:
    """Return the files of the rows; for split="time" one each for train, val and test, e.g. rows.train.jsonl."""
    if split != "time":
        return {"rows": out}
    return {name: out.with_name(f"{out.stem}.{name}{out.suffix}") for name in ("train", "val", "test")}


def write_starter(path: Path, data: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    """Write a workflow file for rows. Returns the guesses. Raises SpecError, and writes nothing, if it would not be
    valid."""
    tree, guessed = starter(rows)
    head = {"name": tree.pop("name"), "lm": tree.pop("lm"), "data": dict(data)}
    write_whole(path, "# Made by `workbench data traces`.\n" + dump_yaml({**head, **tree}))
    try:
        prepare(path)
    except SpecError as error:
        path.unlink()
        hint = " ".join(filter(None, (error.hint, "The rows were written; --no-workflow writes them alone.")))
        raise SpecError(f"the rows make no valid workflow: {error.message}", hint=hint) from None
    return guessed


def starter(rows: Sequence[Row]) -> tuple[dict[str, Any], list[str]]:
    """Return the content of a workflow file without its data, and the guesses."""
    guessed = ["the language model: bundled/nano; name yours under `lm`"]
    inputs = "history, input" if any(row["history"] for row in rows) else "input"
    answers = [str(row["answer"]) for row in rows if row.get("answer")]
    found = guess_type(answers)
    tree: dict[str, Any] = {"name": "from-traces", "lm": "bundled/nano"}
    told = _instructions(rows)
    node: dict[str, Any] = {"predict": f"{inputs} -> answer"}
    if len(answers) < len(rows):
        missing = len(rows) - len(answers)
        guessed.append(f"the metric: a judge, as {missing} of {len(rows)} rows have no right answer (--labelled)")
        rubric = "The answer helps with what was asked, is correct, and makes nothing up."
        tree |= {"metric": {"judge": {"field": "answer", "rubric": rubric}}, "proof": {"labels": "labels.jsonl"}}
    elif found.kind == "choice":
        node = {"predict": f"{inputs} -> answer: {found.type}"}
        guessed.append(f"the metric: exact_match of answers, as {found.shown_by}")
        tree["metric"] = "exact_match(answer)"
    else:
        guessed.append("the metric: f1, the words that an answer shares with the right one")
        tree["metric"] = "f1(answer)"
    tree["nodes"] = {"answer": {**node, **({"instructions": told} if told else {})}}
    tree["budget"] = {"calls": max(1000, 12 * len(rows))}
    return tree, guessed


def _instructions(rows: Sequence[Row]) -> str:
    """Return the system prompt of most rows, if there is one."""
    prompts = Counter(next((m["content"] for m in row["messages"] if m["role"] == "system"), "") for row in rows)
    text, count = prompts.most_common(1)[0] if prompts else ("", 0)
    return text if 2 * count > len(rows) else ""
