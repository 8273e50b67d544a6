"""The interface for optimizers: candidates in, scores out.

Nothing here holds a test split.
"""

from workbench.study.evaluate import (
    METRIC_SAID as METRIC_SAID,
    Evaluator as Evaluator,
    estimate_calls as estimate_calls,
    kind_of_scoring as kind_of_scoring,
)
from workbench.study.evaluation import (
    Evaluation as Evaluation,
    Result as Result,
    RowRun as RowRun,
    mean_score as mean_score,
    score_of as score_of,
    unanswered_error as unanswered_error,
)
from workbench.study.named import make_optimizer as make_optimizer
from workbench.study.observation import observe_nodes as observe_nodes
from workbench.study.perturbed import Perturbation as Perturbation, PerturbedRows as PerturbedRows
from workbench.study.racing import Race as Race, p_worse as p_worse, paired_race as paired_race
from workbench.study.random_trial import RandomTrial as RandomTrial
from workbench.study.standing import (
    Progress as Progress,
    find_undominated as find_undominated,
    objective_sign as objective_sign,
    pareto_set as pareto_set,
    pick as pick,
)
from workbench.study.study import Optimizer as Optimizer, Study as Study
from workbench.study.targets import (
    SLOW_SHARE as SLOW_SHARE,
    Aims as Aims,
    configurations as configurations,
    cost_objective as cost_objective,
    is_slow as is_slow,
    pick_by_targets as pick_by_targets,
    pick_winner as pick_winner,
)
