"""Spectrum-based ranking: the formulas against a table, and planted faults against chance."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from workbench_kit.credit import (
    FORMULAS,
    Counts,
    Element,
    elements_of_spans,
    rank_elements,
    rank_nodes,
)

NODES = [f"n{i}" for i in range(12)]


@pytest.mark.parametrize(
    ("counts", "ochiai", "tarantula", "dstar"),
    [
        (Counts(4, 0, 0, 6), 1.0, 1.0, math.inf),
        (Counts(0, 4, 3, 3), 0.0, 0.0, 0.0),
        (Counts(3, 1, 1, 5), 3 / 4, (3 / 4) / (3 / 4 + 1 / 6), 9 / 2),
        (Counts(2, 2, 6, 0), 2 / math.sqrt(4 * 8), 0.5 / 1.5, 4 / 8),
        (Counts(5, 0, 0, 0), 1.0, 1.0, math.inf),
    ],
)
def test_formulas_by_hand(counts: Counts, ochiai: float, tarantula: float, dstar: float) -> None:
    found = [FORMULAS[name](counts) for name in ("ochiai", "tarantula", "dstar")]
    assert found == pytest.approx([ochiai, tarantula, dstar])


def trace(draw: random.Random, faulty: str, kind: str) -> tuple[list[dict[str, Any]], bool]:
    """(spans, passed) of a run through some of the nodes, which fails mostly where the fault is met."""
    names = [name for name in NODES if draw.random() < 0.6] or [faulty]
    spans, met = list[dict[str, Any]](), False
    for name in names:
        value = draw.choice("abc")
        tools = [{"name": draw.choice("xyz"), "result": "ok"}] if name in ("n3", "n4", "n5") else []
        spans.append({"node": name, "outputs": {"label": value}, "notes": {"tools": tools}})
        met |= name == faulty and (
            kind == "node" or (kind == "output" and value == "b") or (kind == "tool" and bool(tools[0]["name"] == "y"))
        )
    return spans, draw.random() > (0.85 if met else 0.1)


def rank_of(kind: str, seed: int, formula: str = "ochiai", informed: bool = True) -> int:
    """The place of the faulty node among the nodes, from 50 traces."""
    draw = random.Random(f"{kind} {seed}")
    faulty = draw.choice(["n3", "n4", "n5"] if kind == "tool" else NODES)
    runs = [trace(draw, faulty, kind) for _ in range(50)]
    if not informed:
        outcomes = [ok for _, ok in runs]
        draw.shuffle(outcomes)
        runs = [(spans, ok) for (spans, _), ok in zip(runs, outcomes, strict=True)]
    passed = [elements_of_spans(spans) for spans, ok in runs if ok]
    failed = [elements_of_spans(spans) for spans, ok in runs if not ok]
    found = [s.node for s in rank_nodes(passed, failed, formula, NODES)]
    return found.index(faulty) if faulty in found else len(NODES)


@pytest.mark.slow
@pytest.mark.parametrize("formula", FORMULAS)
def test_the_faulty_node_is_among_the_first_three_from_50_traces(formula: str) -> None:
    """Issue figure: at least 90%. With shuffled outcomes it is there as often as by chance."""
    ranks = [rank_of("node", seed, formula) for seed in range(60)]
    assert sum(rank < 3 for rank in ranks) >= (
        54 if formula != "tarantula" else 40
    )  # its ratio overrates rare elements
    blind = [rank_of("node", seed, formula, informed=False) for seed in range(60)]
    assert sum(rank < 3 for rank in blind) <= 27  # chance: 15


@pytest.mark.parametrize("kind", ["output", "tool"])
def test_a_fault_of_one_output_or_one_tool_is_found_by_it(kind: str) -> None:
    ranks = [rank_of(kind, seed) for seed in range(60)]
    assert sum(rank < 3 for rank in ranks) >= 50


def test_an_element_of_all_runs_tells_nothing() -> None:
    everywhere, bad = Element("node", "a"), Element("state", "b", "lost")
    passed, failed = [{everywhere}] * 3, [{everywhere, bad}, {everywhere, bad}, {everywhere}]
    assert [s.element for s in rank_elements(passed, failed)] == [bad]
    assert [s.node for s in rank_nodes(passed, failed)] == ["b", "a"]


def test_of_equally_suspicious_nodes_the_earlier_comes_first() -> None:
    runs = [{Element("output", node, f"x={value}") for node in ("late", "early")} for value in "aabb"]
    found = rank_nodes(runs[:2], runs[2:], order=["early", "late"])
    assert [s.node for s in found] == ["early", "late"]
    assert [s.node for s in rank_nodes(runs[:2], runs[2:], order=["late", "early"])] == ["late", "early"]


def test_what_a_run_went_through() -> None:
    spans = [
        {"node": "a", "outputs": {"label": "x", "text": "y" * 50}, "notes": {"case": "low"}},
        {"node": "b", "agent": "eve", "error": "parse: no field", "notes": {"path": ["ask", "look", "ask"]}},
        {"node": "c", "notes": {"tools": [{"name": "search", "result": "error: none"}]}},
    ]
    assert {str(e) for e in elements_of_spans(spans)} == {
        "node a",
        "output a label=x",
        "state a case low",
        "node b.eve",
        "transition b.eve after a",
        "error b.eve parse",
        "state b.eve ask",
        "state b.eve look",
        "transition b.eve ask to look",
        "transition b.eve look to ask",
        "node c",
        "transition c after b.eve",
        "tool c search",
        "error c of search",
    }
