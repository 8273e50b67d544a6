"""Few-shot demos for every node that takes them.

Sources: BootstrapFewShot and BootstrapFewShotWithOptuna of DSPy (Khattab et al., arXiv 2310.03714, section 3.4) and
retrieval of the nearest demos (Liu et al., arXiv 2101.06804). Departures: the number of demos, their source and whether
they are retrieved are searched together instead of fixed, since which of them pays depends on the task; and losers are
stopped early, which saves calls.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from workbench import Evaluation, Optimizer, Patch, Study, Workflow
from workbench.base.hashing import canonical
from workbench.study import score_of
from workbench.task import draw_demos, labelled_demo
from workbench.workflow import NodeKind, learnable_addresses, node_at

Pool = list[dict[str, Any]]
#: Demos at most, until the best candidate shows so many; and ever.
START, MOST = 8, 64


class Bootstrap(Optimizer):
    """Finds demos: labelled rows, the workflow's own successful steps, or for each input the nearest ones.

    Each node chooses a source, a number of demos and one of several seeded draws; Optuna's TPE learns which pay.
    """

    powers = {}

    max_demos: int | None = Field(
        None,
        ge=1,
        le=MOST,
        description=f"maximum number of demos; by default {START}, and twice as many each time that the best candidate "
        "shows all of them",
    )
    trials: int = Field(
        30, ge=1, le=1000, description="maximum number of candidates; the budget may end the search earlier"
    )
    samples: int = Field(6, ge=1, le=64, description="number of random samples of each kind of demos")
    self_generated: bool = Field(
        True,
        description="run the workflow on train and use the steps of its successes; costs one pass over train, which "
        "is left out where the labels tell as much",
    )
    threshold: float = Field(1.0, gt=0, le=1, description="least score of a success")
    nearest: bool = Field(True, description="also try showing the demos nearest to each input")
    race: bool = Field(True, description="stop candidates early that are clearly worse than the best so far")

    def reads_search(self) -> bool:
        return False

    async def optimize(self, study: Study) -> Workflow:
        addresses = list(learnable_addresses(study.workflow, "demos"))
        if not addresses or not study.train:
            return study.best
        own = await self._successes(study, addresses)
        pools = {a: self._pools(study, a, own.get(a, [])) for a in addresses}
        most = self.max_demos or START
        searcher = self._searcher(study, pools, most)
        starts = len({source for by_source in pools.values() for source in by_source})
        tried = dict[str, dict[str, Any]]()
        misses = 0
        for _ in range(self.trials * 4):
            trial = searcher.ask()
            candidate = self._candidate(study, trial, pools, most)
            if candidate.hash in tried:
                known = study.known(candidate)
                self._tell(searcher, trial, known)
                misses += 1
                if misses >= 20:
                    break
                continue
            if len(tried) >= self.trials or not study.affords(candidate):
                break
            tried[candidate.hash] = trial.params
            self._tell(searcher, trial, await study.evaluate(candidate, race=self.race))
            edge = self.max_demos is None and most < MOST and len(tried) >= starts
            if edge and (more := _more(tried.get(study.best.hash, {}), pools, most)):
                most *= 2
                searcher.enqueue_trial(more)
        return study.best

    async def _successes(self, study: Study, addresses: Sequence[str]) -> dict[str, Pool]:
        """Inputs and outputs of every step of the runs on train that scored well, by the address of their demos."""
        rows = list(study.train)
        telling = self.self_generated and any(_tells_more(study, address) for address in addresses)
        if not telling or not study.affords(study.workflow, rows):
            return {}
        evaluation = await study.evaluate(study.workflow, rows, traces=True)
        pools: dict[str, Pool] = {address: [] for address in addresses}
        nodes = {address: node_at(study.workflow, address) for address in addresses}
        for result in evaluation.results:
            if result.failure or score_of(result) < self.threshold or result.trace is None:
                continue
            for span in result.trace.spans:
                address = f"nodes.{span.node}.demos"
                if address in pools and span.outputs:
                    pools[address].append(nodes[address].demo(span))
        return pools

    def _pools(self, study: Study, address: str, own: Pool) -> dict[str, Pool]:
        node = node_at(study.workflow, address)
        labelled = [d for e in study.train if (d := labelled_demo(node, e, study.targets)) is not None]
        pools = {"labelled": labelled, "own": own}
        if self.nearest and "retrieve" in node.learnable:
            pools["nearest"] = labelled or own
        return {name: pool for name, pool in pools.items() if pool}

    def _searcher(self, study: Study, pools: dict[str, dict[str, Pool]], most: int) -> Any:
        """TPE that first tries as many demos as allowed from each source: more is most often better."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=study.rng.randrange(2**31), n_startup_trials=6)
        searcher = optuna.create_study(direction="maximize", sampler=sampler)
        for source in ("nearest", "labelled", "own"):
            start: dict[str, Any] = {}
            for address, by_source in pools.items():
                if source in by_source:
                    count = min(most, len(by_source[source]))
                    start |= {f"{address} source": source, f"{address} {source} count": count}
            if start:
                searcher.enqueue_trial(start)
        return searcher

    def _candidate(self, study: Study, trial: Any, pools: dict[str, dict[str, Pool]], allowed: int) -> Workflow:
        values: dict[str, Any] = {}
        notes = []
        for address, by_source in pools.items():
            if not by_source:
                continue
            source = trial.suggest_categorical(f"{address} source", list(by_source))
            pool = by_source[source]
            most = min(allowed, len(pool))
            count = trial.suggest_int(f"{address} {source} count", min(1 if source != "nearest" else 2, most), most)
            retrieve = address.removesuffix("demos") + "retrieve"
            if source == "nearest":
                values[address], values[retrieve] = pool, count
            else:
                draw = trial.suggest_categorical(f"{address} {source} draw", list(range(self.samples)))
                values[address] = self._draw(study, address, source, pool, count, draw)
                if study.workflow.get(retrieve, 0):
                    values[retrieve] = 0
            notes.append(f"{count} {source}")
        return study.workflow.patched(Patch(values, note=f"demos: {', '.join(notes)}"))

    def _draw(self, study: Study, address: str, source: str, pool: Pool, count: int, draw: int) -> Pool:
        from workbench.task import Example

        rng = random.Random(f"bootstrap:{study.seed}:{address}:{source}:{draw}")
        node = node_at(study.workflow, address)
        rows = [Example(str(i), row) for i, row in enumerate(pool)]
        # A drawn demo has the fields of the signature alone; the rest of its row comes back here: reasoning, calls of
        # tools.
        whole = {canonical({n: row.get(n) for n in (*node.inputs, *node.outputs)}): row for row in pool}
        return [whole[canonical(demo)] for demo in draw_demos(node, rows, count, rng)]

    def _tell(self, searcher: Any, trial: Any, evaluation: Evaluation | None) -> None:
        """Report a candidate's scores; a stopped one reports what it had, since a bad score is information too."""
        import optuna

        if evaluation is None:
            searcher.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            searcher.tell(trial, evaluation.score)


def _more(best: dict[str, Any], pools: dict[str, dict[str, Pool]], most: int) -> dict[str, Any]:
    """Return the best trial's choices with twice as many demos, where it shows all that are allowed and there are more;
    {} if nowhere."""
    more = dict[str, Any]()
    for address, by_source in pools.items():
        source = best.get(f"{address} source", "")
        if best.get(name := f"{address} {source} count") == most < len(by_source.get(source, [])):
            more[name] = min(2 * most, len(by_source[source]))
    return {**best, **more} if more else {}


def _tells_more(study: Study, address: str) -> bool:
    """Return True if a success of a node may hold more than a labelled row: reasoning, calls of tools, other words, or
    an output without a label."""
    node = node_at(study.workflow, address)
    signature = getattr(node, "signature", None)
    short = signature is not None and all(field.closed for field in signature.outputs)
    if not short or getattr(node.config, "reasoning", True) or type(node).demo is not NodeKind.demo:
        return True
    return any(labelled_demo(node, example, study.targets) is None for example in study.train)
