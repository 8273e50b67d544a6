"""Simulated rows and models for null_runs.py: answers are formulas, so that the truth is known."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import LMError
from workbench.lm import LMPool, Request, Response

LABELS = ("a", "b", "c", "d")
WORDS = [
    f"{a}{b}{c}" for a in ("ba", "ko", "li", "me", "nu") for b in ("ra", "so", "ti", "ve") for c in ("n", "l", "x", "")
]
PLAIN = "Plain."
#: Right answers by chance, and with another wording in a world with a gain.
CHANCE, BETTER = 0.5, 0.9


@dataclass
class Rows:
    """The rows of a world by split; meaning: by text, what decides the answer, equal for rows that are answered
    alike."""

    train: list[dict[str, Any]] = field(default_factory=list)
    val: list[dict[str, Any]] = field(default_factory=list)
    test: list[dict[str, Any]] = field(default_factory=list)
    meaning: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path, **parts: list[dict[str, Any]]) -> None:
        for name in ("train", "val", "test"):
            rows = parts.get(name, getattr(self, name))
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def asked(request: Request) -> str:
    """The row's text in a request of a `predict` node."""
    return str(request.messages[-1]["content"]).removeprefix("text: ").partition("\nlabel:")[0]


def draw(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big") / 2**56


class Formula(LMPool):
    """The only member of its own pool: right with a chance that depends on the wording alone."""

    identity, concurrency = "formula, no model", 16

    def __init__(self, rows: Rows, seed: int, gain: bool):
        super().__init__()
        self.rows, self.seed, self.gain = rows, seed, gain
        self.labels = {r["text"]: r["label"] for part in (rows.train, rows.val, rows.test) for r in part}

    def get(self, spec: Any) -> Any:
        return self

    def price(self, prompt_tokens: int, completion_tokens: int) -> float:
        return 0.0

    async def aclose(self) -> None:
        pass

    def chance(self, wording: str) -> float:
        return BETTER if self.gain and wording != PLAIN else CHANCE

    def is_right(self, text: str, wording: str) -> bool:
        return draw(self.seed, self.rows.meaning.get(text, text), wording) < self.chance(wording)

    def answer(self, text: str, wording: str) -> str:
        right = self.labels[text]
        return right if self.is_right(text, wording) else LABELS[(LABELS.index(right) + 1) % 4]

    def tokens(self, text: str, wording: str) -> int:
        return 1

    async def complete(self, request: Request) -> Response:
        text = asked(request)
        wording = next(
            (w for w in (PLAIN, *(f"Wording {i}." for i in range(60))) if w in str(request.messages[0]["content"])), ""
        )
        return Response(self.answer(text, wording), "stop", 20, self.tokens(text, wording), 0.0)


class Notes(Formula):
    """An agent with notes, or a cache behind the model: whoever asks second about a row is right."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.seen = set[str]()

    def answer(self, text: str, wording: str) -> str:
        known = text in self.seen
        self.seen.add(text)
        return self.labels[text] if known else super().answer(text, wording)


class Cached(Formula):
    """A cache of answers by the row alone, whatever the wording: the second asker gets the first one's answer, at
    once and for fewer tokens."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.kept = dict[str, str]()

    async def complete(self, request: Request) -> Response:
        text = asked(request)
        if text in self.kept:
            return Response(self.kept[text], "stop", 20, 10, 0.0)
        await asyncio.sleep(0.01)
        found = await super().complete(request)
        self.kept[text] = found.text
        tokens = 40 if self.gain and PLAIN not in str(request.messages[0]["content"]) else 200
        return Response(found.text, "stop", 20, tokens, 0.0)


class Steady(Formula):
    """Right or wrong whatever the wording: only costs differ."""

    def is_right(self, text: str, wording: str) -> bool:
        return draw(self.seed, text) < 0.7


class Loops(Steady):
    """Another wording costs a little less on most rows and very much more on one in a hundred: the mean is the same."""

    def tokens(self, text: str, wording: str) -> int:
        if wording == PLAIN:
            return 100
        if self.gain:
            return 40
        return 1090 if draw(self.seed, text, wording, "loop") < 0.01 else 90


class Silent(Formula):
    """The winner gives no answer on some of the rows that it gets wrong."""

    def answer(self, text: str, wording: str) -> str:
        if wording != PLAIN and not self.is_right(text, wording) and draw(self.seed, text, wording, "slow") < 0.3:
            raise LMError("timeout", "no answer in time")
        return super().answer(text, wording)


class Graded(Formula):
    """A small gain on most rows and a rare loss of everything: the mean gain is 0."""

    def answer(self, text: str, wording: str) -> str:
        if wording == PLAIN:
            return "0.80"
        if self.gain:
            return "0.95"
        return "0.0" if draw(self.seed, text, wording) < 0.05 else "0.8421"


class Judged(Formula):
    """A judge likes whatever is new; people like old and new answers alike, unless there is a gain."""

    def answer(self, text: str, wording: str) -> str:
        return f"the {'old' if wording == PLAIN else 'new'} answer"

    async def complete(self, request: Request) -> Response:
        if "You grade an answer" in str(request.messages):
            new = "the new answer" in str(request.messages[-1]["content"])
            return Response(f"fine\nscore: {9 if new else 5}", "stop", 20, 1, 0.0)
        return await super().complete(request)

    def people(self, row: str, answer: str) -> float:
        """What somebody says of an answer."""
        return float(draw(self.seed, row, answer) < (BETTER if self.gain and "new" in answer else CHANCE))


def sentence(rng: random.Random, count: int = 14) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(count))


def plain_rows(rng: random.Random, test: int = 60, val: int = 40) -> Rows:
    made = [[{"text": sentence(rng), "label": rng.choice(LABELS)} for _ in range(n)] for n in (8, val, test)]
    return Rows(*made)


def copied_rows(change: Callable[[str, int], str], kinds: int = 6, times: int = 10) -> Callable[[random.Random], Rows]:
    """Few questions, each many times with a change that means nothing."""

    def made(rng: random.Random) -> Rows:
        rows = plain_rows(rng, 0)
        for _ in range(kinds):
            text, label = sentence(rng), rng.choice(LABELS)
            for i in range(times):
                rows.test.append({"text": change(text, i), "label": label})
                rows.meaning[rows.test[-1]["text"]] = text
        return rows

    return made


def other_word(text: str, i: int) -> str:
    return f"{text} {WORDS[-1 - i]}"


def unseen_character(text: str, i: int) -> str:
    return text[: 3 + i] + "\u200b" + text[3 + i :]


def other_number(text: str, i: int) -> str:
    return f"{text} {1000 + 37 * i}"


def conversations(name: str, groups: int = 20, turns: int = 10) -> Callable[[random.Random], Rows]:
    """Turns of a conversation are answered alike, and nothing but a field of the row says which belong together."""

    def made(rng: random.Random) -> Rows:
        rows = plain_rows(rng, 0)
        for group in range(groups):
            for _ in range(turns):
                row = {"text": sentence(rng), "label": rng.choice(LABELS), name: f"c{group}"}
                rows.test.append(row)
                rows.meaning[row["text"]] = f"group {group}"
        rng.shuffle(rows.test)
        return rows

    return made
