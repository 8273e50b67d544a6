"""Rows that a workflow writes, exploded and filtered: `workbench data synthesize`."""

from __future__ import annotations

from typing import Any

import workbench


@workbench.hookimpl
def register_commands(cli: Any) -> None:
    from workbench_synthesize.commands import synthesize_command

    cli.add_command(synthesize_command, under="data")
