"""The ledger: every paid call is reserved, logged, sent and settled here.

The only room that calls a language model.
"""

from workbench.ledger.ledger import Ledger
from workbench.ledger.recalled import Recalled
from workbench.ledger.shares import Shares
from workbench.ledger.spend import CallInfo, Settled, Spend, current_row, describe_lost, describe_reused, price_of

__all__ = [
    "Ledger",
    "Recalled",
    "Shares",
    "Settled",
    "CallInfo",
    "current_row",
    "Spend",
    "price_of",
    "describe_lost",
    "describe_reused",
]
