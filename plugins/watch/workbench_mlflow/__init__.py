"""`track: mlflow`: settings, scores by step, the final report and the result in MLflow."""

from workbench import hookimpl


@hookimpl
def register_trackers(register):
    register("mlflow", "workbench_mlflow.tracker:MLflow")
