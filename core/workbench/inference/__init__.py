"""A finished workflow, called: on one input, on many rows, from any thread or event loop. Or bundled, to run elsewhere.

Nothing is journalled, except by `predict_file`: each call is sent, and forgotten once it is answered.
"""

from workbench.inference.bundle import Ask as Ask
from workbench.inference.bundle import Bundle as Bundle
from workbench.inference.bundle import bundle_file as bundle_file
from workbench.inference.bundle import write_bundle as write_bundle
from workbench.inference.configurations import check_configurations as check_configurations
from workbench.inference.configurations import load_configurations as load_configurations
from workbench.inference.file_to_file import Predicted as Predicted
from workbench.inference.file_to_file import predict_file as predict_file
from workbench.inference.loaded import LoadedWorkflow as LoadedWorkflow
from workbench.inference.loaded import load as load
from workbench.inference.loaded import read_workflow as read_workflow
from workbench.inference.ping import Ping as Ping
from workbench.inference.ping import ping_models as ping_models
from workbench.inference.prediction import Prediction as Prediction
from workbench.inference.prediction import PredictionError as PredictionError
