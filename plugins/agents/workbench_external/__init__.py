"""Existing agents, in any language and framework, as nodes: the node kind `external`, and the commands that set one up,
show its texts, write them back and serve them."""

from __future__ import annotations

from typing import Any

import workbench


@workbench.hookimpl
def register_node_kinds(register: workbench.plugins.hookspecs.Register) -> None:
    register("external", "workbench_external.node:External")


@workbench.hookimpl
def register_commands(cli: Any) -> None:
    from workbench_external.commands import apply_command, gateway_command, init_agent_command, slots_command

    for command in (init_agent_command, slots_command, apply_command, gateway_command):
        cli.add_command(command, under="agent")
