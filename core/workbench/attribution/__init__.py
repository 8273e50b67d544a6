"""Which step decided a failure: by repeating the run with steps repaired, and by comparing failed and passed runs.

Pure functions of traces and of a callback that repeats a run; no model and no file is touched here.
"""

from workbench.attribution.diagnoses import AttributionReport, RowFinding, describe_finding
from workbench.attribution.repairs import label_repairs, model_repairs, sibling_repairs
from workbench.attribution.replay import (
    Diagnosis,
    RepairOf,
    Rerun,
    RunWith,
    bisect_steps,
    most_reruns,
    scan_steps,
)
from workbench.attribution.replay_report import ReplayReport, RowDiagnosis, share_costs
from workbench.attribution.spectrum import (
    FORMULAS,
    Counts,
    Element,
    Suspect,
    elements_of,
    elements_of_spans,
    rank_elements,
    rank_nodes,
)
from workbench.attribution.steps import TraceStep, steps_of

__all__ = [
    "AttributionReport",
    "RowFinding",
    "describe_finding",
    "ReplayReport",
    "RowDiagnosis",
    "share_costs",
    "TraceStep",
    "steps_of",
    "Diagnosis",
    "Rerun",
    "RunWith",
    "RepairOf",
    "bisect_steps",
    "scan_steps",
    "most_reruns",
    "label_repairs",
    "model_repairs",
    "sibling_repairs",
    "Element",
    "Counts",
    "Suspect",
    "FORMULAS",
    "elements_of",
    "elements_of_spans",
    "rank_elements",
    "rank_nodes",
]
