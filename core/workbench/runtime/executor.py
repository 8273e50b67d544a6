"""The contract of executors, which run rows in processes of their own, on this machine or on others. Plugins provide
them; `local`, without a plugin, runs rows here.

An executor starts workers and carries messages. The core does the rest: the driver (`workbench.runtime.crew`) hands
out rows and holds ledger, journal, budget and trust, and a worker (`workbench.runtime.worker`) runs rows and asks the
driver before it sends anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench._version import __version__
from workbench.base.distribution import how_to_get
from workbench.errors import PluginError, SpecError, WorkbenchError, suggest
from workbench.plugins import plugins
from workbench.runtime.sandbox import SandboxChoice
from workbench.spec import LMSpec, PolicySpec, Powers, spec_error

#: The name of what runs rows in this process.
LOCAL = "local"


class WorkerLost(WorkbenchError):
    """A worker ended, or nothing is heard of it. The message says why, as far as it is known."""


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
    """Base of all executors: its fields are its settings, each with a default and a description.

    In each worker process `workbench.runtime.work(setup, line)` must run until it returns.
    `workbench_testing.check_executor` checks what an executor promises.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    #: What it may do, by setting (`workbench.spec`). One that does not say is not run from an untrusted file.
    powers: ClassVar[Powers]

    workers: int = Field(2, ge=1, le=10_000, description="worker processes; the rows at once are shared among them")
    env: list[str] = Field(
        default=[],
        description="environment variables of this machine that workers get, besides those with keys and addresses "
        "of the models: their names; values are in no file and no log",
    )

    async def open(self, setup: WorkerSetup) -> None:
        """Connect to what runs the workers, before any is started. Raises SpecError or PluginError if it cannot."""

    async def start(self, number: int) -> Channel:
        """Start worker `number` (from 0), and wait until it is there; called again after it was lost. Raises
        WorkerLost if it does not start, and SpecError if it never will."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Disconnect. All channels are closed by then. Also called where `open` raised."""


def make_executor(written: str | Mapping[str, Any] | None) -> Executor | None:
    """The executor that a file or a flag names: `ray`, or `{ray: {workers: 8}}`; None for `local`.

    Raises SpecError.
    """
    if isinstance(written, Mapping) and [*written] == [LOCAL]:
        if settings := written[LOCAL]:
            raise SpecError(
                f"executor: local has no settings: {', '.join(settings)}",
                hint="It runs rows in this process. For workers name another executor, e.g. ray.",
                path=("executor", LOCAL),
            )
        return None
    if written is None or written == LOCAL:
        return None
    entry: Mapping[str, Any] = {written: None} if isinstance(written, str) else written
    name, settings = next(iter(entry.items()), ("", None)) if len(entry) == 1 else ("", None)
    known = [LOCAL, *plugins().names("executors")]
    if name not in known:
        hint = (
            how_to_get("executors", name) or suggest(name, known)
            if name
            else "Write e.g. executor: {ray: {workers: 4}}."
        )
        raise SpecError(
            f"there is no executor '{name}'" if name else "name one executor", hint=hint, path=("executor",)
        )
    try:
        cls = plugins().get("executors", name)
        return cls.model_validate(settings or {})
    except PluginError as error:
        raise SpecError(str(error), path=("executor",)) from None
    except ValidationError as error:
        raise spec_error(error, cls, ("executor", name)) from None


def read_secrets(executor: Executor, names: Sequence[str]) -> Secrets:
    """The values of the variables that workers get. names: of the keys of models, which may be unset. Raises SpecError
    for one of `env` that is not set here."""
    for name in executor.env:
        if name not in os.environ:
            raise SpecError(f"the environment variable {name} is not set here", path=("executor",))
    return Secrets({name: os.environ[name] for name in (*names, *executor.env) if name in os.environ})
