"""`workbench plugin new`: a plugin project with a working example and its tests."""

from __future__ import annotations

from typing import Any

from workbench import hookimpl


@hookimpl
def register_commands(cli: Any) -> None:
    from workbench_scaffold.commands import plugin_new

    cli.add_command(plugin_new, under="plugin")
