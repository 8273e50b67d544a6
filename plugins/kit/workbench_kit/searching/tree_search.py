"""Tree search: one kernel for searches over workflows, prompts, tool-call plans and the states of an environment.

It makes no calls and has no randomness of its own. The caller provides coroutines that value and expand states, and the
random generator. The rest is deterministic; ties go to the node that was added first.

    explore(root, expand, value, order=...)   a frontier: bfs, dfs, best_first, beam or astar
    grow(root, expand, value, choose)         a tree: choose a node, visit or expand it, back up its value
    select, uct, Widening, softmix, pool, back_up   the parts of `grow`, for searches with a loop of their own

Sources: A* (Hart, Nilsson and Raphael 1968); UCT (Kocsis and Szepesvari 2006) in the form of PromptAgent (arXiv
2310.16427); progressive widening (Couetoux et al. 2011); softmix is AFlow's rule for parents (arXiv 2410.10762); nodes
that are valued when they are taken from the frontier, after Tree Search for Language Model Agents (arXiv 2407.01476).

One file: the searches share one node and one count of calls.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

S = TypeVar("S")
Order = Literal["bfs", "dfs", "best_first", "beam", "astar"]
Backup = Literal["max", "mean", "sum", "leaf"]


@dataclass(eq=False)
class Node(Generic[S]):
    """A state in a tree.

    Args:
        reward: the value of the state, higher is better; None if unknown.
        action: the action that led here from the parent.
        cost: of the path from the root, for astar.
        heuristic: estimate of the remaining cost, for astar.
        key: equal for equal states; None if unknown.
        returns: one number for each back-up through the node.
        visited: whether a search valued it, or tried to.
        closed: whether it will not be expanded again.
    """

    state: S
    reward: float | None = None
    parent: Node[S] | None = None
    action: Any = None
    cost: float = 0.0
    heuristic: float = 0.0
    key: Hashable | None = None
    children: list[Node[S]] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    visited: bool = False
    closed: bool = False
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        self.depth = 0 if self.parent is None else self.parent.depth + 1

    def add(
        self,
        state: S,
        reward: float | None = None,
        *,
        action: Any = None,
        cost: float = 0.0,
        heuristic: float = 0.0,
        key: Hashable | None = None,
    ) -> Node[S]:
        """Add and return a child. cost: of this one step. Raises ValueError if it is negative."""
        if cost < 0:
            raise ValueError(f"a step costs {cost}; costs must not be negative")
        child = Node(state, reward, self, action, self.cost + cost, heuristic, key)
        self.children.append(child)
        return child

    @property
    def path(self) -> list[Node[S]]:
        """Return the nodes from the root to this one."""
        nodes: list[Node[S]] = [self]
        node = self.parent
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    @property
    def estimate(self) -> float:
        """Return the estimated value: the mean of its returns, else its reward, else the parent's estimate, else 0."""
        if self.returns:
            return math.fsum(self.returns) / len(self.returns)
        if self.reward is not None:
            return self.reward
        return self.parent.estimate if self.parent is not None else 0.0

    def walk(self) -> Iterator[Node[S]]:
        """Yield this node and its descendants, depth first, in the order in which they were added."""
        yield self
        for child in self.children:
            yield from child.walk()


#: Adds children to a node (`node.add`). If it adds none, there are none, or no more.
Expand = Callable[[Node[S]], Awaitable[None]]

#: The value of a node; None if unknown. It may set the node's `state` and `key`, if they become known only now.
Value = Callable[[Node[S]], Awaitable[float | None]]


@dataclass
class Search(Generic[S]):
    """The result of a search. visited: nodes in order. stopped: goal, evaluations, expansions, or exhausted."""

    root: Node[S]
    visited: list[Node[S]] = field(default_factory=list)
    expanded: list[Node[S]] = field(default_factory=list)
    goal: Node[S] | None = None
    evaluations: int = 0
    stopped: str = "exhausted"

    @property
    def best(self) -> Node[S]:
        """Return the goal, else the first of the nodes with the highest reward, else the root."""
        known = [n for n in self.visited if n.reward is not None]
        return self.goal or max(known, key=lambda n: n.reward or 0.0, default=self.root)


