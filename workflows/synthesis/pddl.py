"""A planner for small problems in PDDL, for agentgen.yaml: breadth first, so that its plans are the shortest."""

from __future__ import annotations

import re
from collections import deque
from itertools import product
from typing import Any

#: States that are looked at before it gives up.
MAX_STATES = 20_000
Fact = tuple[str, ...]


def plan(domain: str, problem: str) -> list[str]:
    """The shortest plan of a problem in STRIPS without types (`:action`, `:parameters`, `:precondition`, `:effect`;
    positive conditions, `and`, `not` in effects). Raises ValueError if there is none, or the text is not such PDDL."""
    actions = [part for part in read(domain)[1:] if part[0] == ":action"]
    parts = {part[0]: part[1:] for part in read(problem)[1:]}
    moves = [move for action in actions for move in ground(action, parts[":objects"])]
    start, goal = frozenset(map(tuple, parts[":init"])), facts(parts[":goal"][0])
    known, waiting = {start}, deque([(start, list[str]())])
    while waiting:
        state, path = waiting.popleft()
        if goal <= state:
            return path
        for name, needs, adds, deletes in moves:
            if needs <= state and (after := (state - deletes) | adds) not in known:
                known.add(after)
                waiting.append((after, [*path, name]))
        if len(known) > MAX_STATES:
            raise ValueError(f"no plan among {MAX_STATES} states")
    raise ValueError("the problem has no plan")


def ground(
    action: list[Any], objects: list[str]
) -> list[tuple[str, frozenset[Fact], frozenset[Fact], frozenset[Fact]]]:
    """(name, needs, adds, deletes) of an action for all objects."""
    about = dict(zip(action[2::2], action[3::2], strict=True))
    names = about.get(":parameters", [])
    found = []
    for values in product(objects, repeat=len(names)):
        value = dict(zip(names, values, strict=True))
        needs = facts(about.get(":precondition", ["and"]), value)
        changes = about[":effect"][1:] if about[":effect"][0] == "and" else [about[":effect"]]
        adds = frozenset(fact(one, value) for one in changes if one[0] != "not")
        deletes = frozenset(fact(one[1], value) for one in changes if one[0] == "not")
        found.append((" ".join([action[1], *values]), needs, adds, deletes))
    return found


def facts(tree: list[Any], value: dict[str, str] | None = None) -> frozenset[Fact]:
    return frozenset(fact(one, value or {}) for one in (tree[1:] if tree[0] == "and" else [tree]))


def fact(tree: list[str], value: dict[str, str]) -> Fact:
    if not all(isinstance(part, str) for part in tree) or tree[0] in ("not", "or", "forall", "exists", "when"):
        raise ValueError(f"only facts, `and`, and `not` in effects are known, not {tree}")
    return tuple(value.get(part, part) for part in tree)


def read(text: str) -> Any:
    """Nested lists of words. Raises ValueError where brackets do not close."""
    stack: list[list[Any]] = [[]]
    for word in re.findall(r"[()]|[^\s()]+", text.lower()):
        if word == "(":
            stack.append([])
        elif word == ")" and len(stack) > 1:
            stack[-2].append(stack.pop())
        else:
            stack[-1].append(word)
    if len(stack) != 1 or not stack[0] or not isinstance(stack[0][0], list):
        raise ValueError("the brackets do not close")
    return stack[0][0]
