"""The interface for optimizers: candidates in, scores out.

Nothing here holds a test split.
"""

from workbench.study.attacks import Attacker as Attacker
from workbench.study.blame import Blame as Blame
from workbench.study.blame import node_of as node_of
from workbench.study.evaluate import METRIC_SAID as METRIC_SAID
from workbench.study.evaluate import Evaluator as Evaluator
from workbench.study.evaluate import estimate_calls as estimate_calls
from workbench.study.evaluation import Attacked as Attacked
from workbench.study.evaluation import Evaluation as Evaluation
from workbench.study.evaluation import Result as Result
from workbench.study.evaluation import RowRun as RowRun
from workbench.study.evaluation import unanswered_error as unanswered_error
from workbench.study.named import make_optimizer as make_optimizer
from workbench.study.observation import observe_nodes as observe_nodes
from workbench.study.position import read_position as read_position
from workbench.study.position import recall_evaluation as recall_evaluation
from workbench.study.position import restore_position as restore_position
from workbench.study.racing import Race as Race
from workbench.study.racing import paired_race as paired_race
from workbench.study.sampler import AskedTrial as AskedTrial
from workbench.study.sampler import RandomTrial as RandomTrial
from workbench.study.sampler import Searcher as Searcher
from workbench.study.sampler import make_sampler as make_sampler
from workbench.study.searchers import Joining as Joining
from workbench.study.searchers import Searchers as Searchers
from workbench.study.standing import Choice as Choice
from workbench.study.standing import Progress as Progress
from workbench.study.standing import find_undominated as find_undominated
from workbench.study.standing import objective_sign as objective_sign
from workbench.study.standing import pareto_set as pareto_set
from workbench.study.standing import pick as pick
from workbench.study.study import Optimizer as Optimizer
from workbench.study.study import Study as Study
from workbench.study.targets import SLOW_SHARE as SLOW_SHARE
from workbench.study.targets import Aims as Aims
from workbench.study.targets import configurations as configurations
from workbench.study.targets import cost_objective as cost_objective
from workbench.study.targets import is_slow as is_slow
from workbench.study.targets import missed_levels as missed_levels
from workbench.study.targets import pick_by_targets as pick_by_targets
from workbench.study.targets import pick_winner as pick_winner
