"""Checks before a run of a valid file: keys, prices, packages, sandboxes, the path of the result. Also chooses the
optimizers if the file names none. Calls no model."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from workbench.base.files import check_output, file_digest
from workbench.errors import (
    SandboxError,
    SpecError,
    StoreError,
    WorkbenchError,
    collect_errors,
    errors_at,
    merge_errors,
)
from workbench.ledger import price_of
from workbench.lm import LMPool
from workbench.plugins import plugins
from workbench.run.options import Options
from workbench.runtime import Runtime
from workbench.spec import LMSpec, defaults
from workbench.store import RunRecord, Store, is_result
from workbench.study import Optimizer, Study
from workbench.task import Task, data_path, variants
from workbench.workflow import called_lms, learnable_addresses


def evaluated_lms(task: Task) -> Iterator[LMSpec]:
    """Yield the language models that the workflow as written and its metrics may call."""
    roles = {role for node in task.workflow.walk() for role in node.roles}
    if any(getattr(metric, "needs_lm", False) for metric in (task.metric, *(one for _, one in task.further_metrics))):
        roles.add("judge")
    yield from called_lms(task.workflow, task.spec.lm)
    yield from (spec for role, spec in task.spec.roles.items() if role in roles)


def lms_of(task: Task) -> Iterator[LMSpec]:
    """Yield the language models that a run may call: those of nodes, of variants under `search:`, and of roles."""
    for workflow in (task.workflow, *(changed for _, changed in variants(task.spec.search, task.workflow))):
        yield from called_lms(workflow, task.spec.lm)
    yield from task.spec.roles.values()


def settings_to_compare(task: Task, optimizers: Sequence[tuple[str, Optimizer]] = ()) -> dict[str, Any]:
    """Return the settings that distinguish runs, flat: models by name, rows, seed, budget, optimizers with their
    settings. Empty if the file names no tracker."""
    spec, data = task.spec, task.dataset
    if not spec.track:
        return {}
    metrics = [one if isinstance(one, str) else next(iter(one), "") for one in spec.metrics]
    found: dict[str, Any] = {"lm": spec.lm.model, **{f"roles.{role}": lm.model for role, lm in spec.roles.items()}}
    found |= {"metric": metrics[0].partition("(")[0], "seed": spec.seed, "data": task.data_hash[:16]}
    found |= {"rows.train": len(data.train), "rows.val": len(data.val), "rows.test": len(data.test)}
    found |= {f"budget.{name}": value for name, value in spec.budget.model_dump(exclude_none=True).items()}
    for index, (name, optimizer) in enumerate(optimizers):
        found[f"optimize.{index}"] = name
        found |= {
            f"optimize.{index}.{key}": value for key, value in optimizer.model_dump(mode="json", fallback=str).items()
        }
    return found


def choose_optimizers(task: Task) -> dict[str, str]:
    """Choose the optimizers for a file that names none. Returns the reason for each, by name."""
    spec, workflow = task.spec, task.workflow
    by_score = len(spec.objectives) == 1  # `mixed` and `kinds` compare by score alone
    rest: list[str] = []
    if spec.search:  # then only what it lists may change: examples only if it names them
        rest = ["search"]
    elif learnable_addresses(workflow, "demos"):
        rest = ["kinds", "demos"] if by_score else ["demos"]
    steps = [rest]
    if "proposer" in spec.roles and learnable_addresses(workflow, "text"):
        steps = [["texts"], ["mixed", *rest] if by_score else rest]
    return defaults.choose_optimizers(steps, plugins().names("optimizers"))


def explain_choice(task: Task, chosen: Sequence[str]) -> str:
    """Explain the choice of an optimizer for a file that names none."""
    reasons = choose_optimizers(task)
    if list(reasons) != list(chosen):  # other plugins are loaded now, or another version chose
        return f"The file names no optimizer. Chosen when the run began: {', '.join(chosen)}."
    return f"The file names no optimizer. Chosen: {'; '.join(f'{n}, since {why}' for n, why in reasons.items())}."


def search_warnings(task: Task, optimizers: Sequence[tuple[str, Optimizer]]) -> list[str]:
    """Warn if no optimizer searches the settings under `search:`."""
    if not task.spec.search or not optimizers or any(optimizer.reads_search() for _, optimizer in optimizers):
        return []
    named = ", ".join(dict.fromkeys(name for name, _ in optimizers))
    return [
        f"`search:` is not searched: {named} does not read it. Add an optimizer that does to `optimize:`, e.g. "
        f"{defaults.OPTIMIZERS['search'][1][0]}, or remove `search:`"
    ]


def check_optimizers(task: Task, optimizers: Sequence[tuple[str, Optimizer]]) -> None:
    """Raise SpecError for optimizers that find nothing to change in the workflow."""
    workflows = [task.workflow, *(changed for _, changed in variants(task.spec.search, task.workflow))]

    def check(index: int, name: str, optimizer: Optimizer) -> None:
        missing = [optimizer.missing(workflow) for workflow in workflows]
        if all(missing):
            raise SpecError(
                f"`{name}` finds nothing to change: the workflow lacks {missing[0]}",
                hint=f"Add one to nodes, or remove `{name}` from optimize.",
                path=("optimize", index, name),
            )

    with task.source.locating():
        collect_errors(partial(check, index, *named) for index, named in enumerate(optimizers))


def check_result_file(store: Store, options: Options, task: Task) -> None:
    """Raise SpecError if the result would replace a file that no run of this workflow wrote."""

    def ours(path: Path) -> bool:
        return path.is_file() and is_result(store, task.spec.name, str(path.resolve()), file_digest(path))

    data, base = task.spec.data, task.workflow.base
    places = [place for place in (data.file, data.train, data.val, data.test) if place]
    read = [task.source.file, *(data_path(place, base) for place in places)]
    other = shlex.quote(f"optimized-{re.sub('[^A-Za-z0-9._-]+', '-', task.spec.name)}.yaml")
    for out in (options.path, options.unproved_path):
        check_output(out, inputs=read, ours=ours, overwrite=options.overwrite, other=other)


def check_stored_result_file(record: RunRecord, run: str, options: Options, name: str) -> None:
    """Raise StoreError if the result would go to a path that this user did not choose: outside this folder and that of
    the database, or a file that no run of the workflow wrote. The database may be a stranger's. name: the
    workflow's."""
    folders = (Path.cwd().resolve(), record.store.path.resolve().parent)
    for out in (options.path, options.unproved_path):
        where = out.resolve()
        if not any(where.is_relative_to(folder) for folder in folders):
            raise StoreError(
                f"run {run} would write its result to {where}, outside this folder and that of the database; if you "
                f"want that, add --out {shlex.quote(str(where))}, or name another file"
            )
        own = where.is_file() and is_result(record.store, name, str(where), file_digest(where))
        if where.exists() and not own and not options.overwrite:
            raise StoreError(
                f"run {run} would write its result over {where}, which no run of it wrote; if you want that, add "
                "--overwrite, or name another file with --out"
            )


