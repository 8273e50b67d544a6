"""An example run through one workflow, and what happened as a trace.

All effects go through `Context`.
"""

from workbench.runtime.clock import NodeClock
from workbench.runtime.context import Context, ends_run
from workbench.runtime.crew import Crew
from workbench.runtime.draw import FIRST_DRAW, Draw
from workbench.runtime.embedding import BATCH
from workbench.runtime.executor import (
    LOCAL,
    Channel,
    Executor,
    Line,
    Secrets,
    WorkerLost,
    WorkerSetup,
    make_executor,
    read_secrets,
)
from workbench.runtime.expected_cost import (
    Cost,
    Model,
    dearest_call,
    dearest_role_usd,
    dearest_usd,
    format_usd,
    known_price,
    models_of,
    no_price_line,
    prompt_tokens,
    row_cost,
)
from workbench.runtime.program import Program
from workbench.runtime.repair import Address, Repair, Repairs
from workbench.runtime.requests import make_request, most_tokens
from workbench.runtime.runtime import Consent, Runtime
from workbench.runtime.sandbox import (
    BOUNDARIES,
    LEVELS,
    Sandbox,
    SandboxChoice,
    SandboxResult,
    open_sandbox,
)
from workbench.runtime.sockets import Sockets, join_driver
from workbench.runtime.worker import find_lacking, work

__all__ = [
    "Context",
    "NodeClock",
    "Draw",
    "FIRST_DRAW",
    "Program",
    "Runtime",
    "Consent",
    "make_request",
    "ends_run",
    "Sandbox",
    "SandboxChoice",
    "SandboxResult",
    "BOUNDARIES",
    "LEVELS",
    "open_sandbox",
    "BATCH",
    "Address",
    "Repair",
    "Repairs",
    "Cost",
    "Model",
    "row_cost",
    "dearest_call",
    "dearest_role_usd",
    "dearest_usd",
    "models_of",
    "most_tokens",
    "known_price",
    "no_price_line",
    "prompt_tokens",
    "format_usd",
    "Crew",
    "Executor",
    "WorkerSetup",
    "Channel",
    "Line",
    "WorkerLost",
    "Secrets",
    "LOCAL",
    "make_executor",
    "read_secrets",
    "work",
    "find_lacking",
    "Sockets",
    "join_driver",
]
