"""The ledger: every paid call is reserved, logged, sent and settled here.

The only room that calls a language model.
"""

from workbench.ledger.ledger import Ledger as Ledger
from workbench.ledger.recalled import Recalled as Recalled
from workbench.ledger.shares import Shares as Shares
from workbench.ledger.spend import CallInfo as CallInfo
from workbench.ledger.spend import Settled as Settled
from workbench.ledger.spend import Spend as Spend
from workbench.ledger.spend import current_row as current_row
from workbench.ledger.spend import describe_lost as describe_lost
from workbench.ledger.spend import describe_reused as describe_reused
from workbench.ledger.spend import price_of as price_of
