"""Workflows: values that say which nodes there are, what each does and who reads what.

Values. Nothing here runs, pays or imports a runtime; `workbench.Context` says what a running node may use.
"""

from workbench.workflow.course import describe_course as describe_course
from workbench.workflow.course import differs as differs
from workbench.workflow.course import tool_uses as tool_uses
from workbench.workflow.flow import check_flow as check_flow
from workbench.workflow.flow import disable_nodes as disable_nodes
from workbench.workflow.flow import graph_hash as graph_hash
from workbench.workflow.flowchart import mermaid as mermaid
from workbench.workflow.graph import Schedule as Schedule
from workbench.workflow.node import EXCHANGE as EXCHANGE
from workbench.workflow.node import NodeConfig as NodeConfig
from workbench.workflow.node import NodeKind as NodeKind
from workbench.workflow.node import SignatureNode as SignatureNode
from workbench.workflow.node import Surroundings as Surroundings
from workbench.workflow.queries import called_lms as called_lms
from workbench.workflow.queries import learnable_addresses as learnable_addresses
from workbench.workflow.queries import list_changes as list_changes
from workbench.workflow.queries import node_at as node_at
from workbench.workflow.queries import setting_at as setting_at
from workbench.workflow.queries import task_lm as task_lm
from workbench.workflow.queries import text_at as text_at
from workbench.workflow.signature import Field as Field
from workbench.workflow.signature import Image as Image
from workbench.workflow.signature import Signature as Signature
from workbench.workflow.signature import parse_signature as parse_signature
from workbench.workflow.signature import with_inputs as with_inputs
from workbench.workflow.signature import written_fields as written_fields
from workbench.workflow.trace import CallRecord as CallRecord
from workbench.workflow.trace import EffectRecord as EffectRecord
from workbench.workflow.trace import ExampleRun as ExampleRun
from workbench.workflow.trace import Span as Span
from workbench.workflow.trace import Trace as Trace
from workbench.workflow.tree import Tree as Tree
from workbench.workflow.workflow import Patch as Patch
from workbench.workflow.workflow import Workflow as Workflow
from workbench.workflow.workflow import forget_nodes as forget_nodes
from workbench.workflow.workflow import make_node as make_node
from workbench.workflow.workflow import node_class as node_class
from workbench.workflow.workflow import node_tree as node_tree
from workbench.workflow.workflow import written_place as written_place
