"""Search with Optuna: ask for a candidate, evaluate it, report its objectives."""

from __future__ import annotations

import asyncio
import importlib.util
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from workbench import BudgetSpent, Evaluation, Example, Optimizer, Study, Workflow
from workbench.base.distribution import pip_install
from workbench.errors import SpecError
from workbench.spec import TargetsSpec, connect, home_folder, read_outside
from workbench.study import Aims, Race, objective_sign
from workbench_optuna.importance import explain_scores
from workbench_optuna.pruning import make_race, report
from workbench_optuna.sampler import AskedTrial, Searcher
from workbench_optuna.shared import SharedStudy, shared_study
from workbench_optuna.storage import check_address, check_storage

#: Random candidates before the sampler starts to learn. Optuna's ten are too many if a budget pays for thirty.
STARTUP = 6
#: Why a sample was not evaluated.
_MISSES = {"repeated": "{} were tried before", "unaffordable": "{} cost more than is left"}
#: The packages that a sampler of Optuna needs besides Optuna.
_NEEDS = {"gp": "torch", "cmaes": "cmaes"}


class Optuna(Optimizer):
    """Samples the search space with Optuna and learns from every score.

    Without a `search:` section it searches the number and choice of labelled demos of every node that takes them.
    With several objectives it searches for the Pareto set (use the sampler nsga2 or tpe); pruning is then off.
    """

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
        if value is None or "://" not in check_address(value):
            _ = value is None or read_outside(value, home_folder(), "storage")
        else:
            connect(value, "storage")
        return value

    @model_validator(mode="after")
    def _study_in_storage(self) -> Optuna:
        if self.study is not None and self.storage is None:
            raise ValueError("study names a study in a storage: say where it is kept, e.g. storage: search.log")
        return self

    async def ready(self, study: Study) -> None:
        if len(study.objectives) > 1 and self.sampler == "cmaes":
            raise SpecError("the sampler cmaes takes one objective", hint="Use nsga2 or tpe.", path=("sampler",))
        if self.storage is not None:
            await asyncio.to_thread(check_storage, self.storage, study.workflow.base)

    def max_rows(self, train: Sequence[Example], val: Sequence[Example]) -> int:
        return self.trials * len(val)

    async def optimize(self, study: Study) -> Workflow:
        if self.storage is None:
            search = self._search(study, {"starts": True})
            try:
                await search.run()
            finally:
                search.log_importance()
                _keep(search.searcher, study, search.evaluated)
            return study.best
        async with shared_study(study, self.storage, self.study, directions(study.objectives)) as shared:
            await self._search(study, shared.settings(), shared).run()
            await shared.evaluate_best()
        return study.best

    def _search(self, study: Study, settings: dict[str, Any], shared: SharedStudy | None = None) -> _Search:
        searcher = Searcher(
            study.space(),
            study.workflow,
            seed=study.rng.randrange(2**31),
            sampler=self.sampler,
            startup=STARTUP,
            directions=directions(study.objectives),
            **settings,
        )
        return _Search(self, study, searcher, shared)

    def prunes(self, study: Study) -> bool:
        """Return True if losing candidates are stopped early."""
        return len(study.objectives) == 1 and self.race


