"""`workbench data import`: programs and data of other tools as a workflow."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.base.text import one_line
from workbench.cli import say


@click.command("import")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="New output folder for the workflow and its data."
)
@click.option(
    "--from",
    "source",
    type=click.Choice(["dspy", "promptfoo", "inspect"]),
    help="Format of PATH. [default: by its content]",
)
@click.option("--data", type=click.Path(path_type=Path), help="Rows for a DSPy program, which has none.")
@click.option("--metric", help="Metric, e.g. 'exact_match(answer)'. [default: from PATH]")
@click.option(
    "--signature",
    "signatures",
    multiple=True,
    metavar="NAME=SIGNATURE",
    help="Signature of a DSPy predictor, which its JSON state lacks. Repeatable.",
)
@click.option("--run-code", is_flag=True, help="Load a pickled DSPy program. This runs its author's code.")
def import_command(
    path: Path,
    out: Path,
    source: str | None,
    data: Path | None,
    metric: str | None,
    signatures: tuple[str, ...],
    run_code: bool,
) -> None:
    """Import from DSPy, promptfoo or Inspect.

    PATH is a saved DSPy program, a promptfoo configuration or an Inspect dataset. Calls no model, runs no code of PATH
    and reads nothing outside its folder.
    """
    from workbench_import.imported import Wishes, import_path

    found = import_path(path, source, Wishes(data, metric, signatures, run_code))
    found.write(out)
    for what, lines in (("Taken", found.taken), ("Left out", found.left), ("Guessed", found.guessed)):
        for line in lines:
            say(f"{what}: {one_line(line)}")
    say(f"wrote {out / 'workflow.yaml'}. Next: workbench validate {out / 'workflow.yaml'}")
