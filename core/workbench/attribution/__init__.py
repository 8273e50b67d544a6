"""Which step decided a failure: by repeating the run with steps repaired, and by comparing failed and passed runs.

Pure functions of traces and of a callback that repeats a run; no model and no file is touched here.
"""

from workbench.attribution.replay import (
    Diagnosis,
    RepairOf,
    Rerun,
    RunWith,
    bisect_steps,
    most_reruns,
    scan_steps,
)
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
    "TraceStep",
    "steps_of",
    "Diagnosis",
    "Rerun",
    "RunWith",
    "RepairOf",
    "bisect_steps",
    "scan_steps",
    "most_reruns",
    "Element",
    "Counts",
    "Suspect",
    "FORMULAS",
    "elements_of",
    "elements_of_spans",
    "rank_elements",
    "rank_nodes",
]
