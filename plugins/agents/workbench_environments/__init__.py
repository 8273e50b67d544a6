"""Environments: `grid`, `web`, `sql`, and `gymnasium` for the environments of that library."""

from workbench import hookimpl


@hookimpl
def register_environments(register):
    register("grid", "workbench_environments.grid:Grid")
    register("web", "workbench_environments.web:Web")
    register("sql", "workbench_environments.sql:Sql")
    register("gymnasium", "workbench_environments.gym:Gymnasium")
