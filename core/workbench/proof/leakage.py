"""Detection of leakage: texts of the winner that repeat rows of train, val or test."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from workbench.task import Example, Repeats, Task, input_tokens, tokenize
from workbench.workflow import Workflow

#: Rows of few tokens occur in texts by chance: at least this many of them must be repeated.
SHORT_ROWS = 3

#: A token is characteristic of a row if at most this share of the split's rows have it.
TELLING = 0.25


@dataclass(frozen=True)
class Leak:
    """A leak: the winner's text at `address` repeats `rows` of a split, the first of which is `example`."""

    split: str
    address: str
    rows: int
    example: str
    handle: str = ""

    @property
    def breaks_proof(self) -> bool:
        """Return True if the leak invalidates the proof, since scores on its rows show nothing. Train rows are
        allowed."""
        return self.split != "train"

    def __str__(self) -> str:
        rows = (
            f"{self.rows} rows of {self.split}, e.g. {self.handle or self.example}"
            if self.rows > 1
            else f"the {self.split} row {(self.handle or self.example).removeprefix('row ')}"
        )
        if self.breaks_proof:
            return f"{self.address} of the winner repeats {rows}: its score on them is not fair, and no gain is shown"
        return f"{self.address} of the winner copies text of {rows}: it may have memorised it"


def find_leaks(task: Task, winner: Workflow) -> list[Leak]:
    """Find new texts of the winner that repeat rows. For val and test all texts count; for train only prompts, since
    demos are made of train rows."""
    if winner == task.workflow:
        return []
    before = dict(_texts(task.workflow.tree))
    new = {address: text for address, text in _texts(winner.tree) if before.get(address) != text}
    prompts = {a: text for a, text in new.items() if not re.search(r"\.(demos|entries|example)\.", a)}
    data, old = task.dataset, [tokenize(text) for text in before.values()]
    # A text found in train, too, may come from there: rows that are alike are no leak.
    fair = [*old, *(input_tokens(row, list(row.fields)) for row in data.train)]
    repeats = Repeats(_joined(new, task.inputs), fair)
    found = [
        _leak("test", data.test.open(), task.inputs, repeats),
        _leak("val", data.val, task.inputs, repeats),
        _leak("train", data.train, task.inputs, Repeats(prompts, old)),
    ]
    return [leak for leak in found if leak is not None]


def _leak(split: str, rows: Sequence[Example], inputs: Sequence[str], repeats: Repeats) -> Leak | None:
    """Return the leak of a split if more rows are repeated than by chance."""
    hits: list[tuple[str, Example, bool]] = []
    texts = [input_tokens(row, inputs) for row in rows]
    common = Counter(token for words in texts for token in set(words))
    for row, words in zip(rows, texts, strict=True):
        telling = {token for token in words if common[token] <= max(1, TELLING * len(rows))}
        if (address := repeats.find(words, telling)) is not None:
            hits.append((address, row, repeats.is_short(words)))
    long = [hit for hit in hits if not hit[2]]
    if not hits or (not long and len(hits) < min(SHORT_ROWS, len(rows))):
        return None
    address, row, _ = (long or hits)[0]
    return Leak(split, address, len(hits), row.id, row.handle)


def _joined(texts: dict[str, str], inputs: Sequence[str]) -> dict[str, str]:
    """Join the inputs of each demo into one text, to compare it with rows. Other fields are left out."""
    found: dict[str, str] = {}
    for address, text in texts.items():
        match = re.match(r"(.*\.(?:demos\.\d+|entries\.\d+\.inputs))\.(\w+)", address)
        if match is not None and match[2] in inputs:
            found[match[1]] = f"{found.get(match[1], '')} {text}"
        else:
            found[address] = text
    return found


def _texts(tree: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (address, text) of every text and number in a tree."""
    if isinstance(tree, dict):
        for key, value in cast(dict[str, Any], tree).items():
            yield from _texts(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(tree, list):
        for index, value in enumerate(cast(list[Any], tree)):
            yield from _texts(value, f"{prefix}.{index}")
    elif tree is not None:
        yield prefix, str(tree)
