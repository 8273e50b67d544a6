"""Which step decided a failure: by repeating the run with steps repaired, and by comparing failed and passed runs.

Pure functions of traces and of a callback that repeats a run; no model and no file is touched here.
"""

from workbench.attribution.diagnoses import (
    AttributionReport as AttributionReport,
    RowFinding as RowFinding,
    describe_finding as describe_finding,
)
from workbench.attribution.repairs import (
    label_repairs as label_repairs,
    model_repairs as model_repairs,
    sibling_repairs as sibling_repairs,
)
from workbench.attribution.replay import (
    Diagnosis as Diagnosis,
    bisect_steps as bisect_steps,
    most_reruns as most_reruns,
    scan_steps as scan_steps,
)
from workbench.attribution.replay_report import ReplayReport as ReplayReport, share_costs as share_costs
from workbench.attribution.spectrum import (
    FORMULAS as FORMULAS,
    Counts as Counts,
    Element as Element,
    Suspect as Suspect,
    elements_of as elements_of,
    elements_of_spans as elements_of_spans,
    rank_elements as rank_elements,
    rank_nodes as rank_nodes,
)
from workbench.attribution.steps import TraceStep as TraceStep, steps_of as steps_of
