"""Search with Optuna: ask for a candidate, evaluate it, tell its objectives."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import Field, field_validator, model_validator

from workbench import BudgetSpent, Evaluation, Optimizer, Study, Workflow
from workbench.base.distribution import pip_install
from workbench.base.hashing import digest
from workbench.errors import SpecError, StoreError
from workbench.spec import ADDRESS, PATH, Found, Written
from workbench.study import AskedTrial, Joining, Race, Searcher, Searchers, objective_sign

if TYPE_CHECKING:
    from workbench_optuna.searchers import SharedStudy

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


def _storage(setting: Written) -> Found:
    return (ADDRESS if "://" in str(setting.value) else PATH)(setting)


class Optuna(Optimizer):
    """Samples the search space with Optuna and learns from every score.

    Without a `search:` section it searches the number and choice of labelled demos of every node that takes them.
    With several objectives it searches for the Pareto set (use the sampler nsga2 or tpe); pruning is then off.
    """

    powers = {"storage": _storage}

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
    storage: str | None = Field(
        None,
        min_length=1,
        description="where several runs search one study: the path of a journal file, or postgresql://USER@HOST/DATABASE",
    )
    study: str | None = Field(
        None, min_length=1, max_length=100, description="name of that study; default: that of the workflow"
    )

    @field_validator("sampler")
    @classmethod
    def _installed(cls, value: str) -> str:
        needed = _NEEDS.get(value)
        if needed is not None and importlib.util.find_spec(needed) is None:
            raise ValueError(f"the sampler {value} needs the package {needed}: {pip_install('samplers')}")
        return value

    @field_validator("storage")
    @classmethod
    def _without_password(cls, value: str | None) -> str | None:
        from workbench_optuna.account_log import check_address

        return value if value is None else check_address(value)

    @model_validator(mode="after")
    def _study_in_storage(self) -> Optuna:
        if self.study is not None and self.storage is None:
            raise ValueError("study names a study in a storage: say where it is kept, e.g. storage: search.log")
        return self

    def shares_study(self) -> bool:
        return self.storage is not None

    async def join(self, study: Study, joining: Joining) -> Searchers:
        from workbench_optuna.searchers import join_study

        assert self.storage is not None
        own = digest(self.model_dump(exclude={"storage", "study", "dashboard"}))
        joining = replace(joining, parts={**joining.parts, "optimize": own})
        name = self.study or joining.name
        return await join_study(study, joining, self.storage, name, directions(study.objectives), self.trials)

    async def ready(self, study: Study) -> None:
        if len(study.objectives) > 1 and self.sampler == "cmaes":
            raise SpecError("the sampler cmaes takes one objective", hint="Use nsga2 or tpe.", path=("sampler",))

    async def optimize(self, study: Study) -> Workflow:
        import optuna

        single, shared = len(study.objectives) == 1, self._others(study)
        settings: dict[str, Any] = {"starts": True} if shared is None else shared.settings(self.sampler)
        searcher = study.searcher(
            sampler=self.sampler,
            startup=STARTUP,
            directions=directions(study.objectives),
            pruner=self._pruner() if single and self.prune == "wilcoxon" else None,
            **settings,
        )
        evaluated: set[int] = set()  # numbers of trials: what was tried before is told to the sampler, but is no news
        try:
            await self._search(study, searcher, single, evaluated, shared)
        except (optuna.exceptions.StorageInternalError, OSError) as error:
            if shared is None:
                raise
            raise StoreError(f"the storage of the study cannot be used: {str(error).splitlines()[0]}") from None
        finally:
            if self.dashboard and shared is None:
                _keep(searcher, study, evaluated)
        return study.best

    def _others(self, study: Study) -> SharedStudy | None:
        """The runs that search the same study, on which this one goes on; None if it searches alone."""
        if self.storage is None:
            return None
        if study.searchers is None:
            raise SpecError("optuna shares a study where it stands alone under optimize", path=("storage",))
        shared = cast("SharedStudy", study.searchers)
        shared.study = study
        return shared

    async def _search(
        self, study: Study, searcher: Searcher, single: bool, evaluated: set[int], shared: SharedStudy | None
    ) -> None:
        tried = {} if shared is None else shared.tried
        begun = [] if shared is None else await shared.repeat_own()
        verdicts: dict[Any, bool] = {}
        repeats = 0
        while len(tried) < self.trials:
            if repeats >= self.patience:
                if shared is not None and await shared.hear_others():
                    repeats = 0  # for what the dead have left
                    continue
                study.log(
                    f"{len(tried)} of {self.trials} trials: the last {repeats} samples were tried before or "
                    "cost more than is left, so the space seems to be exhausted (raise patience, or widen search: to "
                    "try more)"
                )
                return
            if shared is not None:
                await shared.catch_up()
                if shared.over:
                    return
            asked = searcher.ask() if shared is None or not begun else shared.asked_before(searcher, begun.pop())
            known = tried.get(asked.workflow.hash)
            if known is not None:
                self._share(asked, known, single)
                searcher.tell(asked, _values(known, study.objectives), pruned=not known.complete)
                repeats += 1
                continue
            if refusal := await _refusal(study, asked, shared):
                searcher.tell(asked, None)
                if refusal == "trials" and not (shared and await shared.hear_others()):
                    return
                repeats += 1  # a cheaper candidate may still fit
                continue
            try:
                evaluation = await study.evaluate(asked.workflow, race=self._race(searcher, asked, single, verdicts))
            except BudgetSpent:
                if shared is None:  # else it stays begun: a resumed run may have a larger budget
                    searcher.tell(asked, None)
                raise
            tried[asked.workflow.hash], repeats = evaluation, 0
            evaluated.add(asked.number)
            self._share(asked, evaluation, single)
            if shared is not None:
                shared.publish(asked, evaluation)
            searcher.tell(asked, _values(evaluation, study.objectives), pruned=not evaluation.complete)
            if shared is not None:
                await shared.finish(asked.workflow.hash)

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


async def _refusal(study: Study, asked: AskedTrial, shared: SharedStudy | None) -> str:
    """Why a candidate is not evaluated (`SharedStudy.begin`); "" if it is."""
    if shared is None:
        return "" if study.affords(asked.workflow) else "budget"
    shared.sign(asked)
    return await shared.begin(asked.workflow)


def directions(objectives: Sequence[str]) -> list[str]:
    """Optuna's word for each objective."""
    return ["maximize" if objective_sign(one) > 0 else "minimize" for one in objectives]


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
