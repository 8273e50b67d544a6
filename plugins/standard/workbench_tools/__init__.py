"""Node kinds `tool` (a call of a Python or MCP tool), `calls` (those of a list) and `agent` (a model with tools)."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("tool", "workbench_tools.tool:ToolNode")
    register("calls", "workbench_tools.calls:Calls")
    register("agent", "workbench_tools.agent:Agent")
