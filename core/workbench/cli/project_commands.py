"""Commands for a project: init, doctor, and the groups data, plugin and agent."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.base.text import indented, one_line
from workbench.cli import Styled, echo_json, fail, say
from workbench.cli.options import JSON
from workbench.cli.tree import CommandGroup

if TYPE_CHECKING:
    from workbench.inference import Ping


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
    for name in files:
        if (folder / name).exists():
            fail(f"{folder / name} already exists; choose another folder", 2)
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


@plugin_command.command("new")
@click.argument("name")
@click.option(
    "--kind",
    default="optimizer",
    show_default=True,
    metavar="KIND",
    help="Kind of plugin: optimizer, node, metric, reader, lm, sandbox or exporter.",
)
@click.option(
    "--into", default=".", type=click.Path(path_type=Path, file_okay=False), help="Parent folder of the project."
)
def plugin_new(name: str, kind: str, into: Path) -> None:
    """Create a plugin project with a working example and its tests.

    It is ready to install, and its conformance tests pass.
    """
    from workbench.cli.scaffold import new_plugin

    folder = new_plugin(name, into, kind)
    say(f"wrote {folder}")
    say("Next: cd into it, then pip install -e '.[test]' && python -m pytest")


@click.command("doctor")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--ping", is_flag=True, help="Call each language model of FILE once. This may cost money.")
@JSON
def doctor_command(file: Path | None, ping: bool, as_json: bool) -> None:
    """Check the installation, and the origin of each setting of FILE.

    Exits with code 1 if a check or a call fails.
    """
    from workbench.run import find_origins, run_checks

    if ping and file is None:
        raise click.UsageError("--ping needs a workflow file: workbench doctor --ping FILE")
    pings = _ping(file) if ping and file else []
    found = run_checks()
    settings = find_origins(file) if file else []
    if as_json:
        about = {"checks": [asdict(c) for c in found], "settings": [asdict(s) for s in settings]}
        echo_json({**about, **({"models": [asdict(p) for p in pings]} if ping else {})})
    else:
        for check in found:
            say(_MARK[check.status](), f"  {one_line(check.name)}: {indented(check.message)}")
        for setting in settings:
            say(one_line(f"{setting.address} = {setting.value}   ({setting.origin})"))
        _say_pings(pings)
    if (not as_json and any(c.status == "fail" for c in found)) or any(p.failure for p in pings):
        sys.exit(1)


_MARK = {
    "ok": lambda: Styled("ok  ", "green"),
    "warn": lambda: Styled("warn", "yellow"),
    "fail": lambda: Styled("FAIL", "red"),
}


def _ping(file: Path) -> list[Ping]:
    from workbench.cli.trust import require_trust
    from workbench.inference import ping_models

    return ping_models(require_trust(file, called=True))


def _say_pings(pings: list[Ping]) -> None:
    """Print a line for each model, and the cost of all calls."""
    for ping in pings:
        head = one_line(f"  {ping.model} ({', '.join(ping.uses)}): ")
        if ping.failure:
            say(_MARK["fail"](), head, f"{one_line(ping.failure)}: {indented((ping.message or '')[:500])}")
            continue
        price = "price unknown" if ping.usd is None else f"${ping.usd:.6f}"
        tokens = f"{ping.prompt_tokens} tokens in, {ping.completion_tokens} out"
        answer = one_line(ping.answer[:60])
        say(_MARK["ok"](), head, f"prompt of {len(ping.prompt)} characters, {ping.seconds:.2f} s, {tokens}, {price}")
        say(f"      answer: {answer}")
    if pings:
        known = sum(ping.usd or 0 for ping in pings)
        unknown = sum(ping.usd is None and not ping.failure for ping in pings)
        say(
            f"{len(pings)} calls for ${known:.6f}"
            + (f", {unknown} of unknown price" if unknown else "")
            + "; in no budget"
        )
