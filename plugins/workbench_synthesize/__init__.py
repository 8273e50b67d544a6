"""Training rows for tool calls, written by a language model from descriptions of tools, and checked."""

from __future__ import annotations

from typing import Any

import workbench


@workbench.hookimpl
def register_commands(cli: Any) -> None:
    from workbench_synthesize.commands import synthesize_command

    cli.add_command(synthesize_command, under="data")
