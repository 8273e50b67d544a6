"""Commands that run workflows: estimate, run, optimize, resume."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import click

from workbench.base.text import indented, one_line, visible_json
from workbench.cli import ask, echo_json, say
from workbench.cli.options import (
    CACHE,
    DB,
    EXECUTOR,
    FILE,
    JSON,
    OVERWRITE,
    SEED,
    SET,
    read_executor,
    read_settings,
    split_pair,
    with_budget,
    with_sandbox,
)
from workbench.cli.output import Output, with_output

if TYPE_CHECKING:
    from workbench.cli.progress import Listen
    from workbench.evaluation import EvalReport
    from workbench.proof import Report
    from workbench.runtime import SandboxChoice

_REQUIRE_GAIN = click.option(
    "--require-gain", is_flag=True, help="Exit with code 100 unless the sealed test proves a gain."
)
_KEEP_UNPROVED = click.option(
    "--keep-unproved", is_flag=True, help="Write the best candidate to --out even without a proven gain."
)
_ALLOW_UNPROVED = click.option(
    "--allow-unproved", is_flag=True, help="Start even if the budget does not cover the baseline and the proof."
)


def _reports(command: Callable[..., Report | EvalReport]) -> Callable[..., Any]:
    """Add the options that `optimize` and `resume` share. The command takes `options`, `database` and `progress`, which
    it enters once it has asked for trust, and returns the report, which is printed and decides the exit code."""

    @with_sandbox
    @DB
    @with_budget
    @_REQUIRE_GAIN
    @_KEEP_UNPROVED
    @OVERWRITE
    @with_output
    @JSON
    @wraps(command)
    def wrapped(
        *,
        sandbox: SandboxChoice,
        settings: list[tuple[str, Any]],
        db: str,
        out: str | None,
        require_gain: bool,
        keep_unproved: bool,
        overwrite: bool,
        output: Output,
        as_json: bool,
        allow_unproved: bool = False,
        **arguments: Any,
    ) -> None:
        from workbench.cli.eval_commands import exit_judged, print_judged, stored_gate
        from workbench.cli.progress import listener
        from workbench.evaluation import EvalReport
        from workbench.run import Options

        gate = {"require_gain": True} if require_gain else {}
        options = Options(settings, out, keep_unproved, sandbox, overwrite, allow_unproved, gate=gate)
        report = command(**arguments, options=options, database=db, progress=listener(output))
        gate = {**stored_gate(report.run, db), **gate}
        if isinstance(report, EvalReport):
            return exit_judged([report], gate, db, print_judged(report, gate, db, as_json=as_json, quiet=output.quiet))
        _finish(report, as_json, bool(gate.get("require_gain")), output.quiet)

    return wrapped


@click.command("estimate")
@FILE
@SET
@DB
@click.option(
    "--seconds-per-call",
    type=click.FloatRange(min=0, min_open=True),
    help="Duration of one call. [default: measured in earlier runs]",
)
@EXECUTOR
@JSON
def estimate_command(
    file: Path, sets: tuple[str, ...], db: str, seconds_per_call: float | None, executor: str | None, as_json: bool
) -> None:
    """Estimate the cost of a run and the smallest provable gain.

    The cost is in calls, tokens, dollars and minutes. Spends nothing.
    """
    from workbench.cli.trust import require_trust
    from workbench.run import estimate, prepare

    settings = [*read_executor(executor, None), *read_settings(sets)]
    _, _, task, optimizers = prepare(require_trust(file, settings), settings)
    found = estimate(task, optimizers, db, seconds_per_call)
    if as_json:
        return echo_json(found)
    for line in found["lines"]:
        say(indented(line))


@click.command("run")
@FILE
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Value of an input field. Repeatable. Or all fields as a JSON object.",
)
@click.option("--example", type=int, help="Position of a val row to run instead, counting from 0.")
@SET
@CACHE
@with_sandbox
@DB
@JSON
def run_command(
    file: Path,
    inputs: tuple[str, ...],
    example: int | None,
    sets: tuple[str, ...],
    cache: bool,
    sandbox: SandboxChoice,
    db: str,
    as_json: bool,
) -> None:
    """Run the workflow on one example and show every step."""
    from workbench.cli.trust import require_trust
    from workbench.evaluation import run_single
    from workbench.ledger import describe_usd

    pairs = [pair for text in inputs for pair in _input_pairs(text)]
    values = dict(pairs)
    if len(values) < len(pairs):
        raise click.BadParameter("a field is given twice", param_hint="--input")
    if values and example is not None:
        raise click.UsageError("--input and --example cannot be combined: a val row has its own inputs")
    settings = read_settings(sets, cache=cache)
    source = require_trust(file, settings, called=bool(values))
    consent = _confirm if sys.stdin.isatty() else None
    outcome = run_single(source, values or None, example, settings, db, consent, sandbox)
    if as_json:
        return echo_json(outcome)
    if not values:
        say(f"row {example or 0} of val", bold=True)
        say_values(outcome["row"])
    say_spans(outcome["spans"], prompts=not values)
    for warning in outcome["warnings"]:
        say(f"Warning: {indented(warning)}", fg="yellow", err=True)
    cost = outcome["cost"]
    usd = describe_usd({**outcome["spent"], "usd": cost["usd"]}, 6)
    spent = f"{cost['calls']} calls, {cost['tokens']} tokens, {usd}, {cost['seconds']:.2f} s"
    if (paid := outcome["spent"])["calls"] > cost["calls"]:
        spent += f"; {paid['calls']} calls, ${paid['usd']:.6f} with those of the metric"
    if outcome["failure"]:
        say(f"Failed ({one_line(outcome['failure'])}): {indented(outcome['message'])}")
        sys.exit(1)
    say(visible_json(outcome["prediction"]))
    if outcome["score"] is not None:
        say(f"score {outcome['score']:.3f}" + (f": {indented(outcome['feedback'])}" if outcome["feedback"] else ""))
        for name, value in outcome["scores"].items():
            say(f"  {one_line(name)}: {'-' if value is None else f'{value:.3f}'}")
        say(spent)


def _input_pairs(text: str) -> list[tuple[str, Any]]:
    """Read --input: FIELD=VALUE, or a JSON object of fields and values."""
    if not text.lstrip().startswith("{"):
        return [split_pair(text, "FIELD=VALUE", "--input")]
    try:
        return [*json.loads(text).items()]
    except ValueError as error:
        raise click.BadParameter(f"'{text}' is not a JSON object: {error}", param_hint="--input") from None


def say_values(values: Mapping[str, Any]) -> None:
    """Print named values, each indented by two spaces."""
    for name, value in values.items():
        say(f"  {one_line(name)}: {indented(value)}")


def say_spans(spans: Sequence[Mapping[str, Any]], prompts: bool) -> None:
    """Print the steps of one example. prompts: also the messages of each call."""
    from workbench.lm import content_text

    for span in spans:
        say(one_line(f"{span['node']} ({span['kind']}, {span['seconds']:.2f} s)"), bold=True)
        for call in span["calls"]:
            for message in call.get("messages", ()) if prompts else ():
                say(f"  {one_line(message.get('role'))}: {indented(content_text(message.get('content')))}")
            say(f"  answer: {indented(call['text'])}")
        say_values({**span["outputs"], **span.get("notes", {})})
        if span.get("error"):
            say(f"  error: {indented(span['error'])}")


_ONE_AT_A_TIME = Lock()


def _confirm(tool: str, arguments: Mapping[str, Any]) -> bool:
    """Ask the user at the terminal to allow one tool call (`policy:` of the workflow file)."""
    with _ONE_AT_A_TIME:
        return ask(f"Allow {one_line(tool)}({visible_json(dict(arguments))})?")


@click.command("optimize")
@FILE
@SET
@SEED
@CACHE
@click.option("--out", default="optimized.yaml", show_default=True, help="Output file for the winner.")
@_ALLOW_UNPROVED
@_reports
def optimize_command(file: Path, progress: AbstractContextManager[Listen], **options: Any) -> Report:
    """Improve the workflow within a budget and prove the gain."""
    from workbench.cli.trust import require_trust, trust_result
    from workbench.run import optimize

    source = require_trust(file, options["options"].sets)
    with progress as listen:
        report = optimize(source, listener=listen, **options)
    for written in (report.workflow, report.unproved):
        if written is not None:
            trust_result(source, Path(written))
    return report


@click.command("resume")
@click.argument("run", default="last")
@click.option("--out", default=None, help="Output file for the winner. [default: as at the start of the run]")
@_ALLOW_UNPROVED
@_reports
def resume_command(run: str, progress: AbstractContextManager[Listen], **options: Any) -> Report | EvalReport:
    """Resume a killed, interrupted or failed run.

    RUN is a run of optimize or eval, or one that `workbench branch` created. Recorded calls are not paid again.
    """
    from workbench.cli.trust import require_trust_in_run
    from workbench.evaluation import resume_run

    run = require_trust_in_run(run, options["database"], options["options"].sets)
    with progress as listen:
        return resume_run(run, listener=listen, **options)


def _finish(report: Report, as_json: bool, require_gain: bool, quiet: bool) -> None:
    if as_json:
        echo_json(report.as_dict())
    else:
        from workbench.cli.progress import print_report

        print_report(report, quiet)
    if report.status == "interrupted":
        sys.exit(130)
    if report.status == "failed":
        sys.exit(1)
    if require_gain and not report.proved:
        sys.exit(100)
