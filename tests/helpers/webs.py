"""Small simulated webs of pages with a trap: a corridor that looks better from the start, but is a dead end."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

ADJECTIVES = ("blue", "heavy", "old", "small", "round", "bright")
MATERIALS = ("copper", "oak", "glass", "wool", "clay", "silver")
THINGS = ("kettle", "chair", "lamp", "scarf", "bowl", "spoon")


def overlap(inputs: Mapping[str, Any], position: Any) -> float:
    """The number of requested words on the page, without those in its links."""
    wanted = set(re.findall(r"\w+", inputs["question"].partition("about the ")[2]))
    page = set(re.findall(r"\w+", position.observation.partition("\nLinks:")[0]))
    return len(wanted & page) / len(wanted)


def make(seed: int) -> dict[str, Any]:
    """One task: a page with all three words of the question, three clicks away. Names of pages say nothing."""
    rng = random.Random(seed)
    adjective, material, thing = (rng.choice(words) for words in (ADJECTIVES, MATERIALS, THINGS))
    other = rng.choice([m for m in MATERIALS if m != material])
    names = [f"page{i}" for i in rng.sample(range(10, 100), 9)]
    home, trap, trap_two, end, good, good_two, goal, side, empty = names
    pages = {
        home: ("Welcome.", {f"{thing}s": trap, material: good, "help": empty}),
        trap: (f"Every {thing} there is.", {f"more {thing}s": trap_two}),
        trap_two: (f"One {thing} after the other.", {f"the best {thing}": end}),
        end: (f"No {thing} is left.", {}),
        good: (f"What is made of {material}.", {adjective: good_two, other: side}),
        good_two: (f"Of {material}, and {adjective}.", {f"a {thing}": goal, "contact": empty}),
        goal: (f"The {adjective} {material} {thing} is here.", {}),
        side: (f"Nothing but {other}.", {}),
        empty: ("Ask somebody else.", {}),
    }
    shuffled = rng.sample(list(pages), len(pages))
    return {
        "question": f"Find the page about the {adjective} {material} {thing}.",
        "start": home,
        "goal": goal,
        "pages": {
            name: {"text": pages[name][0], "links": dict(rng.sample(list(pages[name][1].items()), len(pages[name][1])))}
            for name in shuffled
        },
    }


def lured(request: Any) -> str:
    """A policy: three of four answers take a link with a requested word, if there is one; the others alternate between
    the remaining links."""
    text = str(request.messages[-1]["content"])
    thing = re.findall(r"about the \w+ \w+ (\w+)", text)[0]
    hints = re.findall(r"You can: (.*)", text)[-1].split(", ")
    luring = [h for h in hints if thing in h]
    others = [h for h in hints if h not in luring and h not in ("click help", "back")] or hints
    return luring[0] if luring and request.replica % 4 != 3 else others[request.replica % len(others)]
