"""core/workbench/base/catalog.json: what each distribution besides core, kit and standard registers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator

import click

from workbench.cli import cli
from workbench.plugins import plugins

#: What README's first command installs.
BASE = {"workbench-core", "workbench-kit", "workbench-standard"}


def catalog() -> str:
    homes = {info.module: info.distribution for info in plugins().infos if info.distribution not in BASE}
    found = defaultdict[str, dict[str, str]](dict)
    for info in plugins().infos:
        if info.module in homes:
            for kind, names in info.provides.items():
                found[kind] |= dict.fromkeys(names, info.distribution.removeprefix("workbench-"))
    context = click.Context(cli, info_name="workbench")
    for path, command in _commands(cli, context, ()):
        module = str(getattr(command.callback, "__module__", "")).partition(".")[0]
        if module in homes:
            found["commands"][" ".join(path)] = homes[module].removeprefix("workbench-")
    ordered = {kind: dict(sorted(names.items())) for kind, names in sorted(found.items())}
    return json.dumps(ordered, indent=1) + "\n"


def _commands(
    group: click.Group, context: click.Context, above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        if isinstance(command, click.Group):
            yield from _commands(command, context, (*above, name))
        elif command.callback is not None:
            yield (*above, name), command
