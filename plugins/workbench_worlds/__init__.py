"""Worlds that live for a row: the node kind `play`, and the metric `world`, their own score."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("play", "workbench_worlds.play:Play")


@hookimpl
def register_metrics(register):
    register("world", "workbench_worlds.metric:WorldScore")
