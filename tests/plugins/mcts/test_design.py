"""The design space of `mcts`: covering arrays, candidates, mutations, features."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

from hypothesis import given, settings, strategies as st
from tests.helpers.scripted import make_workflow

from workbench.spec import DomainSpec
from workbench.task import Space
from workbench_kit.searching import Edit, edit_classes
from workbench_mcts.design import Design, Genome, make_covering_array
from workbench_mcts.features import extract_features


def edit(name: str, **arguments: Any) -> Edit:
    return edit_classes()[name](**arguments)


@given(st.lists(st.integers(1, 5), min_size=0, max_size=6), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_the_covering_array_covers_all_pairs(sizes: list[int], seed: int) -> None:
    options = {f"n{i}": [f"v{k}" for k in range(size)] for i, size in enumerate(sizes)}
    rows = list(make_covering_array(options, random.Random(seed)))
    several = {n: v for n, v in options.items() if len(v) > 1}
    for one, two in itertools.combinations(several, 2):
        seen = {(row[one], row[two]) for row in rows}
        assert seen == set(itertools.product(options[one], options[two]))
    if len(several) > 1:
        sizes = sorted((len(v) for v in several.values()), reverse=True)
        assert len(rows) <= 3 * sizes[0] * sizes[1], "far fewer than all combinations"
        assert rows == list(make_covering_array(options, random.Random(seed)))


def design(rng_seed: int = 0, nodes: dict[str, Any] | None = None, **search: Any) -> Design:
    domains = {k.replace("__", "."): DomainSpec.model_validate(v) for k, v in search.items()}
    start = make_workflow(nodes or {"n": {"predict": "q -> a"}, "m": {"predict": "a -> b"}}, Path("."))
    return Design(Space(domains) if domains else None, start, random.Random(rng_seed))


def test_candidates_that_do_the_same_have_one_key() -> None:
    made = design(nodes__n__samples={"int": [1, 3]})
    start = made.start
    wrapped = edit("ensemble", node="nodes.n")
    there_and_back = made.made(Genome({}, (wrapped, edit("unwrap", node="nodes.n"))))
    twice = made.made(Genome({"nodes.n.samples": 1}, ()))
    # The temperature that the ensemble brought is still there: that is another workflow at samples > 1 alone.
    assert twice.key == made.root.key and twice.workflow.hash != start.hash, "samples: 1 is the default, written out"
    assert there_and_back.key != made.root.key
    named = [edit("insert", node="nodes.m", field=f, instructions="Plan.") for f in ("plan", "plan")]
    one, two = (made.made(Genome({"nodes.n.samples": 2}, (e,))) for e in named)
    assert one.key == two.key != made.root.key


def test_mutations_change_one_thing_each() -> None:
    made = design(
        nodes__n__samples={"int": [1, 3]},
        nodes__n__reasoning={"choice": [True, False]},
        nodes__n__decoding__temperature={"float": [0.0, 1.0]},
    )
    genome = Genome(made.root.genome.picks, (edit("refine", node="nodes.n"),))
    found = [g for g, _ in made.mutations(genome)]
    assert len(found) == 2 + 1 + 1 + 1
    for other in found:
        changed = [n for n in {*genome.picks, *other.picks} if other.picks.get(n) != genome.picks.get(n)]
        assert len(changed) + (other.edits != genome.edits) == 1


def test_choices_that_other_choices_open_are_known() -> None:
    made = design(
        nodes__n={"any_of": {"team": {"ensemble": {"predict": "q -> a"}}}},
        nodes__n__samples={"choice": [2, 3], "when": {"nodes.n": "team"}},
    )
    assert list(made.options) == ["nodes.n", "nodes.n.samples"] and list(made.root.genome.picks) == ["nodes.n"]


def test_the_root_describes_the_start_also_outside_the_space() -> None:
    """The start has samples and a temperature that are in no domain: they stay until they are picked."""
    nodes = {"n": {"predict": "q -> a", "samples": 9, "decoding": {"temperature": 1.5}}, "m": {"predict": "a -> b"}}
    for seed in range(5):
        made = design(
            seed,
            nodes,
            nodes__n__samples={"int": [1, 3]},
            nodes__n__reasoning={"choice": [True, False]},
            nodes__n__decoding__temperature={"float": [0.0, 1.0]},
        )
        assert made.root.genome.picks == {"nodes.n.reasoning": False} and made.root.workflow is made.start
        assert made.made(made.root.genome).key == made.root.key
        step = made.made(Genome(made.root.genome.picks, (edit("refine", node="nodes.m"),))).workflow
        assert (step.get("nodes.n.samples"), step.get("nodes.n.decoding.temperature")) == (9, 1.5)
        steps = [made.made(genome) for genome, _ in made.mutations(made.root.genome)]
        assert sorted(c.workflow.get("nodes.n.samples") for c in steps) == [1, 2, 3, 9, 9]
        assert sum(0 <= c.workflow.get("nodes.n.decoding.temperature") <= 1 for c in steps) == 1
        drawn = next(c for c in steps if c.workflow.get("nodes.n.decoding.temperature") <= 1)
        again = [made.made(g).workflow for g, note in made.mutations(drawn.genome) if note.startswith("drew")]
        assert [0 <= w.get("nodes.n.decoding.temperature") <= 1 for w in again] == [True]


def test_features_tell_structures_apart() -> None:
    made = design(nodes__n={"any_of": {"team": {"ensemble": {"predict": "q -> a"}, "samples": 5}}})
    team = made.made(Genome({"nodes.n": "team"}))
    here, there = extract_features(made.root), extract_features(team)
    assert here.labels == {"nodes.n": "as_written"} and there.labels == {"nodes.n": "team"}
    assert (here.numbers["calls"], there.numbers["calls"]) == (2, 6) and there.numbers["kind Ensemble"] == 1