@dataclass
class _Tree(Generic[S]):
    """The shared part of `explore` and `grow`: visits and expansions under limits, and the states seen so far."""

    search: Search[S]
    expand: Expand[S]
    value: Value[S] | None
    goal: Callable[[Node[S]], bool] | None
    depth: float
    evaluations: float
    expansions: float
    by_cost: bool = False
    seen: dict[Hashable, float] = field(default_factory=dict)

    def rank(self, node: Node[S]) -> float:
        return node.cost if self.by_cost else node.depth

    def stale(self, node: Node[S], strict: bool = False) -> bool:
        """Return True if the same state was met before on a path at least as good (strict: better).

        Better means cheaper for astar, else shorter: under a depth limit, more steps can follow a shorter path.
        """
        known = math.inf if node.key is None else self.seen.get(node.key, math.inf)
        return known < self.rank(node) or (known == self.rank(node) and not strict and known < math.inf)

    def meet(self, node: Node[S]) -> bool:
        """Record a state. If it was met before on a path at least as good, close the node and return False."""
        if node.key is not None:
            if self.stale(node):
                node.closed = True
                return False
            self.seen[node.key] = self.rank(node)
        return True

    async def visit(self, node: Node[S]) -> bool:
        """Value a node that has no reward yet. Returns True if the search ends with it."""
        if node.reward is None and self.value is not None:
            if self.search.evaluations >= self.evaluations:
                self.search.stopped = "evaluations"
                return True
            key = node.key
            self.search.evaluations += 1
            node.reward = await self.value(node)
            if node.key != key:
                self.meet(node)
        node.visited = True
        self.search.visited.append(node)
        if self.goal is not None and self.goal(node):
            self.search.goal, self.search.stopped = node, "goal"
        elif node.depth >= self.depth:
            node.closed = True
        return self.search.goal is not None

    async def children(self, node: Node[S]) -> list[Node[S]] | None:
        """Expand a node and return the new children with new states; None at the limit of expansions."""
        if node.closed:
            return []
        if len(self.search.expanded) >= self.expansions:
            self.search.stopped = "expansions"
            return None
        before = len(node.children)
        self.search.expanded.append(node)
        await self.expand(node)
        return [c for c in node.children[before:] if self.meet(c)]


async def explore(
    root: Node[S],
    expand: Expand[S],
    value: Value[S] | None = None,
    *,
    order: Order = "best_first",
    goal: Callable[[Node[S]], bool] | None = None,
    width: int = 1,
    depth: float = math.inf,
    evaluations: float = math.inf,
    expansions: float = math.inf,
) -> Search[S]:
    """Search from a root with a frontier: take a node, value it, stop at the goal, else add its children.

    Orders: bfs and dfs take nodes level by level and branch by branch. best_first takes the highest estimate, which for
    an unvalued node is its parent's. beam values a level and continues from its `width` best. astar takes the least
    cost + heuristic, both given to `Node.add`. With an admissible and consistent heuristic, astar finds a cheapest path
    and expands only states that Dijkstra's algorithm (heuristic 0) also expands, apart from ties with the goal's cost.
    With one that is only admissible, it still finds a cheapest path but may expand a state twice.

    A state with the key of an earlier one is dropped, unless its path is cheaper (astar) or shorter.

    Args:
        root: if it has a reward, it is not valued; the same holds for children.
        expand: adds children to a node.
        value: values a node; None: only children with rewards have one.
        order: of the frontier.
        goal: whether a node ends the search.
        width: nodes that beam keeps of each level.
        depth: nodes at this depth are valued, but not expanded.
        evaluations: maximum calls of `value`.
        expansions: maximum calls of `expand`.
    """
    tree = _Tree(Search(root), expand, value, goal, depth, evaluations, expansions, by_cost=order == "astar")
    tree.meet(root)
    if order == "beam":
        return await _by_levels(tree, width)
    made = itertools.count()
    frontier: list[tuple[tuple[float, ...], int, Node[S]]] = [((), next(made), root)]
    while frontier:
        node = heapq.heappop(frontier)[2]
        if order == "astar" and tree.stale(node, strict=True):
            continue  # a cheaper path to the same state was found in the meantime
        if await tree.visit(node):
            break
        children = await tree.children(node)
        if children is None:
            break
        for child in children:
            heapq.heappush(frontier, (_priority(child, order, goal), next(made), child))
    return tree.search


def _priority(node: Node[S], order: Order, goal: Callable[[Node[S]], bool] | None) -> tuple[float, ...]:
    """Return the sort key of the frontier, least first; ties go to the node that was added first."""
    if order == "bfs":
        return (node.depth,)
    if order == "dfs":  # positions among siblings from the root: in lexical order, branch after branch
        return tuple(n.parent.children.index(n) for n in node.path[1:] if n.parent is not None)
    if order == "best_first":
        return (-node.estimate,)
    # Among equal sums, goals come first, then nodes nearest to a goal.
    at_goal = goal is not None and goal(node)
    return (node.cost + node.heuristic, not at_goal, node.heuristic)


