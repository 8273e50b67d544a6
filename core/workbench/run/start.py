"""Starting and resuming a run of `workbench optimize`, and reading its file. What a run does, `workbench.run.session`
says."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from workbench._version import __version__
from workbench.concurrency import run_in_loop
from workbench.errors import PluginError, SpecError, StoreError, WorkbenchError, collect_errors, merge_errors
from workbench.files import check_writable
from workbench.lm import LMPool
from workbench.plugins import plugins
from workbench.proof import Report
from workbench.run.preflight import check_optimizers, lm_warnings
from workbench.run.session import Listener, Options, Session
from workbench.runtime import choose, chosen
from workbench.spec import (
    Source,
    Spec,
    apply_overrides,
    check_spec,
    defaults,
    load_yaml,
    load_yaml_file,
    outer_settings,
    spec_error,
)
from workbench.store import Candidates, RunRecord, Store, add_run, dumps
from workbench.study import Optimizer
from workbench.task import Task, check_search, load_task, section_loaders


def optimize(
    path: str | Path,
    *,
    options: Options | None = None,
    database: str | Path = "workbench.db",
    listener: Listener | None = None,
    optimizers: Sequence[tuple[str, Optimizer]] | None = None,
    pool: LMPool | None = None,
) -> Report:
    """Optimize a workflow file and prove the gain.

    listener(event, data) is told what happens. optimizers: (name, optimizer) in place of those of the file; pool:
    where language models come from, in place of the plugins; both are for tests and notebooks.
    Raises SpecError for bad input, StoreError if the database cannot be used, PluginError.
    """
    options = options or Options()
    check_writable(options.path)
    spec, source, task, named = prepare(path, options.sets)
    store = Store(database)
    try:
        run = secrets.token_hex(4)
        run_id = add_run(
            store,
            run=run,
            name=spec.name,
            status="running",
            file=str(Path(path).resolve()),
            spec=source.text,
            options=dumps(
                {
                    **options.as_dict(),
                    "referred": task.external_hash,
                    "test": task.test_hash,
                    "sandbox": chosen(),
                    "outside": outer_settings(source),
                }
            ),
            data_hash=task.data_hash,
            seed=spec.seed,
            host=os.uname().nodename,
            pid=os.getpid(),
            version=__version__,
        )
        steps = list(optimizers) if optimizers is not None else named
        return run_in_loop(Session(store, run_id, run, task, steps, options, listener, pool=pool).go())
    finally:
        store.close()


def resume(
    run: str,
    *,
    database: str | Path = "workbench.db",
    listener: Listener | None = None,
    options: Options | None = None,
    optimizers: Sequence[tuple[str, Optimizer]] | None = None,
    pool: LMPool | None = None,
) -> Report:
    """Go on with a run that was killed, interrupted or failed: it is replayed, and no recorded call is paid again.

    Takes what `optimize` takes; options are added to those that the run was started with. Its sandbox is that of its
    start, unless the user names another.
    """
    store, kept = Store(database, create=False), None
    try:
        row = store.find_run(run)
        if row["file"] is None:
            raise StoreError(f"run {row['run']} ({row['status']}) is none of workbench optimize; it cannot be resumed")
        stored = json.loads(row["options"])
        if (kept := None if chosen() else stored.get("sandbox")) is not None:
            choose(kept)
        sets = [(a, v) for a, v in stored["sets"]] + (options.sets if options else [])
        keep = stored.get("keep_unproved", False) or (options is not None and options.keep_unproved)
        merged = Options(sets, (options.out if options else None) or stored["out"], keep)
        check_writable(merged.path)
        _, _, task, named = _stored(row, sets, stored.get("outside"))
        if row["status"] == "finished" and options and options.sets:
            raise StoreError(f"run {row['run']} is finished, its proof is done; start a new run with other settings")
        if task.data_hash != row["data_hash"]:
            raise StoreError(f"the data of run {row['run']} have changed since it started; start a new run")
        same = Candidates(store, row["id"]).find_baseline() in (None, task.workflow.hash)
        same &= stored.get("referred") in (None, task.external_hash)  # None: begun by a version that kept none
        if not same and all(address.partition(".")[0] == "budget" for address, _ in (options.sets if options else ())):
            raise StoreError(
                f"a file that the workflow of run {row['run']} refers to has changed since it started; start a new run"
            )
        if options and options.sets:  # they hold for whoever goes on after a further kill
            RunRecord(store, row["id"]).replace_options(dumps({**stored, "sets": sets}))
        steps = list(optimizers) if optimizers is not None else named
        session = Session(store, row["id"], row["run"], task, steps, merged, listener, row["seconds"], pool)
        return run_in_loop(session.go())
    finally:
        if kept is not None:
            choose(None)
        store.close()


def prepare(
    path: str | Path, sets: Sequence[tuple[str, Any]] = ()
) -> tuple[Spec, Source, Task, list[tuple[str, Optimizer]]]:
    """Read and check everything about a workflow file, without calling any model. Raises SpecError."""
    base = Path(path).resolve().parent
    _, source = _checked(load_yaml_file(path), base)
    return _prepare(source, base, sets)


def obstacles(task: Task, optimizers: Sequence[tuple[str, Optimizer]]) -> list[WorkbenchError]:
    """What would stop a run of a valid file that began here and now; no model is called."""

    async def course(store: Store) -> list[WorkbenchError]:
        session = Session(store, 0, "", task, list(optimizers), Options(), None)
        try:
            return await session.obstacles()
        finally:
            await session.runtime.aclose()

    with TemporaryDirectory() as folder:
        store = Store(Path(folder) / "run.db")
        try:
            return run_in_loop(course(store))
        finally:
            store.close()


def _prepare(
    source: Source, base: Path, sets: Sequence[tuple[str, Any]], outside: Sequence[tuple[str, Any]] | None = None
) -> tuple[Spec, Source, Task, list[tuple[str, Optimizer]]]:
    spec, source = _checked(apply_overrides(source, sets, outside), base)

    def made() -> Task:
        task = load_task(spec, source, base)
        check_search(task)
        data = task.dataset  # whose warnings are shown wherever the file is used
        return replace(task, dataset=replace(data, warnings=(*data.warnings, *lm_warnings(task))))

    with source.locating():
        task, optimizers = collect_errors((made, lambda: load_optimizers(spec, source)))
    check_optimizers(task, optimizers)
    return spec, source, task, optimizers


def _checked(source: Source, base: Path) -> tuple[Spec, Source]:
    try:
        return check_spec(source)
    except SpecError as error:
        raise merge_errors([error, *_wrong_elsewhere(source, error, base)]) from None


#: What stands for a section that must be there and is broken, while the others are looked at.
_STAND_INS = {"data": {"file": "rows.jsonl"}, "metric": defaults.METRIC, "nodes": {"none": {}}}


def _wrong_elsewhere(source: Source, error: SpecError, base: Path) -> list[SpecError]:
    """What is wrong in the sections of a file that its schema has nothing to say against, where others are broken."""
    if not isinstance(source.value, dict):
        return []
    broken = {one.path[0] for one in (error, *error.more) if one.path} | (_STAND_INS.keys() - source.value.keys())
    if "roles" in broken:
        broken.add("nodes")  # they may ask a role
    whole = {key: value for key, value in source.value.items() if key not in broken}
    try:
        spec = Spec.model_validate({**_STAND_INS, **whole})
        jobs = {**section_loaders(spec, base, []), "optimize": lambda: load_optimizers(spec, source)}
        with source.locating():
            collect_errors(job for key, job in jobs.items() if key not in broken)
    except ValidationError:  # of sections together, e.g. `pick` without `objectives`
        return []
    except SpecError as more:
        return [more]
    return []


def _stored(
    row: Any, sets: Sequence[tuple[str, Any]], outside: Sequence[tuple[str, Any]] | None
) -> tuple[Spec, Source, Task, list[tuple[str, Optimizer]]]:
    file = row["file"] or json.loads(row["options"]).get("of")  # of `workbench eval`, which nothing resumes
    if file is None:
        raise StoreError(f"run {row['run']} ({row['status']}) is of no workflow file")
    return _prepare(load_yaml(row["spec"], file), Path(file).parent, sets, outside)


def prepare_stored(row: Any) -> Task:
    """The task of a stored run, as its file, its flags and its surroundings were when it started."""
    stored = json.loads(row["options"])
    return _stored(row, [(a, v) for a, v in stored.get("sets", ())], stored.get("outside"))[2]


def load_optimizers(spec: Spec, source: Source) -> list[tuple[str, Optimizer]]:
    """The optimizers of the file with their parameters; bootstrap if it names none."""

    def load(index: int, name: str, parameters: Any) -> tuple[str, Optimizer]:
        path = ("optimize", index) if source.has(("optimize", index)) else ("optimize",)
        try:
            cls = plugins().get("optimizers", name)
            return name, cls.model_validate(parameters)
        except PluginError as error:
            raise SpecError(str(error), path=path) from None
        except ValidationError as error:
            raise spec_error(error, cls, (*path, name)) from None

    entries = spec.optimize or [{defaults.OPTIMIZER: {}}]
    named = [next(iter(entry.items())) for entry in entries]
    return collect_errors(partial(load, index, *entry) for index, entry in enumerate(named))
