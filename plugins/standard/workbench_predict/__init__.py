"""The node kind `predict`: a signature answered by a language model."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("predict", "workbench_predict.node:Predict")
