"""Views of results: `workbench report` writes a run as one page, `workbench view` shows all runs in a browser."""

from __future__ import annotations

from typing import Any

import workbench
from workbench.plugins.hookspecs import Register


@workbench.hookimpl
def register_commands(cli: Any) -> None:
    from workbench_view.commands import report_command, view_command

    for command in (view_command, report_command):
        cli.add_command(command, under="Look")


@workbench.hookimpl
def register_exporters(register: Register) -> None:
    register("html", "workbench_view.pages:PageExport")
