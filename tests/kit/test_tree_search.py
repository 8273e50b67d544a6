"""The search kernel against independent references: networkx for costs, orders of visits and numbers made by hand."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import networkx
import pytest

from workbench_kit.searching import (
    Backup,
    Node,
    Order,
    Search,
    Widening,
    back_up,
    draw,
    explore,
    grow,
    pool,
    select,
    softmix,
    uct,
)

# Graphs with costs


def random_graph(seed: int) -> networkx.DiGraph:
    """5 to 30 vertices; every other graph has small whole costs, so that paths of equal cost abound."""
    rng = random.Random(seed)
    n = rng.randrange(5, 31)
    graph = networkx.gnp_random_graph(n, rng.uniform(0.08, 0.4), seed=seed, directed=True)
    for _, _, data in graph.edges(data=True):
        data["weight"] = rng.randrange(1, 5) if seed % 2 else rng.uniform(0.01, 1.0)
    return graph


def astar(graph: networkx.DiGraph, start: Any, goal: Any, left: Any = lambda vertex: 0.0) -> Search[Any]:
    async def expand(node: Node[Any]) -> None:
        for vertex in sorted(graph.successors(node.state)):
            weight = graph.edges[node.state, vertex]["weight"]
            node.add(vertex, cost=weight, heuristic=left(vertex), key=vertex)

    root = Node(start, heuristic=left(start), key=start)
    return asyncio.run(explore(root, expand, order="astar", goal=lambda node: node.state == goal))


def check_path(graph: networkx.DiGraph, found: Search[Any], start: Any) -> None:
    assert found.goal is not None
    path = [node.state for node in found.goal.path]
    assert path[0] == start
    assert networkx.path_weight(graph, path, "weight") == pytest.approx(found.goal.cost)


@pytest.mark.slow
def test_astar_finds_what_dijkstra_finds_and_expands_no_more_on_many_graphs() -> None:
    """Reference: networkx. Any Dijkstra search must expand all vertices nearer than the goal, so those are counted."""
    reached = 0
    for seed in range(300):
        graph = random_graph(seed)
        start, goal = 0, graph.number_of_nodes() - 1
        distance = networkx.single_source_dijkstra_path_length(graph, start)
        left = networkx.single_source_dijkstra_path_length(graph.reverse(), goal)
        less, share = (seed // 2 % 4, 1.0) if seed % 2 else (0, random.Random(seed).random())
        guess = {v: max(0.0, share * d - less) for v, d in left.items()}  # consistent, and 0 near the goal
        plain = astar(graph, start, goal)
        led = astar(graph, start, goal, lambda v, guess=guess: guess.get(v, math.inf))
        if goal not in distance:
            assert plain.goal is None and led.goal is None and plain.stopped == "exhausted"
            continue
        reached += 1
        for found in (plain, led):
            check_path(graph, found, start)
            assert found.goal and found.goal.cost == pytest.approx(distance[goal])
        nearer = sum(d < distance[goal] - 1e-9 for d in distance.values())
        assert nearer <= len(plain.expanded) and len(led.expanded) <= nearer, seed
        assert len({n.key for n in led.expanded}) == len(led.expanded), "no state twice"
    assert reached > 150


@pytest.mark.slow
def test_astar_stays_optimal_with_a_heuristic_that_is_admissible_and_not_consistent() -> None:
    again = 0
    for seed in range(300):
        graph = random_graph(seed)
        start, goal = 0, graph.number_of_nodes() - 1
        left = networkx.single_source_dijkstra_path_length(graph.reverse(), goal)
        if start not in left:
            continue
        guess = {v: random.Random(seed * 1000 + v).random() * d for v, d in left.items()}
        found = astar(graph, start, goal, lambda v, guess=guess: guess.get(v, math.inf))
        assert found.goal and found.goal.cost == pytest.approx(left[start]), seed
        again += len({n.key for n in found.expanded}) < len(found.expanded)
    assert again, "no graph made it expand a state again, so this tested nothing new"


def test_a_heuristic_that_promises_too_much_can_miss_the_cheapest_path() -> None:
    """So that the tests above can fail: the same search with h beyond the true cost is not optimal."""
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from([("a", "b", 1.0), ("b", "z", 1.0), ("a", "z", 3.0)])
    assert astar(graph, "a", "z").goal.cost == 2.0  # type: ignore[union-attr]
    assert astar(graph, "a", "z", {"a": 0, "b": 9, "z": 0}.__getitem__).goal.cost == 3.0  # type: ignore[union-attr]


def test_among_equal_sums_the_goal_comes_first_and_then_what_is_nearest_to_one() -> None:
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from([("a", "n", 1.0), ("a", "p", 1.0), ("a", "z", 3.0), ("n", "q", 1.0), ("p", "z", 2.0)])
    found = astar(graph, "a", "z", {"a": 3, "n": 2, "p": 1.5, "z": 0, "q": 1}.__getitem__)
    assert [node.state for node in found.expanded] == ["a", "p"] and found.goal and found.goal.depth == 1


def test_a_negative_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        Node("a").add("b", cost=-0.1)


# Orders. The tree, with what its nodes are worth:
#
#            r 0.5
#       a 0.4      b 0.9        c 0.6
#     d .8  e .1   f .2  g .7   (none)

TREE = {"r": "abc", "a": "de", "b": "fg"}
WORTH = {"r": 0.5, "a": 0.4, "b": 0.9, "c": 0.6, "d": 0.8, "e": 0.1, "f": 0.2, "g": 0.7}


async def add_tree(node: Node[str]) -> None:
    for name in TREE.get(node.state, ""):
        node.add(name)


async def worth(node: Node[str]) -> float | None:
    return WORTH[node.state]


def visits(order: Order, value: Any = worth, **settings: Any) -> tuple[str, Search[str]]:
    found = asyncio.run(explore(Node("r"), add_tree, value, order=order, **settings))
    return "".join(node.state for node in found.visited), found


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("bfs", "rabcdefg"),
        ("dfs", "radebfgc"),
        # r's children wait at 0.5; b's at 0.9 go first; then c at 0.5, ...; a's children wait at 0.4
        ("best_first", "rabfgcde"),
    ],
)
def test_orders_of_visits(order: Order, expected: str) -> None:
    seen, found = visits(order)
    assert seen == expected and found.stopped == "exhausted" and found.evaluations == 8
    assert found.best.state == "b"


@pytest.mark.parametrize(("width", "expected"), [(1, "rabcfg"), (2, "rabcfg"), (3, "rabcfgde")])
def test_a_beam_goes_on_from_the_best_of_a_level(width: int, expected: str) -> None:
    """With width 2 it keeps b and c, and c has no children."""
    assert visits("beam", width=width)[0] == expected


@pytest.mark.parametrize("order", ["bfs", "dfs", "best_first", "beam"])
def test_limits_hold_and_are_named(order: Order) -> None:
    for limit in range(9):
        seen, found = visits(order, evaluations=limit, width=9)
        assert found.evaluations == len(seen) == min(limit, 8)
        assert found.stopped == ("evaluations" if limit < 8 else "exhausted")
    seen, found = visits(order, expansions=1, width=9)
    assert [n.state for n in found.expanded] == ["r"] and found.stopped == "expansions"
    assert all(node.depth <= 1 for node in visits(order, depth=1, width=9)[1].visited)
    assert visits(order, depth=1, width=9)[0] == "rabc"


def test_the_goal_ends_a_search_at_once() -> None:
    seen, found = visits("bfs", goal=lambda node: node.reward == 0.9)
    assert seen == "rab" and found.stopped == "goal" and found.best is found.goal


def test_the_first_of_the_best_wins() -> None:
    async def flat(node: Node[str]) -> float:
        return 0.5

    assert visits("bfs", flat)[1].best.state == "r"


def test_a_worth_that_cannot_be_told_is_no_zero() -> None:
    """The node without a value waits with its parent's estimate, and so do its children."""

    async def partly(node: Node[str]) -> float | None:
        return None if node.state == "a" else WORTH[node.state]

    seen, found = visits("best_first", partly)
    assert seen == "rabfgcde", "a's children wait at r's 0.5, behind c"
    assert next(n for n in found.visited if n.state == "a").reward is None
    assert found.evaluations == 8


