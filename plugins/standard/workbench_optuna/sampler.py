"""Ask-and-tell on a search space (Optuna, imported when first asked)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from workbench import Patch, Workflow
from workbench.errors import SpecError, suggest
from workbench.task import Space


@dataclass
class AskedTrial:
    """A candidate to evaluate, with the Optuna trial that suggested it."""

    number: int
    workflow: Workflow
    values: dict[str, Any]
    trial: Any
    reported: int = 0  # number of example scores reported to the trial


class Searcher:
    """Ask-and-tell on a space with an Optuna sampler: tpe, gp, cmaes, nsga2, random, qmc.

    starts: suggest the candidates of `Space.starts` first. startup: random candidates before the sampler learns.
    study: an Optuna study that others search, too; default: one in memory.
    salt: mixed into the seed, so that several runs that search one study draw different candidates.
    """

    SAMPLERS = ("tpe", "gp", "cmaes", "nsga2", "random", "qmc")

    def __init__(
        self,
        space: Space,
        workflow: Workflow,
        *,
        seed: int,
        sampler: str = "tpe",
        directions: Sequence[str] = ("maximize",),
        startup: int = 8,
        starts: bool = False,
        study: Any = None,
        salt: str = "",
    ):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space, self.workflow = space, workflow
        self.study = study or optuna.create_study(directions=cast(Any, list(directions)))
        own = random.Random(f"{seed}:{salt}").getrandbits(31) if salt else seed
        self.study.sampler = make_sampler(sampler, own, startup)
        # CMA-ES warns about each constraint. GP draws at random once all candidates so far miss the same one.
        self.takes_constraints = sampler not in ("cmaes", "gp")
        self.study.pruner = optuna.pruners.NopPruner()
        for parameters in space.starts(workflow) if starts else ():
            self.study.enqueue_trial(parameters)

    def ask(self, note: str = "") -> AskedTrial:
        """Return the next candidate: the searcher's workflow with suggested values."""
        return self.candidate(self.study.ask(), note)

    def candidate(self, trial: Any, note: str = "") -> AskedTrial:
        """Return the candidate of a trial. A trial that was asked for before already has its values."""
        values = self.space.suggest(trial, self.workflow)
        return AskedTrial(
            trial.number, self.workflow.patched(Patch(values, note=note or f"trial {trial.number}")), values, trial
        )

    def tell(
        self,
        asked: AskedTrial,
        values: Sequence[float] | float | None,
        *,
        pruned: bool = False,
        constraints: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Report the objectives of a candidate to the sampler; None if it could not be evaluated.

        constraints: above 0 if missed. Candidates that meet all of them rank first. A trial may already be finished by
        another searcher of the same study.
        """
        import optuna

        state = optuna.trial.TrialState
        if pruned:
            self.study.tell(asked.trial, state=state.PRUNED, skip_if_finished=True)
        elif values is None:
            self.study.tell(asked.trial, state=state.FAIL, skip_if_finished=True)
        else:
            with suppress(optuna.exceptions.UpdateFinishedTrialError):
                for name, by in constraints.items() if self.takes_constraints else ():
                    asked.trial.set_constraint(name, by)
            self.study.tell(asked.trial, values, skip_if_finished=True)


def make_sampler(name: str, seed: int, startup: int) -> Any:
    """Make the Optuna sampler of a name. startup: random trials before it learns. Raises SpecError if unknown."""
    import warnings

    import optuna

    s = optuna.samplers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if name == "tpe":
            return s.TPESampler(seed=seed, n_startup_trials=startup, multivariate=True, group=True)
        if name == "gp":
            return s.GPSampler(seed=seed, n_startup_trials=startup)
        if name == "cmaes":
            return s.CmaEsSampler(seed=seed, n_startup_trials=startup)
        if name == "nsga2":
            return s.NSGAIISampler(seed=seed, population_size=max(4, startup))
        if name == "qmc":
            return s.QMCSampler(seed=seed, scramble=True, warn_independent_sampling=False)
        if name == "random":
            return s.RandomSampler(seed=seed)
    raise SpecError(f"unknown sampler '{name}'", hint=suggest(name, Searcher.SAMPLERS))
