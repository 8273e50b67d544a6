"""Tools: the node kinds `tool` (one call of a Python or MCP tool) and `agent` (a language model with tools)."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("tool", "workbench_tools.tool:ToolNode")
    register("agent", "workbench_tools.agent:Agent")