def test_a_reward_given_by_the_caller_is_not_asked_for_again() -> None:
    asked: list[str] = []

    async def ask(node: Node[str]) -> float:
        asked.append(node.state)
        return WORTH[node.state]

    found = asyncio.run(explore(Node("r", 0.5), add_tree, ask, order="bfs", depth=1))
    assert asked == ["a", "b", "c"] and [n.state for n in found.visited] == ["r", "a", "b", "c"]


def test_a_state_met_before_is_dropped_unless_its_path_is_shorter() -> None:
    """Numbers 0 to 9; from n to n + 1 and n + 2. By branches 2 is met at depth 2 first, then at depth 1."""

    async def add(node: Node[int]) -> None:
        for step in (1, 2):
            if node.state + step < 10:
                node.add(node.state + step, key=node.state + step)

    async def one(node: Node[int]) -> float:
        return 1.0

    by_level = asyncio.run(explore(Node(0, key=0), add, one, order="bfs"))
    assert sorted(n.state for n in by_level.visited) == list(range(10))
    short = asyncio.run(explore(Node(0, key=0), add, one, order="dfs", depth=5))
    assert 9 in {n.state for n in short.visited}, "a long path to a state must not hide a short one under a limit"


def test_a_key_that_shows_only_in_the_visit_counts_too() -> None:
    async def add(node: Node[int]) -> None:
        for step in (1, 1):
            node.add(node.state + step)

    async def look(node: Node[int]) -> float:
        node.key = node.state
        return 0.0

    found = asyncio.run(explore(Node(0, 0.0, key=0), add, look, order="bfs", depth=4))
    assert [n.state for n in found.expanded] == [0, 1, 2, 3]
    assert found.evaluations == 8, "twins are looked at, and not gone on from"


