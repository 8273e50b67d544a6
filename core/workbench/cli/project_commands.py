"""Commands for a project: init, doctor, plugins, plugin new, schema."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from workbench.cli import Styled, echo_json, fail, say
from workbench.text import indented, one_line

_JSON = click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")


@click.command("init")
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--template",
    default="classify",
    show_default=True,
    type=click.Choice(["classify", "extract", "agent", "rag"]),
    help="What the workflow does.",
)
def init_command(folder: Path, template: str) -> None:
    """Write a starter workflow.yaml, rows to try it with, and the schema for editors."""
    from workbench.cli.starters import starter_files

    files = starter_files(template)
    for name in files:
        if (folder / name).exists():
            fail(f"{folder / name} already exists; choose another folder", 2)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
        say(f"wrote {folder / name}")
    say(f"Next: workbench validate {folder / 'workflow.yaml'}, then replace rows.jsonl with your own rows.")
    say("schema.json is for editors that know YAML schemas; after a new plugin: workbench schema > schema.json")


@click.command("plugins")
@_JSON
def plugins_command(as_json: bool) -> None:
    """List the plugins: version, what each provides, and why any was set aside."""
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


@click.group("plugin")
def plugin_command() -> None:
    """Create your own plugins."""


@plugin_command.command("new")
@click.argument("name")
@click.option(
    "--kind",
    default="optimizer",
    show_default=True,
    metavar="KIND",
    help="optimizer, node, metric, reader, lm, sandbox or exporter.",
)
@click.option(
    "--into", default=".", type=click.Path(path_type=Path, file_okay=False), help="Parent folder of the project."
)
def plugin_new(name: str, kind: str, into: Path) -> None:
    """Write a plugin project, ready to install, with an implementation that works and its conformance test."""
    from workbench.cli.scaffold import new_plugin

    folder = new_plugin(name, into, kind)
    say(f"wrote {folder}")
    say("Next: cd into it, then pip install -e '.[test]' && python -m pytest")


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of workflow files, for editors. It covers the installed plugins."""
    from workbench.cli.file_schema import json_schema

    echo_json(json_schema(), indent=2)


@click.command("doctor")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@_JSON
def doctor_command(file: Path | None, as_json: bool) -> None:
    """Check the installation, and show where each setting of FILE comes from."""
    from workbench.run import find_origins, run_checks

    found = run_checks()
    settings = find_origins(file) if file else []
    if as_json:
        return echo_json({"checks": [asdict(c) for c in found], "settings": [asdict(s) for s in settings]})
    for check in found:
        mark = {"ok": Styled("ok  ", "green"), "warn": Styled("warn", "yellow"), "fail": Styled("FAIL", "red")}
        say(mark[check.status], f"  {one_line(check.name)}: {indented(check.message)}")
    for setting in settings:
        say(one_line(f"{setting.address} = {setting.value}   ({setting.origin})"))
    if any(c.status == "fail" for c in found):
        sys.exit(1)
