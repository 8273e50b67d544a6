"""`workbench report`."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.cli import fail, say
from workbench.cli.run_commands import DB
from workbench.text import one_line


@click.command("report")
@click.argument("run", default="last")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="The file; its ending says what is written: .html, .md, .json or .csv.",
)
@DB
def report_command(run: str, out: Path, db: str) -> None:
    """Write what a run found as one file: a page to read (.html, .md), or data (.json; .csv has a row for each sealed
    row).

    The page needs no network and holds all that it shows: the proof, what was changed, the rows that changed sides with
    their traces, the candidates, and the bill. Rows of your data and answers of models stand in it.
    """
    from workbench.errors import StoreError
    from workbench.files import write_whole
    from workbench.store import ReadOnlyStore
    from workbench_view.exports import WRITERS
    from workbench_view.facts import read_facts

    if out.suffix not in WRITERS:
        return fail(f"'{one_line(out)}' names no format: let it end with {', '.join(WRITERS)}", 2)
    store = ReadOnlyStore(db)
    try:
        text = WRITERS[out.suffix](read_facts(store, run))
    finally:
        store.close()
    try:
        write_whole(out, text)
    except OSError as error:
        raise StoreError(f"{out} cannot be written: {error}; choose another path with --out") from None
    return say(f"wrote {one_line(out)}")
