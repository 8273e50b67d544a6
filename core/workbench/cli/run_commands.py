"""Commands that run workflows: estimate, run, optimize, resume."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import click

from workbench.base.text import indented, one_line, visible_json
from workbench.cli import ask, echo_json, say
from workbench.cli.output import Output, with_output

if TYPE_CHECKING:
    from workbench.evaluation import EvalReport
    from workbench.proof import Report
    from workbench.runtime import SandboxChoice

FILE = click.argument("file", type=click.Path(path_type=Path))
DB = click.option("--db", default="workbench.db", envvar="WORKBENCH_DB", show_default=True, help="Run database.")
JSON = click.option("--json", "as_json", is_flag=True, help="End with one line of JSON on stdout.")
SET = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="ADDRESS=VALUE",
    help="Change a setting of the file, e.g. nodes.answer.samples=3.",
)
_REQUIRE_GAIN = click.option(
    "--require-gain", is_flag=True, help="Exit with code 100 unless the sealed test proves a gain."
)
_KEEP_UNPROVED = click.option(
    "--keep-unproved", is_flag=True, help="Write the best candidate to --out even if no gain is shown."
)
_ALLOW_UNPROVED = click.option(
    "--allow-unproved", is_flag=True, help="Begin even if the budget cannot pay for the baseline and the proof."
)
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace a file that this command did not write.")
SEED = click.option("--seed", type=int, help="Random seed.")
CACHE = click.option(
    "--cache", is_flag=True, help="Take answers of earlier runs in the run database, as `cache: true` in the file."
)


_SANDBOX = (
    click.option(
        "--sandbox",
        metavar="NAME",
        envvar="WORKBENCH_SANDBOX",
        help="Sandbox for model-written code (see `workbench sandbox list`). Default: the strongest that works.",
    ),
    click.option(
        "--unsafe-sandbox",
        is_flag=True,
        help="Allow model-written code to run in a sandbox that only limits resources.",
    ),
)
_SETTINGS = (
    click.option("--budget-calls", type=click.IntRange(min=1), help="Maximum LM calls, including retries."),
    click.option("--budget-tokens", type=click.IntRange(min=1), help="Maximum tokens, in and out."),
    click.option("--budget-usd", type=click.FloatRange(min=0, min_open=True), help="Maximum cost in dollars."),
    click.option("--budget-minutes", type=click.FloatRange(min=0, min_open=True), help="Maximum time in minutes."),
)


def _add(options: tuple[Any, ...], command: Any) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


def with_sandbox(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the sandbox flags. The command receives them as `sandbox`, a SandboxChoice."""

    @wraps(command)
    def wrapped(*, sandbox: str | None, unsafe_sandbox: bool, **arguments: Any) -> Any:
        from workbench.runtime import SandboxChoice

        choice = SandboxChoice(sandbox, unsafe_sandbox)
        choice.candidates()  # refuse an unknown name before the file is read
        return command(sandbox=choice, **arguments)

    return _add(_SANDBOX, wrapped)


