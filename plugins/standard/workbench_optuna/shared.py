"""An Optuna study that several runs search, each under its own budget. They share its trials and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from workbench import Evaluation, Study, Workflow
from workbench.base.hashing import digest
from workbench.errors import StoreError
from workbench.store import RunRecord
from workbench.workflow import Patch
from workbench_optuna.sampler import AskedTrial, Searcher
from workbench_optuna.storage import close_storage, open_storage

#: Attributes of a trial: its run, and the hash of its candidate.
OWNER, CANDIDATE = "workbench:searcher", "workbench:candidate"


class SharedStudy:
    """A study in a storage. trials: Optuna's study, without a sampler. created: True if this run, in this process, made
    it."""

    def __init__(self, study: Study, run: str, trials: Any, created: bool):
        self.study, self.run, self.trials, self.created = study, run, trials, created

    def settings(self) -> dict[str, Any]:
        """Return settings of `Searcher`. The run that creates the study draws like one without a
        storage, until it is resumed. All others draw other candidates."""
        salt = "" if self.created else f"{self.run}:{len(self._own_trials())}"
        return {"study": self.trials, "salt": salt, "starts": self.created}

    def sign(self, asked: AskedTrial) -> None:
        """Record a trial's run and candidate on the trial."""
        asked.trial.set_user_attr(OWNER, self.run)
        asked.trial.set_user_attr(CANDIDATE, asked.workflow.hash)

    def find_known(self, asked: AskedTrial) -> Any:
        """Return another run's trial that evaluated this candidate, or None."""
        return next((t for t in self._evaluated() if t.user_attrs[CANDIDATE] == asked.workflow.hash), None)

    async def repeat_own(self, searcher: Searcher) -> tuple[list[tuple[int, Evaluation]], list[AskedTrial]]:
        """Repeat the evaluations of this run's earlier processes, which the journal answers. Returns the evaluations
        with the numbers of their trials, and the trials that were begun and not finished."""
        done, begun = list[tuple[int, Evaluation]](), list[AskedTrial]()
        for trial in self._own_trials():
            n = len(trial.intermediate_values)
            if trial.state.name == "RUNNING":
                begun.append(_ask_again(searcher, trial, n))
            elif trial.state.name in ("COMPLETE", "PRUNED"):
                race = (lambda scores, n=n: len(scores) >= n) if trial.state.name == "PRUNED" else False
                done.append((trial.number, await self.study.evaluate(self._rebuild(trial), race=race)))
        return done, begun

    async def evaluate_best(self) -> None:
        """Evaluate the best candidates of other runs, as far as the budget allows: they can win."""
        for trial in self.trials.best_trials if self._evaluated() else ():
            if trial.user_attrs.get(OWNER) not in (None, self.run):
                workflow = self._rebuild(trial)
                if self.study.affords(workflow):
                    await self.study.evaluate(workflow)

    def _own_trials(self) -> list[Any]:
        return [t for t in self.trials.get_trials(deepcopy=False) if t.user_attrs.get(OWNER) == self.run]

    def _evaluated(self) -> list[Any]:
        """Return the trials of all runs that ended with values, or were stopped by the pruner."""
        ended = [t for t in self.trials.get_trials(deepcopy=False) if t.state.name in ("COMPLETE", "PRUNED")]
        return [t for t in ended if CANDIDATE in t.user_attrs]

    def _rebuild(self, trial: Any) -> Workflow:
        """Return a trial's candidate, built from its parameters."""
        import optuna

        values = self.study.space().suggest(optuna.trial.FixedTrial(trial.params, trial.number), self.study.workflow)
        made = self.study.workflow.patched(Patch(values, note=f"trial {trial.number}"))
        if made.hash != trial.user_attrs[CANDIDATE]:
            raise StoreError(
                f"trial {trial.number} is another candidate here than in the study '{self.trials.study_name}': its run "
                "has another version of workbench or of a plugin; name another study"
            )
        return made


def _ask_again(searcher: Searcher, trial: Any, reported: int) -> AskedTrial:
    import optuna

    asked = searcher.candidate(optuna.trial.Trial(searcher.study, trial._trial_id))
    asked.reported = reported
    return asked


@asynccontextmanager
async def shared_study(
    study: Study, storage: str, name: str | None, directions: list[str]
) -> AsyncGenerator[SharedStudy]:
    """Open a study in a storage.

    Its name ends with a hash of everything that makes scores and parameters comparable: the start of the search, rows
    of val, domains and objectives. Runs that differ in these search different studies.

    Raises:
        StoreError: the storage cannot be used.
    """
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    run = RunRecord(study.ledger.store, study.run_id).find_name()
    workflow = study.ledger.store.find_run(run)["name"]
    domains = {address: domain.model_dump() for address, domain in study.domains.items()}
    rows = [dict(row) for row in (*study.train, *study.val)]  # demos are rows of train
    title = f"{name or workflow} {digest([study.workflow.hash, rows, domains, list(study.objectives)])[:8]}"
    opened = None
    try:
        opened = await asyncio.to_thread(open_storage, storage, study.workflow.base)
        try:
            trials = optuna.create_study(storage=opened, study_name=title, directions=cast(Any, directions))
            created = True
        except optuna.exceptions.DuplicatedStudyError:
            trials, created = optuna.load_study(storage=opened, study_name=title), False
        yield SharedStudy(study, run, trials, created)
    except (optuna.exceptions.StorageInternalError, SQLAlchemyError, OSError) as error:
        raise StoreError(f"the storage of the study cannot be used: {str(error).splitlines()[0]}") from None
    finally:
        if opened is not None:
            close_storage(opened)
