"""Starts and resumes runs of `workbench optimize`, and reads their files. `workbench.run.session` is the run itself."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from workbench._version import __version__
from workbench.base.concurrency import run_in_loop
from workbench.base.files import check_writable
from workbench.base.signals import interrupted_by_sigterm
from workbench.errors import PluginError, SpecError, StoreError, WorkbenchError, collect_errors, merge_errors
from workbench.lm import LMPool
from workbench.plugins import plugins
from workbench.proof import Report, check_by_sources
from workbench.run.cost_estimate import find_impossible_proof
from workbench.run.options import Listener, Options
from workbench.run.preflight import (
    check_lms_ready,
    check_optimizers,
    check_result_file,
    check_stored_result_file,
    choose_optimizers,
    lm_warnings,
    lms_of,
)
from workbench.run.session import Session
from workbench.run.stored_file import content_of_stored, file_of_stored, name_of_stored
from workbench.run.trackers import check_trackers, trackers_not_ready
from workbench.runtime import make_executor
from workbench.spec import (
    STAND_INS,
    Code,
    Source,
    Spec,
    apply_overrides,
    check_asked,
    check_spec,
    load_yaml,
    outer_settings,
    read_source,
    spec_error,
)
from workbench.store import (
    IN_MEMORY,
    Candidates,
    RunRecord,
    Store,
    add_run,
    dumps,
    find_exact_run,
    kind_of,
    new_run_name,
    read_options,
    read_spec,
    typed,
)
from workbench.study import Optimizer
from workbench.task import Task, check_search, load_task, section_loaders


def optimize(
    path: str | Path | Source,
    *,
    options: Options | None = None,
    database: str | Path = "workbench.db",
    listener: Listener | None = None,
    optimizers: Sequence[tuple[str, Optimizer]] | None = None,
    pool: LMPool | None = None,
) -> Report:
    """Optimize a workflow file and prove the gain.

    Args:
        path: the workflow file, or one already read or made.
        options: additions from the command line.
        database: path of the run database.
        listener: called as listener(event, data) with every event.
        optimizers: (name, optimizer), replaces those of the file in tests and notebooks.
        pool: replaces the plugins' language models in tests and notebooks.

    Raises:
        SpecError: the input is wrong.
        LMError: a model cannot be asked from here, e.g. because a key is missing. No run is recorded.
        StoreError: the database cannot be used.
        PluginError: a plugin is broken.
    """
    options = options or Options()
    check_writable(options.path)
    _, source, task, named = prepare(path, options.sets)
    if (error := find_missing_rows(task)) is not None:
        raise task.source.locate(error)
    if not options.allow_unproved and (refusal := find_impossible_proof(task)) is not None:
        raise task.source.locate(refusal)
    with task.source.locating():
        check_trackers(task.spec.track)
    usd = task.spec.targets.usd if task.spec.targets is not None else None
    check_lms_ready(task, lms_of(task), pool or LMPool(), usd)
    if optimizers is None and not task.spec.optimize:
        options = replace(options, chosen=[name for name, _ in named])
    with Store(database) as store:
        check_result_file(store, options, task)
        stored = {**options.as_dict(), "referred": task.external_hash, "outside": outer_settings(source)}
        steps = list(optimizers) if optimizers is not None else named
        with started_run(store, "optimize", place_of(path), task, stored) as (run, run_id):
            return run_in_loop(Session(store, run_id, run, task, steps, options, listener, pool=pool).go())


@contextmanager
def started_run(
    store: Store, kind: str, file: Path, task: Task, options: Mapping[str, Any]
) -> Generator[tuple[str, int]]:
    """Add the row of a run that this process starts, and yield its name and number. Until the run handles signals
    itself, SIGTERM acts like Ctrl-C, and a KeyboardInterrupt says how to resume."""
    run = new_run_name()
    with interrupted_by_sigterm():
        try:
            yield run, add_started_run(store, run, kind, file, task, options)
        except KeyboardInterrupt as error:
            # The error may already name its cause, or come before the row was written.
            if str(error) or find_exact_run(store, run) is None:
                raise
            raise KeyboardInterrupt(f"resume the run with: {typed(f'workbench resume {run}', store.path)}") from error


def add_started_run(store: Store, run: str, kind: str, file: Path, task: Task, options: Mapping[str, Any]) -> int:
    """Add the row of a run that this process starts. Returns its number."""
    return add_run(
        store,
        run=run,
        name=task.spec.name,
        status="running",
        kind=kind,
        file=str(file),
        spec=task.source.text,
        options=dumps(dict(options)),
        data_hash=task.data_hash,
        seed=task.spec.seed,
        host=os.uname().nodename,
        pid=os.getpid(),
        version=__version__,
    )


def resume(
    run: str,
    *,
    database: str | Path = "workbench.db",
    listener: Listener | None = None,
    options: Options | None = None,
    optimizers: Sequence[tuple[str, Optimizer]] | None = None,
    pool: LMPool | None = None,
) -> Report:
    """Resume a run that was killed, interrupted or failed. It is replayed, and no recorded call is paid again.

    Takes the arguments of `optimize`. The options are added to those of the start. The sandbox is the one of the start,
    unless the options name another.
    """
    options = options or Options()
    with Store(database, create=False) as store:
        row = store.find_run(run)
        if (kind := kind_of(row)) != "optimize":
            raise StoreError(f"run {row['run']} ({kind}) cannot be resumed: it is not a run of optimize")
        stored = read_options(row)
        sets = [*stored["sets"], *options.sets]
        keep = stored.get("keep_unproved", False) or options.keep_unproved
        sandbox = replace(options.sandbox, name=options.sandbox.name or stored.get("sandbox"))
        begins = row["status"] == "ready"  # a branch
        chosen = None if begins else stored.get("chosen")
        merged = Options(sets, options.out or stored["out"], keep, sandbox, options.overwrite)
        if options.out is None:
            check_stored_result_file(RunRecord(store, row["id"]), row["run"], merged, row["name"])
        _, _, task, named = _stored(row, sets, stored.get("outside"), chosen)
        check_result_file(store, merged, task)
        merged.chosen = [name for name, _ in named] if optimizers is None and not task.spec.optimize else None
        if begins and not options.allow_unproved and (refusal := find_impossible_proof(task)) is not None:
            raise task.source.locate(refusal)
        if row["status"] == "finished" and options.sets:
            raise StoreError(f"run {row['run']} is finished and proved; start a new run with the other settings")
        if task.data_hash != row["data_hash"]:
            raise StoreError(f"the data of run {row['run']} have changed since it started; start a new run")
        same = Candidates(store, row["id"]).find_first() in (None, task.workflow.hash)  # a later resume uses them, too
        same &= begins or stored.get("referred") == task.external_hash
        if not same and all(address.partition(".")[0] == "budget" for address, _ in options.sets):
            raise StoreError(
                f"a file that the workflow of run {row['run']} refers to has changed since it started; start a new run"
            )
        if begins or options.sets:  # a later resume uses them, too
            kept = {"sets": sets, "referred": task.external_hash, "chosen": merged.chosen}
            RunRecord(store, row["id"]).replace_options(dumps({**stored, **kept}))
        steps = list(optimizers) if optimizers is not None else named
        session = Session(store, row["id"], row["run"], task, steps, merged, listener, row["seconds"], pool)
        return run_in_loop(session.go())


def prepare(
    path: str | Path | Source, sets: Sequence[tuple[str, Any]] = (), code: Code = "loaded"
) -> tuple[Spec, Source, Task, list[tuple[str, Optimizer]]]:
    """Read and check everything about a workflow file, without calling a model: (spec, source, task, optimizers).

    path: the file, or one already read or made. sets: changed settings of the file, as (address, value). code: the
    state of its user code. Raises SpecError.
    """
    base = place_of(path).parent
    source = read_source(path)
    return _prepare(source if source.partial else _checked(source, base, code)[1], base, sets, code=code)


def place_of(path: str | Path | Source) -> Path:
    """Return the path of a workflow file. Paths in it are relative to its folder."""
    return Path(path.file if isinstance(path, Source) else path).resolve()


def find_missing_rows(task: Task) -> SpecError | None:
    """Return the error of a file whose data suffice for an evaluation but not for optimization; None otherwise."""
    data = task.spec.data
    missing = [name for name in ("val", "test") if data.file is None and getattr(data, name) is None]
    if not missing:
        return None
    return SpecError(
        f"optimize needs rows of val, to select candidates, and of test, for the proof; there are none of "
        f"{' and '.join(missing)}",
        hint="Name both files, or one with data: {file: ..., split: {...}}.",
        path=("data",),
    )


def find_obstacles(task: Task, optimizers: Sequence[tuple[str, Optimizer]]) -> list[WorkbenchError]:
    """List the errors with which a run of a valid file would end on this machine. Calls no model and writes no file."""

    async def main() -> list[WorkbenchError]:
        session = Session(store, 0, "", task, list(optimizers), Options(), None)
        async with aclosing(session.runtime):
            return [*trackers_not_ready(task.spec.track), *await session.find_obstacles()]

    with Store(IN_MEMORY) as store:
        return run_in_loop(main())


def _prepare(
    source: Source,
    base: Path,
    sets: Sequence[tuple[str, Any]],
    outside: Sequence[tuple[str, Any]] | None = None,
    chosen: Sequence[str] | None = None,
    code: Code = "loaded",
) -> tuple[Spec, Source, Task, list[tuple[str, Optimizer]]]:
    spec, source = _checked(apply_overrides(source, sets, outside), base, code)

    def made() -> Task:
        task = load_task(spec, source, base, code)
        check_search(task)
        check_by_sources(task)
        data = task.dataset  # its warnings are shown whenever the file is used
        return replace(task, dataset=replace(data, warnings=(*data.warnings, *lm_warnings(task))))

    with source.locating():
        task, optimizers, _ = collect_errors(
            (made, lambda: load_optimizers(spec.optimize, source), lambda: make_executor(spec.executor))
        )
        if not spec.optimize:
            names = choose_optimizers(task) if chosen is None else chosen
            optimizers = load_optimizers([{name: {}} for name in names], source)
    check_optimizers(task, optimizers)
    return spec, source, task, optimizers


def _checked(source: Source, base: Path, code: Code) -> tuple[Spec, Source]:
    try:
        return check_spec(source)
    except SpecError as error:
        raise merge_errors([error, *_wrong_elsewhere(source, error, base, code)]) from None


def _wrong_elsewhere(source: Source, error: SpecError, base: Path, code: Code) -> list[SpecError]:
    """List the errors in the sections that match the schema, for a file in which other sections do not."""
    if not isinstance(source.value, dict):
        return []
    broken = {one.path[0] for one in (error, *error.more) if one.path} | (STAND_INS.keys() - source.value.keys())
    if "roles" in broken:
        broken.add("nodes")  # they may refer to a role
    whole = {key: value for key, value in source.value.items() if key not in broken}
    try:
        spec = Spec.model_validate({**STAND_INS, **whole})
        jobs = {**section_loaders(spec, base, [], code), "optimize": lambda: load_optimizers(spec.optimize, source)}
        with source.locating():
            collect_errors(job for key, job in jobs.items() if key not in broken)
    except ValidationError:  # from a combination of sections, e.g. `pick` without `objectives`
        return []
    except SpecError as more:
        return [more]
    return []


def _stored(
    row: Any,
    sets: Sequence[tuple[str, Any]],
    outside: Sequence[tuple[str, Any]] | None,
    chosen: Sequence[str] | None = None,
    code: Code = "loaded",
) -> tuple[Spec, Source, Task, list[tuple[str, Optimizer]]]:
    file = file_of_stored(row)
    check_asked(name_of_stored(row), content_of_stored(row))
    return _prepare(load_yaml(read_spec(row), file), Path(file).parent, sets, outside, chosen, code)


def prepare_stored(row: Any, added: Sequence[tuple[str, Any]] = (), code: Code = "loaded") -> Task:
    """Make the task of a stored run, with the file, flags and outer settings of its start. added: further flags. code:
    the state of the user code."""
    stored = read_options(row)
    return _stored(row, [*stored["sets"], *added], stored["outside"], stored.get("chosen"), code)[2]


def load_optimizers(entries: Sequence[Mapping[str, Any]], source: Source) -> list[tuple[str, Optimizer]]:
    """Make optimizers with their parameters. entries: {name: parameters} each, as under `optimize:` of the file."""

    def load(index: int, name: str, parameters: Any) -> tuple[str, Optimizer]:
        path = ("optimize", index) if source.has(("optimize", index)) else ("optimize",)
        try:
            cls = plugins().get("optimizers", name)
            return name, cls.model_validate(parameters)
        except PluginError as error:
            raise SpecError(str(error), path=path) from None
        except ValidationError as error:
            raise spec_error(error, cls, (*path, name)) from None

    named = [next(iter(entry.items())) for entry in entries]
    return collect_errors(partial(load, index, *entry) for index, entry in enumerate(named))
