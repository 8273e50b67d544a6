"""Commands that score workflows and compare scores: eval, compare."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.base.text import indented
from workbench.cli import echo_json, say
from workbench.cli.options import CACHE, DB, FILE, JSON, OVERWRITE, SEED, SET, add_options, with_budget, with_sandbox
from workbench.cli.output import Output, with_output

if TYPE_CHECKING:
    from workbench.evaluation import Compared, EvalReport, Side
    from workbench.runtime import SandboxChoice

_GATES = (
    click.option("--min-score", type=click.FloatRange(0, 1), help="Exit with code 100 if the score is below this."),
    click.option(
        "--not-worse-than",
        "bar",
        metavar="RUN",
        help="Exit with code 100 unless the paired test against RUN (as in `compare`) rules out a loss of --margin.",
    ),
    click.option(
        "--margin",
        type=click.FloatRange(0, 1, min_open=True),
        default=0.05,
        show_default=True,
        help="Largest acceptable loss, for --not-worse-than.",
    ),
    click.option(
        "--junit", type=click.Path(path_type=Path, dir_okay=False), help="JUnit XML file to write the rows to."
    ),
    click.option(
        "--markdown", type=click.Path(path_type=Path, dir_okay=False), help="Markdown file to write the table to."
    ),
    OVERWRITE,
)


@click.command("eval")
@FILE
@click.option(
    "--split",
    type=click.Choice(["train", "val", "test", "all"]),
    help="Split to evaluate. [default: val, or the only one there is]",
)
@click.option(
    "--repeats", type=click.IntRange(1, 1000), default=1, show_default=True, help="How many times to run each row."
)
@click.option(
    "--matrix",
    "axes",
    multiple=True,
    metavar="ADDRESS=VALUE,VALUE",
    help="Evaluate once per value. Repeat it to evaluate all combinations. @FILE is the text of a file.",
)
@partial(add_options, _GATES)
@SET
@SEED
@CACHE
@with_sandbox
@DB
@with_budget
@with_output
@JSON
def eval_command(
    file: Path,
    split: str | None,
    repeats: int,
    axes: tuple[str, ...],
    min_score: float | None,
    bar: str | None,
    margin: float,
    junit: Path | None,
    markdown: Path | None,
    overwrite: bool,
    settings: list[tuple[str, Any]],
    sandbox: SandboxChoice,
    db: str,
    output: Output,
    as_json: bool,
) -> None:
    """Score the unchanged workflow on one split, or on all rows.

    Rows, answers and prompts are stored. With --matrix, several settings are scored, and compared with the first.
    """
    from workbench.base.files import begins_with, check_output
    from workbench.cli.progress import listener
    from workbench.cli.trust import require_trust
    from workbench.errors import LMError, ServerDead
    from workbench.evaluation import JUNIT, MARKDOWN, EvalOptions, evaluate, evaluate_matrix, parse_axis, write_markdown

    if axes and (junit or bar):
        raise click.UsageError("--matrix cannot be combined with --junit or --not-worse-than")
    points = product(*([(axis.address, value) for _, value in axis.values] for axis in map(parse_axis, axes)))
    source = require_trust(file, *([*settings, *point] for point in points))
    for out, option, ours in ((junit, "--junit", JUNIT), (markdown, "--markdown", MARKDOWN)):
        if out is not None:
            check_output(out, option, inputs=[file], ours=begins_with(ours), overwrite=overwrite)
    first = _read_bar(bar, db) if bar else None
    gate = {"min_score": min_score, "bar": _name_of(bar, first), "margin": margin} if first or min_score else {}
    options = EvalOptions(settings, split, repeats, sandbox, gate=gate)
    with listener(output) as listen:
        if axes:
            parsed = [parse_axis(text) for text in axes]
            reports = evaluate_matrix(source, parsed, options=options, database=db, listener=listen)
        else:
            try:
                reports = [evaluate(source, options=options, database=db, listener=listen)]
            except (LMError, ServerDead) as error:  # its run is stored, and can be resumed
                if error.report is None:
                    raise
                reports = [error.report]
    compared = None if axes else print_judged(reports[0], gate, db, first, as_json=as_json, quiet=output.quiet)
    if axes:
        _show_matrix(reports, db, as_json, output.quiet)
    if junit:
        _write_junit(reports[0], db, junit)
    if markdown:
        write_markdown(reports, markdown, compared, *(why for _, why in _judge_scores(reports, gate, db) if why))
    exit_judged(reports, gate, db, compared)


def _read_bar(name: str, db: str) -> Side:
    """Read the run to compare with, before anything is paid for."""
    from workbench.errors import StoreError
    from workbench.evaluation import read_side
    from workbench.store import ReadOnlyStore

    with ReadOnlyStore(db) as store:
        side = read_side(store, name)
    if not side.scores:
        raise StoreError(f"run {side.run} has no row with a result, so nothing can be compared with it; name another")
    return side


def _name_of(bar: str | None, side: Side | None) -> str | None:
    """Return a name of the bar that will not change its meaning, unlike `last` and tags."""
    return bar and side and side.run + bar.removeprefix(bar.partition("@")[0].partition(":")[0])


def stored_gate(run: str, db: str) -> dict[str, Any]:
    """Return the limits for judging the result of a run, as given when it started."""
    from workbench.store import ReadOnlyStore, read_options

    with ReadOnlyStore(db) as store:
        return read_options(store.find_run(run)).get("gate") or {}


def print_judged(
    report: EvalReport, gate: Mapping[str, Any], db: str, first: Side | None = None, **how: bool
) -> Compared:
    """Print an evaluation. Returns its comparison with the bar of its gate, if it was finished. how: as_json, quiet."""
    from workbench.cli.progress import exit_code, print_evaluation
    from workbench.evaluation import not_worse, read_side
    from workbench.store import ReadOnlyStore

    compared = None
    if gate.get("bar") and not exit_code(report):
        with ReadOnlyStore(db) as store:
            first = first or read_side(store, gate["bar"])
            compared = not_worse(first, read_side(store, report.run), gate["margin"])
    print_evaluation(report, compared, **how)
    return compared


def _write_junit(report: EvalReport, db: str, path: Path) -> None:
    from workbench.evaluation import read_rows, write_junit
    from workbench.store import ReadOnlyStore, read_report, told_apart

    with ReadOnlyStore(db) as store:
        row = store.find_run(report.run)
        write_junit(report, read_rows(store, row, read_report(row)), path, told_apart(row))


def _show_matrix(reports: Sequence[EvalReport], db: str, as_json: bool, quiet: bool) -> None:
    from workbench.evaluation import compare_sides, comparison_lines, read_side
    from workbench.store import ReadOnlyStore

    with ReadOnlyStore(db) as store:
        sides = [read_side(store, report.run) for report in reports if report.n]
    differences = compare_sides(sides) if len(sides) > 1 else []
    if as_json:
        return echo_json({"cells": [r.as_dict() for r in reports], "compared": [d.as_dict() for d in differences]})
    for line in comparison_lines(sides, differences) if sides else ():
        say(indented(line))
    for report in () if quiet else reports:
        for warning in (w for w in report.warnings if w not in report.warned):
            say(f"Warning: {indented(f'{report.label}: {warning}')}", fg="yellow")


def exit_judged(reports: Sequence[EvalReport], gate: Mapping[str, Any], db: str, compared: Compared = None) -> None:
    """Exit with the code of an evaluation that was not finished or that missed its gate."""
    from workbench.cli.progress import exit_code

    if code := max(map(exit_code, reports), default=0):
        if gate:
            why = "Rows have no result" if any(report.missing for report in reports) else "The run did not finish"
            say(f"{why}, so the score was not held against a gate.", err=True)
        sys.exit(code)
    for _, line in (judged := _judge_scores(reports, gate, db)):
        say(line, err=True, nl=bool(line))
    if not all(passed for passed, _ in judged) or (compared and not compared[0]):
        sys.exit(100)


def _judge_scores(reports: Sequence[EvalReport], gate: Mapping[str, Any], db: str) -> list[tuple[bool, str]]:
    """Hold the scores against the minimum of the gate, which judges only what was finished: verdicts and reasons."""
    from workbench.evaluation import judge_score, read_side
    from workbench.store import ReadOnlyStore

    least = gate.get("min_score")
    if not least or not all(report.complete and not report.missing for report in reports):
        return []
    with ReadOnlyStore(db) as store:
        return [judge_score(read_side(store, report.run), least) for report in reports]


@click.command("compare")
@click.argument("runs", nargs=-1, required=True)
@click.option("--changed", is_flag=True, help="List the rows whose result changed.")
@DB
@JSON
def compare_command(runs: tuple[str, ...], changed: bool, db: str, as_json: bool) -> None:
    """Compare evaluations, runs or candidates row by row.

    Each of RUNS is RUN or RUN:CANDIDATE (a hash, `baseline` or `winner`), optionally with @SPLIT, e.g.
    3f2a:baseline@val. All are compared with the first by the paired test of the proof, with Holm's adjustment for
    several. A single run of optimize: its baseline against its winner.
    """
    from workbench.evaluation import compare_sides, comparison_lines, read_side
    from workbench.store import ReadOnlyStore, kind_of

    with ReadOnlyStore(db) as store:
        if len(runs) == 1:
            if ":" in runs[0] or kind_of(store.find_run(runs[0].partition("@")[0])) == "eval":
                raise click.UsageError("name at least two runs to compare, or one run of optimize")
            run, at, split = runs[0].partition("@")
            runs = (f"{run}:baseline{at}{split}", f"{run}:winner{at}{split}")
        sides = [read_side(store, name) for name in runs]
        differences = compare_sides(sides)
    if as_json:
        names = ("name", "run", "split")
        shown = [
            {n: getattr(s, n) for n in names} | {"rows": len(s.rows), "score": s.score, "cost": {**s.cost}}
            for s in sides
        ]
        return echo_json({"sides": shown, "compared": [d.as_dict() for d in differences]})
    for line in comparison_lines(sides, differences, changed):
        say(indented(line))