# The tree


def chain(*rewards: float | None) -> list[Node[str]]:
    """Nodes one below the other."""
    node = Node("", rewards[0])
    nodes = [node]
    for reward in rewards[1:]:
        node = node.add("", reward)
        nodes.append(node)
    return nodes


@pytest.mark.parametrize(
    ("backup", "root", "middle"),
    [
        ("sum", 0.2 + 0.5 + 0.3, 0.5 + 0.3),
        ("mean", 1.0 / 3, 0.4),
        ("max", 0.5, 0.5),
        ("leaf", 0.3, 0.3),
    ],
)
def test_a_path_tells_each_node_what_follows_it(backup: Backup, root: float, middle: float) -> None:
    top, half, end = chain(0.2, 0.5, 0.3)
    back_up(end.path, backup)
    assert top.returns == [pytest.approx(root)] and half.returns == [pytest.approx(middle)]
    assert end.returns == [0.3] and end.depth == 2


@pytest.mark.parametrize(("backup", "told"), [("max", [0.5]), ("mean", [0.35]), ("sum", [0.7]), ("leaf", [])])
def test_a_reward_that_is_not_known_is_not_backed_up_as_zero(backup: Backup, told: list[float]) -> None:
    top, _, end = chain(0.2, 0.5, None)
    back_up(end.path, backup)
    assert top.returns == pytest.approx(told) and end.returns == []


def test_the_bound_is_that_of_a_table() -> None:
    """Q + w * sqrt(ln(N_parent + 1) / max(1, N)), Q = mean of returns, or the reward before any."""
    top = Node("top", 0.2)
    seen, fresh = top.add("seen", 0.9), top.add("fresh", 0.4)
    top.returns, seen.returns = [0.5, 0.7, 0.6], [0.5, 0.7]
    assert uct(seen, 2.0) == pytest.approx(0.6 + 2 * math.sqrt(math.log(4) / 2))
    assert uct(fresh, 2.0) == pytest.approx(0.4 + 2 * math.sqrt(math.log(4) / 1))
    assert select(top, lambda n: uct(n, 0.0)) is seen and select(top, lambda n: uct(n, 2.0)) is fresh


def test_a_closed_branch_is_passed_by_and_a_node_without_an_open_child_gets_more() -> None:
    top = Node("top", 0.2)
    good, poor = top.add("good", 0.9), top.add("poor", 0.1)

    def chosen() -> Node[str] | None:
        return select(top, lambda n: uct(n, 0.5))

    good.closed = True
    assert chosen() is poor
    poor.closed = True
    assert chosen() is top
    top.closed = True
    assert chosen() is None


