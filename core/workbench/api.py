"""workbench from Python: `optimize`, `evaluate` and their async twins, for programs and notebooks."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from workbench.base.concurrency import run_beside
from workbench.base.files import write_whole
from workbench.base.hashing import digest
from workbench.base.plain_values import plain_or_text, records_of
from workbench.base.type_guards import is_dict
from workbench.errors import SpecError
from workbench.evaluation import EvalOptions, EvalReport, evaluate as evaluate_source
from workbench.lm import LMPool
from workbench.proof import Report
from workbench.run import Listener, Options, optimize as optimize_source
from workbench.spec import PREFIX, Source, check_not_loading, load_yaml
from workbench.study import Optimizer
from workbench.task import dump_yaml, written_node
from workbench.workflow import Workflow

#: A workflow file, its content, or a workflow.
AnyWorkflow = str | Path | Mapping[str, Any] | Workflow


def optimize(
    workflow: AnyWorkflow,
    *,
    settings: Mapping[str, Any] | None = None,
    options: Options | None = None,
    database: str | Path = "workbench.db",
    listener: Listener | None = None,
    optimizers: Sequence[tuple[str, Optimizer]] | None = None,
    pool: LMPool | None = None,
) -> Report:
    """Optimize a workflow and prove the gain. Inside a running event loop, it waits in a thread.

    Args:
        workflow: path of a workflow file, its content as a mapping, or a `Workflow` with the rest in `settings`.
        settings: changes by address, e.g. {"budget.calls": 300}. `data` may also be rows (mappings or a DataFrame), and
            `metric` a function, defined in a file or in a notebook's cell.
        options: those of the command line: result file, sandbox, keep_unproved, allow_unproved.
        database: path of the run database.
        listener: called as listener(event, data) with every event.
        optimizers: (name, optimizer), replaces the file's optimizers.
        pool: replaces the plugins' language models.

    Raises:
        SpecError: the input is wrong.
        StoreError: the database cannot be used.
        PluginError: a plugin is broken.
    """
    options = options or Options()
    check_not_loading("optimize")
    source, sets = _read(workflow, settings, database)
    options = replace(options, sets=[*sets, *options.sets])
    return optimize_source(
        source, options=options, database=database, listener=listener, optimizers=optimizers, pool=pool
    )


async def aoptimize(workflow: AnyWorkflow, **arguments: Any) -> Report:
    """Run `optimize` without blocking the event loop. Cancelling it interrupts the run, which can be resumed."""
    return await run_beside(partial(optimize, workflow, **arguments))


def evaluate(
    workflow: AnyWorkflow,
    *,
    settings: Mapping[str, Any] | None = None,
    split: str | None = None,
    repeats: int = 1,
    options: EvalOptions | None = None,
    database: str | Path = "workbench.db",
    listener: Listener | None = None,
    pool: LMPool | None = None,
) -> EvalReport:
    """Score a workflow on the rows of a split. Works inside a running event loop, too.

    Args:
        split: train, val, test or all; None: val, or whatever exists.
        repeats: runs per row.

    Takes the other arguments of `optimize`. Raises the errors of `optimize`, and LMError if no row was answered.
    """
    options = options or EvalOptions()
    check_not_loading("evaluate")
    source, sets = _read(workflow, settings, database)
    options = EvalOptions(
        [*sets, *options.sets],
        split or options.split,
        max(repeats, options.repeats),
        options.sandbox,
        options.label,
    )
    return evaluate_source(source, options=options, database=database, listener=listener, pool=pool)


async def aevaluate(workflow: AnyWorkflow, **arguments: Any) -> EvalReport:
    """Run `evaluate` without blocking the event loop. Cancelling it interrupts the run, which can be resumed."""
    return await run_beside(partial(evaluate, workflow, **arguments))


def _read(
    workflow: AnyWorkflow, settings: Mapping[str, Any] | None, database: str | Path
) -> tuple[str | Path | Source, list[tuple[str, Any]]]:
    """Return the workflow as a file or its parsed text, and the settings as (address, value)."""
    sets = [(address, _setting(address, value, Path(database))) for address, value in (settings or {}).items()]
    if isinstance(workflow, str | Path):
        return workflow, sets
    if isinstance(workflow, Workflow):
        nodes = {name: written_node(tree) for name, tree in workflow.nodes.items()}
        lm = {"lm": workflow.tree["lm"]} if workflow.tree.get("lm") else {}
        return _source({**lm, "nodes": nodes}, workflow.base), sets
    content = {key: _setting(key, value, Path(database), True) for key, value in workflow.items()}
    return _source(content, Path.cwd()), sets


def _source(content: Mapping[str, Any], base: Path) -> Source:
    source = load_yaml(dump_yaml(dict(content)), str(base.resolve() / "(given from Python)"))
    return replace(source, partial=True)


def _setting(address: str, value: Any, database: Path, here_is_base: bool = False) -> Any:
    """Return a setting in the form that a file can hold. here_is_base: its paths start from the current folder."""
    if address == "metric" and callable(value):
        return _address_of(value, database)
    rows = value.get("rows") if is_dict(value) else value
    if address == "data" and rows is not None and not isinstance(rows, str):
        rest = {k: v for k, v in value.items() if k != "rows"} if is_dict(value) else {}
        path, here = _write_rows(rows, database), Path.cwd()
        return {"file": str(path.relative_to(here) if here_is_base and path.is_relative_to(here) else path), **rest}
    return value


def _write_rows(rows: Any, database: Path) -> Path:
    """Write rows to a file next to the database, named by their content, so that a run on them can be resumed."""
    given: Any = records_of(rows)
    records: list[Any] = [*given] if isinstance(given, Iterable) else [given]
    if (wrong := next((row for row in records if not isinstance(row, Mapping)), None)) is not None:
        raise SpecError(
            f"a row of data is {type(wrong).__name__}, not a mapping",
            hint='Give rows as [{"text": ..., "label": ...}, ...], a DataFrame, or the path of a file.',
        )
    lines = [json.dumps(dict(row), ensure_ascii=False, default=plain_or_text) for row in records]
    if not lines:
        raise SpecError("data has no rows")
    path = database.resolve().with_name(f"{database.stem}-rows") / f"{digest(lines)[:16]}.jsonl"
    if not path.exists():
        write_whole(path, "\n".join(lines) + "\n")
    return path


def _address_of(function: Callable[..., Any], database: Path) -> str:
    """Return `python:FILE:NAME` for a function. It must be in a file, for a resumed run to find it again, so a function
    of a notebook's cell is written to one, next to the database."""
    name = getattr(function, "__qualname__", "")
    try:
        file = Path(inspect.getsourcefile(function) or "")
        if "." in name or "<" in name:
            raise TypeError
        if not file.is_file():
            text = "from __future__ import annotations\n\n" + "\n\n".join(_with_globals(function, {}).values()) + "\n"
            file = database.resolve().with_name(f"{database.stem}-rows") / f"{name}_{digest(text)[:16]}.py"
            write_whole(file, text)
    except (TypeError, OSError):
        raise SpecError(
            f"the metric {name or function!r} is not a function at the top of a file or of a notebook's cell",
            hint="Write it to a file, and give metric: python:metric.py:NAME.",
        ) from None
    return f"{PREFIX}{file.resolve()}:{name}"


