"""Checks of an optimizer's contract. Each runs it on a simulated task and raises AssertionError with a remedy."""

from __future__ import annotations

import copy
import random
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

from workbench.study import Optimizer, Study
from workbench.workflow import Workflow
from workbench_testing.case import checks_in, run_all
from workbench_testing.simulated import Killed, SimulatedLM, SimulatedRun, run_simulated

Check = Callable[[Optimizer], None]
CEILINGS = (1, 2, 5, 17, 50, 200)
SEALED = "test row"  # occurs in every simulated test row, and nowhere else


def check_optimizer(optimizer: Optimizer | type[Optimizer], **parameters: Any) -> None:
    """Run all checks on an optimizer, or on a class with the given parameters.

    Raises AssertionError that says what to fix.
    """
    made = optimizer(**parameters) if isinstance(optimizer, type) else optimizer
    run_all(optimizer_checks(), made)


def optimizer_checks() -> list[Check]:
    """All checks, for `pytest.mark.parametrize`."""
    return checks_in(__name__)


def _run(optimizer: Any, **settings: Any) -> SimulatedRun:
    with tempfile.TemporaryDirectory() as folder:
        run = run_simulated(optimizer, Path(folder), **settings)
        run.seen = run.candidates()  # type: ignore[attr-defined]
        return run


def _name(optimizer: Any) -> str:
    return type(optimizer).__name__


def _ended_well(run: SimulatedRun, optimizer: Any, when: str) -> None:
    assert run.report.status in ("finished", "budget"), (
        f"{_name(optimizer)} ended as '{run.report.status}' {when}: {run.report.error}. "
        "Do not catch BudgetSpent, expect failed results, and return a Workflow (usually study.best)."
    )


def check_is_documented(optimizer: Optimizer) -> None:
    """The class has a docstring, every parameter a default and a description."""
    cls = type(optimizer)
    assert isinstance(optimizer, Optimizer), f"{_name(optimizer)} must be a subclass of workbench.Optimizer"
    assert cls.__doc__ and cls.__doc__ != Optimizer.__doc__, f"{_name(optimizer)} needs a docstring of its own"
    for name, field in cls.model_fields.items():
        assert field.description, f"the parameter '{name}' needs a description: Field(..., description='...')"
        assert not field.is_required(), f"the parameter '{name}' needs a default: users should not have to choose"


def check_honours_any_budget(optimizer: Optimizer) -> None:
    """Under any ceiling of calls, it sends no request more and ends normally."""
    for ceiling in CEILINGS:
        run = _run(optimizer, calls=ceiling)
        _ended_well(run, optimizer, f"with a ceiling of {ceiling} calls")
        assert run.lm.requests <= ceiling, (
            f"{_name(optimizer)} sent {run.lm.requests} requests with a ceiling of {ceiling}: "
            "call models only through the study"
        )


def check_never_sees_test_rows(optimizer: Optimizer) -> None:
    """Before the winner is chosen, no test row is in a message to a model, in a candidate, or in anything that the
    study refers to. Asking for the sealed rows ends the run."""
    reached: list[str] = []

    class Watched(_Wrapped):
        async def optimize(self, study: Study) -> Workflow:
            try:
                return await super().optimize(study)
            finally:
                reached.extend(_reachable_test_rows(study))

    run = _run(Watched(inner=optimizer), calls=300)
    early = [text for text in run.lm.messages[: run.before_test] if SEALED in text]
    assert not early, f"{_name(optimizer)} sends a sealed test row to a model: {early[0]!r}"
    assert not reached, f"{_name(optimizer)} leaves a sealed test row within reach of the study: {reached[0]}"
    leaked = [tree for tree in run.trees if SEALED in tree]
    assert not leaked, f"{_name(optimizer)} writes sealed test rows into a candidate: {leaked[0][:200]}"
    assert "sealed test rows" not in (run.report.error or ""), f"{_name(optimizer)} asked for the sealed test rows"


def _reachable_test_rows(root: Any) -> list[str]:
    """The paths from an object to texts of test rows, through attributes, items, closures and bound methods.

    Classes, modules and globals are not followed: they refer to everything.
    """
    found, seen, todo = [], set(), [("study", root)]
    while todo:
        path, value = todo.pop()
        if id(value) in seen or isinstance(value, type | ModuleType | int | float | bool | None):
            continue
        seen.add(id(value))
        if isinstance(value, str):
            found += [f"{path}: {value[:80]!r}"] if SEALED in value else []
        elif isinstance(value, Mapping):
            todo += [(f"{path}[{key!r}]", inner) for key, inner in list(value.items())]
        elif isinstance(value, list | tuple | set | frozenset):
            todo += [(f"{path}[{i}]", inner) for i, inner in enumerate(list(value))]
        if isinstance(value, FunctionType):
            cells = value.__closure__ or ()
            todo += [(f"{path}.<closure>", cell.cell_contents) for cell in cells if _is_filled(cell)]
        if isinstance(value, MethodType):
            todo.append((f"{path}.__self__", value.__self__))
        todo += [(f"{path}.{name}", inner) for name, inner in list(getattr(value, "__dict__", {}).items())]
        slots = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
        todo += [(f"{path}.{name}", getattr(value, name)) for name in slots if hasattr(value, name)]
    return found


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def check_is_deterministic(optimizer: Optimizer) -> None:
    """The same seed gives the same candidates, scores and winner."""
    first, second = (_run(optimizer, calls=200, seed=3) for _ in range(2))
    hint = "take randomness only from study.rng, keep no state in the class, and do not iterate over sets"
    assert first.seen == second.seen, f"{_name(optimizer)} proposes other candidates with the same seed: {hint}"  # type: ignore[attr-defined]
    assert first.report.winner == second.report.winner, f"{_name(optimizer)} finds another winner: {hint}"


