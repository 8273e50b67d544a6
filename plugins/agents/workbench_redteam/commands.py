"""`workbench redteam`: runs each row with and without attacks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.base.text import one_line
from workbench.cli import echo_json, say
from workbench.cli.options import CACHE, DB, FILE, JSON, SEED, SET, limit_option, with_budget, with_sandbox

if TYPE_CHECKING:
    from workbench.runtime import SandboxChoice


@click.command("redteam")
@FILE
@click.option(
    "--attacks",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File of attacks. [default: those of FILE]",
)
@click.option("--split", type=click.Choice(["train", "val"]), default="val", show_default=True, help="Split to run.")
@limit_option("Run at most this many rows.")
@SET
@SEED
@CACHE
@with_sandbox
@DB
@with_budget
@JSON
def redteam_command(
    file: Path,
    attacks: Path | None,
    split: str,
    limit: int | None,
    settings: list[tuple[str, Any]],
    sandbox: SandboxChoice,
    db: str,
    as_json: bool,
) -> None:
    """Run each row with and without attacks.

    Prints utility, utility under attack and the share of attacks that succeed, each with its 95% interval. Running the
    same command again costs nothing, and one that was killed goes on. Exits with code 1 if the budget ran out, or if
    rows have no result.
    """
    from workbench.cli.trust import require_trust
    from workbench_redteam.redteam import RedTeamOptions, red_team

    given = [*settings, *([("attacks", str(attacks.resolve()))] if attacks is not None else [])]
    source = require_trust(file, given)

    def report_progress(done: int, of: int) -> None:
        if not as_json:
            say(f"{done} of {of} rows", err=True)

    options = RedTeamOptions(given, split, limit, sandbox)
    found = red_team(source, options=options, database=db, on_row=report_progress)
    if as_json:
        echo_json(found.as_dict())
    else:
        for line in found.lines():
            say(one_line(line))
    sys.exit(0 if found.complete and not found.missing else 1)
