"""Worlds that live for a row: the node kind `play`, the metric `world`, their own score, and readers of their tasks."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("play", "workbench_worlds.play:Play")


@hookimpl
def register_metrics(register):
    register("world", "workbench_worlds.metric:WorldScore")


@hookimpl
def register_readers(register):
    for name in ("agentdojo", "bfcl", "browsergym", "intercode", "pddlgym", "scienceworld", "tau2", "textworld"):
        register(name, f"workbench_worlds.tasks:{name}")
