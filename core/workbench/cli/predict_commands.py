"""`workbench predict`: a finished workflow on each row of a file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.base.text import indented, one_line
from workbench.cli import echo_json, say
from workbench.cli.options import CACHE, DB, FILE, JSON, OVERWRITE, QUIET, SET, read_settings, with_sandbox
from workbench.errors import Interrupted, describe_missing

if TYPE_CHECKING:
    from workbench.inference import Predicted
    from workbench.runtime import SandboxChoice

#: Seconds between two progress lines.
EVERY = 5.0
#: Exit code if the output is complete, but some rows failed.
SOME_FAILED = 101


@click.command("predict")
@FILE
@click.argument("rows")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Output file (.jsonl or .csv).")
@click.option(
    "--concurrency", type=click.IntRange(min=1), help="Maximum number of concurrent rows. [default: from the file]"
)
@OVERWRITE
@SET
@CACHE
@with_sandbox
@DB
@QUIET
@JSON
def predict_command(
    file: Path,
    rows: str,
    out: Path,
    concurrency: int | None,
    overwrite: bool,
    sets: tuple[str, ...],
    cache: bool,
    sandbox: SandboxChoice,
    db: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run the workflow on every row of a file.

    ROWS is a file (.csv, .jsonl, .xlsx, ...), read with the options and fields under `data` of the workflow, e.g.
    --set data.options.delimiter=';'. The workflow needs no data, metric or budget. The output has each row with its
    prediction; a failed row has the reason in its field `failure`. It is a run of the run database: after a kill, the
    same command continues, and answered calls are not paid again. In CSV, a text that a spreadsheet would run as a
    formula gets a leading '.

    \b
    Exit codes:
      0    every row has an answer
      1    all rows failed, or a server was down: run the same command again for the missing rows
      101  all rows are written, but some failed
    """
    from workbench.cli.trust import require_trust
    from workbench.inference import predict_file

    settings = read_settings(sets, cache=cache)
    source = require_trust(file, settings, called=True)
    shown = _Progress(quiet or as_json)
    try:
        found = predict_file(
            source,
            rows,
            out,
            changes=settings,
            concurrency=concurrency,
            overwrite=overwrite,
            sandbox=sandbox,
            progress=shown.update,
            database=db,
        )
    except (Interrupted, KeyboardInterrupt):
        say(f"{shown.done} of {shown.rows} rows are done. Run the same command again to continue.", err=True)
        raise
    if as_json:
        echo_json({**vars(found), "failures": dict(found.failures), "missing": found.missing, "out": str(out)})
    else:
        _say_found(found, out, quiet)
    if found.missing or found.failures.total() == found.rows > 0:
        sys.exit(1)
    if found.failures:
        sys.exit(SOME_FAILED)


def _say_found(found: Predicted, out: Path, quiet: bool) -> None:
    from workbench.ledger import describe_usd

    earlier = f", {found.earlier} of them by an earlier process" if found.earlier else ""
    say(f"{found.rows} rows in {one_line(out)}{earlier}; {found.tokens} tokens, {describe_usd(vars(found))}")
    for warning in () if quiet else found.warnings:
        say(f"Warning: {indented(warning)}", fg="yellow", err=True)
    if found.reused:
        say(f"{found.reused} calls were reused from earlier runs, where they cost ${found.reused_usd:.4f}")
    if found.renamed:
        say("Renamed row fields that have the name of an output: row_" + ", row_".join(map(one_line, found.renamed)))
    if found.failures:
        say("Failed: " + ", ".join(f"{one_line(kind)} {n}" for kind, n in sorted(found.failures.items())))
    if found.missing:
        say(f"{describe_missing(found.missing)}: this is not the workflow's doing.")
    if found.unanswered:
        say(f"For {found.unanswered} of them a server, network or key failed. Run the same command again for these.")


class _Progress:
    """A progress line on stderr every few seconds."""

    def __init__(self, quiet: bool):
        self.quiet, self.shown = quiet, time.monotonic()
        self.done = self.rows = 0

    def update(self, done: int, rows: int) -> None:
        self.done, self.rows = done, rows
        if not self.quiet and done < rows and time.monotonic() - self.shown > EVERY:
            self.shown = time.monotonic()
            say(f"{done} of {rows} rows", err=True)
