"""Workflows as values: which nodes exist, what each does, and which node reads which field.

Nothing here runs a node, spends money or imports a runtime. `workbench.Context` lists what a running node may use.
"""

from workbench.workflow.flow import check_flow as check_flow, disable_nodes as disable_nodes
from workbench.workflow.flowchart import mermaid as mermaid
from workbench.workflow.graph import Schedule as Schedule
from workbench.workflow.node import (
    EXCHANGE as EXCHANGE,
    NodeConfig as NodeConfig,
    NodeKind as NodeKind,
    SignatureNode as SignatureNode,
    Surroundings as Surroundings,
    TextRole as TextRole,
)
from workbench.workflow.nothing import (
    may_be_none as may_be_none,
    may_hold_none as may_hold_none,
    read_nothing as read_nothing,
    says_nothing as says_nothing,
)
from workbench.workflow.queries import (
    called_lms as called_lms,
    learnable_addresses as learnable_addresses,
    list_changes as list_changes,
    node_at as node_at,
    setting_at as setting_at,
    task_lm as task_lm,
    text_at as text_at,
    text_role as text_role,
)
from workbench.workflow.signature import (
    Field as Field,
    Image as Image,
    Signature as Signature,
    parse_signature as parse_signature,
    with_inputs as with_inputs,
    written_fields as written_fields,
)
from workbench.workflow.trace import (
    CallRecord as CallRecord,
    EffectRecord as EffectRecord,
    ExampleRun as ExampleRun,
    Span as Span,
    Trace as Trace,
)
from workbench.workflow.tree import Tree as Tree, leaves_of as leaves_of
from workbench.workflow.workflow import (
    Patch as Patch,
    Workflow as Workflow,
    forget_nodes as forget_nodes,
    make_node as make_node,
    node_class as node_class,
    node_tree as node_tree,
    written_place as written_place,
)
