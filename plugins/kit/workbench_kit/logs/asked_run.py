"""Run a command that asks a language model without a search.

Its calls are paid under a budget and journalled in its own run, so that repeating the command costs nothing.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from workbench.base.concurrency import run_in_loop
from workbench.ledger import CallInfo, Settled
from workbench.lm import LMPool, Message, Response
from workbench.runtime import Run, make_request
from workbench.spec import BudgetSpec, LMSpec
from workbench.store import Store, dumps, read_report
from workbench.task import check_lms

T = TypeVar("T")


@dataclass(frozen=True)
class Command:
    """The identity of a command's run.

    Args:
        kind: of the run, in the database.
        name: of the run.
        working, done: its status while it runs and afterwards.
        settings, inputs: the command's arguments; other ones make another run. The budget is not part of them.
        seed: its random seed.
    """

    kind: str
    name: str
    working: str
    done: str
    settings: Mapping[str, Any]
    inputs: Mapping[str, Any]
    seed: int = 0


class AskedRun:
    """An open run of a command. `paid` counts only this process's requests."""

    def __init__(self, opened: Run):
        self.opened, self.run, self.store = opened, opened.name, opened.store
        self.ledger, self.runtime = opened.ledger, opened.runtime
        self.paid: dict[str, Any] = {"calls": 0, "tokens": 0, "usd": 0.0}
        self.ledger.on_call = self._count

    def _count(self, info: CallInfo) -> None:
        if not info.cached:
            self.paid["calls"] += info.attempts
            self.paid["tokens"] += info.prompt_tokens + info.completion_tokens
            self.paid["usd"] += info.usd

    async def ask(
        self, messages: Sequence[Message], replica: int, role: str, *, temperature: float, max_tokens: int
    ) -> tuple[Response, Settled]:
        """Return the answer to messages, and how it was paid. It is journalled before it is parsed.

        Args:
            messages: of the prompt.
            replica: another number draws a fresh sample, unless the temperature is 0.
            role: for billing.
            temperature, max_tokens: used unless the model's own settings set them.

        Raises:
            LMError: the call failed for good.
            BudgetSpent: the budget does not allow it.
        """
        spec = self.runtime.lm
        settings = {"temperature": spec.temperature or temperature, "max_tokens": spec.max_tokens or max_tokens}
        response, settled = await self.runtime.complete(spec, make_request(spec, messages, replica, settings), role)
        return response.without_thoughts(), settled

    def go(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. The run accepts no calls afterwards."""

        async def whole() -> T:
            async with self.opened:
                self.ledger.bill.forget_unanswered()
                return await coroutine

        return run_in_loop(whole())

    def save_seconds(self) -> None:
        """Store the elapsed time, which counts in a budget of minutes."""
        self.opened.record.save_seconds(self.ledger.seconds)

    def read_report(self) -> dict[str, Any] | None:
        """Return the report of an earlier process. Raise StoreError if it is damaged."""
        return read_report(self.store.find_run(self.run))

    def end_with_report(self, status: str, report: dict[str, Any]) -> None:
        """Store the end of the run and its report. To be called inside `go`."""
        self.opened.record.end_with_report(status, report, self.ledger.seconds)
        self.store.flush()

    def end(self, status: str) -> None:
        self.opened.record.end(status)


@contextmanager
def open_run(database: str, command: Command, lm: LMSpec, budget: BudgetSpec, pool: LMPool) -> Generator[AskedRun]:
    """Open the run of a command with these arguments, or create one.

    Paid calls come from the journal; answers to equal requests of other runs are reused, too. Calls that failed because
    no server was available are sent again.

    Args:
        database: path of the run database.
        command: identifies the run.
        lm: the model that is asked.
        budget: ceilings over all calls with the same arguments, earlier ones included.
        pool: of language models.

    Raises:
        SpecError: no plugin serves the model.
        StoreError: the database cannot be used, or another process works on the run.
    """
    check_lms(lm)
    given: dict[str, Any] = {"name": command.name, "kind": command.kind, "seed": command.seed}
    given |= {
        "spec": dumps(dict(command.settings)),
        "options": dumps({**command.inputs, "lm": lm.model_dump(mode="json")}),
    }
    with Store(database) as store:
        run = Run.found(store, (command.working, command.done), lm, given, budget=budget, reuse=True, pool=pool)
        yield AskedRun(run)
