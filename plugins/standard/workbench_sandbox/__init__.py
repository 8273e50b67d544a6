"""Sandboxes for model-written code, and the `code` node that runs in them."""

from __future__ import annotations

from typing import Any

import workbench


@workbench.hookimpl
def register_sandboxes(register: workbench.plugins.hookspecs.Register) -> None:
    register("linux", "workbench_sandbox.linux:open_linux")
    register("wasm", "workbench_sandbox.wasm:open_wasm")


@workbench.hookimpl
def register_node_kinds(register: workbench.plugins.hookspecs.Register) -> None:
    register("code", "workbench_sandbox.node:CodeNode")


@workbench.hookimpl
def register_commands(cli: Any) -> None:
    from workbench_sandbox.commands import sandbox_command

    cli.add_command(sandbox_command, under="plugin")
