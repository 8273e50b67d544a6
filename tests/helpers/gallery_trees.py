"""What a scripted model says in the workflows of the gallery whose states grow from each other (`gallery_scripts`)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable

from tests.helpers.gallery_speech import Case, Drawn, numbers


def asked(found: re.Match[str]) -> int:
    """The sum that the question asks for."""
    return sum(numbers(re.findall(r"question: (.*)", found.string)[-1]))


def off(by: int) -> Callable[[re.Match[str]], str]:
    return lambda found: str(asked(found) + by)


class Ways:
    """The first way that is drawn for a question leads nowhere, the second does."""

    def __init__(self) -> None:
        self.drawn = Counter[str]()

    def __call__(self, found: re.Match[str]) -> str:
        self.drawn[found[1]] += 1
        return "guess" if self.drawn[found[1]] % 2 else "carry"


def what_becomes(found: re.Match[str]) -> str:
    """The critic of CodeTree: it sees what the test, which looks at the last digit, does not. Where the sum begins with
    a multiple of three, it is never content: the best state counts."""
    answer = re.findall(r"answer: (.*)", found.string)[-1]
    content = answer == str(asked(found)) and first_of(found) % 3
    return "solve" if answer == "none" else "stop" if content else "refine"


def first_of(found: re.Match[str]) -> int:
    return numbers(re.findall(r"question: (.*)", found.string)[-1])[0]


def carry(found: re.Match[str]) -> str:
    return off(10 if first_of(found) % 3 else 0)(found)


def mend(found: re.Match[str]) -> str:
    """A repair finds the way only from an answer whose last digit is right."""
    answer, total = re.findall(r"answer: (.*)", found.string)[-1], asked(found)
    return str(total if int(answer) % 10 == total % 10 else total + 3)


#: By how far a patch is from right: what it is worth, and what the judge says.
WORTH = {
    20: "score: 0.6\nfeedback: nearly right",
    10: "score: 0.5\nfeedback: ten less",
    1: "score: 0.7\nfeedback: one less",
    2: "score: 0.9\nfeedback: fine",
    0: "score: 0.9\nfeedback: fine",
}


def judge_patch(found: re.Match[str]) -> str:
    return WORTH.get(int(found[1]) - asked(found), "score: 0.1\nfeedback: worse")


def join_halves(found: re.Match[str]) -> str:
    left, right = (re.findall(rf"{side} (\d+)", found.string) for side in ("left", "right"))
    return f"total {int(left[-1]) + int(right[-1])}" if left and right else "half"


def half(found: re.Match[str]) -> str:
    """The sum of one half of the numbers, by the side from which it is worked out."""
    parts = numbers(re.findall(r"question: (.*)", found.string)[-1])
    cut = len(parts) // 2
    left = "way: from the left" in found.string
    return f"{'left' if left else 'right'} {sum(parts[:cut] if left else parts[cut:])}, roughly"


def named(tool: str, *given: object) -> str:
    return f"tool: {tool}\narguments: {json.dumps({'numbers': given} if given else {})}"


def add_all(found: re.Match[str]) -> str:
    return named("add", *numbers(re.findall(r"question: (.*)", found.string)[-1]))


def quote_one(found: re.Match[str]) -> str:
    return named("quote", numbers(re.findall(r"question: (.*)", found.string)[-1])[0])


TREES: dict[str, Case] = {
    "toolchain.yaml": Case(  # three of four answers add first; the fourth asks for the price of one number
        [
            ("Which tools would you use", "question: ", "1. add 2. quote"),
            ("Name the next call", r"plan: \[\]", Drawn(add_all, quote_one, add_all, add_all)),
            ("Name the next call", r'plan: \[\{"name": "add"[^{]*\{[^{]*\}\}\]', named("quote", {"$ref": "1"})),
            ("Name the next call", '"name": "quote"', named("finish")),
        ],
    ),
    "codetree.yaml": Case(
        [
            ("Name a way", "question: (.*)", Ways()),
            ("Solve it in this way.", "plan: guess", off(4)),
            ("Solve it in this way.", "plan: carry", carry),
            ("Mend the answer", "feedback: the last digit", mend),
            ("What is to be done", "question", what_becomes),
        ],
    ),
    "swe_search.yaml": Case(
        [  # what looks best at first leads nowhere, and of the last two the first is wrong
            ("Write a better patch", "patch: none", Drawn(off(20), off(10))),
            ("Write a better patch", "feedback: nearly right", Drawn(off(31), off(32))),
            ("Write a better patch", "feedback: ten less", Drawn(off(1), off(41))),
            ("Write a better patch", "feedback: one less", Drawn(off(2), off(0))),
            ("Write a better patch", "", off(50)),
            ("Judge the patch", r"patch: (\d+)", judge_patch),
            ("Which of the patches", "patches", lambda m: str(asked(m)) if str(asked(m)) in m.string else "none"),
        ],
    ),
    "se_agent.yaml": Case(
        [
            ("Work out the task", "question", half),
            ("Revise the trajectory", r"trajectory: (\w+ \d+), roughly", r"\1"),
            ("best steps of all", "pool", join_halves),
            ("Give the answer", r"whole: (?:total )?(\w+)", r"\1"),
        ],
    ),
}
