"""Sandboxes for code that a language model wrote, and the `code` node that runs in them."""

from __future__ import annotations

import workbench


@workbench.hookimpl
def register_sandboxes(register: workbench.hookspecs.Register) -> None:
    register("linux", "workbench_sandbox.linux:open_linux")


@workbench.hookimpl
def register_node_kinds(register: workbench.hookspecs.Register) -> None:
    register("code", "workbench_sandbox.node:CodeNode")
