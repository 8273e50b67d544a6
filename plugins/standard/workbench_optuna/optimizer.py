"""Search with Optuna: ask for a candidate, evaluate it, tell its objectives."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import Field, field_validator, model_validator

from workbench import BudgetSpent, Evaluation, Optimizer, Study, Workflow
from workbench.base.distribution import pip_install
from workbench.base.hashing import digest
from workbench.errors import SpecError, StoreError
from workbench.spec import ADDRESS, PATH, Found, Written
from workbench.study import AskedTrial, Joining, Race, Searcher, Searchers, missed_levels, objective_sign
from workbench_optuna.pruning import make_race, report

if TYPE_CHECKING:
    from workbench_optuna.searchers import SharedStudy

#: Random candidates before the sampler starts to learn: Optuna's ten are too many where a budget pays for thirty.
STARTUP = 6
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
    race: bool = Field(
        True, description="stop candidates early that are clearly worse, by the test of Optuna's WilcoxonPruner"
    )
    patience: int = Field(
        20,
        ge=1,
        description="number of consecutive repeats or unaffordable candidates before it ends",
    )
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
            raise ValueError(f"the sampler {value} needs the package {needed}: {pip_install('standard[samplers]')}")
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
        own = digest(self.model_dump(exclude={"storage", "study"}))
        joining = replace(joining, parts={**joining.parts, "optimize": own})
        name = self.study or joining.name
        return await join_study(study, joining, self.storage, name, directions(study.objectives), self.trials)

    async def ready(self, study: Study) -> None:
        if len(study.objectives) > 1 and self.sampler == "cmaes":
            raise SpecError("the sampler cmaes takes one objective", hint="Use nsga2 or tpe.", path=("sampler",))

    async def optimize(self, study: Study) -> Workflow:
        import optuna.exceptions as errors

        shared = self._others(study)
        settings: dict[str, Any] = {"starts": True} if shared is None else shared.settings(self.sampler)
        searcher = study.searcher(
            sampler=self.sampler,
            startup=STARTUP,
            directions=directions(study.objectives),
            **settings,
        )
        search = _Search(self, study, searcher, shared, {} if shared is None else shared.tried)
        try:
            await search.run()
        except (errors.StorageInternalError, OSError) as error:
            if shared is None:
                raise
            raise StoreError(f"the storage of the study cannot be used: {str(error).splitlines()[0]}") from None
        finally:
            if shared is None:
                _keep(searcher, study, search.evaluated)
        return study.best

    def prunes(self, study: Study) -> bool:
        """Return True if losers are stopped."""
        return len(study.objectives) == 1 and self.race

    def _others(self, study: Study) -> SharedStudy | None:
        """The runs that search the same study, on which this one goes on; None if it searches alone."""
        if self.storage is None:
            return None
        if study.searchers is None:
            raise SpecError("optuna shares a study where it stands alone under optimize", path=("storage",))
        shared = cast("SharedStudy", study.searchers)
        shared.study = study
        return shared


@dataclass
class _Search:
    """A search under way.

    tried: what is evaluated, by hash. evaluated: the numbers of its trials; what was tried before is told to the
    sampler, but is no news. p_values: by differences.
    """

    settings: Optuna
    study: Study
    searcher: Searcher
    shared: SharedStudy | None
    tried: dict[str, Evaluation]
    evaluated: set[int] = field(default_factory=set[int])
    p_values: dict[tuple[float, ...], float] = field(default_factory=dict[tuple[float, ...], float])

    async def run(self) -> None:
        """Try candidates until there are as many as there shall be, or none that is new or can be paid."""
        from optuna.exceptions import UpdateFinishedTrialError

        begun = [] if self.shared is None else await self.shared.repeat_own()
        trials, repeats = self.settings.trials, 0
        while len(self.tried) < trials:
            if repeats >= self.settings.patience:
                if await self._inherits():
                    repeats = 0
                    continue
                self.study.log(
                    f"{len(self.tried)} of {trials} trials: the last {repeats} samples were tried before or cost more "
                    "than is left, so the space seems to be exhausted (raise patience, or widen search: to try more)"
                )
                return
            if self.shared is not None:
                await self.shared.catch_up()
                if self.shared.over:
                    return
            try:
                refusal = await self._try(begun.pop() if begun else None)
            except UpdateFinishedTrialError as error:
                assert self.shared is not None
                await self.shared.finish()
                self.study.log(f"{error} This searcher was silent for too long, and others got its candidate")
                refusal = "lost"
            if refusal == "trials" and not await self._inherits():
                return
            repeats = repeats + 1 if refusal else 0  # a cheaper candidate may still fit

    async def _inherits(self) -> bool:
        """Return True if another searcher is gone, and there is more to search with."""
        return self.shared is not None and await self.shared.hear_others()

    async def _try(self, begun: Any) -> str:
        """Ask for a candidate, evaluate it, tell what came of it. Returns "", or why it was not evaluated.

        begun: a trial of this run that an earlier process of it began.
        """
        study, searcher, shared = self.study, self.searcher, self.shared
        asked = shared.asked_before(searcher, begun) if shared is not None and begun is not None else searcher.ask()
        if (known := self.tried.get(asked.workflow.hash)) is not None:
            self._tell(asked, known)
            return "known"
        if refusal := await self._refusal(asked):
            searcher.tell(asked, None)
            return refusal
        try:
            evaluation = await study.evaluate(asked.workflow, race=self._race(asked))
        except BudgetSpent:
            if shared is None:  # else it stays begun: a resumed run may have a larger budget
                searcher.tell(asked, None)
            raise
        self.tried[asked.workflow.hash] = evaluation
        self.evaluated.add(asked.number)
        if shared is not None:
            shared.publish(asked, evaluation)
        self._tell(asked, evaluation)
        if shared is not None:
            await shared.finish(asked.workflow.hash)
        return ""

    async def _refusal(self, asked: AskedTrial) -> str:
        """Why a candidate is not evaluated (`SharedStudy.begin`); "" if it is."""
        if self.shared is None:
            return "" if self.study.affords(asked.workflow) else "budget"
        self.shared.sign(asked)
        return await self.shared.begin(asked.workflow)

    def _race(self, asked: AskedTrial) -> Race | bool:
        return self.settings.prunes(self.study) and make_race(self.searcher, asked, self.p_values)

    def _tell(self, asked: AskedTrial, evaluation: Evaluation) -> None:
        if self.settings.prunes(self.study):
            report(asked, evaluation.scores)
        values = [evaluation.objectives[one] for one in self.study.objectives]
        missed = missed_levels(self.study.levels, evaluation)
        self.searcher.tell(asked, values, pruned=not evaluation.complete, constraints=missed)


def directions(objectives: Sequence[str]) -> list[str]:
    """Optuna's word for each objective."""
    return ["maximize" if objective_sign(one) > 0 else "minimize" for one in objectives]


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
