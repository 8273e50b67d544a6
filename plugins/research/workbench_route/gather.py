"""Outcomes of a study: every candidate of a `route` node on every row, through budget and journal.

A candidate is run as the node would run it, so a routed workflow that is evaluated afterwards finds its calls in the
journal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from workbench import Example, Patch, Study, Workflow
from workbench.spec import NODE_KEYS, lm_spec
from workbench.study import Result
from workbench.workflow import Span, learnable_addresses, node_at
from workbench_route.node import Route
from workbench_route.outcomes import Row, Sample
from workbench_route.predictor import Linear, Predictor
from workbench_route.router import CallCost, Router

Unit = Literal["usd", "tokens", "calls"]
UNITS: tuple[Unit, ...] = ("usd", "tokens", "calls")


@dataclass(frozen=True)
class Site:
    """A `route` node of a workflow.

    Attributes:
        name: its path, e.g. `sort`, or `vote.of` inside another node.
        around: by path, the candidate of each `route` node around it in which it stands.
    """

    name: str
    node: Route
    around: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def draws(self) -> dict[str, int]:
        """Count the answers needed of each model."""
        most: dict[str, int] = {}
        for candidate in self.node.candidates:
            most[candidate.model] = max(candidate.samples, most.get(candidate.model, 0))
        return most

    def address(self, setting: str) -> str:
        return f"nodes.{self.name}.{setting}"


def find_sites(workflow: Workflow) -> list[Site]:
    """The `route` nodes of the workflow, also those inside other nodes. Those of another file are not learned."""
    found: dict[str, Route] = {}
    for address in learnable_addresses(workflow, "float"):
        owner, _, setting = address.rpartition(".")
        node = node_at(workflow, owner)
        if setting == "threshold" and isinstance(node, Route):
            found[owner.removeprefix("nodes.")] = node
    return [Site(path, node, _find_around(path, found)) for path, node in found.items()]


def _find_around(path: str, routes: Collection[str]) -> dict[str, str]:
    inside = ((outer, path.removeprefix(f"{outer}.candidates.")) for outer in routes if path != outer)
    return {outer: rest.partition(".")[0] for outer, rest in inside if rest != path}


def wrap_nodes(workflow: Workflow, lms: Sequence[str | Mapping[str, Any]]) -> Workflow:
    """The workflow with each step that asks a model turned into a route between the same step with these models and
    itself, which is the reference. A workflow that has a `route` node is left as it is."""
    if find_sites(workflow) or not lms:
        return workflow
    changes: dict[str, Any] = {}
    for name, node in workflow.enabled_nodes.items():
        if "lm" not in type(node.config).model_fields:
            continue
        tree = workflow.nodes[name]
        inner = {key: value for key, value in tree.items() if key not in NODE_KEYS}
        candidates: dict[str, Any] = {}
        for lm in lms:
            label = re.sub(r"[^\w-]+", "_", lm_spec(lm).model.rpartition("/")[2]).strip("_") or "lm"
            while label in candidates or label == "own":
                label += "_"
            candidates[label] = {**inner, "lm": lm}
        outer = {key: tree[key] for key in NODE_KEYS if key in tree}
        changes[f"nodes.{name}"] = {"kind": "route", "candidates": {**candidates, "own": inner}, **outer}
    return workflow.patched(Patch(changes, note="routes between language models")) if changes else workflow


def blank_router(site: Site) -> Router:
    """A router of the site's candidates that knows nothing of them."""
    heads = {candidate.name: Predictor(models=[Linear(bias=0.0)]) for candidate in site.node.candidates}
    return Router(
        rule="value",
        threshold=0.0,
        unit="calls",
        candidates=list(heads),
        reference=site.node.reference.name,
        dims=1,
        vector=int(site.node.config.embedder is not None),
        mean_cost=1.0,
        costs={name: CallCost(fixed=0.0, per_character=0.0) for name in site.draws},
        heads=heads,
    )


def probe_patch(sites: Sequence[Site], site: Site, model: str, first_sample: int = 0) -> Patch:
    """Fixes the candidate of every site: of one this model, of those around it the one that it stands in, and of the
    others their reference."""
    changes: dict[str, Any] = {}
    for other in sites:
        own = model if other.name == site.name else site.around.get(other.name)
        changes[other.address("always")] = own or other.node.reference.model
        changes[other.address("first_sample")] = first_sample if other.name == site.name else 0
    number = f", answer {first_sample + 1}" if first_sample else ""
    return Patch(changes, note=f"always {model}{number}")


