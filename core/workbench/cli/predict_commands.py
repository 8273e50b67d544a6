"""`workbench predict`: a finished workflow on each row of a file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.cli import echo_json, say
from workbench.cli.run_commands import FILE, JSON, SET, read_settings, with_sandbox

if TYPE_CHECKING:
    from workbench.runtime import SandboxChoice

#: Seconds between two lines of progress.
EVERY = 5.0


@click.command("predict")
@FILE
@click.argument("rows")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Output file, .jsonl or .csv.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Rows at once. Default: that of the workflow file.")
@SET
@with_sandbox
@JSON
def predict_command(
    file: Path,
    rows: str,
    out: Path,
    concurrency: int | None,
    sets: tuple[str, ...],
    sandbox: SandboxChoice,
    as_json: bool,
) -> None:
    """Run the workflow on each of ROWS (.csv, .jsonl, .parquet, ...) and write the rows with what it answers.

    The workflow needs no data, metric or budget. A row that fails is written with the reason in its field `failure`.
    After a kill the same command continues, and rows that are done are not paid again. In CSV a text that a spreadsheet
    would run as a formula gets a leading '.
    """
    from workbench.cli.trust import require_trust
    from workbench.inference import predict_file

    require_trust(file)
    shown = _Progress(as_json)
    found = predict_file(
        file,
        rows,
        out,
        changes=read_settings(sets),
        concurrency=concurrency,
        sandbox=sandbox,
        progress=shown.update,
    )
    failed = found.failures.total()
    if as_json:
        facts = {"rows": found.rows, "earlier": found.earlier, "failures": dict(found.failures)}
        return echo_json({**facts, "tokens": found.tokens, "usd": found.usd, "out": str(out)})
    earlier = f", {found.earlier} of them by an earlier process" if found.earlier else ""
    say(f"{found.rows} rows in {out}{earlier}; {found.tokens} tokens, ${found.usd:.4f}")
    if failed:
        say(f"{failed} failed: " + ", ".join(f"{kind} {n}" for kind, n in sorted(found.failures.items())))
    if failed == found.rows > 0:
        sys.exit(1)


class _Progress:
    """A line on stderr every few seconds."""

    def __init__(self, quiet: bool):
        self.quiet, self.told = quiet, time.monotonic()

    def update(self, done: int, rows: int) -> None:
        if not self.quiet and done < rows and time.monotonic() - self.told > EVERY:
            self.told = time.monotonic()
            say(f"{done} of {rows} rows", err=True)
