"""`workbench branch`: a run that starts from a candidate of another."""

from __future__ import annotations

import click

from workbench.cli import echo_json, say
from workbench.cli.options import DB, JSON, SET, open_store, read_settings


@click.command("branch")
@click.argument("run")
@click.argument("candidate", required=False)
@SET
@DB
@JSON
def branch_command(run: str, candidate: str | None, sets: tuple[str, ...], db: str, as_json: bool) -> None:
    """Create a run that starts from a candidate of another run.

    CANDIDATE is a hash, `winner` (the default) or `baseline`. The new run has the file, data, search and budget of RUN,
    with the changes by --set. Gains are measured against the candidate. No model is called until `workbench resume`
    starts the new run. RUN may still be running.
    """
    from workbench.run import branch_run
    from workbench.store import typed

    name = branch_run(open_store(db, write=True), run, candidate, read_settings(sets))
    if as_json:
        return echo_json({"run": name})
    return say(f"run {name} is ready; to start it: {typed(f'workbench resume {name}', db)}")