class Collector:
    """Collects the outcomes of one site."""

    def __init__(self, study: Study, workflow: Workflow, sites: Sequence[Site], site: Site):
        self.study, self.workflow, self.sites, self.site = study, workflow, sites, site

    def planned_calls(self, rows: Sequence[Example]) -> int:
        """The most calls that the outcomes of some rows take."""
        found = ((self._probe(model, 0), n) for model, n in self.site.draws.items())
        return sum(n * self.study.planned_calls(probe, rows) for probe, n in found)

    async def collect(self, rows: Sequence[Example] | None) -> dict[str, dict[str, list[Result]]]:
        """Results by row and model, one for each answer. rows: None for val, where each candidate is also scored as a
        winner that the run may take."""
        found: dict[str, dict[str, list[Result]]] = {}
        for model, draws in self.site.draws.items():
            for number in range(draws):
                chosen = rows if rows is not None else list(self.study.val) if number else None
                evaluation = await self.study.evaluate(self._probe(model, number), chosen, traces=True)
                for result in evaluation.results:
                    found.setdefault(result.example.id, {}).setdefault(model, []).append(result)
        return found

    def _probe(self, model: str, number: int) -> Workflow:
        return self.workflow.patched(probe_patch(self.sites, self.site, model, number))

    def rows(self, results: Mapping[str, Mapping[str, Sequence[Result]]], unit: Unit) -> list[Row]:
        """The outcomes as rows; without those of which an answer is missing for want of a server.

        A site that runs several times in an example makes a row of each text that it reads with every candidate; each
        has the score of the whole example.
        """
        return [row for id_, by_model in results.items() for row in self._rows(id_, by_model, unit)]

    def _rows(self, id_: str, results: Mapping[str, Sequence[Result]], unit: Unit) -> list[Row]:
        if any(len(results.get(model, ())) < n for model, n in self.site.draws.items()):
            return []
        read = {model: [self._runs(result) for result in found] for model, found in results.items()}
        first, *others = [runs for found in read.values() for runs in found]
        texts = [text for text in first if all(text in runs for runs in others)]
        rows: list[Row] = []
        for number, text in enumerate(texts):
            samples = {
                model: [self._sample(r, runs[text], unit) for r, runs in zip(results[model], found, strict=True)]
                for model, found in read.items()
            }
            vector = tuple(first[text][0].notes.get("vector", ()))
            rows.append(Row(f"{id_} {number}" if number else id_, text, samples, vector))
        return rows

    def _runs(self, result: Result) -> dict[str, list[Span]]:
        """The runs of the site in an example, by the text that they read; none where it was not scored."""
        found: dict[str, list[Span]] = {}
        for span in result.trace.spans if result.trace is not None and result.score is not None else ():
            if span.node == self.site.name and "text" in span.notes:
                found.setdefault(span.notes["text"], []).append(span)
        return found

    def _sample(self, result: Result, runs: Sequence[Span], unit: Unit) -> Sample:
        """Combine the runs of the site that read one text: the cost is their mean."""
        assert result.score is not None
        answer = None if runs[0].error else self.site.node.answer_text(runs[0].outputs)
        cost = math.fsum(_cost(result, span, unit) for span in runs) / len(runs)
        return Sample(result.score, cost, answer)


def _cost(result: Result, run: Span, unit: Unit) -> float:
    """Return the cost of a run of a site, without its embedder, which every candidate pays."""
    spans = result.trace.spans if result.trace is not None else []
    depth = len(run.order)
    calls = [
        call for span in spans if len(span.order) > depth and span.order[:depth] == run.order for call in span.calls
    ]
    if unit == "usd":
        return math.fsum(call.usd for call in calls)
    if unit == "tokens":
        return float(sum(c.response.prompt_tokens + c.response.completion_tokens for c in calls))
    return float(len(calls))


def choose_unit(collector: Collector, results: Mapping[str, Mapping[str, Sequence[Result]]]) -> Unit:
    """US dollars if any call has a price, else tokens, else calls."""
    for unit in UNITS:
        if any(s.cost > 0 for row in collector.rows(results, unit) for found in row.samples.values() for s in found):
            return unit
    return "calls"
