"""Acting: tools, MCP servers, environments, and what a program of somebody else may do."""

from workbench.kit.acting.asking_code import answered, run_asking
from workbench.kit.acting.beside import LEAST_CHANGES, Beside, Leftovers
from workbench.kit.acting.bound_function import BoundFunction
from workbench.kit.acting.code_session import Reach, is_session, session_of
from workbench.kit.acting.conditions import FieldCondition
from workbench.kit.acting.environment import (
    Environment,
    Episode,
    Position,
    Step,
    environment_class,
    open_environment,
    tool_name,
)
from workbench.kit.acting.forged import Forged
from workbench.kit.acting.inner_nodes import child_node, instructed_tree, with_new_inputs
from workbench.kit.acting.mcp import LONGEST_RESULT
from workbench.kit.acting.mcp_session import Server, fill_variables
from workbench.kit.acting.node_tools import (
    NodeTool,
    RowCalls,
    Unavailable,
    claim_call,
    introduce_tools,
    make_node_tools,
)
from workbench.kit.acting.permission import check_call, check_policy, is_permitted, permitted
from workbench.kit.acting.programs import check_program, dying_with_us
from workbench.kit.acting.schemas import fit_values, schema_defaults, told_arguments
from workbench.kit.acting.tool import as_rules_see, read_arguments
from workbench.kit.acting.tool_defects import find_source_defects, find_tool_defects
from workbench.kit.acting.tool_settings import ENV, TOOLS
from workbench.kit.acting.tools import (
    Tool,
    argument_names,
    call_tool,
    calls_in,
    describe_tool,
    has_unknown_tools,
    know_tools,
    load_arguments,
    load_tool,
    load_tools,
    read_calls,
    run_in_sandbox,
    tools_at,
    unreadable_call,
)

__all__ = [
    "Beside",
    "RowCalls",
    "BoundFunction",
    "ENV",
    "Environment",
    "Episode",
    "FieldCondition",
    "Forged",
    "LEAST_CHANGES",
    "LONGEST_RESULT",
    "Leftovers",
    "NodeTool",
    "Position",
    "Reach",
    "Server",
    "Step",
    "TOOLS",
    "Tool",
    "Unavailable",
    "answered",
    "argument_names",
    "as_rules_see",
    "call_tool",
    "claim_call",
    "calls_in",
    "check_call",
    "check_policy",
    "permitted",
    "is_permitted",
    "check_program",
    "child_node",
    "describe_tool",
    "dying_with_us",
    "environment_class",
    "find_source_defects",
    "find_tool_defects",
    "fill_variables",
    "fit_values",
    "has_unknown_tools",
    "instructed_tree",
    "introduce_tools",
    "is_session",
    "know_tools",
    "load_arguments",
    "load_tool",
    "load_tools",
    "make_node_tools",
    "open_environment",
    "read_arguments",
    "read_calls",
    "run_asking",
    "run_in_sandbox",
    "session_of",
    "schema_defaults",
    "told_arguments",
    "tool_name",
    "tools_at",
    "unreadable_call",
    "with_new_inputs",
]
