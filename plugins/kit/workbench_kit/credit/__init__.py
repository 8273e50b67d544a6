"""Find the step that decided a failure: by rerunning with steps repaired, and by comparing failed and passed runs.

Pure functions of traces and of a callback that reruns, except for `blame_nodes`, which runs a study's workflow.
"""

from workbench_kit.credit.blame import Blame as Blame, blame_nodes as blame_nodes, node_of as node_of
from workbench_kit.credit.repair import Address as Address, Repair as Repair
from workbench_kit.credit.repaired_context import Repaired as Repaired
from workbench_kit.credit.replay import (
    Diagnosis as Diagnosis,
    bisect_steps as bisect_steps,
    max_reruns as max_reruns,
    scan_steps as scan_steps,
)
from workbench_kit.credit.spectrum import (
    FORMULAS as FORMULAS,
    Counts as Counts,
    Element as Element,
    Suspect as Suspect,
    elements_of as elements_of,
    elements_of_spans as elements_of_spans,
    rank_elements as rank_elements,
    rank_nodes as rank_nodes,
)
from workbench_kit.credit.steps import TraceStep as TraceStep, steps_of as steps_of
