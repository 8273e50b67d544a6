"""An example run through one workflow, and what happened as a trace.

All effects go through `Context`.
"""

from workbench.runtime.clock import NodeClock as NodeClock
from workbench.runtime.context import Context as Context
from workbench.runtime.context import ends_run as ends_run
from workbench.runtime.crew import Crew as Crew
from workbench.runtime.draw import FIRST_DRAW as FIRST_DRAW
from workbench.runtime.draw import Draw as Draw
from workbench.runtime.embedding import BATCH as BATCH
from workbench.runtime.executor import Channel as Channel
from workbench.runtime.executor import Executor as Executor
from workbench.runtime.executor import Secrets as Secrets
from workbench.runtime.executor import WorkerLost as WorkerLost
from workbench.runtime.executor import WorkerSetup as WorkerSetup
from workbench.runtime.executor import make_executor as make_executor
from workbench.runtime.executor import read_secrets as read_secrets
from workbench.runtime.expected_cost import Cost as Cost
from workbench.runtime.expected_cost import Model as Model
from workbench.runtime.expected_cost import dearest_call as dearest_call
from workbench.runtime.expected_cost import dearest_role_usd as dearest_role_usd
from workbench.runtime.expected_cost import dearest_usd as dearest_usd
from workbench.runtime.expected_cost import format_usd as format_usd
from workbench.runtime.expected_cost import known_price as known_price
from workbench.runtime.expected_cost import models_of as models_of
from workbench.runtime.expected_cost import no_price_line as no_price_line
from workbench.runtime.expected_cost import prompt_tokens as prompt_tokens
from workbench.runtime.expected_cost import row_cost as row_cost
from workbench.runtime.program import Program as Program
from workbench.runtime.repair import Address as Address
from workbench.runtime.repair import Repair as Repair
from workbench.runtime.requests import make_request as make_request
from workbench.runtime.requests import most_tokens as most_tokens
from workbench.runtime.runtime import Consent as Consent
from workbench.runtime.runtime import Runtime as Runtime
from workbench.runtime.sandbox import BOUNDARIES as BOUNDARIES
from workbench.runtime.sandbox import LEVELS as LEVELS
from workbench.runtime.sandbox import Sandbox as Sandbox
from workbench.runtime.sandbox import SandboxChoice as SandboxChoice
from workbench.runtime.sandbox import SandboxResult as SandboxResult
from workbench.runtime.sandbox import open_sandbox as open_sandbox
from workbench.runtime.sockets import Sockets as Sockets
from workbench.runtime.sockets import join_driver as join_driver
from workbench.runtime.worker import find_lacking as find_lacking
from workbench.runtime.worker import work as work