async def _by_levels(tree: _Tree[S], width: int) -> Search[S]:
    level = [tree.search.root]
    while level:
        for node in level:
            if await tree.visit(node):
                return tree.search
        level = [n for n in level if not n.closed]
        following: list[Node[S]] = []
        for node in sorted(level, key=lambda n: -n.estimate)[:width]:
            children = await tree.children(node)
            if children is None:
                return tree.search
            following += children
        level = following
    return tree.search


async def grow(
    root: Node[S],
    expand: Expand[S],
    value: Value[S],
    choose: Callable[[Node[S]], Node[S] | None],
    *,
    backup: Backup = "leaf",
    goal: Callable[[Node[S]], bool] | None = None,
    depth: float = math.inf,
    evaluations: float = math.inf,
    expansions: float = math.inf,
) -> Search[S]:
    """Monte Carlo tree search. Each turn chooses a node, visits it or expands it, and backs up the value along the
    path.

    An already visited node is expanded, and its first new child visited. The search ends at the goal, at a limit, or
    without a node to choose.

    choose: returns a node that is not closed, e.g. `lambda root: select(root, uct)`; None ends the
    search. A node whose expansion adds nothing new is closed. The other arguments are those of `explore`.
    """
    tree = _Tree(Search(root), expand, value, goal, depth, evaluations, expansions)
    tree.meet(root)
    while (node := choose(root)) is not None:
        if node.visited:
            children = await tree.children(node)
            if children is None:
                break
            node.closed = not children
            if not children:
                continue
            node = children[0]
        if await tree.visit(node):
            break
        back_up(node.path, backup)
    return tree.search


def uct(node: Node[Any], exploration: float = 0.5) -> float:
    """Compute the upper confidence bound of a child, as in PromptAgent. A child without back-ups counts as having one.

    exploration: the weight of the bound. PromptAgent's is 2.5, for rewards that add up along a path.
    """
    assert node.parent is not None
    visits, above = len(node.returns), len(node.parent.returns)
    return node.estimate + exploration * math.sqrt(math.log(above + 1) / max(1, visits))


@dataclass(frozen=True)
class Widening:
    """Progressive widening: a node with N visits has room for factor * N ** power children."""

    factor: float = 1.0
    power: float = 0.5

    def room(self, node: Node[Any]) -> bool:
        return len(node.children) < self.factor * max(1, len(node.returns)) ** self.power


def select(root: Node[S], bound: Callable[[Node[S]], float], widening: Widening | None = None) -> Node[S] | None:
    """Return the node to expand next: follow the highest bounds of open children from the root. None if all are closed.

    The descent ends at a node without open children; with widening, also at one with room for another child.
    """
    node = root
    while open_children := [c for c in node.children if not c.closed]:
        if widening is not None and not node.closed and widening.room(node):
            return node
        node = max(open_children, key=bound)
    return None if node.closed else node


def back_up(path: Sequence[Node[Any]], backup: Backup) -> None:
    """Append to each node's returns an aggregate of the rewards from the node to the end of the path.

    backup: max, mean or sum of these rewards; leaf: the last one, as in plain UCT. Without a known reward, nothing is
    appended.
    """
    for index, node in enumerate(path):
        rewards = [n.reward for n in path[index:] if n.reward is not None]
        if not rewards or (backup == "leaf" and path[-1].reward is None):
            continue
        total = math.fsum(rewards)
        made = {"max": max(rewards), "mean": total / len(rewards), "sum": total, "leaf": rewards[-1]}
        node.returns.append(made[backup])


def pool(root: Node[S], size: int) -> list[Node[S]]:
    """Return candidate parents: the root and the best others by estimate, at most `size`, without closed ones.

    Departure from AFlow's public code, which returns two for size 1: this returns one.
    """
    others = sorted((n for n in root.walk() if n is not root and not n.closed), key=lambda n: -n.estimate)
    return [*([] if root.closed else [root]), *others][:size]


def softmix(scores: Sequence[float], *, mix: float = 0.3, alpha: float = 0.2) -> list[float]:
    """Compute AFlow's soft mixed probabilities: mix/n + (1 - mix) * softmax(alpha * 100 * (score - best)).

    mix: lambda, the share spread evenly. alpha: inverse temperature for scores in per cent.
    """
    if not scores:
        return []
    best = max(scores)
    weights = [math.exp(alpha * 100 * (s - best)) for s in scores]
    total = math.fsum(weights)
    return [mix / len(scores) + (1 - mix) * w / total for w in weights]


def draw(nodes: Sequence[Node[S]], weights: Sequence[float], rng: random.Random) -> Node[S] | None:
    """Draw one node by weight with the caller's generator; None if there are none."""
    return rng.choices(nodes, weights)[0] if nodes else None
