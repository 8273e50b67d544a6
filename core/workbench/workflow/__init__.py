"""Workflows: values that say which nodes there are, what each does and who reads what.

Values. Nothing here runs, pays or imports a runtime; `workflow.node.NodeContext` says what a running node may use.
"""

from workbench.workflow.course import ToolUse, describe_course, differs, tool_uses
from workbench.workflow.flow import check_flow, disable_nodes, graph_hash
from workbench.workflow.flowchart import mermaid
from workbench.workflow.graph import Schedule
from workbench.workflow.node import EXCHANGE, NodeConfig, NodeKind, SignatureNode, Surroundings
from workbench.workflow.queries import (
    called_lms,
    learnable_addresses,
    list_changes,
    node_at,
    setting_at,
    task_lm,
    text_at,
)
from workbench.workflow.signature import Field, Image, Signature, parse_signature, with_inputs, written_fields
from workbench.workflow.trace import CallRecord, EffectRecord, ExampleRun, Span, Trace
from workbench.workflow.tree import Tree
from workbench.workflow.workflow import Patch, Workflow, forget_nodes, make_node, node_class, node_tree

__all__ = [
    "Workflow",
    "Patch",
    "Tree",
    "NodeKind",
    "NodeConfig",
    "SignatureNode",
    "Surroundings",
    "EXCHANGE",
    "node_tree",
    "node_class",
    "forget_nodes",
    "make_node",
    "node_at",
    "setting_at",
    "text_at",
    "learnable_addresses",
    "task_lm",
    "called_lms",
    "list_changes",
    "Schedule",
    "Signature",
    "Field",
    "Image",
    "parse_signature",
    "with_inputs",
    "written_fields",
    "check_flow",
    "graph_hash",
    "disable_nodes",
    "mermaid",
    "ToolUse",
    "describe_course",
    "differs",
    "tool_uses",
    "CallRecord",
    "EffectRecord",
    "Span",
    "Trace",
    "ExampleRun",
]
