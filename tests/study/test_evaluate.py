"""Evaluation: every example has an outcome, costs are those of the first payment, races stop only what may be
stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.helpers.journal import FakeLM, journal, reply, run, turns
from tests.helpers.scripted import make_workflow

from workbench.errors import BudgetSpent, LMError, NodeError, StoreError
from workbench.lm import LMPool, Request
from workbench.runtime import Runtime
from workbench.spec import lm_spec
from workbench.study import Evaluation, Evaluator, Result
from workbench.task import Example, Score, as_score
from workbench.workflow import Workflow

ROWS = [Example(str(n), {"text": f"row {n}", "label": "yes"}) for n in range(10)]


class OneLM(LMPool):
    def __init__(self, lm: FakeLM):
        super().__init__()
        self.lm = lm

    def get(self, spec: Any) -> Any:
        return self.lm


def label(example: Example, prediction: Any, trace: Any) -> float:
    return float(prediction["label"] == example["label"])


def number(request: Request) -> int:
    """The row that a request asks about."""
    return int(str(request.messages[-1]["content"]).split("row ")[1].split()[0])


def evaluating(
    folder: Path,
    body: Callable[[Evaluator, Workflow], Any],
    lm: FakeLM,
    metric: Any = label,
    concurrency: int = 4,
    block: int = 8,
    attempts: int = 1,
    **budget: Any,
) -> Any:
    workflow = make_workflow({"n": {"predict": "text -> label"}}, folder)

    async def main() -> Any:
        with journal(folder / "run.db", **(budget or {"calls": 1000})) as ledger:
            runtime = Runtime(ledger, lm_spec({"model": "openai/fake", "attempts": attempts}), {}, OneLM(lm))
            return await body(Evaluator(runtime, metric, concurrency, block), workflow)

    return run(main)


def evaluation(folder: Path, lm: FakeLM, metric: Any = label, rows: Any = ROWS, **settings: Any) -> Evaluation:
    return evaluating(folder, lambda e, w: e.evaluate(w, rows), lm, metric, **settings)


# One example each


def test_each_example_has_its_own_outcome(tmp_path: Path) -> None:
    said: dict[int, Any] = {
        1: reply("no"),
        2: LMError("server", "down"),
        3: reply("", finish="refusal"),
        4: LMError("too_long", "9000"),
        5: RuntimeError("a bug"),
        6: reply(""),
    }

    def answer(request: Request) -> Any:
        return said.get(number(request), reply("yes", 5, 2))

    found = evaluation(tmp_path, FakeLM(answer))
    assert [r.example.id for r in found.results] == [str(n) for n in range(10)]
    assert [r.failure for r in found.results] == [
        None,
        None,
        "server",
        "refused",
        "too_long",
        "provider",
        "empty",
        None,
        None,
        None,
    ]
    assert [r.score for r in found.results] == [1.0, 0.0, None, 0.0, 0.0, None, 0.0, 1.0, 1.0, 1.0]
    assert found.scores == [1.0, 0, 0.5, 0, 0, 0.5, 0, 1.0, 1.0, 1.0] and found.score == 0.5 and found.complete
    assert found.missing == {"server": 1, "provider": 1}
    assert found.failures == {"server": 1, "refused": 1, "too_long": 1, "provider": 1, "empty": 1}
    assert all(r.message for r in found.results if r.failure) and "down" in (found.results[2].message or "")


def test_costs_are_those_of_the_first_payment(tmp_path: Path) -> None:
    twice = [*ROWS[:4], *[Example(f"{e.id} again", e.fields) for e in ROWS[:4]]]
    lm = FakeLM(lambda request: reply("yes", 10, 2))
    for _ in range(2):
        found = evaluation(tmp_path, lm, rows=twice)
        usd = lm.price(10, 2)
        assert found.objectives == {
            "score": 1.0,
            "usd": usd,
            "tokens": 12.0,
            "calls": 1.0,
            "latency": pytest.approx(sum(r.seconds for r in found.results) / 8),
            "p95_latency": max(r.seconds for r in found.results),
        }
        seconds = [r.seconds for r in found.results]
        assert seconds[:4] == seconds[4:] and all(s > 0 for s in seconds)
    assert len(lm.requests) == 4
    assert Evaluation(found.workflow, "val", (), True).objectives["score"] == 0.0


def test_traces_are_kept_only_where_asked_for(tmp_path: Path) -> None:
    tokens = {"prompt_ids": (1,), "token_ids": (2, 3), "logprobs": (-0.1, -0.2)}

    async def main(evaluator: Evaluator, workflow: Workflow) -> None:
        kept = await evaluator.evaluate(workflow, ROWS[:3], traces=True)
        for result in kept.results:
            assert result.trace is not None
            (step,) = result.trace.rollout
            assert step == {**tokens, "agent": "n", "turn": 0, "text": "yes", "state": None, "earned": None}
        lean = await evaluator.evaluate(workflow, ROWS[:3])
        assert all(r.trace is None for r in lean.results) and lean.scores == kept.scores

    evaluating(tmp_path, main, FakeLM(lambda request: reply("yes", **tokens)))


@pytest.mark.parametrize("error", [LMError("auth", "401"), StoreError("the disk is full")])
def test_what_concerns_the_run_ends_the_evaluation(error: Exception, tmp_path: Path) -> None:
    lm = FakeLM(lambda request: error if number(request) == 2 else reply("yes"))
    if isinstance(error, LMError):
        with pytest.raises(LMError, match="401"):
            evaluation(tmp_path, lm)
        assert len(lm.requests) <= 2 + 4 + 1

    def metric(example: Example, prediction: Any, trace: Any) -> float:
        raise error

    with pytest.raises(type(error)):
        evaluation(tmp_path, FakeLM(lambda request: reply("yes")), metric)


def test_a_budget_that_ends_is_told_and_what_is_under_way_is_recorded(tmp_path: Path) -> None:
    async def answer(request: Request) -> Any:
        await turns(number(request) % 3)
        return reply("yes")

    async def main(evaluator: Evaluator, workflow: Workflow) -> None:
        with pytest.raises(BudgetSpent):
            await evaluator.evaluate(workflow, ROWS)
        row = evaluator.runtime.ledger.store.row("select count(*) from calls")
        assert row is not None and row[0] == 6 == evaluator.runtime.ledger.spent.calls

    evaluating(tmp_path, main, FakeLM(answer), calls=6)


# Metrics


@pytest.mark.parametrize(
    ("value", "score", "words"),
    [
        (True, 1.0, None),
        (0.25, 0.25, None),
        (Score(0.5, "half"), 0.5, None),
        (float("nan"), 0.0, "nan"),
        (1.5, 0.0, "1.5"),
        (-0.1, 0.0, "-0.1"),
        ("many", 0.0, "many"),
        (None, 0.0, "not None"),
        (ValueError("broken"), 0.0, "ValueError: broken"),
        (SystemExit(2), 0.0, "SystemExit"),
        (LMError("server", "the judge is down"), None, "judge is down"),
        (NodeError("unparsed", "no grade"), 0.0, "grade"),
    ],
)
def test_what_a_metric_gives_is_a_score_or_a_failure_that_names_it(
    value: Any, score: float | None, words: str | None, tmp_path: Path
) -> None:
    async def metric(example: Example, prediction: Any, trace: Any) -> Any:
        await turns(1)
        if example.id == ROWS[0].id:
            return 1.0  # a metric that never works ends the run
        if isinstance(value, BaseException):
            raise value
        return value

    _, result = evaluation(tmp_path, FakeLM(lambda request: reply("yes")), metric, ROWS[:2]).results
    assert result.score == score
    if words is None:
        assert result.failure is None and result.feedback == (value.feedback if isinstance(value, Score) else None)
    else:
        kind = value.kind if isinstance(value, LMError | NodeError) else "metric"
        assert result.failure == kind and (result.message or "").startswith("metric: ") and words in result.message
        assert result.calls == 1 and result.prediction == {"label": "yes"}


def test_a_judge_is_paid_for_under_its_own_role(tmp_path: Path) -> None:
    class Judged:
        needs_lm = True

        async def __call__(self, example: Example, prediction: Any, trace: Any, lm: Any) -> float:
            return float((await lm([{"role": "user", "content": f"grade row {example.id}"}])).text == "yes")

    async def main(evaluator: Evaluator, workflow: Workflow) -> None:
        found = await evaluator.evaluate(workflow, ROWS[:3])
        assert found.score == 1.0 and found.objectives["calls"] == 1.0, "the judge is no cost of the workflow"
        roles = evaluator.runtime.ledger.by_role
        assert (roles["task"].calls, roles["judge"].calls) == (3, 3)

    evaluating(tmp_path, main, FakeLM(lambda request: reply("yes")), Judged())


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_scores_lie_between_0_and_1(value: float) -> None:
    if 0.0 <= value <= 1.0:
        assert as_score(value) == Score(value)
    else:
        with pytest.raises(ValueError, match=r"number in \[0, 1\]"):
            as_score(value)


@given(scores=st.lists(st.floats(0, 1), min_size=1, max_size=12), data=st.data())
def test_a_mean_does_not_depend_on_the_order(scores: list[float], data: st.DataObject) -> None:
    """Else one of two equal candidates would be better by a rounding error."""
    workflow = Workflow({"nodes": {}})

    def mean(values: list[float]) -> float:
        return Evaluation(workflow, "val", tuple(Result(ROWS[0], v) for v in values), True).score

    assert mean(scores) == mean(data.draw(st.permutations(scores)))


# Gather


def gathering(n: int, job: Callable[[int], Any], concurrency: int) -> Any:
    evaluator = Evaluator(None, label, concurrency)  # type: ignore[arg-type]
    return run(lambda: evaluator.gather(n, job))


@given(n=st.integers(0, 20), concurrency=st.integers(1, 6), waits=st.lists(st.integers(0, 5), min_size=20, max_size=20))
def test_jobs_start_in_order_so_many_at_once(n: int, concurrency: int, waits: list[int]) -> None:
    begun: list[int] = []
    inside = most = 0

    async def job(index: int) -> int:
        nonlocal inside, most
        begun.append(index)
        inside += 1
        most = max(most, inside)
        await turns(waits[index])
        inside -= 1
        return index * index

    assert gathering(n, job, concurrency) == [i * i for i in range(n)]
    assert begun == list(range(n)) and most <= concurrency


def test_after_an_error_nothing_begins_and_what_is_under_way_is_waited_for() -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def job(index: int) -> None:
        begun.append(index)
        await turns(1 if index == 1 else 20)
        if index == 1:
            raise ValueError("first")
        ended.append(index)
        if index == 0:
            raise BudgetSpent("calls", 1, 2)

    with pytest.raises(ValueError, match="first"):
        gathering(50, job, 4)
    assert begun == [0, 1, 2, 3] and ended == [0, 2, 3]


def test_a_real_error_is_told_before_a_spent_budget() -> None:
    async def job(index: int) -> None:
        await turns(index + 2)
        raise BudgetSpent("calls", 1, 2) if index == 0 else KeyError("fault")

    with pytest.raises(KeyError):
        gathering(3, job, 3)


@pytest.mark.parametrize("how", ["cancelled", "killed"])
def test_stopping_at_once_cancels_all_jobs(how: str) -> None:
    class Killed(BaseException):
        pass

    stopped: list[int] = []

    async def job(index: int) -> None:
        if how == "killed" and index == 2:
            await turns(3)
            raise Killed
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            stopped.append(index)
            raise

    async def main() -> None:
        task = asyncio.create_task(Evaluator(None, label, 4).gather(9, job))  # type: ignore[arg-type]
        await turns(2)
        if how == "cancelled":
            task.cancel()
        with pytest.raises((asyncio.CancelledError, BaseExceptionGroup)):
            await task

    run(main)  # which fails if a task is left
    assert sorted(stopped) == ([0, 1, 2, 3] if how == "cancelled" else [0, 1, 3])


def test_races_look_at_the_ends_of_blocks_only(tmp_path: Path) -> None:
    looked: list[int] = []

    def race(scores: Any) -> bool:
        looked.append(len(scores))
        assert all(isinstance(s, float) for s in scores)
        return len(scores) >= 6

    async def main(evaluator: Evaluator, workflow: Workflow) -> None:
        found = await evaluator.evaluate(workflow, ROWS, race=race)
        assert (len(found.results), found.complete) == (6, False)
        looked.clear()
        whole = await evaluator.evaluate(workflow, ROWS[:6], race=race)
        assert whole.complete and looked == [3], "at the end there is nothing left to save"

    lm = FakeLM(lambda request: LMError("server", "down") if number(request) == 1 else reply("yes"))
    evaluating(tmp_path, main, lm, block=3)
    assert len(lm.requests) == 6
