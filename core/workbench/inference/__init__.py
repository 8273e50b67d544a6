"""A finished workflow, called: on one input, on many rows, from any thread or event loop. Or bundled, to run elsewhere.

Nothing is journalled, except by `predict_file`: each call is sent, and forgotten once it is answered.
"""

from workbench.inference.bundle import Ask, Bundle, bundle_file, write_bundle
from workbench.inference.configurations import check_configurations, load_configurations
from workbench.inference.file_to_file import Predicted, predict_file
from workbench.inference.loaded import LoadedWorkflow, load, read_workflow
from workbench.inference.ping import Ping, ping_models
from workbench.inference.prediction import Prediction, PredictionError

__all__ = [
    "load",
    "load_configurations",
    "check_configurations",
    "LoadedWorkflow",
    "read_workflow",
    "Prediction",
    "PredictionError",
    "predict_file",
    "Predicted",
    "ping_models",
    "Ping",
    "bundle_file",
    "write_bundle",
    "Ask",
    "Bundle",
]
