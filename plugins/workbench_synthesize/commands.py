"""`workbench data synthesize`: writes rows for tool calls to a file that a workflow's `data:` reads."""

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
@click.option("--failures", metavar="RUN", help="Write rows similar to the train rows that this run failed.")
@click.option(
    "--run-tools", is_flag=True, help="Run callables with model-written arguments even without a `policy` in the file."
)
@DB
@JSON
def synthesize_command(
    file: Path,
    out: Path,
    overwrite: bool,
    rows: int | None,
    budget_calls: int | None,
    seed: int | None,
    failures: str | None,
    run_tools: bool,
    db: str,
    as_json: bool,
) -> None:
    """Generate training rows for tool calls with a model.

    The model writes rows for the tools of FILE, and rows that pass all checks are kept. Options override the file.
    After a kill, the same command continues, and paid calls are not paid again. After the end, it starts over with new
    calls. Exits with code 1 if no row passed.
    """
    from workbench.base.files import check_output
    from workbench_synthesize.synthesize import synthesize

    given: dict[str, Any] = {
        "rows": rows,
        "seed": seed,
        "budget": {"calls": budget_calls} if budget_calls else None,
        "failures": failures,
    }
    check_output(out, inputs=[file], overwrite=overwrite)
    source = _require_trust(file, failures, db)

    def report_progress(found: Found, wanted: int) -> None:
        left_out = found.rejected.total()
        say(f"{len(found.rows)} of {wanted} rows from {found.requests} requests, {left_out} left out", err=True)

    found = synthesize(
        source,
        database=db,
        changes={k: v for k, v in given.items() if v is not None},
        out=out,
        on_progress=None if as_json else report_progress,
        run_tools=run_tools,
    )
    if not found.rows:
        say(f"No row passed the checks, so {out} was not written. The reasons are below.", err=True)
    if as_json:
        echo_json({**found.as_dict(), "out": str(out)})
    else:
        _print(found, out)
    sys.exit(0 if found.rows else 1)


def _require_trust(file: Path, failures: str | None, db: str) -> Source:
    """Ask about the file, and about the workflow of the run whose failures it starts from."""
    from workbench.cli.trust import require_trust, require_trust_in_run
    from workbench_synthesize.settings import load_synthesis

    source = require_trust(file)
    named = load_synthesis(source)[0].failures
    if run := failures or (named.run if named else None):
        require_trust_in_run(run, db)
    return source


def _print(found: Found, out: Path) -> None:
    where = f"{len(found.rows)} rows in {out}, from" if found.rows else "No rows from"
    say(f"{where} {found.requests} requests ({found.spent['calls']} calls)")
    if len(kinds := found.as_dict()["kinds"]) > 1:
        say("  of these, " + ", ".join(f"{kind}: {count}" for kind, count in kinds.items()))
    for reason, count in found.as_dict()["rejected"].items():
        if count:
            say(one_line(f"  left out, {reason}: {count}, e.g. {found.examples[reason]}"))
    if found.status == "budget":
        say("The budget ran out.")
