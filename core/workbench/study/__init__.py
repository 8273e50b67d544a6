"""The interface for optimizers: candidates in, scores out.

Nothing here holds a test split.
"""

from workbench.study.attacks import Attacker
from workbench.study.blame import Blame, node_of
from workbench.study.evaluate import METRIC_SAID, Evaluator, estimate_calls
from workbench.study.evaluation import Attacked, Evaluation, Result, RowRun, unanswered_error
from workbench.study.named import make_optimizer
from workbench.study.observation import observe_nodes
from workbench.study.position import read_position, recall_evaluation, restore_position
from workbench.study.racing import Race, paired_race
from workbench.study.sampler import AskedTrial, PartialFixedTrial, RandomTrial, Searcher, make_sampler
from workbench.study.searchers import Joining, Searchers
from workbench.study.standing import Choice, Progress, find_undominated, objective_sign, pareto_set, pick
from workbench.study.study import Optimizer, Study
from workbench.study.targets import (
    SLOW_SHARE,
    Aims,
    configurations,
    cost_objective,
    is_slow,
    missed_levels,
    pick_by_targets,
    pick_winner,
)

__all__ = [
    "Optimizer",
    "Attacked",
    "Attacker",
    "Blame",
    "node_of",
    "Study",
    "Progress",
    "Choice",
    "make_optimizer",
    "estimate_calls",
    "Evaluation",
    "METRIC_SAID",
    "Evaluator",
    "Result",
    "RowRun",
    "unanswered_error",
    "observe_nodes",
    "read_position",
    "recall_evaluation",
    "restore_position",
    "Race",
    "paired_race",
    "Searcher",
    "Joining",
    "Searchers",
    "AskedTrial",
    "PartialFixedTrial",
    "RandomTrial",
    "make_sampler",
    "pareto_set",
    "find_undominated",
    "pick",
    "objective_sign",
    "pick_winner",
    "pick_by_targets",
    "cost_objective",
    "configurations",
    "Aims",
    "is_slow",
    "missed_levels",
    "SLOW_SHARE",
]
