"""A finished workflow that is called: on one input, on many rows, from any thread or event loop. Or bundled for another
machine.

Only `predict_file` journals calls. Otherwise each call is sent, and forgotten once it is answered.
"""

from workbench.inference.bundle import LOCK as LOCK, bundle_file as bundle_file, write_bundle as write_bundle
from workbench.inference.configurations import (
    check_configurations as check_configurations,
    load_configurations as load_configurations,
)
from workbench.inference.file_to_file import Predicted as Predicted, predict_file as predict_file
from workbench.inference.loaded import LoadedWorkflow as LoadedWorkflow, load as load, read_workflow as read_workflow
from workbench.inference.prediction import Prediction as Prediction, PredictionError as PredictionError
