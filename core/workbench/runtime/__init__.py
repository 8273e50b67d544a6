"""Runs of an example through one workflow, recorded as a trace.

All effects go through `Context`.
"""

from workbench.runtime.clock import NodeClock as NodeClock
from workbench.runtime.context import Begun as Begun, Context as Context, ends_run as ends_run
from workbench.runtime.draw import FIRST_DRAW as FIRST_DRAW, Draw as Draw
from workbench.runtime.elsewhere import (
    ExecutorPlugin as ExecutorPlugin,
    make_crew as make_crew,
    make_executor as make_executor,
)
from workbench.runtime.embedding import BATCH as BATCH, Embeddings as Embeddings, Vector as Vector
from workbench.runtime.program import Program as Program
from workbench.runtime.requests import (
    call_tokens as call_tokens,
    dearest_call as dearest_call,
    make_request as make_request,
    max_tokens as max_tokens,
    spec_thinks as spec_thinks,
)
from workbench.runtime.run import Run as Run, no_ceiling as no_ceiling
from workbench.runtime.runtime import Consent as Consent, RowRunner as RowRunner, Runtime as Runtime
from workbench.runtime.sandbox import (
    BOUNDARIES as BOUNDARIES,
    LEVELS as LEVELS,
    Sandbox as Sandbox,
    SandboxChoice as SandboxChoice,
    SandboxResult as SandboxResult,
    open_sandbox as open_sandbox,
)
