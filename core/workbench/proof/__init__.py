"""Proof of the gain: statistics, leakage, reuse of sealed rows, and the report.

This room only reads. It decides nothing that a search sees.
"""

from workbench.proof.bounded_mean import mean_interval as mean_interval, mean_p as mean_p
from workbench.proof.claim import LEVEL as LEVEL, MARGIN as MARGIN, Claim as Claim, Kind as Kind
from workbench.proof.evidence import (
    TESTED_SECTIONS as TESTED_SECTIONS,
    ClaimSource as ClaimSource,
    Evidence as Evidence,
    check_by_sources as check_by_sources,
    find_perturbations as find_perturbations,
    sealed_runs as sealed_runs,
    usable_sources as usable_sources,
)
from workbench.proof.findings import build_report as build_report
from workbench.proof.floor import find_floor as find_floor
from workbench.proof.learning_curves import (
    LearningCurve as LearningCurve,
    read_learning_curves as read_learning_curves,
)
from workbench.proof.paired_binary import smallest_binary_gain as smallest_binary_gain
from workbench.proof.report import Report as Report, more_line as more_line, page_of as page_of
from workbench.proof.rerun import (
    MAX_RUNS as MAX_RUNS,
    Alike as Alike,
    Rerun as Rerun,
    alike_by as alike_by,
    any_agree as any_agree,
    compare_reruns as compare_reruns,
    count_runs as count_runs,
    vote_of as vote_of,
)
from workbench.proof.reuse import (
    evaluated_name as evaluated_name,
    find_tests_of as find_tests_of,
    level_after as level_after,
    record_scored as record_scored,
    record_test as record_test,
)
from workbench.proof.savings import COST_FIELDS as COST_FIELDS, Ceiling as Ceiling
from workbench.proof.sides import order_sides as order_sides
from workbench.proof.statistics import (
    GAIN as GAIN,
    cluster_means as cluster_means,
    describe_proof as describe_proof,
    interval as interval,
    paired_proof as paired_proof,
    voided as voided,
)