def lm_warnings(task: Task) -> list[str]:
    """Warn about models given by name only: they inherit nothing from `lm`, in particular not its server."""
    own = task.spec.lm
    prefix = own.model.partition("/")[0]
    named = [spec.model for spec in lms_of(task) if own.api_base and spec.model_fields_set == {"model"}]
    return [
        f"{model} is given by name only, so its calls go to the default server of {prefix}/..., not to {own.api_base}, "
        f"the api_base of lm. If that server serves it, write {{model: {model}, api_base: {own.api_base}}}."
        for model in dict.fromkeys(named)
        if model.partition("/")[0] == prefix
    ]


def lms_not_ready(
    lms: Iterable[LMSpec], pool: LMPool, usd: float | None, target_usd: float | None = None
) -> Iterator[WorkbenchError]:
    """Yield an error for each language model that is not ready, e.g. because a key is missing, or whose price is
    unknown although dollars have a ceiling (`usd`) or a target (`target_usd`)."""
    for spec in {spec.model_dump_json(): spec for spec in lms}.values():
        try:
            lm = pool.get(spec)
            getattr(lm, "ready", bool)()
            price_of(lm, 1, 1, usd)
            price_of(lm, 1, 1, target_usd, "targets.usd")
            getattr(lm, "listening", bool)()
        except WorkbenchError as error:
            yield error


def check_lms_ready(task: Task, lms: Iterable[LMSpec], pool: LMPool, target_usd: float | None = None) -> None:
    """Raise the errors of language models with which a run would end before it has begun."""
    errors = [*lms_not_ready(lms, pool, task.spec.budget.usd, target_usd)]
    if wrong := wrong_in_file(errors):
        raise merge_errors([task.source.locate(error) for error in wrong])
    if errors:
        raise errors[0]


def wrong_in_file(found: Iterable[WorkbenchError]) -> list[SpecError]:
    """List the errors that only a change of the file can fix. A run can be resumed after others, e.g. a missing
    package."""
    return [error for error in found if isinstance(error, SpecError) and not isinstance(error, SandboxError)]


async def obstacles(task: Task, runtime: Runtime, studies: Sequence[tuple[Study, Optimizer]]) -> list[WorkbenchError]:
    """List the errors that would stop a run, located in the file. studies: in the file's order."""
    usd = task.spec.targets.usd if task.spec.targets is not None else None
    found = [*lms_not_ready(lms_of(task), runtime.pool, runtime.ledger.budget.usd, usd)]
    for index, (study, optimizer) in enumerate(studies):
        try:
            with errors_at("optimize", index, study.name):
                await optimizer.ready(study)
        except WorkbenchError as error:
            found.append(error)
    return [task.source.locate(error) if isinstance(error, SpecError) else error for error in found]
