"""Counterfactual replay on planted failures: the step is found, in few re-runs, and what comes before it is free."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.kit.credit.planted import STRONG, Models, Planted, chain, fail, new_store, run_async

from workbench.lm import Response
from workbench.spec import lm_spec
from workbench_kit.credit import Diagnosis, Repair, TraceStep, bisect_steps, max_reruns, scan_steps


def strong(step: TraceStep) -> list[Repair]:
    return [Repair(lm=lm_spec({"model": STRONG, "attempts": 1}))]


async def diagnose_many(folder: Path, traces: int, seed: int) -> list[tuple[int, int, Diagnosis]]:
    """(steps, fault, diagnosis) of planted failures of 5 to 60 steps."""
    draw, found = random.Random(seed), []
    store = new_store(folder / f"{seed}.db")
    try:
        for number in range(traces):
            length = draw.randint(5, 60)
            fault = draw.randrange(length)
            models = Models(Planted({f"r{number}": fault}), Planted({}))
            failed = await fail(chain(length, folder), f"r{number}", length, models, store, 1)
            assert len(failed.steps) == length
            found.append((length, fault, await bisect_steps(failed.steps, failed.rerun, strong)))
    finally:
        store.close()
    return found


def check(found: list[tuple[int, int, Diagnosis]], share: float) -> None:
    right = [d.step is not None and d.step.index == fault and d.repaired for _, fault, d in found]
    assert sum(right) >= share * len(found)
    assert all(d.reruns <= max_reruns(length) for length, _, d in found)


def test_bisection_finds_agent_and_step_of_planted_failures(tmp_path: Path) -> None:
    found = run_async(diagnose_many(tmp_path, 12, 0))
    check(found, 1.0)
    for _, fault, diagnosis in found:
        assert diagnosis.step.agent == f"agent{fault % 3}_{fault}"


@pytest.mark.long
@pytest.mark.slow
def test_bisection_finds_100_planted_failures(tmp_path: Path) -> None:
    """Issue figure: agent and step in at least 95%, with at most ceil(log2 n) + 2 re-runs."""
    check(run_async(diagnose_many(tmp_path, 100, 1)), 0.95)


def test_what_comes_before_the_repair_is_answered_from_the_journal(tmp_path: Path) -> None:
    async def main() -> None:
        store = new_store(tmp_path / "a.db")
        failed = await fail(chain(10, tmp_path), "r0", 10, Models(Planted({"r0": 6}), Planted({})), store, 1)
        repaired = {failed.steps[6].address: strong(failed.steps[6])[0]}
        assert await failed.rerun(repaired) and failed.paid() == 4  # the step, and the three that follow it
        assert await failed.rerun(repaired) and failed.paid() == 4
        store.close()

    run_async(main())


def test_bisection_that_starts_at_the_wrong_end_is_caught(tmp_path: Path) -> None:
    """Repairs of later steps alone do not make the run pass: only a beginning that holds the fault does."""

    async def main() -> None:
        store = new_store(tmp_path / "a.db")
        failed = await fail(chain(8, tmp_path), "r0", 8, Models(Planted({"r0": 3}), Planted({})), store, 1)
        passing = []
        for t in range(9):
            repairs = {s.address: strong(s)[0] for s in failed.steps[:t]}
            passing.append(await failed.rerun(repairs))
        assert passing == [False] * 4 + [True] * 5
        store.close()

    run_async(main())


def test_a_run_that_no_repair_saves_gets_no_step(tmp_path: Path) -> None:
    async def main() -> None:
        store = new_store(tmp_path / "a.db")
        failed = await fail(chain(6, tmp_path), "r0", 6, Models(Planted({"r0": 2}), Planted({"r0": 2})), store, 1)
        found = await bisect_steps(failed.steps, failed.rerun, strong)
        assert found.step is None and not found.repaired and found.reruns == 1
        scanned = await scan_steps(failed.steps, failed.rerun, strong)
        assert scanned.step is None and scanned.reruns == 6
        store.close()

    run_async(main())


def test_of_two_faults_the_last_is_named_and_said_not_to_do_alone(tmp_path: Path) -> None:
    async def main() -> None:
        store = new_store(tmp_path / "a.db")
        failed = await fail(chain(8, tmp_path), "r0", 8, Models(Planted({"r0": (2, 5)}), Planted({})), store, 1)
        found = await bisect_steps(failed.steps, failed.rerun, strong)
        assert (found.step and found.step.index, found.repaired, found.confidence) == (5, False, 0.5)
        assert found.evidence.endswith("fails with this one alone")
        store.close()

    run_async(main())


def test_a_scan_takes_the_earliest(tmp_path: Path) -> None:
    async def main() -> None:
        store = new_store(tmp_path / "a.db")
        failed = await fail(chain(9, tmp_path), "r0", 9, Models(Planted({"r0": 5}), Planted({})), store, 1)
        plain = await scan_steps(failed.steps, failed.rerun, strong)
        assert (plain.step and plain.step.index, plain.reruns, plain.confidence) == (5, 6, 1.0)
        store.close()

    run_async(main())


def test_an_answer_of_a_passing_sibling_repairs_a_step_without_a_call(tmp_path: Path) -> None:
    async def main() -> None:
        store = new_store(tmp_path / "a.db")
        failed = await fail(chain(4, tmp_path), "r0", 4, Models(Planted({"r0": 3}), Planted({})), store, 1)
        step = failed.steps[3]
        assert step.text == "n4: 5"
        assert await failed.rerun({step.address: Repair(response=Response("n4: 4", "stop", 0, 0))})
        assert await failed.rerun({(step.address[0], 0): Repair(outputs={"n4": 4})})
        assert failed.paid() == 0
        store.close()

    run_async(main())


def test_fresh_draws_differ_also_where_the_model_answers_at_temperature_zero(tmp_path: Path) -> None:
    async def main() -> None:
        store = new_store(tmp_path / "a.db")
        models = Models(Planted({"r0": 1}, wrong=0.7), Planted({}))
        number = next(i for i in range(99) if random.Random(f"r{i} 1 0").random() < 0.7)
        models.say = Planted({f"r{number}": 1}, wrong=0.7)
        failed = await fail(chain(3, tmp_path), f"r{number}", 3, models, store, 1)
        draws = [Repair(draw=k) for k in range(1, 9)]
        found = await scan_steps(failed.steps, failed.rerun, lambda step: draws)
        assert found.step and found.step.index == 1 and found.repaired
        warm = [r for r in models.requests if r.replica]
        assert warm and all(r.temperature for r in warm) and len({r.replica for r in warm}) > 1
        store.close()

    run_async(main())
