"""The ledger reserves, logs, sends and settles every paid call.

No other room calls a language model.
"""

from workbench.ledger.ledger import Ledger as Ledger
from workbench.ledger.recalled import Recalled as Recalled
from workbench.ledger.spend import (
    CallInfo as CallInfo,
    Settled as Settled,
    Spend as Spend,
    current_row as current_row,
    describe_lost as describe_lost,
    describe_reused as describe_reused,
    describe_usd as describe_usd,
    estimate_prompt as estimate_prompt,
    no_price_line as no_price_line,
    per_1000 as per_1000,
    price_of as price_of,
)
