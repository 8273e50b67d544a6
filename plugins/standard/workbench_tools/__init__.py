"""Node kinds `tool` (one Python or MCP tool), `calls` (a list of tool calls) and `agent` (a model with tools)."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("tool", "workbench_tools.tool:ToolNode")
    register("calls", "workbench_tools.calls:Calls")
    register("agent", "workbench_tools.agent:Agent")
