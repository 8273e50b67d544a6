"""The command `workbench plugin new`."""

from __future__ import annotations

from pathlib import Path

import click

from workbench.cli import say


@click.command("new")
@click.argument("name")
@click.option(
    "--kind",
    default="optimizer",
    show_default=True,
    metavar="KIND",
    help="Kind of plugin: optimizer, node, metric, reader, lm, sandbox, executor or exporter.",
)
@click.option(
    "--into", default=".", type=click.Path(path_type=Path, file_okay=False), help="Parent folder of the project."
)
def plugin_new(name: str, kind: str, into: Path) -> None:
    """Create a plugin project with a working example and its tests.

    It is ready to install, and its conformance tests pass.
    """
    from workbench_scaffold.new import new_plugin

    folder = new_plugin(name, into, kind)
    say(f"wrote {folder}")
    say("Next: cd into it, then pip install -e '.[test]' && python -m pytest")
