"""Routing: the node kind `route`, which sends each input to the cheapest candidate that answers it well enough, and the
optimizer that learns where to send it."""

from __future__ import annotations

import workbench


@workbench.hookimpl
def register_node_kinds(register: workbench.plugins.hookspecs.Register) -> None:
    register("route", "workbench_route.node:Route")


@workbench.hookimpl
def register_optimizers(register: workbench.plugins.hookspecs.Register) -> None:
    register("route", "workbench_route.optimizer:LearnRoute")
