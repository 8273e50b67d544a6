"""A workflow behind HTTP: `workbench serve`."""

from __future__ import annotations

from typing import Any

import workbench


@workbench.hookimpl
def register_commands(cli: Any) -> None:
    from workbench_serve.commands import serve_command

    cli.add_command(serve_command, under="Use")