def test_widening_gives_room_by_the_root_of_the_visits() -> None:
    top = Node("top", 0.2)
    widening = Widening(1.0, 0.5)
    room = []
    for _ in range(10):
        top.returns.append(0.5)
        room.append(widening.room(top))
        if room[-1]:
            top.add("child", 0.5)
    assert [i + 1 for i, more in enumerate(room) if more] == [1, 2, 5, 10]  # 1st child, then beyond 1, 4 and 9 visits
    assert select(top, lambda n: uct(n, 0.5), widening) is top.children[0]
    assert select(top, lambda n: uct(n, 0.5), Widening(2.0, 0.5)) is top


def test_growing_by_uct_finds_the_planted_leaf_in_a_deep_tree() -> None:
    """Bits of depth 6: reward = the share of leading ones. 127 nodes; a search led by it looks at far fewer."""

    async def add(node: Node[str]) -> None:
        if not node.children:
            for bit in "01":
                node.add(node.state + bit)

    async def ones(node: Node[str]) -> float:
        return (len(node.state) - len(node.state.lstrip("1"))) / 6

    def choose(root: Node[str]) -> Node[str] | None:
        return select(root, lambda n: uct(n, 0.3))

    found = asyncio.run(grow(Node(""), add, ones, choose, depth=6, goal=lambda n: n.reward == 1.0))
    assert found.goal is not None and found.goal.state == "111111" and found.evaluations < 60
    whole = asyncio.run(grow(Node(""), add, ones, choose, depth=6))
    assert whole.stopped == "exhausted" and whole.evaluations == 127, "every node is visited once, then all is closed"


def test_growing_ends_at_its_limits_and_where_nothing_can_be_valued() -> None:
    async def add(node: Node[int]) -> None:
        node.add(node.state + 1)

    async def nothing(node: Node[int]) -> None:
        return None

    for limits in ({"evaluations": 7}, {"expansions": 6}):
        found = asyncio.run(grow(Node(0), add, nothing, lambda root: select(root, lambda n: uct(n, 0.3)), **limits))
        assert found.evaluations == 7 and found.stopped == next(iter(limits)) and found.best is found.root


# AFlow's rule for parents


def test_softmix_is_the_vector_of_a_public_log() -> None:
    """AFlow issue 22: scores 0.69760 and 0.12431 give 0.84999 and 0.15001."""
    assert softmix([0.69760, 0.12431]) == pytest.approx([0.84999, 0.15001], abs=5e-6)


def test_softmix_sums_to_one_keeps_a_floor_and_does_not_mind_a_shift() -> None:
    rng = random.Random(0)
    for _ in range(200):
        scores = [rng.random() for _ in range(rng.randrange(1, 9))]
        mix = rng.random()
        found = softmix(scores, mix=mix)
        assert math.fsum(found) == pytest.approx(1.0) and min(found) >= mix / len(scores) - 1e-12
        assert softmix([s + 0.37 for s in scores], mix=mix) == pytest.approx(found)
    assert softmix([]) == [] and softmix([0.3]) == [1.0]


def test_the_pool_holds_the_root_and_the_best_others() -> None:
    root = Node("root", 0.1)
    good, poor, shut = root.add("good", 0.9), root.add("poor", 0.2), root.add("shut", 1.0)
    shut.closed = True
    deep = poor.add("deep", 0.5)
    assert pool(root, 3) == [root, good, deep] and pool(root, 1) == [root]
    assert [pool(root, n) for n in (4, 9)] == [[root, good, deep, poor]] * 2


def test_draws_follow_the_weights_and_the_callers_generator() -> None:
    nodes = [Node(i) for i in range(2)]
    rng = random.Random(1)
    drawn = [draw(nodes, [0.85, 0.15], rng) for _ in range(2000)]
    assert sum(n is nodes[0] for n in drawn) == pytest.approx(1700, abs=60)
    again = random.Random(1)
    assert drawn == [draw(nodes, [0.85, 0.15], again) for _ in range(2000)]
    assert draw([], [], rng) is None
