"""A gateway: agents call their models as usual, through the APIs of OpenAI, Anthropic and Google, and we answer.

`Gateway` listens on this machine only. Each secret belongs to one `GatewaySession`, which takes an `Ask` and returns
`workbench.lm.Response`s. Nothing here calls a language model, counts or stores.
"""

from workbench_external.gateway.access import ALWAYS as ALWAYS, VARIABLES as VARIABLES, in_address as in_address
from workbench_external.gateway.asks import (
    Ask as Ask,
    GatewaySession as GatewaySession,
    Refused as Refused,
    refusal_of as refusal_of,
)
from workbench_external.gateway.passed import as_it_is_sent as as_it_is_sent
from workbench_external.gateway.replaced import without_places as without_places
from workbench_external.gateway.server import Gateway as Gateway
from workbench_external.gateway.table import TABLE as TABLE, check_for_messages as check_for_messages
