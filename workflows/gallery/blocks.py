"""Greedy best-first search in a world of blocks, for llm_heuristics.yaml, which gives it the values of states."""

from __future__ import annotations

from typing import Any

Stacks = list[list[str]]


def step(state: Any, values: list[float], start: Stacks, goal: Stacks) -> dict[str, Any]:
    """Put the states that were just valued in order, take the lowest, the earliest of equals, and give its successors:
    {open: [value, stacks], seen, children: states to value next, expanded, solved}."""
    state = state or {"open": [[0.0, start]], "seen": [_key(start)], "children": [], "expanded": 0, "solved": False}
    if state["solved"]:
        return state
    opened = state["open"] + [[value, child] for value, child in zip(values, state["children"], strict=True)]
    if not opened:
        return state | {"children": []}
    best = min(range(len(opened)), key=lambda number: opened[number][0])
    stacks = opened.pop(best)[1]
    if _key(stacks) == _key(goal):
        return state | {"solved": True, "open": [], "children": []}
    fresh = {_key(child): child for child in _successors(stacks) if _key(child) not in state["seen"]}
    return {
        "open": opened,
        "seen": [*state["seen"], *fresh],
        "children": [*fresh.values()],
        "expanded": state["expanded"] + 1,
        "solved": False,
    }


def solved(example: Any, prediction: Any) -> tuple[float, str]:
    """1 where the search came to the goal within its expansions."""
    state = prediction["state"]
    return float(state["solved"]), f"{state['expanded']} states were expanded."


def _successors(stacks: Stacks) -> list[Stacks]:
    """Move the top of a stack to another one, or to the table."""
    found = []
    for number, stack in enumerate(stacks):
        rest = [list(other) for other in stacks]
        block = rest[number].pop()
        rest = [other for other in rest if other]
        found += [[*rest, [block]]] if len(stack) > 1 else []
        found += [[*rest[:to], [*rest[to], block], *rest[to + 1 :]] for to in range(len(rest))]
    return found


def _key(stacks: Stacks) -> str:
    return "/".join(sorted("".join(stack) for stack in stacks))
