"""What an optimizer is handed: candidates in, scores out.

Nothing here holds a test split.
"""

from workbench.study.evaluate import Evaluation, Evaluator, Result, unanswered
from workbench.study.pareto import pareto_set, pick, sign
from workbench.study.racing import Race, paired_race
from workbench.study.sampler import Asked, Given, RandomSuggests, Searcher, make_sampler
from workbench.study.study import Optimizer, Progress, Study, named_optimizer, needed_calls

__all__ = [
    "Optimizer",
    "Study",
    "Progress",
    "named_optimizer",
    "needed_calls",
    "Evaluation",
    "Evaluator",
    "Result",
    "unanswered",
    "Race",
    "paired_race",
    "Searcher",
    "Asked",
    "Given",
    "RandomSuggests",
    "make_sampler",
    "pareto_set",
    "pick",
    "sign",
]
