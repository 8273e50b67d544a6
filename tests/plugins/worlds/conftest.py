"""The fixture `folder`, which has tools to call."""

from tests.helpers.node_runs import folder

__all__ = ["folder"]
