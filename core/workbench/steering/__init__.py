"""Steering a run while it goes on: what a user orders, and how the run takes it up."""

from workbench.steering.orders import ACTIONS, check_order, give_order
from workbench.steering.steered import Steering

__all__ = ["ACTIONS", "check_order", "give_order", "Steering"]
