"""Commands that run workflows: validate, estimate, run, eval, optimize, resume."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import click

from workbench.cli import echo_json
from workbench.text import visible

if TYPE_CHECKING:
    from workbench.proof import Report

_FILE = click.argument("file", type=click.Path(path_type=Path))
_DB = click.option("--db", default="workbench.db", envvar="WORKBENCH_DB", show_default=True, help="Run database.")
_JSON = click.option("--json", "as_json", is_flag=True, help="End with one line of JSON on stdout.")
_SET = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="ADDRESS=VALUE",
    help="Change a setting of the file, e.g. nodes.answer.samples=3.",
)
_REQUIRE_GAIN = click.option("--require-gain", is_flag=True, help="Exit 100 if nothing is proved on the sealed test.")
_KEEP_UNPROVED = click.option(
    "--keep-unproved", is_flag=True, help="Write the best candidate to --out though no gain is shown."
)
_SEED = click.option("--seed", type=int, help="Seed of everything random.")


def _allow_unsafe(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    from workbench.runtime import allow_without_boundary

    allow_without_boundary(value)


def _choose_sandbox(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    from workbench.runtime import choose

    choose(value)


_SANDBOXES = (
    click.option(
        "--sandbox",
        metavar="NAME",
        expose_value=False,
        callback=_choose_sandbox,
        envvar="WORKBENCH_SANDBOX",
        help="Run code of models in this sandbox (`workbench sandbox list`); default: the strongest that works.",
    ),
    click.option(
        "--unsafe-sandbox",
        is_flag=True,
        expose_value=False,
        callback=_allow_unsafe,
        help="Run code of models even where only resource limits hold it.",
    ),
)
_BUDGETS = (
    click.option("--budget-calls", type=click.IntRange(min=1), help="Ceiling on LM calls, retries included."),
    click.option("--budget-usd", type=click.FloatRange(min=0, min_open=True), help="Ceiling on dollars."),
    click.option("--budget-minutes", type=click.FloatRange(min=0, min_open=True), help="Ceiling on minutes."),
)


def _budgets(command: Any) -> Any:
    return _with(_BUDGETS, command)


def _sandboxes(command: Any) -> Any:
    return _with(_SANDBOXES, command)


def _with(options: tuple[Any, ...], command: Any) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


def _settings(sets: tuple[str, ...], seed: int | None, **budgets: Any) -> list[tuple[str, Any]]:
    """All flags as (address, value)."""
    from workbench.spec import parse_value

    pairs = (_pair(text, "ADDRESS=VALUE", "--set") for text in sets)
    found: list[tuple[str, Any]] = [(address, parse_value(value)) for address, value in pairs]
    found += [("seed", seed)] if seed is not None else []
    return found + [(f"budget.{k}", v) for k, v in budgets.items() if v is not None]


def _pair(text: str, form: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise click.BadParameter(f"'{text}' is not {form}", param_hint=option)
    return name.strip(), value


@click.command("validate")
@_FILE
@_SET
@_JSON
def validate_command(file: Path, sets: tuple[str, ...], as_json: bool) -> None:
    """Check a workflow file, its data and its metric, without calling any model."""
    from workbench.errors import PluginError, SpecError, merge_errors
    from workbench.run import obstacles, prepare, wrong_in_file
    from workbench.task import lint_task
    from workbench.workflow import learnable_addresses

    settings = _settings(sets, None)
    try:
        spec, _, task, optimizers = prepare(file, settings)
        lacking = obstacles(task, optimizers)
        if wrong := wrong_in_file(lacking):
            raise merge_errors(wrong)
    except (SpecError, PluginError) as error:
        if as_json:
            echo_json({"ok": False, "errors": [_as_object(e) for e in (error, *getattr(error, "more", ()))]})
        raise
    data = task.dataset
    warnings = [*data.warnings, *lint_task(task), *(f"it cannot run here: {error}" for error in lacking)]
    summary = {
        "ok": True,
        "name": spec.name,
        "nodes": list(task.workflow.nodes),
        "inputs": list(task.inputs),
        "rows": {"train": len(data.train), "val": len(data.val), "test": len(data.test)},
        "optimizers": [name for name, _ in optimizers],
        "learnable": learnable_addresses(task.workflow),
        "warnings": warnings,
        "advice": [line for n in task.workflow.walk() for line in n.warnings()],
    }
    if as_json:
        return echo_json(summary)
    click.echo(f"{file} is valid: {len(summary['nodes'])} node(s), reads {', '.join(task.inputs) or 'nothing'}.")
    click.echo("Rows: " + ", ".join(f"{k} {v}" for k, v in summary["rows"].items()))
    click.echo("Optimizers: " + ", ".join(summary["optimizers"]))
    click.echo("Can be changed: " + ", ".join(summary["learnable"]))
    for warning in warnings:
        click.echo(f"Warning: {visible(warning)}")
    for line in summary["advice"]:
        click.echo(f"Note: {line}")


def _as_object(error: Exception) -> dict[str, Any]:
    """What is wrong with a file: file, line, column (from 1, null where there is no place), message, hint."""
    keys = ("file", "line", "column", "message", "hint")
    return {**dict.fromkeys(keys), "message": str(error), **{k: v for k, v in vars(error).items() if k in keys}}


@click.command("estimate")
@_FILE
@_SET
@_JSON
def estimate_command(file: Path, sets: tuple[str, ...], as_json: bool) -> None:
    """Say what a run will cost at most, and what its test can show, before anything is spent."""
    from workbench.run import estimate, prepare

    _, _, task, optimizers = prepare(file, _settings(sets, None))
    found = estimate(task, optimizers)
    if as_json:
        return echo_json(found)
    for line in found["lines"]:
        click.echo(line)


@click.command("run")
@_sandboxes
@_FILE
@click.option("--input", "inputs", multiple=True, metavar="FIELD=VALUE", help="An input of the workflow.")
@click.option("--example", type=int, help="Run this row of val instead (counted from 0).")
@_SET
@_DB
@_JSON
def run_command(
    file: Path, inputs: tuple[str, ...], example: int | None, sets: tuple[str, ...], db: str, as_json: bool
) -> None:
    """Run the workflow once, and show every step."""
    from workbench.run import run_single

    values = dict(_pair(text, "FIELD=VALUE", "--input") for text in inputs)
    if values and example is not None:
        raise click.UsageError("--input and --example exclude each other: a row of val brings its own inputs")
    consent = _asked if sys.stdin.isatty() else None
    outcome = run_single(file, values or None, example, _settings(sets, None), db, consent)
    if as_json:
        return echo_json(outcome)
    if not values:
        click.echo(click.style(f"row {example or 0} of val", bold=True))
        for name, value in outcome["row"].items():
            click.echo(f"  {name}: {visible(value)}")
    for span in outcome["spans"]:
        click.echo(click.style(f"{span['node']} ({span['kind']}, {span['seconds']:.2f} s)", bold=True))
        for call in span["calls"]:
            click.echo(f"  answer: {visible(call['text'])}")
        for key, value in {**span["outputs"], **span.get("notes", {})}.items():
            click.echo(f"  {key}: {visible(value)}")
    if outcome["failure"]:
        click.echo(f"Failed ({outcome['failure']}): {visible(outcome['message'])}")
        sys.exit(1)
    click.echo(visible(json.dumps(outcome["prediction"], ensure_ascii=False, default=str)))


_ONE_AT_A_TIME = Lock()


def _asked(tool: str, arguments: Mapping[str, Any]) -> bool:
    """Consent of the person at the terminal to one call of a tool (`policy:` of the workflow file)."""
    with _ONE_AT_A_TIME:
        return click.confirm(f"Allow {tool}({visible(json.dumps(dict(arguments), ensure_ascii=False))})?", err=True)


@click.command("eval")
@_sandboxes
@_FILE
@click.option("--split", type=click.Choice(["train", "val", "test"]), default="val", show_default=True)
@_SET
@_SEED
@_DB
@_budgets
@_JSON
def eval_command(
    file: Path,
    split: str,
    sets: tuple[str, ...],
    seed: int | None,
    db: str,
    as_json: bool,
    budget_calls: int | None,
    budget_usd: float | None,
    budget_minutes: float | None,
) -> None:
    """Score the workflow as it stands on one split."""
    from workbench.run import evaluate_file

    settings = _settings(sets, seed, calls=budget_calls, usd=budget_usd, minutes=budget_minutes)
    found = evaluate_file(file, split, settings, db)
    if as_json:
        return echo_json(found)
    low, high = found["ci95"]
    kept = f", kept as run {found['run']}" if split == "train" else ""
    click.echo(f"{split}: {found['score']:.3f} [{low:.3f}, {high:.3f}] on {found['n']} rows{kept}")
    if found["failures"]:
        click.echo("Failed: " + ", ".join(f"{k} {n}" for k, n in found["failures"].items()))
    for warning in found["warnings"]:
        click.echo(f"Warning: {visible(warning)}")
    click.echo(
        f"Per example: {found['cost']['tokens']:.0f} tokens, {found['cost']['calls']:.1f} calls, "
        f"${found['cost']['usd']:.6f}"
    )


@click.command("optimize")
@_sandboxes
@_FILE
@_SET
@_SEED
@_DB
@_budgets
@click.option("--out", default="optimized.yaml", show_default=True, help="Where to write the result.")
@_REQUIRE_GAIN
@_KEEP_UNPROVED
@_JSON
def optimize_command(
    file: Path,
    sets: tuple[str, ...],
    seed: int | None,
    db: str,
    out: str,
    require_gain: bool,
    keep_unproved: bool,
    as_json: bool,
    budget_calls: int | None,
    budget_usd: float | None,
    budget_minutes: float | None,
) -> None:
    """Make the workflow better within the budget, and prove it on sealed data."""
    from workbench.cli.progress import listener
    from workbench.run import Options, optimize

    settings = _settings(sets, seed, calls=budget_calls, usd=budget_usd, minutes=budget_minutes)
    with listener(quiet=as_json) as listen:
        report = optimize(file, options=Options(settings, out, keep_unproved), database=db, listener=listen)
    _finish(report, as_json, require_gain)


@click.command("resume")
@_sandboxes
@click.argument("run", default="last")
@_DB
@click.option("--out", default=None, help="Where to write the result (default: as first asked).")
@_budgets
@_REQUIRE_GAIN
@_KEEP_UNPROVED
@_JSON
def resume_command(
    run: str,
    db: str,
    out: str | None,
    require_gain: bool,
    keep_unproved: bool,
    as_json: bool,
    budget_calls: int | None,
    budget_usd: float | None,
    budget_minutes: float | None,
) -> None:
    """Go on with a run that was killed, interrupted or failed; what is recorded is not paid again."""
    from workbench.cli.progress import listener
    from workbench.run import Options, resume

    settings = _settings((), None, calls=budget_calls, usd=budget_usd, minutes=budget_minutes)
    with listener(quiet=as_json) as listen:
        report = resume(run, database=db, listener=listen, options=Options(settings, out, keep_unproved))
    _finish(report, as_json, require_gain)


def _finish(report: Report, as_json: bool, require_gain: bool) -> None:
    if as_json:
        echo_json(report.as_dict())
    else:
        from workbench.cli.progress import print_report

        print_report(report)
    if report.status == "interrupted":
        sys.exit(130)
    if report.status == "failed":
        sys.exit(1)
    if require_gain and not report.proved:
        sys.exit(100)
