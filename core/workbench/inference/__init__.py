"""A finished workflow, called: on one input, on many rows, from any thread or event loop.

Nothing is journalled: each call is sent, and forgotten once it is answered.
"""

from workbench.inference.loaded import LoadedWorkflow, load
from workbench.inference.prediction import Cost, Prediction, PredictionError

__all__ = ["load", "LoadedWorkflow", "Prediction", "PredictionError", "Cost"]