def check_resumes_exactly(optimizer: Optimizer) -> None:
    """Killed at any call and resumed, it ends as an uninterrupted run does, and pays for no recorded call again."""
    whole = _run(optimizer, calls=220, seed=5)
    for kill_at in sorted({1, 2, 17, whole.lm.requests // 2, max(1, whole.lm.requests - 1)}):
        with tempfile.TemporaryDirectory() as folder:
            killed = SimulatedLM(kill_at=kill_at)
            with suppress(Killed, BaseExceptionGroup):
                run_simulated(optimizer, Path(folder), lm=killed, calls=220, seed=5)
            again = run_simulated(optimizer, Path(folder), lm=SimulatedLM(), calls=220, seed=5, again=True)
            repeated = set(killed.keys) & set(again.lm.keys)
            assert len(repeated) <= killed.concurrency, (
                f"{_name(optimizer)}, killed at call {kill_at}, sent {len(repeated)} recorded calls again"
            )
            if whole.report.status == "finished":
                hint = "use the study for all effects and study.rng for all randomness, and keep no state in the class"
                where = f"{_name(optimizer)}, killed at call {kill_at} and resumed,"
                # Calls in flight at the kill count, so the last candidates of a spent budget may be missing.
                enough = whole.report.spent["calls"] + killed.concurrency <= 220
                same = len(whole.seen) - (0 if enough else 2)  # type: ignore[attr-defined]
                assert again.candidates()[:same] == whole.seen[:same], f"{where} tries other candidates: {hint}"  # type: ignore[attr-defined]
                assert not enough or again.report.winner == whole.report.winner, (
                    f"{where} ends with another winner: {hint}"
                )


def check_survives_failures(optimizer: Optimizer) -> None:
    """The run ends normally although a fifth of all requests fail."""
    _ended_well(_run(optimizer, lm=SimulatedLM(fail=0.2), calls=120), optimizer, "when a fifth of the calls fail")


def check_survives_refusals(optimizer: Optimizer) -> None:
    """The run ends normally, and claims no gain, although the model refuses everything."""
    run = _run(optimizer, lm=SimulatedLM(refuse=True), calls=120)
    _ended_well(run, optimizer, "when the model refuses everything")
    assert not run.report.gain_shown, f"{_name(optimizer)} claims a gain although every answer is a refusal"


def check_leaves_its_input_unchanged(optimizer: Optimizer) -> None:
    """It changes neither the workflow it receives, nor training rows, nor its own parameters."""
    changed: list[str] = []

    class Watched(_Wrapped):
        async def optimize(self, study: Study) -> Workflow:
            tree, rows = copy.deepcopy(study.workflow.tree), copy.deepcopy([dict(e.fields) for e in study.train])
            own = self.inner.model_dump()
            try:
                return await super().optimize(study)
            finally:
                if tree != study.workflow.tree:
                    changed.append("the workflow it received: use workflow.patched(...)")
                if rows != [dict(e.fields) for e in study.train]:
                    changed.append("training rows")
                if own != self.inner.model_dump():
                    changed.append("its own parameters")

    _run(Watched(inner=optimizer), calls=120)
    assert not changed, f"{_name(optimizer)} changed {changed[0]}"


def check_leaves_global_random_alone(optimizer: Optimizer) -> None:
    """It does not use the global random states of Python and numpy."""
    import numpy

    before, before_numpy = random.getstate(), numpy.random.get_state()[1].copy()  # type: ignore[union-attr,index]
    _run(optimizer, calls=120)
    assert random.getstate() == before, f"{_name(optimizer)} uses Python's global random state: use study.rng"
    after = numpy.random.get_state()[1]  # type: ignore[index]
    assert (after == before_numpy).all(), (
        f"{_name(optimizer)} uses numpy's global random state: seed a Generator from study.rng"
    )


def check_keeps_to_its_estimate(optimizer: Optimizer) -> None:
    """It makes no more calls than `max_calls` or `max_rows` says, if one does."""
    found: list[tuple[int, int | None]] = []

    class Watched(_Wrapped):
        async def optimize(self, study: Study) -> Workflow:
            most, before = self.inner.max_calls(study.workflow, study.train, study.val), study.ledger.spent.calls
            if most is None and (rows := self.inner.max_rows(study.train, study.val)) is not None:
                most = rows * study.workflow.max_calls
            try:
                return await super().optimize(study)
            finally:
                found.append((study.ledger.spent.calls - before, most))

    if (type(optimizer).max_calls, type(optimizer).max_rows) == (Optimizer.max_calls, Optimizer.max_rows):
        return
    _run(Watched(inner=optimizer), calls=500)
    assert found, f"{_name(optimizer)} was not run"
    for taken, most in found:
        assert most is None or taken <= most, (
            f"{_name(optimizer)} made {taken} calls, but max_calls or max_rows allow {most}, which "
            "`workbench estimate` shows: return an upper bound, or None"
        )


def check_is_ready_without_a_call(optimizer: Optimizer) -> None:
    """`ready` calls no model."""
    sent: list[int] = []

    class Watched(_Wrapped):
        async def ready(self, study: Study) -> None:
            await super().ready(study)
            sent.append(study.ledger.sent.calls)

    _run(Watched(inner=optimizer), calls=1)
    assert sent == [0], f"{_name(optimizer)}.ready called a model, but it runs before the budget may be spent"


class _Wrapped(Optimizer):
    """An optimizer that delegates to another one; subclasses observe it."""

    inner: Any = None

    async def ready(self, study: Study) -> None:
        await self.inner.ready(study)

    async def optimize(self, study: Study) -> Workflow:
        return await self.inner.optimize(study)