@dataclass
class _Search:
    """The state of a search.

    tried: this run's evaluations, by hash. evaluated: scores of new evaluations, by trial number. A candidate that was
    tried before is reported to the sampler, but not counted as new. p_values: by differences.
    """

    settings: Optuna
    study: Study
    searcher: Searcher
    shared: SharedStudy | None
    tried: dict[str, Evaluation] = field(default_factory=dict[str, Evaluation])
    evaluated: dict[int, float] = field(default_factory=dict[int, float])
    p_values: dict[tuple[float, ...], float] = field(default_factory=dict[tuple[float, ...], float])

    async def run(self) -> None:
        """Try candidates until `trials` is reached, or no candidate is new, or none can be paid."""
        begun = list[AskedTrial]()
        if self.shared is not None:
            done, begun = await self.shared.repeat_own(self.searcher)
            for number, evaluation in done:
                self._note(number, evaluation)
        trials, misses = self.settings.trials, Counter[str]()
        while len(self.tried) < trials:
            if misses.total() >= self.settings.patience:
                ended = "so the space seems to be exhausted (raise patience, or widen search: to try more)"
                if misses["unaffordable"]:
                    ended = "so the budget ends the search (raise budget: to try more)"
                told = " and ".join(_MISSES[why].format(count) for why, count in sorted(misses.items()))
                self.study.log(f"{len(self.tried)} of {trials} trials: of the last samples, {told}, {ended}")
                return
            missed = await self._try(begun.pop(0) if begun else self.searcher.ask())
            misses = misses + Counter([missed]) if missed else Counter()  # a cheaper candidate may still fit

    async def _try(self, asked: AskedTrial) -> str | None:
        """Evaluate a candidate and report the result. Returns a key of `_MISSES` if it was not evaluated."""
        if (known := self.tried.get(asked.workflow.hash)) is not None:
            self._tell(asked, known)
            return "repeated"
        if self.shared is not None:
            if (other := self.shared.find_known(asked)) is not None:
                self.searcher.tell(asked, other.values, pruned=other.state.name == "PRUNED")
                return "repeated"
            self.shared.sign(asked)
        if not self.study.affords(asked.workflow):
            self.searcher.tell(asked, None)
            return "unaffordable"
        try:
            evaluation = await self.study.evaluate(asked.workflow, race=self._race(asked))
        except BudgetSpent:
            if self.shared is None:  # else it stays open: a resumed run may have a larger budget
                self.searcher.tell(asked, None)
            raise
        self._note(asked.number, evaluation)
        self._tell(asked, evaluation)
        return None

    def _note(self, number: int, evaluation: Evaluation) -> None:
        self.tried[evaluation.workflow.hash] = evaluation
        self.evaluated[number] = evaluation.score

    def log_importance(self) -> None:
        """Log how much of the spread of scores each setting explains; a stopped trial counts with the rows it has."""
        trials = self.searcher.study.get_trials(deepcopy=False)
        shares = explain_scores([(t.params, self.evaluated[t.number]) for t in trials if t.number in self.evaluated])
        if len(shares) > 1:
            told = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
            self.study.log(f"share of each setting in the spread of {len(self.evaluated)} scores: {told}", **shares)

    def _race(self, asked: AskedTrial) -> Race | bool:
        return self.settings.prunes(self.study) and make_race(self.searcher, asked, self.p_values)

    def _tell(self, asked: AskedTrial, evaluation: Evaluation) -> None:
        if self.settings.prunes(self.study):
            report(asked, evaluation.scores)
        values = [evaluation.objectives[one] for one in self.study.objectives]
        missed = missed_levels(self.study.levels, evaluation)
        self.searcher.tell(asked, values, pruned=not evaluation.complete, constraints=missed)


def directions(objectives: Sequence[str]) -> list[str]:
    """Return Optuna's direction for each objective."""
    return ["maximize" if objective_sign(one) > 0 else "minimize" for one in objectives]


def _without_steps(trial: Any) -> Any:
    """Return a trial without the scores of single examples. The results hold them, and each costs a transaction."""
    import copy

    lean = copy.copy(trial)
    lean.intermediate_values = {}
    return lean


def _keep(searcher: Searcher, study: Study, evaluated: Collection[int]) -> None:
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


def missed_levels(levels: TargetsSpec | None, evaluation: Evaluation) -> dict[str, float]:
    """Return by how much a candidate misses each service level, as a fraction of the limit; 0 if it meets the level.

    Samplers use them as constraints.
    """
    if levels is None:
        return {}
    missed = Aims(levels, evaluation).shortfalls(evaluation)
    return {name: missed.get(name, 0.0) for name in levels.given}
