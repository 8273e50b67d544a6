"""A run that is open: the only way to a ledger, so that all kinds of runs are locked, stopped, billed and resumed
alike.

`optimize`, `eval`, `predict` and the rest are loops on it. One that is resumed repeats its loop from the start; the
journal answers what was paid for.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from workbench.base.signals import catch_signals
from workbench.errors import Interrupted
from workbench.ledger import Ledger
from workbench.lm import LMPool
from workbench.runtime.runtime import Consent, Runtime
from workbench.runtime.sandbox import SandboxChoice
from workbench.spec import BudgetSpec, LMSpec, Spec
from workbench.store import IN_MEMORY, RunLock, RunRecord, Store, add_run, find_or_add_run


def no_ceiling() -> BudgetSpec:
    return BudgetSpec.model_validate({})


class Run:
    """A run with its ledger and its runtime, held by this process inside `async with`.

    Entry raises StoreError if another process holds it. Exit closes the runtime, stores the time so far and closes the
    ledger, whatever happened. In a run that a command goes on with, the first SIGINT or SIGTERM lets the ledger send
    nothing more, so that whatever would send raises Interrupted; a second one cancels the task, and a cancelled block
    raises Interrupted, too. Other runs leave signals alone.

    Attributes:
        store, id, name: where it is recorded.
        record: its row there.
        ledger, runtime: what its loop works with.
        resume_with: the command that goes on with it; empty if none does.
        on_stop: called at the first signal.
    """

    def __init__(
        self,
        store: Store,
        run_id: int,
        name: str,
        spec: Spec | LMSpec,
        *,
        roles: Mapping[Any, LMSpec] = {},
        budget: BudgetSpec | None = None,
        seconds: float = 0.0,
        recorded: bool = True,
        reuse: bool | None = None,
        searching: bool = False,
        source: int | None = None,
        working: str = "running",
        pool: LMPool | None = None,
        sandbox: SandboxChoice | None = None,
        consent: Consent | None = None,
        data_files: frozenset[Path] = frozenset(),
    ):
        """
        Args:
            store, run_id, name: a run that `add_run` made.
            spec: the workflow file, or the one model that is asked.
            roles: further models, where `spec` is one.
            budget: in place of the file's; without either there is no ceiling.
            seconds: what earlier processes of it took.
            recorded: whether calls are journalled.
            reuse: whether answers of other runs are taken over; default: as the file says.
            searching: whether these count in what optimizers see as spent.
            source: the run that is repeated: its answers alone are taken over.
            working: its status while this process works on it.
            pool: language models in place of those of the plugins.
            sandbox, consent, data_files: see `Runtime.of_spec`.
        """
        self.store, self.id, self.name, self.record = store, run_id, name, RunRecord(store, run_id)
        self.resume_with, self._working, self._closing = "", working, ExitStack()
        self.on_stop: Callable[[], None] = lambda: None
        whole = spec if isinstance(spec, Spec) else None
        self.ledger = Ledger(
            store,
            run_id,
            budget or (whole.budget if whole else no_ceiling()),
            earlier_seconds=seconds,
            recorded=recorded,
            reuse=bool(whole and whole.cache) if reuse is None else reuse,
            searching=searching,
            source=source,
        )
        if isinstance(spec, Spec):
            given: dict[str, Any] = {"sandbox": sandbox, "consent": consent, "data_files": data_files}
            self.runtime = Runtime.of_spec(spec, self.ledger, pool=pool, **given)
        else:
            self.runtime = Runtime(self.ledger, spec, roles, pool or LMPool())

    @classmethod
    def in_memory(cls, what: str, spec: Spec, **given: Any) -> Run:
        """A run of which nothing is kept, and whose calls are not journalled. what: its name, such as "ping"."""
        store = Store(IN_MEMORY)
        run_id = add_run(store, run=what, name=spec.name, status="run", spec="", options="{}")
        run = cls(store, run_id, what, spec, budget=no_ceiling(), recorded=False, reuse=False, **given)
        run._closing.callback(store.close)
        return run

    @classmethod
    def found(
        cls,
        store: Store,
        statuses: Sequence[str],
        spec: Spec | LMSpec,
        stored: dict[str, Any],
        **given: Any,
    ) -> Run:
        """The run that was started with just this file and these options, or a new one.

        statuses: while it goes on, and after it. stored: the columns of its row; `spec` and `options` tell it from
        others.
        """
        run_id, name, seconds = find_or_add_run(store, statuses, **stored)
        run = cls(store, run_id, name, spec, seconds=seconds, working=statuses[0], **given)
        run.resume_with = "the same command"
        return run

    @property
    def resumed(self) -> bool:
        """Return True if earlier processes worked on it."""
        return self.ledger.resumed

    async def __aenter__(self) -> Run:
        if self.ledger.recorded:
            self._closing.enter_context(RunLock(self.store, self.name))
            self.record.mark_running(os.getpid(), os.uname().nodename, self._working)
            if self.resume_with:
                task = asyncio.current_task()
                assert task is not None
                self._closing.callback(catch_signals(task, self._stop, self.resume_with))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
        if isinstance(error, asyncio.CancelledError) and self.ledger.stopping is not None:
            raise self.ledger.stopping from None

    async def aclose(self) -> None:
        """Close what it opened. Only for a run that is kept open outside `async with`, as a loaded workflow's."""
        with self._closing:
            with suppress(asyncio.CancelledError):  # a second signal may cancel the closing
                await self.runtime.aclose()
            if self.ledger.recorded:
                self.record.save_seconds(self.ledger.seconds)
                self.store.flush()  # before another process may hold it
            self.ledger.close()

    def _stop(self) -> bool:
        if self.ledger.stopping is not None:
            return False
        self.ledger.stopping = Interrupted(f"go on with: {self.resume_with}")
        self.on_stop()
        return True
