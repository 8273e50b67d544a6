"""`evolve`: its parts, planted worlds against random search, the null world, and a lineage that can be shown."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.planted import lower_bound, plant

from workbench import Workflow
from workbench.cli import cli
from workbench.run import lineage
from workbench.study import Evaluation
from workbench_bench.run_world import run_world
from workbench_bench.worlds import WORLDS
from workbench_evolve.optimizer import Credit, _texts_in_vain
from workbench_evolve.population import PRIOR_ROWS, Archive, Individual, Island, compute_fitness, find_niche

BASE = Workflow({"name": "w", "nodes": {"a": {"kind": "predict", "signature": "x -> y", "instructions": "Plain."}}})


def individual(value: float, **settings: Any) -> Individual:
    workflow = BASE.patched({f"nodes.a.{name}": v for name, v in settings.items()})
    return Individual(workflow, value, Evaluation(workflow, "train", (), True))


def test_few_rows_prove_little() -> None:
    lucky, steady = compute_fitness([1.0] * 2, 0.4), compute_fitness([0.8] * 40, 0.4)
    assert lucky == pytest.approx((2 + PRIOR_ROWS * 0.4) / (2 + PRIOR_ROWS)) and lucky < steady < 0.8
    assert compute_fitness([1.0, 0.0], None) == 0.5


def test_an_island_keeps_its_fittest_and_each_once() -> None:
    island = Island(2, [individual(0.5)])
    for value, text in ((0.3, "one"), (0.9, "two"), (0.9, "two"), (0.7, "three")):
        island.add(individual(value, instructions=text))
    assert [m.fitness for m in island.members] == [0.9, 0.7] and island.best.fitness == 0.9
    rng = random.Random(1)
    drawn = [island.tournament(rng).fitness for _ in range(400)]
    assert 0.68 < drawn.count(0.9) / 400 < 0.82, "of two drawn ones the fitter: three in four"


def test_the_archive_keeps_the_best_of_each_kind() -> None:
    archive = Archive()
    few, many = [{"x": "1", "y": "2"}], [{"x": str(i), "y": "2"} for i in range(8)]
    for found in (
        individual(0.5),
        individual(0.4, demos=few),
        individual(0.2, demos=many),
        individual(0.6, samples=3),
        individual(0.3, instructions="Other."),
        individual(0.45, demos=many),
    ):
        archive.add(found)
    assert sorted(i.fitness for i in archive.cells.values()) == [0.4, 0.45, 0.5, 0.6]
    assert find_niche(individual(0, instructions="Plain!").workflow) == find_niche(BASE)
    assert find_niche(individual(0, instructions="x" * 500).workflow) != find_niche(BASE)


def test_operators_that_win_get_more_turns() -> None:
    credit, rng = Credit(), random.Random(0)
    for _ in range(20):
        credit.book("good", True)
        credit.book("bad", False)
    drawn = [credit.choose(["good", "bad", "new"], rng) for _ in range(300)]
    assert drawn.count("good") > 250 and drawn.count("bad") == 0 and drawn.count("new") > 0


def against_random(world: str, calls: int) -> list[float]:
    """Differences of the true accuracy to random search's, seed by seed, at equal calls."""
    differences = []
    for seed in range(8):
        found, other = (run_world(WORLDS[world], name, calls=calls, seed=seed) for name in ("evolve", "random"))
        assert found.error is None and found.calls <= calls
        differences.append(found.accuracy - other.accuracy)
    return differences


@pytest.mark.slow
@pytest.mark.parametrize("world", ["rules", pytest.param("conflict", marks=pytest.mark.long)])
def test_beats_random_search_where_evidence_pays(world: str) -> None:
    assert lower_bound(against_random(world, 1000)) > 0


@pytest.mark.slow
def test_without_a_proposer_it_searches_the_space_alone() -> None:
    found = [run_world(WORLDS["retrieval"], {"evolve": {"proposals": False}}, calls=400, seed=s) for s in range(3)]
    assert all(r.accuracy > 0.8 and r.proposer["calls"] == 0 for r in found), found


@pytest.mark.slow
def test_after_texts_in_vain_it_writes_none() -> None:
    """In `settings` no text helps, and what `textgrad` wrote is not in the best workflow. In `rules` it is."""
    for world, in_vain in (("settings", True), ("rules", False)):
        asked = [
            run_world(WORLDS[world], ["textgrad", {"evolve": {"proposals": proposals}}], calls=500, seed=0).proposer
            for proposals in (True, False)
        ]
        assert asked[1]["calls"] > 0 and (asked[0] == asked[1]) == in_vain, world


def test_without_an_earlier_search_no_text_is_in_vain() -> None:
    """As in a search on other rows, whose candidates are its own. What the file lists was not written, and a node that
    is taken away is no text."""
    base = BASE.patched({"nodes.b": {"kind": "predict", "signature": "x -> z", "instructions": "Check."}})
    other, less = base.patched({"nodes.a.instructions": "Other."}), base.patched({"nodes.b.enabled": False})
    for tried, best, domains, in_vain in (
        ([], base, (), False),
        ([base], base, (), False),
        ([other, base], base, (), True),
        ([base, other], other, (), False),
        ([base, less], base, (), False),
        ([base, less], less, (), False),
        ([base, other], base, ("nodes.a.instructions",), False),
        ([base, other], base, ("nodes.a",), False),
    ):
        complete = {base.hash: SimpleNamespace(workflow=base)} if tried else {}
        progress = SimpleNamespace(tried={w.hash: w for w in tried}, complete=complete)
        study: Any = SimpleNamespace(progress=progress, best=best, domains=dict.fromkeys(domains))
        assert _texts_in_vain(study) == in_vain, (tried, best, domains)


def test_the_lineage_can_be_shown_and_a_candidate_checked_out(tmp_path: Path) -> None:
    search = {"nodes.sort.instructions": ["Plain.", "One.", "Two.", "Three."], "nodes.sort.demos": {"demos": 4}}
    report, _ = plant(
        tmp_path, lambda r: 0.2 + 0.1 * len(r.messages), {"evolve": {"proposals": False}}, calls=400, search=search
    )
    shown = CliRunner().invoke(cli, ["show", "--json", "--db", str(tmp_path / "run.db")])
    assert shown.exit_code == 0, shown.output
    candidates = json.loads(shown.output)["candidates"]
    ordered = lineage(candidates)
    assert sorted(c["hash"] for _, c in ordered) == sorted(c["hash"] for c in candidates)
    depth = {c["hash"]: d for d, c in ordered}
    assert depth[report.winner.hash] > 0
    assert all(depth[c["hash"]] == depth[c["parent"]] + 1 for c in candidates if c["parent"] in depth)
    drawn = CliRunner().invoke(cli, ["show", "--tree", "--db", str(tmp_path / "run.db")]).output
    line = next(x for x in drawn.splitlines() if x.split()[:1] == [report.winner.hash[:8]])
    assert line.startswith("  " + "  " * depth[report.winner.hash])
    crossed = [c for c in candidates if "crossed with" in c["note"]]
    assert crossed, "the second parent of a crossing stands beside it in the tree"
    for c in crossed:
        line = next(x for x in drawn.splitlines() if x.split()[:1] == [c["hash"][:8]])
        other = line.split("crossed with ")[1].split()[0]
        assert other != c["parent"][:8] and sum(o["hash"].startswith(other) for o in candidates) == 1
    out = CliRunner().invoke(
        cli, ["export", "--candidate", candidates[1]["hash"][:8], "--db", str(tmp_path / "run.db")]
    )
    assert out.exit_code == 0 and "nodes:" in out.output
