"""`executor: slurm`: rows in the tasks of a Slurm array, submitted with submitit."""

from workbench import hookimpl


@hookimpl
def register_executors(register):
    register("slurm", "workbench_slurm.executor:Slurm")
