"""Search for each node's demos with Optuna: a trial chooses a source, a number, and one of several draws."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.base.hashing import canonical
from workbench.study import Evaluation, Study, score_of
from workbench.task import Example, draw_demos, labelled_demo, labelled_demos, without_blanks
from workbench.workflow import NodeKind, Workflow, learnable_addresses, node_at

Pool = list[dict[str, Any]]
#: Maximum number of demos at first, until the best candidate shows that many; and overall.
START_DEMOS, MAX_DEMOS = 8, 64
#: The sources of demos, the most often helpful first.
SOURCES = ("nearest", "labelled", "nearest own", "own")
NEAREST = ("nearest", "nearest own")
#: In place of a source: only the demos of the start.
AS_WRITTEN = "as written"


def make_searcher(study: Study) -> Any:
    """Create an Optuna study with TPE, seeded by the run.

    TPE starts to learn after six candidates: a budget pays for thirty at most.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=study.rng.randrange(2**31), n_startup_trials=6)
    return optuna.create_study(direction="maximize", sampler=sampler)


def tell(searcher: Any, trial: Any, evaluation: Evaluation | None) -> None:
    """Report a candidate's score. None: the candidate was not evaluated.

    A stopped candidate reports its partial score, since a bad score is information, too.
    """
    import optuna

    if evaluation is None:
        searcher.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        searcher.tell(trial, evaluation.score)


@dataclass
class DemoSearch:
    """The demos that trials choose from.

    pools: demos by address and by source: labelled rows, own successes, and each of these with the nearest shown for
    each input. samples: number of draws of each source. most: current maximum number of demos. optional: whether a
    trial may leave an address unchanged. dropped: excluded sources.
    """

    study: Study
    pools: Mapping[str, dict[str, Pool]] = field(default_factory=dict[str, dict[str, Pool]])
    samples: int = 6
    most: int = START_DEMOS
    optional: bool = False
    dropped: set[str] = field(default_factory=set[str])

    def fill(self, own: Mapping[str, Pool], nearest: bool = True) -> None:
        """Fill the pools with the labelled rows of train, and with own successes by address."""
        pools = dict[str, dict[str, Pool]]()
        for address in learnable_addresses(self.study.workflow, "demos"):
            node = node_at(self.study.workflow, address)
            labelled = labelled_demos(node, self.study.train, self.study.targets)
            found = {"labelled": labelled, "own": without_blanks(node.inputs, own.get(address, ()))}
            if nearest and "retrieve" in node.learnable:
                found["nearest"] = found["labelled"] or found["own"]
                found["nearest own"] = found["own"] if found["labelled"] else []
            pools[address] = {name: pool for name, pool in found.items() if pool and name not in self.dropped}
        self.pools = {address: found for address, found in pools.items() if found}

    def starts(self) -> dict[str, dict[str, Any]]:
        """Return the choices to try first, by source: as many demos as allowed, since more is most often better."""
        found = dict[str, dict[str, Any]]()
        for source in SOURCES:
            start: dict[str, Any] = {}
            for address, by_source in self.pools.items():
                if source in by_source:
                    count = min(self.most, len(by_source[source]))
                    start |= {f"{address} source": source, f"{address} {source} count": count}
            if start:
                found[source] = start
        return found

    def drop(self, source: str) -> None:
        """Exclude a source from now on."""
        self.dropped |= {source}
        pools = {a: {name: pool for name, pool in found.items() if name != source} for a, found in self.pools.items()}
        self.pools = {address: found for address, found in pools.items() if found}

    def leave(self) -> dict[str, Any]:
        """Return the choice of keeping the demos of the start."""
        return {f"{address} source": AS_WRITTEN for address in self.pools}

    def allows(self, choices: Mapping[str, Any]) -> bool:
        """Return True if the chosen sources are available."""
        chosen = ((found, choices.get(f"{address} source", AS_WRITTEN)) for address, found in self.pools.items())
        return all(source == AS_WRITTEN or source in found for found, source in chosen)

    def suggest(self, trial: Any) -> tuple[dict[str, Any], str]:
        """Return the values of a patch, and their description."""
        values, notes = dict[str, Any](), list[str]()
        for address, by_source in self.pools.items():
            sources = [*([AS_WRITTEN] if self.optional else []), *by_source]
            source = trial.suggest_categorical(f"{address} source", sources)
            if source == AS_WRITTEN:
                continue
            pool = by_source[source]
            most = min(self.most, len(pool))
            count = trial.suggest_int(f"{address} {source} count", min(2 if source in NEAREST else 1, most), most)
            retrieve = address.removesuffix("demos") + "retrieve"
            if source in NEAREST:
                values[address], values[retrieve] = pool, count
            else:
                draw = trial.suggest_categorical(f"{address} {source} draw", list(range(self.samples)))
                values[address] = self._draw(address, source, pool, count, draw)
                if self.study.workflow.get(retrieve, 0):
                    values[retrieve] = 0
            notes.append(f"{count} {source}")
        return values, f"demos: {', '.join(notes)}" if notes else ""

    def widen(self, best: Mapping[str, Any]) -> dict[str, Any]:
        """Double the maximum number of demos, and return the best trial's choices with it. Returns {} if that trial
        shows fewer demos than allowed, or there are no more."""
        more = dict[str, Any]()
        for address, by_source in self.pools.items():
            source = best.get(f"{address} source", "")
            if best.get(name := f"{address} {source} count") == self.most < len(by_source.get(source, [])):
                more[name] = min(2 * self.most, len(by_source[source]))
        if not more or self.most >= MAX_DEMOS:
            return {}
        self.most *= 2
        return {**best, **more}

    def _draw(self, address: str, source: str, pool: Pool, count: int, draw: int) -> Pool:
        rng = random.Random(f"demos:{self.study.seed}:{address}:{source}:{draw}")
        node = node_at(self.study.workflow, address)
        rows = [Example(str(i), row) for i, row in enumerate(pool)]
        # A drawn demo has only the fields of the signature. The rest of its row is added here: reasoning, tool calls.
        whole = {canonical({n: row.get(n) for n in (*node.inputs, *node.outputs)}): row for row in pool}
        return [whole[canonical(demo)] for demo in draw_demos(node, rows, count, rng)]


