"""Acting: tools, MCP servers, environments, and the permissions of foreign programs."""

from workbench_kit.acting.asking_code import answered as answered, run_asking as run_asking
from workbench_kit.acting.beside import MIN_CHANGES as MIN_CHANGES, Beside as Beside, Leftovers as Leftovers
from workbench_kit.acting.bound_function import BoundFunction as BoundFunction
from workbench_kit.acting.code_session import Reach as Reach, is_session as is_session, session_of as session_of
from workbench_kit.acting.conditions import FieldCondition as FieldCondition
from workbench_kit.acting.environment import (
    Environment as Environment,
    Episode as Episode,
    Position as Position,
    Step as Step,
    enter_environment as enter_environment,
    environment_class as environment_class,
    open_environment as open_environment,
    tool_name as tool_name,
)
from workbench_kit.acting.forged import Forged as Forged
from workbench_kit.acting.inner_nodes import (
    child_node as child_node,
    instructed_tree as instructed_tree,
    with_new_inputs as with_new_inputs,
)
from workbench_kit.acting.mcp_session import Server as Server, fill_variables as fill_variables
from workbench_kit.acting.node_tools import (
    NodeTool as NodeTool,
    RowCalls as RowCalls,
    Unavailable as Unavailable,
    claim_call as claim_call,
    introduce_tools as introduce_tools,
    make_node_tools as make_node_tools,
)
from workbench_kit.acting.patterns import (
    Unmatchable as Unmatchable,
    listed_matches as listed_matches,
    shortest_match as shortest_match,
)
from workbench_kit.acting.permission import (
    check_call as check_call,
    check_policy as check_policy,
    is_permitted as is_permitted,
    permitted as permitted,
    refusal as refusal,
)
from workbench_kit.acting.programs import check_program as check_program, dying_with_us as dying_with_us
from workbench_kit.acting.results import (
    LONGEST_RESULT as LONGEST_RESULT,
    cut_result as cut_result,
    cut_text as cut_text,
)
from workbench_kit.acting.schemas import (
    fit_values as fit_values,
    schema_defaults as schema_defaults,
    told_arguments as told_arguments,
)
from workbench_kit.acting.tool import as_rules_see as as_rules_see, read_arguments as read_arguments
from workbench_kit.acting.tool_defects import (
    find_source_defects as find_source_defects,
    find_tool_defects as find_tool_defects,
)
from workbench_kit.acting.tool_settings import ENV as ENV, TOOLS as TOOLS
from workbench_kit.acting.tools import (
    Tool as Tool,
    argument_names as argument_names,
    call_tool as call_tool,
    describe_tool as describe_tool,
    enter_tool as enter_tool,
    fit_calls as fit_calls,
    has_unknown_tools as has_unknown_tools,
    know_tools as know_tools,
    load_arguments as load_arguments,
    load_tool as load_tool,
    load_tools as load_tools,
    read_calls as read_calls,
    run_in_sandbox as run_in_sandbox,
    tools_at as tools_at,
    unreadable_call as unreadable_call,
)
