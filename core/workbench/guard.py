"""Guards of the proof: does the winner carry text that it should not have seen, or only have memorised?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from workbench.data import Example
from workbench.workflow import Workflow

if TYPE_CHECKING:
    from workbench.task import Task

#: So many words in a row, the same in a prompt and in a row, are a copy and not chance.
NGRAM = 8


def leaks(task: Task, winner: Workflow) -> list[str]:
    """Warnings where new texts of the winner repeat rows: any text for val and test, for train only prompts."""
    if winner == task.workflow:
        return []
    before = dict(_texts(task.workflow.tree))
    new = [(address, text) for address, text in _texts(winner.tree) if before.get(address) != text]
    prompts = {address: text for address, text in new if not re.search(r"\.(demos|entries|example)\.", address)}
    warnings = []
    # What train says as well, the winner may have from there: rows that are alike are no leak.
    fair = {gram for row in task.dataset.train for _, value in _texts(dict(row.fields)) for gram in _grams(value)}
    for split, rows in (("test", task.dataset.test), ("val", task.dataset.val)):
        hit = _copied(dict(new), rows, fair)
        if hit:
            warnings.append(
                f"{hit[0]} of the winner repeats text of the {split} row {hit[1]}: its {split} score is not fair"
            )
    hit = _copied(prompts, task.dataset.train, set())
    if hit:
        warnings.append(f"{hit[0]} of the winner copies text of the training row {hit[1]}: it may have memorised it")
    return warnings


def _copied(texts: dict[str, str], rows: tuple[Example, ...], fair: set[str]) -> tuple[str, str] | None:
    """(address, row) of the first copied run of words, or None."""
    grams = {gram: address for address, text in texts.items() for gram in _grams(text) if gram not in fair}
    if not grams:
        return None
    for row in rows:
        for _, value in _texts(dict(row.fields)):
            for gram in _grams(value):
                if gram in grams:
                    return grams[gram], row.id
    return None


def _grams(text: str) -> Iterator[str]:
    words = re.findall(r"\w+", text.lower())
    for start in range(len(words) - NGRAM + 1):
        yield " ".join(words[start : start + NGRAM])


def _texts(tree: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _texts(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _texts(value, f"{prefix}.{index}")
    elif isinstance(tree, str):
        yield prefix, tree