async def run_for_successes(study: Study, workflow: Workflow, threshold: float = 1.0) -> dict[str, Pool]:
    """Collect inputs and outputs of each step in a workflow's runs on train that scored at least `threshold`. Returns
    them by the address of their demos. Empty if the labels are as informative, or a pass over train cannot be paid."""
    addresses = list(learnable_addresses(workflow, "demos"))
    rows = list(study.train)
    telling = any(_tells_more(study, workflow, address) for address in addresses)
    if not telling or not study.affords(workflow, rows):
        return {}
    evaluation = await study.evaluate(workflow, rows, traces=True)
    pools: dict[str, Pool] = {address: [] for address in addresses}
    nodes = {address: node_at(workflow, address) for address in addresses}
    for result in evaluation.results:
        if result.failure or score_of(result) < threshold or result.trace is None:
            continue
        for span in result.trace.spans:
            address = f"nodes.{span.node}.demos"
            if address in pools and span.outputs:
                pools[address].append(nodes[address].demo(span))
    return pools


def _tells_more(study: Study, workflow: Workflow, address: str) -> bool:
    """Return True if a success of a node may hold more than a labelled row: reasoning, tool calls, other wording, or an
    output without a label."""
    node = node_at(workflow, address)
    signature = getattr(node, "signature", None)
    short = signature is not None and all(field.closed for field in signature.outputs)
    if not short or getattr(node.config, "reasoning", True) or type(node).demo is not NodeKind.demo:
        return True
    return any(labelled_demo(node, example, study.targets) is None for example in study.train)
