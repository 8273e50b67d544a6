"""`workbench data synthesize`: writes rows to a file that a workflow's `data:` reads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.base.text import one_line
from workbench.cli import echo_json, say
from workbench.cli.options import DB, FILE, JSON, OVERWRITE, SEED, budget_calls_option

if TYPE_CHECKING:
    from workbench.spec import Source
    from workbench_synthesize.synthesize import Found


@click.command("synthesize")
@FILE
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default="rows.jsonl",
    show_default=True,
    help="Output file.",
)
@OVERWRITE
@click.option("-n", "--rows", type=click.IntRange(1), help="Number of rows to write.")
@budget_calls_option()
@SEED
@click.option("--run", metavar="RUN", help="Start from the train rows of this run.")
@DB
@JSON
def synthesize_command(
    file: Path,
    out: Path,
    overwrite: bool,
    rows: int | None,
    budget_calls: int | None,
    seed: int | None,
    run: str | None,
    db: str,
    as_json: bool,
) -> None:
    """Write rows with a workflow, and keep what passes its checks.

    FILE names the seeds, the nodes that write, and what is kept. Options override it. After a kill, the same command
    continues, and paid calls are not paid again. After the end, it starts over with new calls. Exits with code 1 if no
    row passed.
    """
    from workbench.base.files import check_output
    from workbench_synthesize.synthesize import synthesize

    given = {"synthesize.rows": rows, "seed": seed, "budget.calls": budget_calls, "synthesize.run": run}
    source = _require_trust(file, run, db)
    check_output(out, inputs=[file, *_seed_files(source, file.parent)], overwrite=overwrite)

    def report_progress(found: Found) -> None:
        say(f"{len(found.rows)} rows from {found.requests} seeds, {found.rejected.total()} left out", err=True)

    found = synthesize(
        source,
        database=db,
        changes={k: v for k, v in given.items() if v is not None},
        out=out,
        on_progress=None if as_json else report_progress,
    )
    if not found.rows:
        say(f"No row passed the checks, so {out} was not written. The reasons are below.", err=True)
    if as_json:
        echo_json({**found.as_dict(), "out": str(out)})
    else:
        _print(found, out)
    sys.exit(0 if found.rows else 1)


def _seed_files(source: Source, base: Path) -> list[Path]:
    """The place that the file names as its seeds, which need be no file."""
    from workbench.task import data_path

    written: Any = source.value.get("synthesize") if isinstance(source.value, dict) else None
    named = written.get("from") if isinstance(written, dict) else written
    return [data_path(named, base)] if isinstance(named, str) else []


def _require_trust(file: Path, run: str | None, db: str) -> Source:
    """Ask about the file, and about the workflow of the run that it starts from."""
    from workbench.cli.trust import require_trust, require_trust_in_run
    from workbench_synthesize.settings import enter_pipeline

    source = require_trust(file, further=enter_pipeline)
    written: Any = source.value.get("synthesize") if isinstance(source.value, dict) else None
    if name := run or (written.get("run") if isinstance(written, dict) else None):
        require_trust_in_run(str(name), db)
    return source


def _print(found: Found, out: Path) -> None:
    where = f"{len(found.rows)} rows in {out}, from" if found.rows else "No rows from"
    say(f"{where} {found.requests} seeds ({found.spent['calls']} calls)")
    for reason, count in sorted(found.rejected.items()):
        say(one_line(f"  left out, {reason}: {count}, e.g. {found.examples[reason]}"))
    if found.status == "budget":
        say("The budget ran out.")
    if found.status == "exhausted":
        say("A whole pass over the seeds brought no new call and no new row: raise the temperature, or add seeds.")
