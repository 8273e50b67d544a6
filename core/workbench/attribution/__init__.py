"""Which step decided a failure: by repeating the run with steps repaired, and by comparing failed and passed runs.

Pure functions of traces and of a callback that repeats a run; no model and no file is touched here.
"""

from workbench.attribution.diagnoses import AttributionReport as AttributionReport
from workbench.attribution.diagnoses import RowFinding as RowFinding
from workbench.attribution.diagnoses import describe_finding as describe_finding
from workbench.attribution.repairs import label_repairs as label_repairs
from workbench.attribution.repairs import model_repairs as model_repairs
from workbench.attribution.repairs import sibling_repairs as sibling_repairs
from workbench.attribution.replay import Diagnosis as Diagnosis
from workbench.attribution.replay import bisect_steps as bisect_steps
from workbench.attribution.replay import most_reruns as most_reruns
from workbench.attribution.replay import scan_steps as scan_steps
from workbench.attribution.replay_report import ReplayReport as ReplayReport
from workbench.attribution.replay_report import share_costs as share_costs
from workbench.attribution.spectrum import FORMULAS as FORMULAS
from workbench.attribution.spectrum import Counts as Counts
from workbench.attribution.spectrum import Element as Element
from workbench.attribution.spectrum import Suspect as Suspect
from workbench.attribution.spectrum import elements_of as elements_of
from workbench.attribution.spectrum import elements_of_spans as elements_of_spans
from workbench.attribution.spectrum import rank_elements as rank_elements
from workbench.attribution.spectrum import rank_nodes as rank_nodes
from workbench.attribution.steps import TraceStep as TraceStep
from workbench.attribution.steps import steps_of as steps_of
