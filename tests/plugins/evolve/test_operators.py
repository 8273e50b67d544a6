"""The operators of `evolve`, each alone: what it makes, what the proposer is shown, and what a particle remembers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.planted import lower_bound, plant

from workbench import Workflow
from workbench.lm import Response
from workbench.spec import DomainSpec
from workbench.study import Evaluation, Result
from workbench.task import Example, Space
from workbench_bench.run_world import run_world
from workbench_bench.worlds import WORLDS
from workbench_evolve import optimizer as evolve
from workbench_evolve.operators import CHARS, Breeder
from workbench_evolve.population import Individual
from workbench_evolve.swarm import REMEMBERED, Particle, diff_texts
from workbench_kit.prompting import Proposer
from workbench_testing import optimizers as checks

BASE = Workflow({"name": "w", "nodes": {"a": {"kind": "predict", "signature": "x -> y", "instructions": "Plain."}}})
TEXT = "nodes.a.instructions"


def individual(scores: Sequence[float], fitness: float | None = None, **settings: Any) -> Individual:
    workflow = BASE.patched({f"nodes.a.{name}": value for name, value in settings.items()})
    results = tuple(
        Result(Example(str(i), {"x": f"task{i}"}), score, prediction={"y": f"said{i}"})
        for i, score in enumerate(scores)
    )
    screened = Evaluation(workflow, "train", results, True)
    return Individual(workflow, screened.score if fitness is None else fitness, screened)


class Told:
    """A proposer that says the same each time, and keeps what it was asked."""

    def __init__(self, answer: str = "Better."):
        self.answer, self.asked = answer, list[str]()

    async def __call__(self, messages: Any, **settings: Any) -> Response:
        self.asked.append("\n".join(m["content"] for m in messages))
        return Response(f"<prompt>\n{self.answer}\n</prompt>", "stop", 1, 1, 0.0)


def breeder(told: Told | None = None, domains: dict[str, Any] | None = None, seed: int = 0) -> Breeder:
    told = told or Told()
    no_roles = SimpleNamespace(runtime=SimpleNamespace(roles={}))
    study: Any = SimpleNamespace(
        description="", workflow=BASE, rng=random.Random(seed), lm=lambda role: told, evaluator=no_roles, train=()
    )
    space = Space({a: DomainSpec.model_validate(d) for a, d in (domains or {}).items()})
    return Breeder(study, space, Proposer(study))


def made(coroutine: Any) -> tuple[dict[str, Any], str]:
    child = asyncio.run(coroutine)
    assert child is not None
    return child


# Without a proposer


def test_a_crossing_takes_each_difference_from_either_parent_and_nothing_else() -> None:
    one = individual([1], instructions="One.", samples=2, reasoning=True)
    other = individual([1], instructions="Two.", samples=5, reasoning=True)
    drawn = [made(breeder(seed=s).cross(one, [one, other], 0)) for s in range(200)]
    assert {note for _, note in drawn} == {f"crossed with {other.workflow.hash[:8]}"}
    wanted = {TEXT: "Two.", "nodes.a.samples": 5}
    assert all(taken.items() <= wanted.items() for taken, _ in drawn), "what both have alike is no choice"
    for address in wanted:
        assert 0.4 < sum(address in taken for taken, _ in drawn) / len(drawn) < 0.6
    assert {len(taken) for taken, _ in drawn} == {0, 1, 2}, "each setting for itself"
    assert asyncio.run(breeder().cross(one, [one], 0)) is None, "nobody to cross with"


def test_an_immigrant_has_all_settings_drawn_anew_whatever_the_parent_has() -> None:
    domains = {TEXT: {"choice": ["A.", "B.", "C."]}, "nodes.a.samples": {"int": [1, 9]}}
    parent = individual([1], instructions="A.", samples=1)
    drawn = [made(breeder(domains=domains, seed=s).immigrate(parent, [parent], 0)) for s in range(100)]
    assert all(set(values) == set(domains) and note == "drew all" for values, note in drawn)
    assert {values[TEXT] for values, _ in drawn} == {"A.", "B.", "C."}
    assert len({values["nodes.a.samples"] for values, _ in drawn}) == 9
    one = [set(made(breeder(domains=domains, seed=s).draw(parent, [parent], 0))[0]) for s in range(20)]
    assert all(len(addresses) == 1 for addresses in one), "`draw` changes one"


# SE-Agent


def test_recombining_shows_what_each_parent_got_right_and_wrong() -> None:
    told = Told("Both.")
    one = individual([1, 0, 1, 0], instructions="One.")
    other = individual([0, 1, 1, 0], instructions="Two.")
    values, note = made(breeder(told).recombine(one, [one, other], 0))
    assert values == {TEXT: "Both."} and note == f"recombined with {other.workflow.hash[:8]}"
    (asked,) = told.asked
    first, second = asked.split("Text B")
    for part, prompt, ahead, behind in ((first, "One.", "task0", "task1"), (second, "Two.", "task1", "task0")):
        assert f"<prompt>\n{prompt}\n</prompt>" in part
        right, wrong = part.split("Right where the other one is wrong:")[1].split("Wrong:")
        assert ahead in right and behind not in right and "task2" not in part, "what both can tells nothing"
        assert wrong.index(behind) < wrong.index("task3"), "first where the other one did better"


def test_what_recombining_shows_is_capped() -> None:
    told = Told()
    made_, many = breeder(told), [i % 2 for i in range(200)]
    one, other = individual(many, instructions="One."), individual([1 - s for s in many], instructions="Two.")
    made(made_.recombine(one, [one, other], 0))
    assert len(told.asked[0]) < CHARS + 1500


def test_nothing_is_recombined_where_the_pool_has_one_text() -> None:
    told = Told()
    one = individual([1])
    assert asyncio.run(breeder(told).recombine(one, [one, individual([1], samples=3)], 0)) is None
    assert not told.asked, "and nothing is paid for"


def test_refining_shows_the_best_one_and_what_the_pool_scored() -> None:
    told = Told("Finer.")
    parent = individual([0, 1], 0.5, instructions="Mine.")
    pool = [individual([1], 0.9, instructions="The best."), individual([1], 0.7, instructions="The next."), parent]
    values, note = made(breeder(told).refine(parent, pool, 0))
    assert values == {TEXT: "Finer."} and note == "refined"
    asked = told.asked[0]
    assert "<prompt>\nMine.\n</prompt>" in asked and "<prompt>\nThe best.\n</prompt>" in asked
    assert "score 0.90: The best." in asked and "score 0.70: The next." in asked and "score 0.50: Mine." not in asked
    assert "task0" in asked
    made(breeder(told).refine(pool[0], pool, 0))
    assert "The best instruction so far" not in told.asked[1], "it is the best one itself"


# SwarmAgentic


def test_a_move_is_told_of_both_bests_and_of_what_did_not_help() -> None:
    told = Told("Better.")
    start = individual([1, 0, 0, 0], 0.3, instructions="Read it. Then answer.")
    particle = Particle(start, start)
    high = individual([1, 1, 0, 0], 0.5, instructions="Read it. Look twice. Then answer.")
    particle.arrive(high, [TEXT])
    low = individual([1, 0, 0, 0], 0.4, instructions="Read it. Look twice. Shout.")
    particle.arrive(low, [TEXT])
    assert particle.position is low and particle.best is high, "it goes where the move leads, and keeps its best"
    best = individual([1, 1, 1, 0], 0.7, instructions="Weigh it.")
    values, note = made(breeder(told).move(particle, [best, high, low], 0))
    assert values == {TEXT: "Better."} and note == "moved"
    asked = told.asked[0]
    assert "The instruction now:\n<prompt>\nRead it. Look twice. Shout.\n</prompt>" in asked
    assert "on the way to this one (score 0.50):\n<prompt>\nRead it. Look twice. Then answer.\n" in asked
    assert "best one of all (score 0.70):\n<prompt>\nWeigh it.\n</prompt>" in asked
    assert '- score 0.25 after 0.50: added "Shout."; took out "Then answer."' in asked
    assert '"Look twice."' not in asked, "that change helped, and is no failure"


def test_a_best_that_is_the_place_itself_is_not_shown_and_what_helped_goes_on() -> None:
    told = Told()
    start = individual([0, 0], instructions="A.")
    particle = Particle(start, start)
    up = individual([1, 0], instructions="A. B.")
    particle.arrive(up, [TEXT])
    made(breeder(told).move(particle, [up, start], 0))
    assert "best one" not in told.asked[0] and "did not help" not in told.asked[0]
    assert 'The last change helped, go on from there:\n- score 0.50 after 0.00: added "B."' in told.asked[0]


def test_a_move_that_failed_is_not_made_again_from_anywhere() -> None:
    start = individual([1, 0], 0.5, instructions="Read it.")
    particle = Particle(start, start)
    particle.arrive(individual([0, 0], 0.2, instructions="Read it. Shout."), [TEXT])
    particle.position = start
    assert asyncio.run(breeder(Told("Shout. Read it.")).move(particle, [start], 0)) is None, "in another order"
    made(breeder(Told("Read it. Shout. Twice.")).move(particle, [start], 0))
    particle.position = individual([1, 0], 0.5, instructions="Look.")
    assert asyncio.run(breeder(Told("Look. Shout.")).move(particle, [start], 0)) is None
    for i in range(REMEMBERED):
        particle.arrive(individual([0, 0], 0.2, instructions=f"Look. {i}."), [TEXT])
    particle.position = start
    assert len(particle.failed) == REMEMBERED
    made(breeder(Told("Read it. Shout.")).move(particle, [start], 0))  # what is long ago may come again


def test_a_change_of_more_than_one_text_blames_none() -> None:
    start = individual([1, 1], instructions="A.")
    particle = Particle(start, start)
    particle.arrive(individual([0, 0], 0.1, instructions="A. B.", samples=4), [TEXT, "nodes.a.samples"])
    assert not particle.failed and particle.last is None and particle.best is start
    equal = individual([1, 1], start.fitness, instructions="C.")
    particle.arrive(equal, [TEXT])
    assert particle.best is equal, "of equals the newer one, as in the paper's code"


def test_other_settings_of_a_particle_are_drawn_from_its_place_and_both_bests() -> None:
    here, mine, best = (individual([1], samples=n, instructions=f"{n}.") for n in (1, 3, 5))
    particle = Particle(here, mine)
    drawn = [made(breeder(seed=s).move(particle, [best], 0))[0].get("nodes.a.samples", 1) for s in range(90)]
    assert all(18 < drawn.count(n) < 42 for n in (1, 3, 5)), drawn
    assert diff_texts(TEXT, "A. B.\nC.", "A. C. D.").added == ("D.",)


# In the search


def test_the_best_migrates_though_the_turn_itself_made_no_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents: list[str] = []

    def operators(breeder: Breeder, proposals: bool) -> Any:
        async def once(parent: Individual, pool: Any, replica: int) -> Any:
            parents.append(parent.workflow.get("nodes.sort.instructions"))
            return ({"nodes.sort.instructions": "Good."}, "planted") if replica == 0 else None

        return {"once": once}

    monkeypatch.setattr(evolve, "list_operators", operators)
    monkeypatch.setattr(evolve, "MIGRATION", 2)
    monkeypatch.setattr(evolve, "EXPLORATION", 0.0)
    settings = {"trials": 24, "proposals": False}
    plant(
        tmp_path,
        lambda r: 0.95 if "Good." in str(r.messages) else 0.05,
        {"evolve": settings},
        calls=400,
        search={"nodes.sort.instructions": ["Plain.", "Good."]},
    )
    second = parents[1::2]
    assert second[0] == "Plain." and "Good." in second[1:], "what one island found reaches the other one"


@pytest.fixture
def swarm_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolve, "list_operators", lambda breeder, proposals: {"move": breeder.move})


@pytest.mark.slow
@pytest.mark.usefixtures("swarm_alone")
def test_a_swarm_alone_beats_random_search() -> None:
    differences = []
    for seed in range(6):
        found, other = (run_world(WORLDS["rules"], name, calls=800, seed=seed) for name in ("evolve", "random"))
        assert found.error is None and found.calls <= 800 and found.proposer["calls"] > 3
        differences.append(found.accuracy - other.accuracy)
    assert lower_bound(differences) > 0, differences


@pytest.mark.slow
@pytest.mark.usefixtures("swarm_alone")
@pytest.mark.parametrize("check", [checks.check_resumes_exactly, checks.check_is_deterministic])
def test_a_swarm_alone_keeps_its_promises(check: Any) -> None:
    make: Any = evolve.Evolve
    check(make())
