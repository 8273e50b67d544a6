"""Teams: several members answer the same question and talk (`dylan`, `selforg`); the optimizer `team` keeps
those who count."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("dylan", "workbench_teams.dylan:Dylan")
    register("selforg", "workbench_teams.selforg:SelfOrg")


@hookimpl
def register_optimizers(register):
    register("team", "workbench_teams.optimizer:Team")
