"""Proof of the gain: statistics, leakage, reuse of sealed rows, and the report.

This room reads, and decides nothing that a search sees.
"""

from workbench.proof.attacks import few_rows_for_attacks as few_rows_for_attacks
from workbench.proof.findings import build_report as build_report
from workbench.proof.judged import LEAST_LABELS as LEAST_LABELS
from workbench.proof.judged import NOTHING as NOTHING
from workbench.proof.judged import Drawn as Drawn
from workbench.proof.judged import JudgeCheck as JudgeCheck
from workbench.proof.judged import JudgedRow as JudgedRow
from workbench.proof.judged import Label as Label
from workbench.proof.judged import answer_key as answer_key
from workbench.proof.judged import check_judge as check_judge
from workbench.proof.judged import describe_gap as describe_gap
from workbench.proof.judged import follow_draw as follow_draw
from workbench.proof.judged import judge_rows as judge_rows
from workbench.proof.judged import mean_labels as mean_labels
from workbench.proof.judged import place_in_draw as place_in_draw
from workbench.proof.judged import read_labels as read_labels
from workbench.proof.paired_binary import smallest_binary_gain as smallest_binary_gain
from workbench.proof.prediction_powered import powered_mean as powered_mean
from workbench.proof.report import Report as Report
from workbench.proof.reuse import evaluated_name as evaluated_name
from workbench.proof.reuse import level_after as level_after
from workbench.proof.reuse import record_scored as record_scored
from workbench.proof.reuse import record_test as record_test
from workbench.proof.savings import Ceiling as Ceiling
from workbench.proof.service_levels import Level as Level
from workbench.proof.service_levels import ServiceLevels as ServiceLevels
from workbench.proof.service_levels import few_rows_warning as few_rows_warning
from workbench.proof.service_levels import measure_levels as measure_levels
from workbench.proof.sides import order_sides as order_sides
from workbench.proof.statistics import LEVEL as LEVEL
from workbench.proof.statistics import MARGIN as MARGIN
from workbench.proof.statistics import Proof as Proof
from workbench.proof.statistics import cluster_means as cluster_means
from workbench.proof.statistics import describe_proof as describe_proof
from workbench.proof.statistics import interval as interval
from workbench.proof.statistics import paired_proof as paired_proof