def _with_globals(function: Callable[..., Any], found: dict[str, str]) -> dict[str, str]:
    """Collect the source of a function after that of the modules, functions and constants that it uses, by name."""
    source = textwrap.dedent(inspect.getsource(function))
    used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    scope = inspect.unwrap(function).__globals__
    for name in sorted(used & scope.keys() - found.keys() - {function.__name__}):
        value = scope[name]
        home, own = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if inspect.ismodule(value):
            found[name] = f"import {value.__name__} as {name}"
        elif home == function.__module__ and inspect.isfunction(inspect.unwrap(value)):
            found[name] = ""  # two functions may call each other
            found |= _with_globals(value, found)
            if name != value.__name__:
                found[name] = f"{found.pop(name)}{name} = {value.__name__}"
        elif home not in (None, function.__module__) and own.isidentifier():
            found[name] = f"from {home} import {own} as {name}"
        elif _is_literal(value):
            found[name] = f"{name} = {value!r}"
        else:
            raise SpecError(
                f"the metric {function.__name__} uses {name}, which cannot be written to a file",
                hint="Make it inside the function, or write the function to a file: python:metric.py:NAME.",
            )
    found.pop(function.__name__, None)
    return {**found, function.__name__: source}


def _is_literal(value: Any) -> bool:
    try:
        return ast.literal_eval(repr(value)) == value
    except (ValueError, SyntaxError):
        return False
