"""An open run: the only way to a ledger, so that all kinds of runs are locked, stopped, billed and resumed in the same
way.

`optimize`, `eval`, `predict` and other commands are loops on it. A resumed run repeats its loop from the start; the
journal answers the calls already paid for.
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

    Entry raises StoreError if another process holds it. Exit always closes the runtime, stores the time so far and
    closes the ledger. In a run that a command can resume, the first SIGINT or SIGTERM stops the ledger from sending, so
    that any attempt to send raises Interrupted. A second one cancels the task, and a cancelled block raises
    Interrupted, too. Other runs leave signals alone.

    Attributes:
        store, id, name: where the run is recorded.
        record: its row in the store.
        ledger, runtime: used by its loop.
        resume_with: the command that resumes it; empty if there is none.
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
            store, run_id, name: a run made by `add_run`.
            spec: the workflow file, or the only model.
            roles: further models, if `spec` is a model.
            budget: replaces the file's; without either there is no ceiling.
            seconds: taken by its earlier processes.
            recorded: journal the calls.
            reuse: reuse answers of other runs; default: from the file.
            searching: count these in the spending that optimizers see.
            source: the run to repeat; only its answers are reused.
            working: its status during this process.
            pool: replaces the plugins' language models.
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
        """Make a run that stores nothing and journals no calls. what: its name, such as "ping"."""
        store = Store(IN_MEMORY)
        run_id = add_run(store, run=what, name=spec.name, status="run", spec="", options="{}")
        run = cls(store, run_id, what, spec, recorded=False, reuse=False, **{"budget": no_ceiling(), **given})
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
        """Return the run that started with exactly this file and these options, or a new one. statuses: during the run,
        and after it. stored: the columns of its row; `spec` and `options` identify it."""
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
        """Close the run. Only for one that stays open outside `async with`, as for a loaded workflow."""
        with self._closing:
            with suppress(asyncio.CancelledError):  # a second signal may cancel the closing
                await self.runtime.aclose()
            if self.ledger.recorded:
                self.record.save_seconds(self.ledger.seconds)
                self.store.flush()  # before another process may hold it

    def _stop(self) -> bool:
        if self.ledger.stopping is not None:
            return False
        self.ledger.stopping = Interrupted(f"go on with: {self.resume_with}")
        self.on_stop()
        return True
