"""States: a node that is a state machine, each state with its own instructions and tools (StateFlow)."""

from workbench import hookimpl


@hookimpl
def register_node_kinds(register):
    register("states", "workbench_state_machine.node:States")
