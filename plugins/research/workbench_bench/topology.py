"""Worlds of structure: which steps precede the answer, of which kind, and how the answer is requested.

Each of three steps writes a word that the answer reads. The answer's skill is a sum of the effects of each word and
wording, and of pairs of them. Every step can be left out. All effects are drawn from the seed, so each seed is a new
problem; the worst of the 256 structures has an accuracy of 0.25 and the best 0.9.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from workbench.lm import Request
from workbench.workflow import Workflow

WORST, BEST = 0.25, 0.9
NOTHING = "nothing"
#: The words that each step may write; the starting workflow uses the first.
STEPS = {
    "plan": ("outline", "goals", "order"),
    "recall": ("facts", "cases", "rules"),
    "check": ("units", "bounds", "signs"),
}
STYLES = ("Label it.", "Give the label.", "Think, then label it.", "Label it as an expert.")
Structure = Mapping[str, str]
_SIGNATURE = "text, plan, recall, check -> label: Literal['a', 'b', 'c', 'd']"


def _step(name: str, word: str) -> dict[str, Any]:
    return {"predict": f"text -> {name}", "instructions": f"Write down {word}."}


def _answer(style: str) -> dict[str, Any]:
    return {"predict": _SIGNATURE, "instructions": style}


NODES = {**{name: _step(name, words[0]) for name, words in STEPS.items()}, "sort": _answer(STYLES[0])}
SEARCH = {
    **{
        f"nodes.{name}": {"any_of": {w: _step(name, w) for w in words[1:]}, "optional": True}
        for name, words in STEPS.items()
    },
    "nodes.sort": {"any_of": {f"style{i}": _answer(style) for i, style in enumerate(STYLES) if i}},
}
_PLACES = {**{name: (*words, NOTHING) for name, words in STEPS.items()}, "style": STYLES}


def list_structures() -> list[dict[str, str]]:
    """All 256 structures: a word or nothing for each step, and the style."""
    return [dict(zip(_PLACES, picked, strict=True)) for picked in itertools.product(*_PLACES.values())]


def score_structure(structure: Structure, seed: int) -> float:
    """The accuracy of a structure."""
    return _table(seed)[tuple(structure[name] for name in _PLACES)]


@lru_cache(maxsize=64)
def _table(seed: int) -> dict[tuple[str, ...], float]:
    draw = random.Random(f"topology:{seed}")
    alone = {(name, word): draw.gauss(0, 1) for name, words in _PLACES.items() for word in words}
    together = {
        frozenset([one, two]): draw.gauss(0, 0.5) for one, two in itertools.combinations(alone, 2) if one[0] != two[0]
    }
    raw = {}
    for structure in list_structures():
        parts = list(structure.items())
        pairs = sum(together[frozenset(pair)] for pair in itertools.combinations(parts, 2))
        raw[tuple(structure.values())] = sum(alone[part] for part in parts) + pairs
    low, high = min(raw.values()), max(raw.values())
    return {key: WORST + (BEST - WORST) * (value - low) / (high - low) for key, value in raw.items()}


def compute_skill(request: Request, seed: int) -> float:
    """The probability of a right label for a request."""
    question, first = str(request.messages[-1]["content"]), request.messages[0]
    told = str(first["content"]).split("\n")[0] if first["role"] == "system" else ""
    structure = {"style": told if told in STYLES else STYLES[0]}
    for name, words in STEPS.items():
        shown = re.search(rf"(?m)^{name}: (\w+)$", question)
        structure[name] = shown.group(1) if shown and shown.group(1) in words else NOTHING
    return score_structure(structure, seed)


def speak(request: Request) -> str | None:
    """The word that a step writes; None for a request for a label."""
    told = re.search(r"Write down (\w+)\.", str(request.messages[0]["content"]))
    return told.group(1) if told else None


def read_structure(workflow: Workflow) -> dict[str, str] | None:
    """The structure of a workflow in the search space; None for any other workflow."""

    nodes = workflow.enabled_nodes
    if set(nodes) - set(NODES) or any(workflow.nodes[n]["kind"] != "predict" for n in nodes):
        return None
    plain = {"kind", "signature", "instructions", "enabled"}
    if any(set(workflow.nodes[n]) - plain for n in nodes):
        return None
    found = {"style": str(workflow.get("nodes.sort.instructions", ""))}
    for name in STEPS:
        told = re.search(r"Write down (\w+)\.", str(workflow.get(f"nodes.{name}.instructions", "")))
        found[name] = told.group(1) if told and name in nodes and name in nodes["sort"].inputs else NOTHING
    return found if all(found[name] in words for name, words in _PLACES.items()) else None
