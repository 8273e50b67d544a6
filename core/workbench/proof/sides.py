"""The two sides of a sealed row: the order in which they ran, and whether the change was actually sent.

Anything with a memory (an agent with notes, a cache of a tool or a server) favors the side that runs second. So the
order is random for each row. Memory is then no gain of either side, though it may hide one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from workbench.proof.paired_binary import mcnemar_p
from workbench.proof.savings import COST_FIELDS
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import NodeKind, Workflow

#: Order effects are reported below this p, since scores and four costs are tested, and from a relevant size: in score,
#: as a share of a cost, and in seconds.
LEVEL_OF_ORDER, MIN_SCORE, MIN_SHARE, MIN_SECONDS = 0.01, 0.01, 0.05, 0.001

#: A baseline and a winner on a sealed row.
Pair = tuple[Result, Result]


def order_sides(seed: int, row: Example, sides: Sequence[str]) -> list[str]:
    """Return the order in which the sides run on a row. It depends only on seed and row, so a resumed run keeps it."""
    order = list(dict.fromkeys(sides))
    random.Random(f"order:{seed}:{row.id}").shuffle(order)
    return order


@dataclass(frozen=True)
class OrderEffect:
    """An effect of the order of the two sides on a score or a cost. p: of the sign test over rows."""

    objective: str
    diff: float
    p: float
    n: int
    more: int
    less: int

    def __str__(self) -> str:
        return (
            f"{self.objective} {self.diff:+.3g} (more on {self.more} and less on {self.less} of {self.n} rows, p = "
            f"{self.p:.2g})"
        )


def explained_by_order(effects: Sequence[OrderEffect], objective: str, pairs: Sequence[Pair]) -> float:
    """Compute how much more of an objective the winner has because it ran second more often; 0 without an order effect.
    By chance the sides do not run first equally often, which matters if few rows meet a large effect."""
    effect = next((found.diff for found in effects if found.objective == objective), 0.0)
    turns = [b.turn - a.turn for a, b in pairs if a.turn != b.turn]
    return effect * sum((turn > 0) - (turn < 0) for turn in turns) / max(1, len(turns))


def describe_order(effects: Sequence[OrderEffect]) -> str:
    """Describe the order effects in a line; empty if there are none."""
    if not effects:
        return ""
    second = f"the side that ran second on a row had {', '.join(map(str, effects))}"
    if all(effect.objective == "latency" for effect in effects):  # seconds also depend on queues and other load
        return f"seconds are unreliable here: {second}, from a warm cache or other load. Scores are not affected"
    cause = "state is carried over between runs, e.g. in notes of an agent, a tool or a cache"
    return f"{second}: {cause}. The order was random, so this is not a gain or a saving, but it may hide one"


def find_order_effects(pairs: Sequence[Pair]) -> list[OrderEffect]:
    """Find the order effects beyond chance, by the sign test: without one, each side is equally likely to have more."""
    found: list[OrderEffect] = []
    for objective, value in _measures().items():
        seen = [(value(a), value(b)) if a.turn < b.turn else (value(b), value(a)) for a, b in pairs if a.turn != b.turn]
        differences = [second - first for first, second in seen if first is not None and second is not None]
        more, less = sum(d > 1e-12 for d in differences), sum(d < -1e-12 for d in differences)
        p = mcnemar_p(more, less, len(differences)) if differences else 1.0
        mean = math.fsum(differences) / max(1, len(differences))
        usual = math.fsum(first or 0.0 for first, _ in seen) / max(1, len(seen))
        least = MIN_SCORE if objective == "score" else MIN_SHARE * usual
        if p < LEVEL_OF_ORDER and abs(mean) >= max(least, MIN_SECONDS if objective == "latency" else 0.0):
            found.append(OrderEffect(objective, mean, p, len(differences), more, less))
    return found


def _measures() -> Mapping[str, Callable[[Result], float | None]]:
    def cost_of(name: str) -> Callable[[Result], float | None]:
        return lambda result: None if result.score is None else float(getattr(result, name))

    return {"score": lambda result: result.score, **{o: cost_of(name) for o, name in COST_FIELDS.items()}}


def foreign_changes(baseline: Workflow, winner: Workflow) -> list[str]:
    """Return the changed nodes whose changes take effect only in requests that carry them; empty if anything else
    changed, or if such a node is new."""
    names: dict[str, None] = {}
    before, after = baseline.enabled_nodes, winner.enabled_nodes
    for address, *_ in baseline.diff(winner):
        name = address.removeprefix("nodes.").partition(".")[0]
        if not address.startswith("nodes.") or name not in before or name not in after:
            return []
        if not _is_foreign(before[name]) or not _is_foreign(after[name]):
            return []
        names[name] = None
    return [*names]


def _is_foreign(node: NodeKind) -> bool:
    return any(inner.foreign for inner in node.walk())


def was_sent(pair: Pair, nodes: Sequence[str]) -> bool:
    """Return True if the winner's run of these nodes made a request on this row that the baseline's did not."""
    before, after = (_requests(result, nodes) for result in pair)
    return bool(after - before)


def _requests(result: Result, nodes: Sequence[str]) -> set[Hashable]:
    spans = result.trace.spans if result.trace is not None else ()
    return {call.key or id(call) for s in spans if s.node.partition(".")[0] in nodes for call in s.calls}


def check_sent(baseline: Workflow, winner: Workflow, pairs: Sequence[Pair]) -> tuple[list[bool], str | None]:
    """Return, for each row, True if the change was sent; and the objection if most differing rows were without it."""
    nodes = foreign_changes(baseline, winner)
    sent = [not nodes or was_sent(pair, nodes) for pair in pairs]
    differ = [was for was, (a, b) in zip(sent, pairs, strict=True) if a.score != b.score or _cost(a) != _cost(b)]
    if 2 * sum(differ) > len(differ) or not differ:
        return sent, None
    return sent, (
        f"the change was sent in {sum(sent)} of the {len(sent)} test rows: answers without it do not count for it"
    )


def _cost(result: Result) -> tuple[float, ...]:
    """Return the costs that do not vary by themselves between runs. Seconds do."""
    return tuple(float(getattr(result, name)) for objective, name in COST_FIELDS.items() if objective != "latency")
