"""The workers of a run, where its file names an executor."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from workbench.base.distribution import BUNDLED
from workbench.base.files import file_digest
from workbench.base.type_guards import is_dict
from workbench.errors import WorkbenchError
from workbench.lm import split_model
from workbench.plugins import plugins
from workbench.run.preflight import lms_of
from workbench.runtime import Cost, Crew, Runtime, WorkerSetup, make_executor, read_secrets
from workbench.spec import Written
from workbench.task import Task, find_powers

#: Calls a second that a driver was seen to settle (docs/how-to/more-machines.md).
DRIVER_CALLS = 1200
#: Variables of ours that decide what a worker loads.
_OF_PLUGINS = ("WORKBENCH_NO_PLUGINS", "WORKBENCH_LOAD_PLUGINS")
#: Ends of the names of variables that go to a worker where they begin with the provider's name: a key without the
#: address that belongs to it would be sent to another server.
_OF_PROVIDERS = ("_KEY", "_TOKEN", "_SECRET", "_BASE_URL", "_API_BASE", "_API_VERSION")
_PROGRAM = "starts a program"  # of whose folder all counts; folders of weights and documents are to be shared
_VARIABLE = re.compile(r"\$\{?(\w+)")


def make_crew(task: Task, runtime: Runtime, tell: Callable[..., None]) -> Crew | None:
    """The workers that `executor:` asks for; None where rows run in this process. Nothing is started yet.

    tell: is given what the user should know, as (event, **values). Raises SpecError.
    """
    executor = make_executor(task.spec.executor)
    if executor is None:
        return None
    setup = WorkerSetup(
        task.workflow.base.resolve(),
        runtime.lm,
        runtime.roles,
        runtime.policy,
        runtime.timeout,
        runtime.sandbox_choice,
        dict(_files_of(task)),
        _plugins_of(task),
        read_secrets(executor, [*_key_variables(task, runtime), *_OF_PLUGINS]),
        runtime.data_files,
    )
    return Crew(executor, runtime, setup, tell, task.spec.concurrency)


def describe_workers(task: Task, total: Cost | None) -> Iterator[str]:
    """Lines of an estimate on the workers of a run. total: of the run, if known."""
    written = task.spec.executor
    executor = make_executor(written)
    if executor is None:
        return
    workers, rows = executor.workers, task.spec.concurrency
    name, minutes = written if isinstance(written, str) else next(iter(written)), total.minutes if total else None
    hours = "" if minutes is None else f", about {minutes * workers / 60:.1f} worker-hours"
    yield f"{workers} workers by {name} with {-(-rows // workers)} of {rows} rows at once each{hours}."
    if rows < workers:
        yield f"Warning: {workers - rows} workers have no row: raise concurrency, or lower executor.{name}.workers."
    if minutes is not None and minutes > 0:
        yield f"The driver pays and records all calls, up to about {DRIVER_CALLS:,} a second on a core of its own."


def _files_of(task: Task) -> Iterator[tuple[str, str]]:
    """The files that rows read or run, relative to the workflow file, with their digests."""
    base = task.workflow.base.resolve()
    found = find_powers(task.source.value, base, called=True)
    named = {file for power in found.powers for file in power.files if file.is_file() or power.kind == _PROGRAM}
    for path in sorted({file for one in named for file in _inside(one)} | found.texts.keys()):
        yield os.path.relpath(path, base), file_digest(path)


def _inside(path: Path) -> Iterator[Path]:
    """The file, or those of the folder of a program, without what is hidden or made by Python: .git, .venv, caches."""
    if path.is_file():
        yield path
    for one in sorted(path.iterdir()) if path.is_dir() else ():
        if not (one.name.startswith(".") or one.name == "__pycache__" or (one.is_dir() and one.is_symlink())):
            yield from _inside(one)


def _plugins_of(task: Task) -> Mapping[str, str]:
    """The versions of the plugins, other than the bundled ones, whose node kinds and models the workflow uses."""
    known = plugins()
    parts = (one.value for one in Written(task.workflow.tree, (), Path()).walk() if is_dict(one.value))
    used = {("node_kinds", str(part.get("kind"))) for part in parts}
    used |= {("lms", split_model(spec.model)[0]) for spec in lms_of(task)}
    owners = {known.owner(kind, name) for kind, name in used if name in known.names(kind)}
    return {one.name: one.version for one in known.infos if one.name in owners and one.distribution not in BUNDLED}


def _key_variables(task: Task, runtime: Runtime) -> Iterator[str]:
    """The names of the environment variables that requests to the models depend on: keys, and addresses of servers."""
    for spec in lms_of(task):
        begin = f"{re.split('[/:]', spec.model)[0].upper()}_"  # gemini/NAME is the catch-all provider's
        yield from (name for name in os.environ if name.startswith(begin) and name.endswith(_OF_PROVIDERS))
        yield from _VARIABLE.findall(str(spec.extra or ""))  # in headers
        with suppress(WorkbenchError):
            name = spec.api_key_env or getattr(runtime.pool.get(spec), "key_variable", None)
            if name:
                yield name
