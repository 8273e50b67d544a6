"""The conformance kit: our optimizers pass it, and each kind of bad one is caught by the right check."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from pydantic import Field

from workbench import BudgetSpent, Optimizer, Patch, Study, Workflow
from workbench.plugins import plugins
from workbench_testing import optimizer_checks, optimizers as checks

#: The optimizer that passes the kit in the fast tier; the others do in the slow one.
FAST = "random"
OURS = [name if name == FAST else pytest.param(name, marks=pytest.mark.slow) for name in plugins().names("optimizers")]


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("check", optimizer_checks(), ids=lambda check: check.__name__)
def test_bundled_optimizer_keeps_its_promises(name: str, check) -> None:
    check(plugins().get("optimizers", name)())


class Undocumented(Optimizer):
    """Has a parameter that says nothing."""

    trials: int = 3

    async def optimize(self, study: Study) -> Workflow:
        return study.best


class Greedy(Optimizer):
    """Goes around the ledger: calls the model directly, as often as it likes."""

    async def optimize(self, study: Study) -> Workflow:
        lm = study.evaluator.runtime.pool.get(study.evaluator.runtime.lm)
        from workbench import Request

        for index in range(300):
            await lm.complete(Request(({"role": "user", "content": f"{index}\nlabel:"},)))
        return study.best


class GlobalRandom(Optimizer):
    """Takes its randomness from the global generator."""

    async def optimize(self, study: Study) -> Workflow:
        for _ in range(4):
            await study.evaluate(study.workflow.patched({"nodes.sort.instructions": f"Label it {random.random()}"}))
        return study.best


class Mutating(Optimizer):
    """Writes into the workflow that it was given."""

    async def optimize(self, study: Study) -> Workflow:
        study.workflow.tree["nodes"]["sort"]["instructions"] = "Label it carefully."
        return study.workflow


class ReturnsNothing(Optimizer):
    """Forgets to return a workflow."""

    async def optimize(self, study: Study) -> Workflow:
        return None  # type: ignore[return-value]


class Stateful(Optimizer):
    """Remembers earlier runs in the class."""

    async def optimize(self, study: Study) -> Workflow:
        runs = type(self).__dict__["memory"]
        runs.append(1)
        await study.evaluate(study.workflow.patched(Patch({"nodes.sort.instructions": f"Label it, run {len(runs)}"})))
        return study.best


Stateful.memory = []  # type: ignore[attr-defined]


class Fragile(Optimizer):
    """Trips over results that have no score."""

    strict: bool = Field(True, description="raise where a result failed")

    async def optimize(self, study: Study) -> Workflow:
        evaluation = await study.evaluate(study.workflow)
        assert not evaluation.failures, "I did not expect that"
        return study.best


class Relentless(Optimizer):
    """Catches the end of the budget and goes on."""

    async def optimize(self, study: Study) -> Workflow:
        for index in range(60):
            try:
                await study.evaluate(study.workflow.patched({"nodes.sort.instructions": f"Label it {index}"}))
            except BudgetSpent:
                continue
        return study.best


class Peeking(Optimizer):
    """Knows where test rows come from and asks the model about one."""

    async def optimize(self, study: Study) -> Workflow:
        lm = study.lm("task")
        await lm([{"role": "user", "content": "text: test row 0: a a-thing\nlabel:"}])
        return study.best


def read_from_the_file(study: Study) -> list[dict[str, Any]]:
    """The test rows, from where the workflow file says that they are."""
    session: Any = study.ledger.on_call.__self__  # type: ignore[union-attr]
    folder, name = session.task.workflow.base, session.task.spec.data.test
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


class Demonstrating(Optimizer):
    """Writes all test rows into the demos: no message of a proposer holds one, and none is the last message."""

    async def optimize(self, study: Study) -> Workflow:
        demos = [{"text": row["text"], "label": row["label"]} for row in read_from_the_file(study)]
        await study.evaluate(study.workflow.patched({"nodes.sort.demos": demos}))
        return study.best


class Asking(Optimizer):
    """Puts a test row before its last message."""

    async def optimize(self, study: Study) -> Workflow:
        told = {"role": "user", "content": read_from_the_file(study)[0]["text"]}
        await study.lm("task")([told, {"role": "user", "content": "text: a-thing\nlabel:"}])
        return study.best


class Keeping(Optimizer):
    """Keeps test rows for later, where the study leads to them."""

    async def optimize(self, study: Study) -> Workflow:
        rows = read_from_the_file(study)
        study.progress.found = [lambda: rows]  # type: ignore[attr-defined]
        return study.best


class Unsealing(Optimizer):
    """Asks the run for its test rows."""

    async def optimize(self, study: Study) -> Workflow:
        session: Any = study.ledger.on_call.__self__  # type: ignore[union-attr]
        session.task.dataset.test.open()
        return study.best


class Understating(Optimizer):
    """Says that it takes one call, and takes a pass over val."""

    def max_calls(self, workflow: Workflow, train: Any, val: Any) -> int | None:
        return 1

    async def optimize(self, study: Study) -> Workflow:
        await study.evaluate(study.workflow.patched({"nodes.sort.instructions": "Label it"}))
        return study.best


class FewerRows(Understating):
    """Says that it runs a row, and runs those of val."""

    def max_calls(self, workflow: Workflow, train: Any, val: Any) -> int | None:
        return None

    def max_rows(self, train: Any, val: Any) -> int | None:
        return 1


class Costly(Optimizer):
    """Asks a model whether it is ready."""

    async def ready(self, study: Study) -> None:
        await study.lm("task")([{"role": "user", "content": "text: are you there?\nlabel:"}])

    async def optimize(self, study: Study) -> Workflow:
        return study.best


class Frank(Understating):
    """Says what it takes."""

    def max_calls(self, workflow: Workflow, train: Any, val: Any) -> int | None:
        return len(val)


def test_bad_optimizer_is_caught(subtests: pytest.Subtests) -> None:
    for bad, check in [
        (Costly, checks.check_is_ready_without_a_call),
        (Understating, checks.check_keeps_to_its_estimate),
        (FewerRows, checks.check_keeps_to_its_estimate),
        (Undocumented, checks.check_is_documented),
        (Greedy, checks.check_honours_any_budget),
        (GlobalRandom, checks.check_is_deterministic),
        (GlobalRandom, checks.check_leaves_global_random_alone),
        (Mutating, checks.check_leaves_its_input_unchanged),
        (ReturnsNothing, checks.check_honours_any_budget),
        (Stateful, checks.check_is_deterministic),
        (Stateful, checks.check_resumes_exactly),
        (Fragile, checks.check_survives_failures),
        (Fragile, checks.check_survives_refusals),
        (Peeking, checks.check_never_sees_test_rows),
        (Demonstrating, checks.check_never_sees_test_rows),
        (Asking, checks.check_never_sees_test_rows),
        (Keeping, checks.check_never_sees_test_rows),
        (Unsealing, checks.check_never_sees_test_rows),
    ]:
        with subtests.test(bad=bad):
            with pytest.raises(AssertionError):
                check(bad())


def test_what_an_optimizer_takes_may_be_said() -> None:
    checks.check_keeps_to_its_estimate(Frank())


def test_the_ledger_holds_the_ceiling_even_if_the_optimizer_does_not_care() -> None:
    checks.check_honours_any_budget(Relentless())
