"""Search with Optuna: ask for a candidate, evaluate it, tell its objectives."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, field_validator

from workbench import BudgetSpent, Evaluation, Optimizer, Study, Workflow
from workbench.base.distribution import pip_install
from workbench.errors import SpecError
from workbench.study import AskedTrial, Race, Searcher, objective_sign

#: Scores of a candidate before its first test.
_STARTUP_STEPS = 8
#: Up to so many differences SciPy's test of Wilcoxon tries all signs, where some of them tie.
_EXACT = 13
#: Random candidates before the sampler starts to learn: Optuna's ten are too many where a budget pays for thirty.
STARTUP = 6
#: The p-value below which a candidate is stopped: the default of Optuna's WilcoxonPruner.
P_THRESHOLD = 0.1
#: What a sampler of Optuna needs besides Optuna.
_NEEDS = {"gp": "torch", "cmaes": "cmaes"}


class Optuna(Optimizer):
    """Samples the search space with Optuna and learns from every score.

    Without a `search:` section it searches the number and choice of labelled demos of every node that takes them.
    With several objectives it searches for the Pareto set (use the sampler nsga2 or tpe); pruning is then off.
    """

    powers = {}

    trials: int = Field(
        100,
        ge=1,
        le=100_000,
        description="maximum number of different candidates, the start included; the budget may end the search earlier",
    )
    sampler: Literal["tpe", "gp", "cmaes", "nsga2", "qmc", "random"] = Field("tpe", description="Optuna's sampler")
    prune: Literal["wilcoxon", "race", "none"] = Field(
        "wilcoxon",
        description="stop losers early: Optuna's WilcoxonPruner, the same test with a bound on the mean (race), or not",
    )
    patience: int = Field(
        20,
        ge=1,
        description="number of consecutive repeats or unaffordable candidates before it ends",
    )
    dashboard: bool = Field(True, description="keep Optuna's own record in the run database, for optuna-dashboard")

    @field_validator("sampler")
    @classmethod
    def _installed(cls, value: str) -> str:
        needed = _NEEDS.get(value)
        if needed is not None and importlib.util.find_spec(needed) is None:
            raise ValueError(f"the sampler {value} needs the package {needed}: {pip_install('samplers')}")
        return value

    async def ready(self, study: Study) -> None:
        if len(study.objectives) > 1 and self.sampler == "cmaes":
            raise SpecError("the sampler cmaes takes one objective", hint="Use nsga2 or tpe.", path=("sampler",))

    async def optimize(self, study: Study) -> Workflow:
        single = len(study.objectives) == 1
        searcher = study.searcher(
            sampler=self.sampler,
            startup=STARTUP,
            directions=["maximize" if objective_sign(o) > 0 else "minimize" for o in study.objectives],
            pruner=self._pruner() if single and self.prune == "wilcoxon" else None,
            starts=True,
        )
        evaluated: set[int] = set()  # numbers of trials: what was tried before is told to the sampler, but is no news
        try:
            await self._search(study, searcher, single, evaluated)
        finally:
            if self.dashboard:
                _keep(searcher, study, evaluated)
        return study.best

    async def _search(self, study: Study, searcher: Searcher, single: bool, evaluated: set[int]) -> None:
        tried: dict[str, Evaluation] = {}
        verdicts: dict[Any, bool] = {}
        repeats = 0
        while len(tried) < self.trials:
            if repeats >= self.patience:
                study.log(
                    f"{len(tried)} of {self.trials} trials: the last {repeats} samples were tried before or "
                    "cost more than is left, so the space seems to be exhausted (raise patience, or widen search: to "
                    "try more)"
                )
                return
            asked = searcher.ask()
            known = tried.get(asked.workflow.hash)
            if known is not None:
                self._share(asked, known, single)
                searcher.tell(asked, _values(known, study.objectives), pruned=not known.complete)
                repeats += 1
                continue
            if not study.affords(asked.workflow):
                searcher.tell(asked, None)
                repeats += 1  # a cheaper candidate may still fit
                continue
            try:
                evaluation = await study.evaluate(asked.workflow, race=self._race(searcher, asked, single, verdicts))
            except BudgetSpent:
                searcher.tell(asked, None)
                raise
            tried[asked.workflow.hash], repeats = evaluation, 0
            evaluated.add(asked.number)
            self._share(asked, evaluation, single)
            searcher.tell(asked, _values(evaluation, study.objectives), pruned=not evaluation.complete)

    def _pruner(self) -> Any:
        import warnings

        import optuna

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.pruners.WilcoxonPruner(p_threshold=P_THRESHOLD, n_startup_steps=_STARTUP_STEPS)

    def _share(self, asked: AskedTrial, evaluation: Evaluation, single: bool) -> None:
        if single and self.prune == "wilcoxon":
            _report(asked, evaluation.scores)

    def _race(self, searcher: Searcher, asked: AskedTrial, single: bool, verdicts: dict[Any, bool]) -> Race | bool:
        if not single or self.prune == "none":
            return False
        if self.prune == "race":
            return True

        def stop(scores: Sequence[float]) -> bool:
            """Report each new score under the number of its example, then ask the pruner.

            Its verdict depends on the differences to the best trial alone, and few of those differ where scores are 0
            or 1; its exact test takes 0.1 s, so that a verdict is kept, and those that are simple are not asked for.
            """
            _report(asked, scores)
            try:
                best = [s for _, s in sorted(searcher.study.best_trial.intermediate_values.items())]
            except ValueError:  # no trial is complete yet
                return False
            differences = tuple(sorted(a - b for a, b in zip(scores, best, strict=False)))
            safe = sum(best) * len(scores) <= sum(scores) * len(best)
            if (differences, safe) not in verdicts:
                p = sign_test(differences) if len(differences) >= _STARTUP_STEPS else 1.0
                prunes = asked.trial.should_prune if p is None else lambda: p < P_THRESHOLD and not safe
                verdicts[differences, safe] = prunes()
            return verdicts[differences, safe]

        return stop


def sign_test(differences: Sequence[float]) -> float | None:
    """The p-value of the pruner's exact test that differences are below zero, where it is a sign test: those that are
    not zero are of one size, as they are where scores are 0 or 1. None otherwise.

    All ranks are then equal, and of the signs that could have been drawn those count that are as many below zero.
    """
    moved = [d for d in differences if d]
    if len(differences) > _EXACT or len({abs(d) for d in moved}) > 1:
        return None
    above = sum(d > 0 for d in moved)
    return sum(math.comb(len(moved), k) for k in range(above + 1)) / 2 ** len(moved)


def _report(asked: AskedTrial, scores: Sequence[float]) -> None:
    """Tell the trial its scores so far. The best trial needs all of them, though it may have been scored without a
    race (as the baseline is): the pruner compares others with it."""
    for step in range(asked.reported, len(scores)):
        asked.trial.report(scores[step], step)
    asked.reported = max(asked.reported, len(scores))


def _values(evaluation: Evaluation, objectives: Sequence[str]) -> list[float]:
    return [evaluation.objectives[o] for o in objectives]


def _without_steps(trial: Any) -> Any:
    """A trial without the scores of its single examples: they stand in the results, and cost a transaction each."""
    import copy

    lean = copy.copy(trial)
    lean.intermediate_values = {}
    return lean


def _keep(searcher: Searcher, study: Study, evaluated: set[int]) -> None:
    """Copy the finished search into Optuna's tables in the run database; a replay replaces what it finds there."""
    import optuna

    database = f"sqlite:///{study.database.resolve()}"
    name = f"run {study.run_id} {study.name}"
    study.flush()
    storage = optuna.storages.RDBStorage(database, engine_kwargs={"connect_args": {"timeout": 10}})
    try:
        if name in optuna.get_all_study_names(storage):
            optuna.delete_study(study_name=name, storage=storage)
        kept = optuna.create_study(storage=storage, study_name=name, directions=searcher.study.directions)
        kept.add_trials(
            [_without_steps(trial) for trial in searcher.study.get_trials(deepcopy=False) if trial.number in evaluated]
        )
    finally:
        storage.engine.dispose()
