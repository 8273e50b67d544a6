"""Workflows: values that say which nodes there are, what each does and who reads what.

Values. Nothing here runs, pays or imports a runtime; `NodeContext` says what a node may use when it runs.
"""

from workbench.workflow.flow import check_flow, disable_nodes, graph_hash, output_fields
from workbench.workflow.flowchart import mermaid
from workbench.workflow.graph import Schedule, build_graph, fields_from_outside, needs_of, until_required, writers_of
from workbench.workflow.node import EXCHANGE, NodeConfig, NodeContext, NodeKind, SignatureNode
from workbench.workflow.queries import (
    all_nodes,
    calls_of,
    input_fields,
    learnable_addresses,
    node_at,
    setting,
    task_lm,
    text_at,
    with_inner,
)
from workbench.workflow.signature import Field, Signature, parse_signature, with_inputs, written_fields
from workbench.workflow.trace import CallRecord, ExampleRun, Span, Trace
from workbench.workflow.tree import Tree
from workbench.workflow.workflow import Patch, Workflow, check_nodes, enabled, make_node, node_class, node_tree

__all__ = [
    "Workflow",
    "Patch",
    "Tree",
    "NodeKind",
    "NodeConfig",
    "NodeContext",
    "SignatureNode",
    "EXCHANGE",
    "node_tree",
    "node_class",
    "make_node",
    "check_nodes",
    "enabled",
    "all_nodes",
    "with_inner",
    "node_at",
    "setting",
    "text_at",
    "learnable_addresses",
    "input_fields",
    "calls_of",
    "task_lm",
    "Schedule",
    "build_graph",
    "until_required",
    "needs_of",
    "writers_of",
    "fields_from_outside",
    "Signature",
    "Field",
    "parse_signature",
    "with_inputs",
    "written_fields",
    "check_flow",
    "graph_hash",
    "output_fields",
    "disable_nodes",
    "mermaid",
    "CallRecord",
    "Span",
    "Trace",
    "ExampleRun",
]
