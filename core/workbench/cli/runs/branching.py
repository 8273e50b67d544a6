"""`workbench branch`: a run that begins at a candidate of another."""

from __future__ import annotations

import click

from workbench.base.text import one_line
from workbench.cli import echo_json, say
from workbench.cli.run_commands import DB, SET, read_settings


@click.command("branch")
@click.argument("run")
@click.argument("candidate", required=False)
@SET
@DB
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def branch_command(run: str, candidate: str | None, sets: tuple[str, ...], db: str, as_json: bool) -> None:
    """Add a run that begins at a CANDIDATE of RUN: its hash, `winner` (the default) or `baseline`.

    The new run has the file, data, search and budget of RUN, except for what --set changes; gains are measured against
    the candidate. Nothing is called until `workbench resume` starts it. RUN may still be running.
    """
    from workbench.run import branch_run
    from workbench.store import Store

    name = branch_run(Store(db, create=False), run, candidate, read_settings(sets))
    if as_json:
        return echo_json({"run": name})
    where = "" if db == "workbench.db" else f" --db {one_line(db)}"
    return say(f"run {name} is ready; start it: workbench resume {name}{where}")
