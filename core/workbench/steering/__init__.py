"""Steering a run while it goes on: what a user orders, and how the run takes it up."""

from workbench.steering.orders import ACTIONS as ACTIONS, check_order as check_order, give_order as give_order
from workbench.steering.steered import Steering as Steering
