"""Executors, which run rows in other processes, on this machine or on others. Plugins provide them; `local`, without a
plugin, runs rows here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from pydantic import ValidationError

from workbench.base.distribution import how_to_get
from workbench.errors import PluginError, SpecError, suggest
from workbench.plugins import plugins
from workbench.runtime.runtime import RowRunner, Runtime
from workbench.spec import home_folder, spec_error, start_program
from workbench.task import Task

#: The name for running rows in this process.
LOCAL = "local"


class ExecutorPlugin(Protocol):
    """An executor. Its class is a pydantic model whose fields are its settings.

    `workbench_workers.Executor` is a base for executors that start worker processes.
    """

    def make_crew(self, task: Task, runtime: Runtime, tell: Callable[..., None]) -> RowRunner:
        """Return an object that runs the rows of a task. Nothing is started yet.

        runtime: pays for all that rows send. tell: reports events to the user, as (event, **values). Raises SpecError.
        """
        ...

    def describe(self, task: Task, minutes: float | None) -> Iterator[str]:
        """Return lines of an estimate. minutes: of the run, if known."""
        ...


def make_executor(written: str | Mapping[str, Any] | None) -> ExecutorPlugin | None:
    """Make the executor that a file or a flag names: `ray`, or `{ray: {workers: 8}}`; None for `local`.

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
        start_program(f"workers of the executor '{name}'", home_folder(), form="")
        return cls.model_validate(settings or {})
    except PluginError as error:
        raise SpecError(str(error), path=("executor",)) from None
    except ValidationError as error:
        raise spec_error(error, cls, ("executor", name)) from None


def make_crew(task: Task, runtime: Runtime, tell: Callable[..., None]) -> RowRunner | None:
    """Make the object that runs the rows of a task (`ExecutorPlugin.make_crew`); None if they run in this process.
    Raises SpecError."""
    executor = make_executor(task.spec.executor)
    return None if executor is None else executor.make_crew(task, runtime, tell)
