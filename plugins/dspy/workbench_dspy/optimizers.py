"""DSPy's optimizers: compiled in a thread, paid through the ledger, and evaluated like any candidate."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import Any, ClassVar

from pydantic import Field

from workbench import LMError, NodeError, Optimizer, Study, Workflow
from workbench.task import without_blanks
from workbench.workflow import learnable_addresses

_DEMOS = "maximum number of demos from the workflow's own successes"
_LABELED = "maximum number of demos with those from labels, which an agent's calls of tools are not in"


class _DSPyOptimizer(Optimizer):
    """Base class: sets up the program and the rows, and runs DSPy in a thread until it ends."""

    reads_feedback: ClassVar[bool] = False

    def reads_search(self) -> bool:
        return False

    async def optimize(self, study: Study) -> Workflow:
        from workbench_dspy.bridge import Bridge, Ended
        from workbench_dspy_seam.programs import AdapterParseError, LMError as DSPyLMError

        if not learnable_addresses(study.workflow, "demos") or not study.train:
            return study.best
        bridge, seed = Bridge(study), study.rng.randrange(2**31)
        kept: list[Any] = []  # programs in DSPy's order of merit
        try:
            adapter = self._adapter()
            await asyncio.to_thread(_quietly, lambda: kept.extend(self._work(bridge, seed)), bridge, adapter)
        except Ended:  # the reason is set before `close` sets another
            raise (bridge.reason or RuntimeError("DSPy ended without a reason")) from None
        except (AdapterParseError, DSPyLMError, LMError, NodeError) as error:
            # DSPy gives up if a proposal fails or cannot be parsed. The evaluations until then are kept.
            study.record_event("dspy_gave_up", message=str(error)[:2000])
        finally:
            await bridge.close()
        for candidate in kept:
            workflow = candidate.patched()
            if study.affords(workflow) or study.known(workflow) is not None:
                await study.evaluate(workflow)
        return study.best

    def _work(self, bridge: Any, seed: int) -> list[Any]:
        """Make the program and compile it, in the thread. (Making a predictor also draws from the global random.)"""
        from workbench_dspy.program import Rows, WorkflowProgram, make_metric

        study = bridge.study
        program = WorkflowProgram(bridge, study.workflow)
        if not program.addresses:
            return []
        rows = Rows(program, [*study.train, *study.val], study.targets)
        split, metric = len(study.train), make_metric(bridge, rows, feedback=self.reads_feedback)
        train = without_blanks(rows.inputs, rows.rows[:split]) or rows.rows[:split]  # each may become a demo
        best = self._compile(bridge, program, metric, train, rows.rows[split:], seed)
        return [best, *(c["program"] for c in getattr(best, "candidate_programs", [])[:3])]

    def _compile(self, bridge: Any, program: Any, metric: Any, train: list[Any], val: list[Any], seed: int) -> Any:
        """Return the best program, perhaps with others as `candidate_programs`. train, val: DSPy's examples."""
        raise NotImplementedError

    def _adapter(self) -> Any:
        """Return DSPy's adapter for its work. It is set explicitly, since versions of DSPy have different defaults."""
        from workbench_dspy_seam.programs import ADAPTERS

        return ADAPTERS["chat"]()


def _quietly(work: Callable[[], None], bridge: Any, adapter: Any) -> None:
    """Run work with DSPy's settings. Its log, bars and global random states are restored afterwards."""
    import dspy
    import numpy
    import tqdm

    logger, level = logging.getLogger("dspy"), logging.getLogger("dspy").level
    original = tqdm.tqdm.__init__

    def silent(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **{**kwargs, "disable": True})

    states = random.getstate(), numpy.random.get_state()
    logger.setLevel(logging.CRITICAL)
    tqdm.tqdm.__init__ = silent  # a run has its own progress, and DSPy's bars cannot all be switched off
    try:
        with (
            dspy.context(
                lm=bridge.lm("proposer"),
                adapter=adapter,
                max_errors=10**9,
                disable_history=True,
                provide_traceback=False,
                num_threads=bridge.study.concurrency,
            ),
            redirect_stdout(StringIO()),
        ):
            work()
    finally:
        logger.setLevel(level)
        tqdm.tqdm.__init__ = original
        random.setstate(states[0])
        numpy.random.set_state(states[1])


