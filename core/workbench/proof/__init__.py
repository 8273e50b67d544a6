"""Proof of the gain: statistics, leakage, reuse of sealed rows, and the report.

This room reads, and decides nothing that a search sees.
"""

from workbench.proof.attacks import few_rows_for_attacks
from workbench.proof.findings import build_report
from workbench.proof.judged import (
    LEAST_LABELS,
    Drawn,
    JudgeCheck,
    JudgedRow,
    Label,
    answer_key,
    check_judge,
    describe_gap,
    describe_judged,
    follow_draw,
    mean_labels,
    place_in_draw,
    read_labels,
)
from workbench.proof.paired_binary import smallest_binary_gain
from workbench.proof.prediction_powered import PoweredMean, powered_mean
from workbench.proof.report import Report
from workbench.proof.reuse import evaluated_name, level_after, record_scored, record_test
from workbench.proof.savings import Ceiling
from workbench.proof.service_levels import Level, ServiceLevels, few_rows_warning, measure_levels
from workbench.proof.sides import order_sides
from workbench.proof.statistics import (
    LEVEL,
    MARGIN,
    Proof,
    cluster_means,
    describe_proof,
    interval,
    paired_proof,
)

__all__ = [
    "few_rows_for_attacks",
    "Report",
    "build_report",
    "Proof",
    "paired_proof",
    "PoweredMean",
    "powered_mean",
    "JudgeCheck",
    "JudgedRow",
    "Label",
    "LEAST_LABELS",
    "answer_key",
    "check_judge",
    "Drawn",
    "follow_draw",
    "place_in_draw",
    "describe_gap",
    "describe_judged",
    "mean_labels",
    "read_labels",
    "evaluated_name",
    "LEVEL",
    "MARGIN",
    "describe_proof",
    "cluster_means",
    "interval",
    "smallest_binary_gain",
    "record_test",
    "record_scored",
    "order_sides",
    "level_after",
    "ServiceLevels",
    "Level",
    "measure_levels",
    "Ceiling",
    "few_rows_warning",
]
