"""Guards of the proof: does the winner repeat text of rows that it should not have seen, or only have memorised?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.task import Example, Repeats, Task, input_tokens, tokenize
from workbench.workflow import Workflow

#: Rows of few tokens turn up in texts by chance: so many of them must be repeated before it counts.
SHORT_ROWS = 3

#: A token that at most this part of a split's rows have tells a row from the others.
TELLING = 0.25


@dataclass(frozen=True)
class Leak:
    """A text of the winner at `address` repeats `rows` of a split, of which `example` is the first."""

    split: str
    address: str
    rows: int
    example: str

    @property
    def breaks_proof(self) -> bool:
        """A score on rows that the workflow carries in itself shows nothing. Rows of train are its to keep."""
        return self.split != "train"

    def __str__(self) -> str:
        rows = (
            f"{self.rows} rows of {self.split}, e.g. {self.example}"
            if self.rows > 1
            else f"the {self.split} row {self.example}"
        )
        if self.breaks_proof:
            return f"{self.address} of the winner repeats {rows}: its score on them is not fair, and no gain is shown"
        return f"{self.address} of the winner copies text of {rows}: it may have memorised it"


def find_leaks(task: Task, winner: Workflow) -> list[Leak]:
    """Where texts that the winner has and the start had not repeat rows: any text for val and test, for train only
    prompts, since demos are made of train rows."""
    if winner == task.workflow:
        return []
    before = dict(_texts(task.workflow.tree))
    new = {address: text for address, text in _texts(winner.tree) if before.get(address) != text}
    prompts = {a: text for a, text in new.items() if not re.search(r"\.(demos|entries|example)\.", a)}
    data, old = task.dataset, [tokenize(text) for text in before.values()]
    # What train says as well, the winner may have from there: rows that are alike are no leak.
    fair = [*old, *(input_tokens(row, list(row.fields)) for row in data.train)]
    repeats = Repeats(_joined(new, task.inputs), fair)
    found = [
        _leak("test", data.test.open(), task.inputs, repeats),
        _leak("val", data.val, task.inputs, repeats),
        _leak("train", data.train, task.inputs, Repeats(prompts, old)),
    ]
    return [leak for leak in found if leak is not None]


def _leak(split: str, rows: Sequence[Example], inputs: Sequence[str], repeats: Repeats) -> Leak | None:
    """What is repeated of a split, if it is more than chance."""
    hits: list[tuple[str, str, bool]] = []
    texts = [input_tokens(row, inputs) for row in rows]
    common = Counter(token for words in texts for token in set(words))
    for row, words in zip(rows, texts, strict=True):
        telling = {token for token in words if common[token] <= max(1, TELLING * len(rows))}
        if (address := repeats.find(words, telling)) is not None:
            hits.append((address, row.id, repeats.is_short(words)))
    long = [hit for hit in hits if not hit[2]]
    if not hits or (not long and len(hits) < min(SHORT_ROWS, len(rows))):
        return None
    address, example, _ = (long or hits)[0]
    return Leak(split, address, len(hits), example)


def _joined(texts: dict[str, str], inputs: Sequence[str]) -> dict[str, str]:
    """The inputs of one demo as one text, so that a row is found though its inputs stand apart. What else an entry says
    of itself (where it comes from, what it was worth) is no text of a row."""
    found: dict[str, str] = {}
    for address, text in texts.items():
        match = re.match(r"(.*\.(?:demos\.\d+|entries\.\d+\.inputs))\.(\w+)", address)
        if match is not None and match[2] in inputs:
            found[match[1]] = f"{found.get(match[1], '')} {text}"
        else:
            found[address] = text
    return found


def _texts(tree: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """(address, text) of every text and number in a tree."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _texts(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _texts(value, f"{prefix}.{index}")
    elif tree is not None:
        yield prefix, str(tree)
