"""Commands for a project: init, and the groups data, plugin and agent."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from workbench.base.text import one_line
from workbench.cli import Styled, echo_json, fail, say
from workbench.cli.options import JSON
from workbench.cli.tree import CommandGroup


@click.command("init")
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--template",
    default="classify",
    show_default=True,
    type=click.Choice(["classify", "extract", "agent", "rag"]),
    help="Kind of workflow.",
)
def init_command(folder: Path, template: str) -> None:
    """Write a starter workflow, sample rows and a schema for editors.

    Nothing is overwritten.
    """
    from workbench.cli.starters import starter_files

    files = starter_files(template)
    if there := [folder / name for name in files if (folder / name).exists()]:
        fail(f"{there[0]} already exists; choose another folder", 2)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        say(f"wrote {folder / name}")
    say(f"Next: workbench validate {folder / 'workflow.yaml'}, then replace rows.jsonl with your own rows.")
    say("schema.json is for editors. After installing a plugin: workbench validate --schema > schema.json")


@click.group("data", cls=CommandGroup)
def data_command() -> None:
    """Import data, and make rows and metrics from it."""


@click.group("agent", cls=CommandGroup)
def agent_command() -> None:
    """Improve an existing agent, and serve coding agents."""


@click.group("plugin", cls=CommandGroup)
def plugin_command() -> None:
    """List, create and benchmark plugins."""


@plugin_command.command("list")
@JSON
def plugin_list(as_json: bool) -> None:
    """List the plugins with version, contents and load errors."""
    from workbench.plugins import KINDS, plugins, try_imports

    try_imports()
    infos = sorted(plugins().infos, key=lambda info: info.name)
    if as_json:
        return echo_json([asdict(info) for info in infos])
    for info in infos:
        name = one_line(f"{info.name} ({info.distribution} {info.version})")
        if info.error:
            say(f"{name}: ", Styled(f"set aside: {one_line(info.error)}", fg="red"))
            continue
        say(name)
        for kind, names in info.provides.items():
            say(one_line(f"  {KINDS[kind]}: {', '.join(names)}"))