class DSPyBootstrap(_DSPyOptimizer):
    """DSPy's BootstrapFewShot; with candidates > 0, BootstrapFewShotWithRandomSearch over that many draws of demos."""

    candidates: int = Field(
        4, ge=0, le=64, description="number of samples of demos to compare on val; 0: a single one, without search"
    )
    max_demos: int = Field(4, ge=0, le=64, description=_DEMOS)
    max_labeled_demos: int = Field(8, ge=0, le=64, description=_LABELED)

    def _compile(self, bridge: Any, program: Any, metric: Any, train: list[Any], val: list[Any], seed: int) -> Any:
        from dspy.teleprompt import BootstrapFewShot, BootstrapFewShotWithRandomSearch

        settings: dict[str, Any] = {
            "metric": metric,
            "max_bootstrapped_demos": self.max_demos,
            "max_labeled_demos": self.max_labeled_demos,
            "max_errors": 10**9,
        }
        random.Random(seed).shuffle(train)  # DSPy's own seeds are fixed, so only this varies with the seed
        if not self.candidates:
            return BootstrapFewShot(**settings).compile(program, trainset=train)
        optimizer = BootstrapFewShotWithRandomSearch(
            **settings, num_candidate_programs=self.candidates, num_threads=bridge.study.concurrency
        )
        return optimizer.compile(program, trainset=train, valset=val)


class DSPyMIPRO(_DSPyOptimizer):
    """DSPy's MIPROv2 (Opsahl-Ong et al., arXiv 2406.11695): proposed instructions and bootstrapped demos, by TPE."""

    candidates: int = Field(4, ge=1, le=64, description="instructions and sets of demos to choose from")
    trials: int = Field(8, ge=1, le=1000, description="combinations that are tried")
    batch: int = Field(20, ge=1, description="rows of val for one trial")
    max_demos: int = Field(4, ge=0, le=64, description=_DEMOS)
    max_labeled_demos: int = Field(4, ge=0, le=64, description=_LABELED)

    def _compile(self, bridge: Any, program: Any, metric: Any, train: list[Any], val: list[Any], seed: int) -> Any:
        from dspy.teleprompt import MIPROv2

        optimizer = MIPROv2(
            metric=metric,
            prompt_model=bridge.lm("proposer"),
            auto=None,
            seed=seed,
            num_candidates=self.candidates,
            max_bootstrapped_demos=self.max_demos,
            max_labeled_demos=self.max_labeled_demos,
            num_threads=bridge.study.concurrency,
            max_errors=10**9,
        )
        return optimizer.compile(
            program,
            trainset=train,
            valset=val,
            num_trials=self.trials,
            seed=seed,
            minibatch=len(val) > self.batch,
            minibatch_size=min(self.batch, len(val)),
            program_aware_proposer=False,
        )


class DSPyGEPA(_DSPyOptimizer):
    """DSPy's GEPA (Agrawal et al., arXiv 2507.19457): reflection on feedback, candidates kept on a Pareto front."""

    reads_feedback = True

    rounds: int = Field(3, ge=1, description="scored runs of the workflow, in passes over train and val")
    batch: int = Field(3, ge=1, le=64, description="rows that one reflection looks at")

    def _compile(self, bridge: Any, program: Any, metric: Any, train: list[Any], val: list[Any], seed: int) -> Any:
        from dspy.teleprompt import GEPA

        from workbench_dspy_seam.programs import instruction_proposer

        optimizer = GEPA(
            metric=metric,
            max_full_evals=self.rounds,
            seed=seed,
            reflection_minibatch_size=self.batch,
            reflection_lm=bridge.lm("proposer"),
            instruction_proposer=instruction_proposer(self._adapter()),
            num_threads=bridge.study.concurrency,
            warn_on_score_mismatch=False,
        )
        return optimizer.compile(program, trainset=train, valset=val)

    def _adapter(self) -> Any:
        """Return the plain adapter: DSPy's own proposer requires JSON, which small models cannot write."""
        from workbench_dspy.proposals import ProposalAdapter

        return ProposalAdapter()
