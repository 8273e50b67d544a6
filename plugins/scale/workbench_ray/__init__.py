"""`executor: ray`: rows on the workers of a Ray cluster, or of a Ray started here."""

from workbench import hookimpl


@hookimpl
def register_executors(register):
    register("ray", "workbench_ray.executor:Ray")