def with_budget(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the budget flags. The command receives them, --set, --seed and --cache as `settings`: [(address, value)]."""

    @wraps(command)
    def wrapped(
        *,
        budget_calls: int | None,
        budget_tokens: int | None,
        budget_usd: float | None,
        budget_minutes: float | None,
        sets: tuple[str, ...] = (),
        seed: int | None = None,
        cache: bool = False,
        **arguments: Any,
    ) -> Any:
        budgets = {"calls": budget_calls, "tokens": budget_tokens, "usd": budget_usd, "minutes": budget_minutes}
        settings = read_settings(sets, seed, cache, **budgets)
        return command(settings=settings, **arguments)

    return _add(_SETTINGS, wrapped)


def _reports(command: Callable[..., Report | EvalReport]) -> Callable[..., Any]:
    """Add the flags that `optimize` and `resume` share. The command takes `options`, `database` and `listener`, and
    returns the report, which is printed and decides the exit code."""

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
        from workbench.cli.progress import exit_code, listener, print_evaluation
        from workbench.evaluation import EvalReport
        from workbench.run import Options

        options = Options(settings, out, keep_unproved, sandbox, overwrite, allow_unproved)
        with listener(output) as listen:
            report = command(**arguments, options=options, database=db, listener=listen)
        if isinstance(report, EvalReport):
            print_evaluation(report, as_json)
            sys.exit(exit_code(report))
        _finish(report, as_json, require_gain)

    return wrapped


def read_settings(
    sets: tuple[str, ...], seed: int | None = None, cache: bool = False, **budgets: Any
) -> list[tuple[str, Any]]:
    """All flags as (address, value), in order of precedence: the last wins."""
    from workbench.spec import parse_value

    pairs = (_pair(text, "ADDRESS=VALUE", "--set") for text in sets)
    found: list[tuple[str, Any]] = [(address, parse_value(value)) for address, value in pairs]
    found += [("seed", seed)] if seed is not None else []
    found += [("cache", True)] if cache else []
    return found + [(f"budget.{k}", v) for k, v in budgets.items() if v is not None]


def _pair(text: str, form: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise click.BadParameter(f"'{text}' must have the form {form}", param_hint=option)
    return name.strip(), value


@click.command("estimate")
@FILE
@SET
@DB
@click.option(
    "--seconds-per-call",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds of one call. Default: by earlier runs in the database.",
)
@JSON
def estimate_command(file: Path, sets: tuple[str, ...], db: str, seconds_per_call: float | None, as_json: bool) -> None:
    """Show what a run will cost in calls, tokens, dollars and minutes, and the smallest gain its test can show. Spends
    nothing."""
    from workbench.cli.trust import require_trust
    from workbench.run import estimate, prepare

    _, _, task, optimizers = prepare(require_trust(file), read_settings(sets))
    found = estimate(task, optimizers, db, seconds_per_call)
    if as_json:
        return echo_json(found)
    for line in found["lines"]:
        say(indented(line))


@click.command("run")
@FILE
@click.option(
    "--input", "inputs", multiple=True, metavar="FIELD=VALUE", help="Value of an input field; repeat it for each field."
)
@click.option("--example", type=int, help="Run this row of val instead, counting from 0.")
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

    values = dict(_pair(text, "FIELD=VALUE", "--input") for text in inputs)
    if len(values) < len(inputs):
        raise click.BadParameter("a field is given twice", param_hint="--input")
    if values and example is not None:
        raise click.UsageError("--input and --example cannot be combined: a row of val has its own inputs")
    source = require_trust(file, called=bool(values))
    consent = _confirm if sys.stdin.isatty() else None
    outcome = run_single(source, values or None, example, read_settings(sets, cache=cache), db, consent, sandbox)
    if as_json:
        return echo_json(outcome)
    if not values:
        say(f"row {example or 0} of val", bold=True)
        for name, value in outcome["row"].items():
            say(f"  {one_line(name)}: {indented(value)}")
    say_spans(outcome["spans"], prompts=not values)
    cost = outcome["cost"]
    spent = f"{cost['calls']} calls, {cost['tokens']} tokens, ${cost['usd']:.6f}, {cost['seconds']:.2f} s"
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


def say_spans(spans: Sequence[Mapping[str, Any]], prompts: bool) -> None:
    """Print the steps of one example; prompts: each call with what was sent."""
    from workbench.lm import content_text

    for span in spans:
        say(one_line(f"{span['node']} ({span['kind']}, {span['seconds']:.2f} s)"), bold=True)
        for call in span["calls"]:
            for message in call.get("messages", ()) if prompts else ():
                say(f"  {one_line(message.get('role'))}: {indented(content_text(message.get('content')))}")
            say(f"  answer: {indented(call['text'])}")
        for key, value in {**span["outputs"], **span.get("notes", {})}.items():
            say(f"  {one_line(key)}: {indented(value)}")
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
@click.option("--out", default="optimized.yaml", show_default=True, help="Result file.")
@_ALLOW_UNPROVED
@_reports
def optimize_command(file: Path, **options: Any) -> Report:
    """Improve the workflow within the budget, and prove the gain on sealed data."""
    from workbench.cli.trust import require_trust, trust_result
    from workbench.run import optimize

    source = require_trust(file)
    report = optimize(source, **options)
    for written in (report.workflow, report.unproved):
        if written is not None:
            trust_result(source, Path(written))
    return report


@click.command("resume")
@click.argument("run", default="last")
@click.option("--out", default=None, help="Result file (default: the one the run was started with).")
@_ALLOW_UNPROVED
@_reports
def resume_command(run: str, **options: Any) -> Report | EvalReport:
    """Resume a run of optimize or eval that was killed, interrupted or failed. Recorded calls are not paid again.

    It starts a run that `workbench branch` has added.
    """
    from workbench.cli.trust import require_trust_in_run
    from workbench.evaluation import resume_run

    return resume_run(require_trust_in_run(run, options["database"]), **options)


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
