"""`selforg`: the graph of who hears whom, and Shapley values."""

from __future__ import annotations

import math
import random
from pathlib import Path

import networkx
import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.scripted import run_node
from tests.helpers.teams import ROLES, role_of, says, team

from workbench_teams.selforg import (
    NEIGHBOURS,
    average_vectors,
    build_edges,
    compute_contributions,
    compute_shapley,
    vectorize,
)

texts = st.lists(st.text(alphabet="abc ", min_size=1, max_size=12), min_size=1, max_size=6)


@given(texts)
def test_the_graph_never_has_a_cycle(found: list[str]) -> None:
    vectors = vectorize(found)
    heard = build_edges(vectors, compute_contributions(vectors), found)
    graph = networkx.DiGraph([(j, i) for i, js in enumerate(heard) for j in js])
    assert networkx.is_directed_acyclic_graph(graph) and all(len(js) <= NEIGHBOURS for js in heard)


@given(texts, st.randoms(use_true_random=False))
def test_order_of_members_does_not_matter(found: list[str], shuffler: random.Random) -> None:
    order = list(range(len(found)))
    shuffler.shuffle(order)
    mixed = [found[i] for i in order]
    straight, turned = compute_contributions(vectorize(found)), compute_contributions(vectorize(mixed))
    assert [straight[i] for i in order] == pytest.approx(turned)


@settings(max_examples=30)
@given(st.lists(st.text(alphabet="abcd ", min_size=1, max_size=10), min_size=2, max_size=6))
def test_exact_shapley_values_add_up_to_the_worth_of_all(found: list[str]) -> None:
    vectors = vectorize(found)
    assert math.fsum(compute_shapley(vectors)) == pytest.approx(1)
    assert math.fsum(compute_contributions(vectors)) == pytest.approx(1)
    assert average_vectors(vectors)


def test_the_approximation_ranks_like_exact_shapley() -> None:
    """A planted majority with outliers, many draws: Spearman's correlation of the two is high."""
    from scipy.stats import spearmanr

    found = []
    for seed in range(40):
        draw = random.Random(seed)
        near = [" ".join(["same", "answer", draw.choice("uvw")]) for _ in range(4)]
        far = [" ".join(draw.sample("abcdefgh", 3)) for _ in range(2)]
        vectors = vectorize([*near, *far])
        rough, exact = compute_contributions(vectors), compute_shapley(vectors)
        found.append(spearmanr(rough, exact).statistic)
        assert min(rough[:4]) > max(rough[4:])
    assert sum(found) / len(found) > 0.8, found


def test_outliers_hear_the_majority_and_join_it(tmp_path: Path) -> None:
    said = says(
        {
            "ann": "the answer is 7",
            "bob": "the answer is 7",
            "cid": ["is it 9", "the answer is 7"],
            "dan": ["is it 1", "the answer is 7"],
        }
    )
    outcome, script = run_node(team("selforg"), {"question": "q"}, tmp_path, said)
    assert outcome.prediction["answer"] == "the answer is 7"
    again = [r for r in script.requests if "answers_of_others" in str(r.messages)]
    assert {"cid", "dan"} <= {role_of(r) for r in again}
    assert all("the answer is 7" in str(r.messages[-1]["content"]) for r in again if role_of(r) in ("cid", "dan"))
    agreed, script = run_node(team("selforg"), {"question": "q"}, tmp_path, says(dict.fromkeys(ROLES, "x")))
    assert agreed.prediction["answer"] == "x" and len(script.requests) == 4  # nobody is left to convince
