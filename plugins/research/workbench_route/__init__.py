"""Routing: the node kind `route`, which sends each input to the cheapest candidate that answers it well enough, and the
optimizer that learns where to send it. Navigation: the same inside a loop, by reinforcement."""

from __future__ import annotations

import workbench


@workbench.hookimpl
def register_node_kinds(register: workbench.plugins.hookspecs.Register) -> None:
    register("route", "workbench_route.node:Route")
    register("navigate", "workbench_route.navigation.node:Navigate")


@workbench.hookimpl
def register_optimizers(register: workbench.plugins.hookspecs.Register) -> None:
    register("route", "workbench_route.optimizer:LearnRoute")
    register("navigate", "workbench_route.navigation.optimizer:LearnNavigate")
