"""How a scripted model speaks in the workflows of the gallery, and the words that several of its tables share."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.lm import Request

Said = str | Callable[[re.Match[str]], str]
Line = tuple[str, str, Said | list[Said]]
#: The whole of a question that is a sum; the task's and nothing behind it; and what follows it where the model is to
#: answer.
SUM = r"question: (\d[\d +]*)"
ASKED = rf"\A{SUM}\n\w+:\Z"
RESULT = r"result: (\d+)\Z"


@dataclass(frozen=True)
class Case:
    """What a model says in a file, on the file's own rows. wrong: nodes that fail on purpose."""

    table: Sequence[Line]
    wrong: Sequence[str] = ()


class Speaker:
    """Answers from a table; records unanswered requests, and how often each line was used."""

    def __init__(self, table: Sequence[Line]):
        self.table = copy.deepcopy(table)  # some of its lines count what they have said
        self.unknown, self.said = list[str](), Counter[int]()

    def __call__(self, request: Request) -> str:
        system = "\n".join(str(m["content"]) for m in request.messages if m["role"] == "system")
        others = "\n".join(str(m["content"]) for m in request.messages if m["role"] != "system")
        for number, (told, pattern, answer) in enumerate(self.table):
            if told in system and (found := re.search(pattern, others)):
                if isinstance(answer, list):
                    answer = answer[self.said[number] % len(answer)]
                self.said[number] += 1
                return found.expand(answer) if isinstance(answer, str) else answer(found)
        self.unknown.append(f"{system}\n---\n{others}")
        return "(nothing in the table)"

    @property
    def unsaid(self) -> list[Line]:
        return [line for number, line in enumerate(self.table) if not self.said[number]]


def own_rows(name: str) -> list[dict[str, Any]]:
    """All rows of a data file of the gallery."""
    text = (Path(__file__).parents[2] / f"workflows/gallery/{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def total(more: int = 0) -> Callable[[re.Match[str]], str]:
    """A reply with the sum of the numbers in the first group, plus an offset."""
    return lambda found: str(sum(numbers(found[1])) + more)


def call(name: str, /, **arguments: Any) -> str:
    return f"call: {json.dumps({'tool': name, 'arguments': arguments})}"


def code(*lines: str) -> str:
    return "\n".join(("```python", *lines, "```"))


def add(found: re.Match[str]) -> str:
    return call("add", numbers=numbers(found[1]))


class Drawn:
    """Replies to one prompt that is sent several times, in their order."""

    def __init__(self, *replies: Said):
        self.replies, self.drawn = replies, Counter[str]()

    def __call__(self, found: re.Match[str]) -> str:
        reply = self.replies[self.drawn[found.string] % len(self.replies)]
        self.drawn[found.string] += 1
        return found.expand(reply) if isinstance(reply, str) else reply(found)


def owner_of(found: re.Match[str]) -> str:
    """A reply with the animal of the person in the group, read from the text."""
    return re.findall(rf"{found[1]} has the (\w+)", found.string)[0]


PLAN = "How well does the plan meet the constraints"


def steps(task: str) -> str:
    """The first step of a captain: a role that the library has, or, where the first number is odd, others."""
    roles = ["mental sums", "prose", "good prose"] if numbers(task)[0] % 2 else ["adds numbers", "checks"]
    return f"task: Add {task.strip()}.\nroles: {json.dumps(roles)}"
