"""`workbench import`: what another tool wrote, as a workflow file with its data."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.base.text import one_line
from workbench.cli import say


@click.command("path")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="A new folder for workflow.yaml and its data."
)
@click.option(
    "--from",
    "source",
    type=click.Choice(["dspy", "promptfoo", "inspect"]),
    help="What PATH is (default: by its content).",
)
@click.option("--data", type=click.Path(path_type=Path), help="Rows for a DSPy program, whose state holds none.")
@click.option("--metric", help="The metric, e.g. 'exact_match(answer)' (default: by what PATH says).")
@click.option(
    "--signature",
    "signatures",
    multiple=True,
    metavar="NAME=SIGNATURE",
    help="Inputs and outputs of a DSPy predictor, which its JSON state does not tell apart.",
)
@click.option("--run-code", is_flag=True, help="Read a pickled DSPy program, which runs what its author put in it.")
def import_command(
    path: Path,
    out: Path,
    source: str | None,
    data: Path | None,
    metric: str | None,
    signatures: tuple[str, ...],
    run_code: bool,
) -> None:
    """Make a workflow of a saved DSPy program, a promptfoo configuration or a dataset of Inspect. Short: import PATH.

    Calls no model. Runs no code of PATH, and reads nothing outside its folder.
    """
    from workbench_import.imported import Wishes, import_path

    found = import_path(path, source, Wishes(data, metric, signatures, run_code))
    found.write(out)
    for line in found.taken:
        say(f"Taken: {one_line(line)}")
    for line in found.left:
        say(f"Left out: {one_line(line)}")
    for line in found.guessed:
        say(f"Guessed: {one_line(line)}")
    say(f"wrote {out / 'workflow.yaml'}. Next: workbench validate {out / 'workflow.yaml'}")
