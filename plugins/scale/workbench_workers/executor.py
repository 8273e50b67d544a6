"""The base of executors with worker processes, and what an executor has to do with them: it starts workers and carries
messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench._version import __version__
from workbench.errors import SpecError
from workbench.runtime import Runtime, SandboxChoice
from workbench.spec import LMSpec, PolicySpec, send_variables
from workbench.task import Task
from workbench_workers.crew import Crew
from workbench_workers.needs import files_of, key_variables, plugins_of

#: Calls a second that a driver was seen to settle (docs/how-to/more-machines.md).
DRIVER_CALLS = 1200
#: Variables of ours that decide what a worker loads.
_OF_PLUGINS = ("WORKBENCH_NO_PLUGINS", "WORKBENCH_LOAD_PLUGINS")


class Secrets(dict[str, str]):
    """Values of environment variables, by name. Nothing shows them."""

    def __repr__(self) -> str:
        return f"<values of {', '.join(sorted(self)) or 'nothing'}>"

    __str__ = __repr__


@dataclass(frozen=True)
class WorkerSetup:
    """The needs of a worker, the same for all rows of a run.

    base: the folder that paths of the workflow are relative to. files: those that it names, by path relative to `base`,
    with their digests. plugins: by name, the versions of those that are not bundled. secrets: see `Executor.env`.
    data_files: as of `Runtime`.
    """

    base: Path
    lm: LMSpec
    roles: Mapping[Any, LMSpec]
    policy: PolicySpec
    timeout: float
    sandbox: SandboxChoice
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    plugins: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: Secrets = field(default_factory=Secrets)
    data_files: frozenset[Path] = frozenset()
    version: str = __version__


class Channel(Protocol):
    """The driver's end of the line to a worker. Batches of messages, values that pickle, arrive whole and in order."""

    async def send(self, batch: Sequence[Any]) -> None:
        """Send messages. Raises WorkerLost."""
        ...

    async def receive(self) -> Sequence[Any]:
        """Wait for messages. It may be cancelled, and called again: no message is lost by that. Raises WorkerLost."""
        ...

    async def aclose(self) -> None:
        """End the worker, whatever it does. Never raises."""
        ...


class Line(Protocol):
    """The worker's end."""

    def send(self, message: Any) -> None:
        """Queue a message for the driver."""
        ...

    async def receive(self) -> Sequence[Any]:
        """Wait for messages. Raises ConnectionError once the driver is gone."""
        ...


class Executor(BaseModel):
    """Base of executors with workers: its fields are its settings, each with a default and a description.

    In each worker process `workbench_workers.work(setup, line)` must run until it returns.
    `workbench_testing.check_executor` checks what an executor promises.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    workers: int = Field(2, ge=1, le=10_000, description="worker processes; the rows at once are shared among them")
    env: list[str] = Field(
        default=[],
        description="environment variables of this machine that workers get, besides those with keys and addresses "
        "of the models: their names; values are in no file and no log",
    )

    @model_validator(mode="after")
    def _enter_variables(self) -> Self:
        for name in self.env:
            send_variables([name], "the workers")
        return self

    async def open(self, setup: WorkerSetup) -> None:
        """Connect to what runs the workers, before any is started. Raises SpecError or PluginError if it cannot."""

    async def start(self, number: int) -> Channel:
        """Start worker `number` (from 0), and wait until it is there; called again after it was lost. Raises
        WorkerLost if it does not start, and SpecError if it never will."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Disconnect. All channels are closed by then. Also called where `open` raised."""

    def make_crew(self, task: Task, runtime: Runtime, tell: Callable[..., None]) -> Crew:
        """The workers of a run, as `workbench.runtime.ExecutorPlugin.make_crew`. Raises SpecError."""
        from workbench.run import lms_of  # here, since a worker starts sooner without it

        lms = [*lms_of(task)]
        setup = WorkerSetup(
            task.workflow.base.resolve(),
            runtime.lm,
            runtime.roles,
            runtime.policy,
            runtime.timeout,
            runtime.sandbox_choice,
            dict(files_of(task)),
            plugins_of(task, lms),
            read_secrets(self, [*key_variables(lms, runtime), *_OF_PLUGINS]),
            runtime.data_files,
        )
        return Crew(self, runtime, setup, tell, task.spec.concurrency)

    def describe(self, task: Task, minutes: float | None) -> Iterator[str]:
        """Lines of an estimate on the workers of a run. minutes: of the run, if known."""
        written, workers, rows = task.spec.executor, self.workers, task.spec.concurrency
        name = written if isinstance(written, str) else next(iter(written or ()))
        hours = "" if minutes is None else f", about {minutes * workers / 60:.1f} worker-hours"
        yield f"{workers} workers by {name} with {-(-rows // workers)} of {rows} rows at once each{hours}."
        if rows < workers:
            yield f"Warning: {workers - rows} workers have no row: raise concurrency, or lower executor.{name}.workers."
        if minutes is not None and minutes > 0:
            yield f"The driver pays and records all calls, up to about {DRIVER_CALLS:,} a second on a core of its own."


def read_secrets(executor: Executor, names: Sequence[str]) -> Secrets:
    """The values of the variables that workers get. names: of the keys of models, which may be unset. Raises SpecError
    for one of `env` that is not set here."""
    for name in executor.env:
        if name not in os.environ:
            raise SpecError(f"the environment variable {name} is not set here", path=("executor",))
    return Secrets({name: os.environ[name] for name in (*names, *executor.env) if name in os.environ})
