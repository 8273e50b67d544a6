"""The optimizer `tune`: searches the settings of another optimizer, and stops trials that fall behind.

Each trial is a run of that optimizer from the same start with an equal share of the remaining budget. Its best score on
val after each tenth of the share is compared with that of earlier trials at the same point (Optuna's MedianPruner,
after the median stopping rule of Google Vizier, Golovin et al. 2017). A stopped trial leaves the rest of its share to
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from workbench import Evaluation, Optimizer, Study, Workflow
from workbench.errors import ShareSpent, suggest
from workbench.spec import DomainSpec
from workbench.study import make_optimizer
from workbench.task import suggest_value
from workbench_optuna.optimizer import Optuna
from workbench_optuna.sampler import make_sampler

TENTHS = 10
LAST_SHARE = 0.999  # of the remaining budget: the last trial, too, then has a share that can be used up and be stopped


class Behind(ShareSpent):
    """Stops this trial, which ends as if its share were used up."""


#: Trials before the sampler learns, and before pruning starts.
STARTUP = 3


class Tune(Optimizer):
    """Runs another optimizer several times, with settings that Optuna chooses, and keeps the best workflow of all."""

    optimizer: str | dict[str, dict[str, Any] | None] = Field(
        "bootstrap", description="what is tuned, as under `optimize:`; its settings there are those of the first trial"
    )
    search: dict[str, DomainSpec] = Field(
        {"max_demos": DomainSpec.model_validate({"int": [1, 16], "log": True})},
        min_length=1,
        description="settings to search, e.g. learning.rate: {float: [1.0e-5, 1.0e-3], log: true}",
    )
    trials: int = Field(
        6, ge=1, le=1000, description="runs of the optimizer; each may use an equal share of what is left"
    )
    sampler: Literal["tpe", "random", "qmc"] = Field("tpe", description="Optuna's sampler")
    race: bool = Field(True, description="stop trials that have reached less than the median of earlier ones")

    @model_validator(mode="after")
    def _made(self) -> Tune:
        inner = self._with({})
        if "search" not in self.model_fields_set and "optimizer" in self.model_fields_set:
            raise ValueError("say what is searched, e.g. search: {learning.rate: {float: [1.0e-5, 1.0e-3], log: true}}")
        if isinstance(inner, Tune):
            raise ValueError("tune cannot tune itself")
        if isinstance(inner, Optuna) and inner.storage is not None:
            raise ValueError("an optimizer that is tuned searches alone: remove its storage")
        for name, domain in self.search.items():
            _check_setting(type(inner), name)
            if not (domain.int_ or domain.float_ or domain.choice) or domain.when:
                raise ValueError(f"{name}: give int, float or choice, without `when`")
        for values in self._extremes():
            self._with(values)
        return self

    def _extremes(self) -> list[dict[str, Any]]:
        """Return settings that represent all: each choice, and the ends of each range, with the others at their first
        value."""
        values = {n: d.choice or [*(d.int_ or d.float_ or ())] for n, d in self.search.items()}
        first = {name: found[0] for name, found in values.items()}
        return [{**first, name: value} for name, found in values.items() for value in found]

    def reads_search(self) -> bool:
        return self._with({}).reads_search()

    def missing(self, workflow: Workflow) -> str | None:
        return self._with({}).missing(workflow)

    async def ready(self, study: Study) -> None:
        for values in ({}, *self._extremes()):
            await self._with(values).ready(study)

    async def optimize(self, study: Study) -> Workflow:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        trials = optuna.create_study(
            direction="maximize",
            sampler=make_sampler(self.sampler, study.rng.getrandbits(31), STARTUP),
            pruner=optuna.pruners.MedianPruner(STARTUP),
        )
        needed, left = study.planned_calls(study.workflow, study.val), study.remaining("calls")
        count = next((n for n in range(self.trials, 0, -1) if _share(n) * left >= needed), 0)
        if count < self.trials:
            most = math.ceil(needed / _share(self.trials)) - int(left)
            study.log(
                f"{left:.0f} calls are left, and each trial needs at least the {needed} of one pass over val: "
                f"{count} trials are run, not {self.trials}. All of them take at least {most} more in budget: calls",
                trials=count,
            )
        for number in range(count):
            share = _share(count - number)
            if share * study.remaining("calls") < needed:
                break
            trial = trials.ask()
            # The first trial uses the user's own settings, so that they are tried in any case.
            values = {} if number == 0 else {n: suggest_value(trial, n, d) for n, d in self.search.items()}
            made = self._with(values)
            part = study.narrow(val=study.val, workflow=study.workflow, share=share, name=f"trial {number + 1}")
            watch = _Watch(part, trial, self.race and number >= STARTUP)
            part.progress.on_evaluation = watch
            await part.evaluate(part.workflow)  # paid before: answered by the journal, so that the trial begins with it
            try:
                await part.improve(made)
            # also if the whole run's budget ends: the trial's result is paid for, so that it costs nothing here
            finally:
                if part.best.hash in part.progress.complete:
                    await study.evaluate(part.best)
            if watch.stopped:
                trials.tell(trial, state=optuna.trial.TrialState.PRUNED)
            else:
                watch.report(TENTHS)
                trials.tell(trial, watch.best)
            shown = (
                ", ".join(
                    f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                    for name, value in values.items()
                )
                or "as written"
            )
            study.log(
                f"trial {number + 1}: {watch.best:.3f} with {shown}{', stopped' if watch.stopped else ''}",
                score=watch.best,
            )
        return study.best

    def _with(self, values: Mapping[str, Any]) -> Optimizer:
        """Return the optimizer with these settings in place of its own. Raise ValueError for invalid ones."""
        entry = {self.optimizer: {}} if isinstance(self.optimizer, str) else self.optimizer
        ((name, given),) = entry.items()
        settings: dict[str, Any] = copy.deepcopy(dict(given or {}))
        for path, value in values.items():
            here = settings
            *parents, last = path.split(".")
            for parent in parents:
                here = here.setdefault(parent, {})
            here[last] = value
        return make_optimizer({name: settings})


def _share(trials: int) -> float:
    """Compute the share of the first of the remaining trials."""
    return min(LAST_SHARE, 1 / trials)


class _Watch:
    """Follows a trial's evaluations and records its best score at each tenth of its share."""

    def __init__(self, part: Study, trial: Any, stops: bool):
        self.part, self.trial, self.stops = part, trial, stops
        self.best, self.stopped, self.reported = 0.0, False, 0
        self.begun = {what: part.remaining(what) for what in part.limits}

    async def __call__(self, evaluation: Evaluation) -> None:
        if evaluation.complete:
            self.best = max(self.best, evaluation.score)
        used = [1 - self.part.remaining(what) / left for what, left in self.begun.items() if left > 0]
        self.report(int(TENTHS * max(used, default=0.0)))
        if self.stops and self.trial.should_prune():
            self.stopped = True
            raise Behind("trial", 0, 0)

    def report(self, tenths: int) -> None:
        for step in range(self.reported + 1, min(tenths, TENTHS) + 1):
            self.trial.report(self.best, step)
            self.reported = step


def _check_setting(cls: type[Optimizer], path: str) -> None:
    """Raise ValueError if an optimizer has no setting of that name."""
    here: Any = cls
    for part in path.split("."):
        fields = getattr(here, "model_fields", None)
        if fields is None:
            return  # inside free-form settings: only a trial can show whether it exists
        if part not in fields:
            before = path.rpartition(".")[0] if path.endswith(f".{part}") else ""
            raise ValueError(
                f"there is no setting '{path}'. {suggest(path, [f'{before}.{n}' if before else n for n in fields])}"
            )
        here = fields[part].annotation
