"""Worlds of routing: four simulated language models with different prices, each good at different kinds of rows.

A branch selects the model by the kind of a row. The skill of each model with each kind is drawn from the seed, as a
permutation of four skills for each kind, so each seed is a new problem; the best of the 65,536 routes has an accuracy
of 0.9 in all of them. Prices are fixed. Routes share requests, and the journal answers repeats: all of val by all
models is 160 calls. After that a search is limited by the number of candidates that it evaluates.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from workbench.lm import Request
from workbench.workflow import Workflow

KINDS = ("code", "law", "maths", "prose", "history", "medicine", "travel", "sport")
SKILLS = (0.9, 0.7, 0.5, 0.3)
#: US dollars of a call, by the model's name.
PRICES = {"openai/sim-small": 0.0001, "openai/sim-medium": 0.0002, "openai/sim-large": 0.0005, "openai/sim-huge": 0.001}
MODELS = tuple(PRICES)
#: A ceiling that excludes the best route: this share of its cost.
TIGHT = 0.6
_SIGNATURE = "text -> label: Literal['a', 'b', 'c', 'd']"

NODES = {
    "sort": {
        "branch": "kind",
        "cases": {k: {"predict": _SIGNATURE, "instructions": "Label it.", "lm": MODELS[0]} for k in KINDS},
    }
}
SEARCH = {f"nodes.sort.cases.{kind}.lm": list(MODELS) for kind in KINDS}
Route = Mapping[str, str]  # a model for each kind


@lru_cache(maxsize=256)
def make_table(seed: int) -> Mapping[tuple[str, str], float]:
    """The skill of each (model, kind)."""
    draw = random.Random(f"routing:{seed}")
    return {(m, kind): s for kind in KINDS for m, s in zip(MODELS, draw.sample(SKILLS, len(SKILLS)), strict=True)}


def score_route(route: Route, seed: int) -> float:
    """The accuracy of a route, with all kinds equally frequent."""
    return sum(make_table(seed)[route[kind], kind] for kind in KINDS) / len(KINDS)


def compute_cost(route: Route) -> float:
    """The mean cost of a row in US dollars."""
    return sum(PRICES[route[kind]] for kind in KINDS) / len(KINDS)


def find_best_route(seed: int, most: float = math.inf) -> dict[str, str]:
    """The most accurate route that costs at most `most` US dollars per row."""
    found: dict[int, tuple[float, dict[str, str]]] = {0: (0.0, {})}  # by cost, in units of the lowest price
    unit = PRICES[MODELS[0]]
    for kind in KINDS:
        longer: dict[int, tuple[float, dict[str, str]]] = {}
        for (spent, (score, route)), model in itertools.product(found.items(), MODELS):
            total, better = spent + round(PRICES[model] / unit), score + make_table(seed)[model, kind]
            if better > longer.get(total, (-1.0, {}))[0]:
                longer[total] = better, {**route, kind: model}
        found = longer
    affordable = [pair for spent, pair in found.items() if spent * unit / len(KINDS) <= most + 1e-12]
    return max(affordable, key=lambda pair: pair[0])[1]


@lru_cache(maxsize=256)
def find_ceiling(seed: int) -> tuple[float, float]:
    """(maximum US dollars per row, the best accuracy of a route within it)."""
    most = max(TIGHT * compute_cost(find_best_route(seed)), PRICES[MODELS[0]])
    return most, score_route(find_best_route(seed, most), seed)


def add_kind(fields: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A row with its kind; any eight consecutive rows have eight kinds."""
    kind = KINDS[(number + number // len(KINDS)) % len(KINDS)]
    return {**fields, "text": f"{kind} {fields['text']}", "kind": kind}


def compute_skill(request: Request, model: str, seed: int) -> float:
    kind = re.search(rf"\b({'|'.join(KINDS)})\b", str(request.messages[-1]["content"]))
    return make_table(seed)[model, kind.group(1)] if kind else min(SKILLS)


def read_route(workflow: Workflow) -> dict[str, str] | None:
    """The route of a workflow in the search space; None for any other workflow."""
    node = workflow.nodes.get("sort", {})
    if len(workflow.nodes) > 1 or node.get("kind") != "branch" or set(node.get("cases", ())) != set(KINDS):
        return None
    found = {kind: case.get("lm") for kind, case in node["cases"].items()}
    plain = {"predict", "kind", "signature", "instructions", "lm"}
    if any(set(case) - plain for case in node["cases"].values()) or any(m not in PRICES for m in found.values()):
        return None
    return found
