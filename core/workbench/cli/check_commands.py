"""The command that checks a workflow file: validate."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.base.text import indented, one_line
from workbench.cli import Styled, echo_json, error_as_dict, say
from workbench.cli.options import FILE, JSON, SET, read_settings

if TYPE_CHECKING:
    from workbench.errors import Defect
    from workbench.spec import Source
    from workbench.task import Task
    from workbench.workflow import Workflow


@click.command("validate")
@FILE
@SET
@click.option(
    "--deep", is_flag=True, help="Also find defects: what is valid but cannot work. Exit with code 2 if there are any."
)
@click.option("--run-code", is_flag=True, help="Also load and check the Python that the file names.")
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, option, value: _print_schema(ctx) if value else None,
    help="Print the JSON Schema of workflow files with the installed plugins, and exit.",
)
@JSON
def validate_command(file: Path, sets: tuple[str, ...], deep: bool, run_code: bool, as_json: bool) -> None:
    """Check a workflow file, its data and its metric.

    Calls no model, and runs no Python that the file names.
    """
    from workbench.errors import PluginError, SpecError
    from workbench.spec import load_yaml_file

    try:
        summary = _summary(load_yaml_file(file), read_settings(sets), deep, run_code)
    except (SpecError, PluginError) as error:
        if as_json:
            errors = [error_as_dict(e) for e in (error, *getattr(error, "more", ()))]
            echo_json({"ok": False, "errors": errors, "omitted": getattr(error, "omitted", 0)})
        raise
    if as_json:
        echo_json(summary)
    else:
        _say_summary(file, summary, run_code)
    if summary.get("defects"):
        sys.exit(2)


def _print_schema(context: click.Context) -> None:
    from workbench.cli.file_schema import json_schema

    echo_json(json_schema(), indent=2)
    context.exit()


def _say_summary(file: Path, summary: dict[str, Any], run_code: bool) -> None:
    say(
        f"{file} is valid: {len(summary['nodes'])} node(s); inputs: {one_line(', '.join(summary['inputs']) or 'none')}."
    )
    left_out = f"; {n} left out by data: {{where: ...}}" if (n := summary.get("left_out")) else ""
    say("Rows: " + (", ".join(f"{k} {v}" for k, v in summary["rows"].items()) or "not read") + left_out)
    say("Optimizers: " + one_line(", ".join(summary["optimizers"]) or "by the rows"))
    unread = not run_code and any(line.startswith("runs Python") for line in summary["trust"])
    for node, found in groupby(summary["learnable"], lambda address: ".".join(address.split(".")[:2])):
        say(one_line(f"Learnable in {node}: {', '.join(address.removeprefix(f'{node}.') for address in found)}"))
    if not summary["learnable"]:
        say("Learnable: " + ("none that shows without --run-code" if unread else "nothing"))
    if summary["choice"]:
        say(indented(summary["choice"]))
    for word, lines in (("Warning", summary["warnings"]), ("Note", summary["advice"])):
        for line in lines:
            say(f"{word}: {indented(line)}")
    for line in summary["trust"]:
        say(f"Note: a run asks whether you trust the file (workbench trust). It {line}")
    if unread:
        say("Note: its Python was read and not loaded; --run-code loads it.")
    for found in summary.get("defects", ()):
        code = f" ({found['code']})" if found["code"] else ""
        place = ":".join(str(found[key]) for key in ("file", "line", "column") if found[key] is not None)
        say(one_line(f"{place}: "), Styled(f"{found['kind']}{code}", "red"), f": {indented(found['message'])}")
        say(f"  {indented(found['hint'])}")
    if (defects := summary.get("defects")) is not None:
        say(f"{len(defects) or 'No'} defect{'' if len(defects) == 1 else 's'} found.")


def _summary(file: Source, settings: list[tuple[str, Any]], deep: bool, run_code: bool) -> dict[str, Any]:
    """Summarize a valid file for `validate`. Raises SpecError and PluginError for an invalid one."""
    from workbench.cli.trust import unlooked
    from workbench.errors import SpecError, merge_errors
    from workbench.inference import check_configurations
    from workbench.run import (
        budget_warnings,
        explain_choice,
        find_missing_rows,
        find_obstacles,
        prepare,
        search_warnings,
        wrong_in_file,
    )
    from workbench.task import find_defects, lint_task

    outside, rows_alone = ([], True) if run_code else unlooked(file, settings)
    if outside and not rows_alone:
        raise SpecError(
            f"{file.file} names files outside its folder ({one_line(', '.join(outside))}), and is not trusted",
            hint="Nothing there was read. Check the file, then run `workbench trust` on it or add --run-code.",
        )
    if outside:
        return _summary_without_rows(file, settings, outside)
    spec, _, task, optimizers = prepare(file, settings, "loaded" if run_code else "outlined")
    check_configurations(file, spec, task.workflow, settings)
    obstacles = find_obstacles(task, optimizers)
    if wrong := wrong_in_file(obstacles):
        raise merge_errors(wrong)
    data, evaluable = task.dataset, find_missing_rows(task)
    filled = {kind for _, optimizer in optimizers for kind in optimizer.fills}
    defects = [_as_dict(defect, task) for defect in find_defects(task, filled)] if deep else []
    names = [name for name, _ in optimizers]
    return {
        "ok": not defects,
        **_describe(file, spec.name, task.workflow, names),
        "rows": {"train": len(data.train), "val": len(data.val), "test": len(data.test)},
        **({"left_out": data.left_out} if spec.data.where else {}),
        "choice": None if spec.optimize else explain_choice(task, names),
        "warnings": [
            *data.warnings,
            *([] if evaluable else (*budget_warnings(task), *search_warnings(task, optimizers))),
            *lint_task(task, unread=not deep),
            *(f"a run would fail here: {error}" for error in obstacles),
            *([f"it can be evaluated only: {evaluable.message}"] if evaluable else []),
        ],
        **({"defects": defects} if deep else {}),
    }


def _summary_without_rows(file: Source, settings: list[tuple[str, Any]], outside: list[str]) -> dict[str, Any]:
    """Summarize a file whose rows may not be read."""
    from workbench.inference import check_configurations, read_workflow
    from workbench.run import load_optimizers
    from workbench.spec import check_spec

    check_spec(file)
    spec, source, workflow = read_workflow(file, settings, "outlined")
    check_configurations(file, spec, workflow, settings)
    wanted = check_spec(source)[0]
    with source.locating():
        optimizers = load_optimizers(wanted.optimize, source)
    why = f"its rows ({one_line(', '.join(outside))}) are outside its folder and were not read, nor its metric"
    return {
        "ok": True,
        **_describe(file, spec.name, workflow, [name for name, _ in optimizers]),
        "rows": {},
        "choice": None,
        "warnings": [f"{why}: trust the file (workbench trust), or add --run-code"],
    }


def _describe(file: Source, name: str, workflow: Workflow, optimizers: list[str]) -> dict[str, Any]:
    """Summarize a file without its rows."""
    from workbench.cli.trust.needs import collect_needs
    from workbench.workflow import learnable_addresses

    return {
        "name": name,
        "nodes": list(workflow.nodes),
        "inputs": list(workflow.input_fields),
        "optimizers": optimizers,
        "learnable": learnable_addresses(workflow),
        "advice": [line for node in workflow.walk() for line in node.warnings()],
        "trust": collect_needs(file).lines(),
    }


def _as_dict(defect: Defect, task: Task) -> dict[str, Any]:
    """Return a defect as a dict, with its location in the file."""
    from workbench.errors import SpecError

    error = task.source.locate(SpecError(defect.message, hint=defect.hint, path=defect.path))
    return {"kind": defect.kind, "code": defect.code, **error_as_dict(error), "message": error.message}
