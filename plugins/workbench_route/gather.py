"""Outcomes of a study: every candidate of a `route` node on every row, through budget and journal.

A candidate is run as the node would run it, so a routed workflow that is evaluated afterwards finds its calls in the
journal.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench import Evaluation, Example, Patch, Study, Workflow
from workbench.errors import SpecError
from workbench.spec import NODE_KEYS, lm_spec
from workbench.study import Result
from workbench_route.node import Route
from workbench_route.outcomes import Row, Sample

Unit = Literal["usd", "tokens", "calls"]
UNITS: tuple[Unit, ...] = ("usd", "tokens", "calls")


@dataclass(frozen=True)
class Site:
    """A `route` node of a workflow."""

    name: str
    node: Route

    @property
    def draws(self) -> dict[str, int]:
        """How many answers of each model are needed."""
        most: dict[str, int] = {}
        for candidate in self.node.candidates:
            most[candidate.model] = max(candidate.samples, most.get(candidate.model, 0))
        return most

    def address(self, setting: str) -> str:
        return f"nodes.{self.name}.{setting}"


def find_sites(workflow: Workflow) -> list[Site]:
    """The `route` nodes that are steps of the workflow."""
    return [Site(name, node) for name, node in workflow.enabled_nodes.items() if isinstance(node, Route)]


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


def probe_patch(sites: Sequence[Site], model: Mapping[str, str], first_sample: int = 0) -> Patch:
    """Fixes the candidate of every site. model: by site; the others take their reference."""
    changes: dict[str, Any] = {}
    for site in sites:
        own = model.get(site.name)
        changes[site.address("always")] = own or site.node.reference.model
        changes[site.address("first_sample")] = first_sample if own else 0
    number = f", answer {first_sample + 1}" if first_sample else ""
    return Patch(changes, note=f"always {', '.join(model.values())}{number}")


class Collector:
    """Collects the outcomes of one site."""

    def __init__(self, study: Study, workflow: Workflow, sites: Sequence[Site], site: Site):
        self.study, self.workflow, self.sites, self.site = study, workflow, sites, site

    def worst_calls(self, rows: Sequence[Example]) -> int:
        """The most calls that the outcomes of some rows take."""
        found = ((self._probe(model, 0), n) for model, n in self.site.draws.items())
        return sum(n * self.study.worst_calls(probe, rows) for probe, n in found)

    async def collect(self, rows: Sequence[Example] | None) -> dict[str, dict[str, list[Result]]]:
        """Results by row and model, one for each answer. rows: None for val, where each candidate is also scored as a
        winner that the run may take."""
        found: dict[str, dict[str, list[Result]]] = {}
        for model, draws in self.site.draws.items():
            for number in range(draws):
                chosen = rows if rows is not None else list(self.study.val) if number else None
                evaluation = await self._evaluate(model, number, chosen)
                for result in evaluation.results:
                    found.setdefault(result.example.id, {}).setdefault(model, []).append(result)
        return found

    async def _evaluate(self, model: str, number: int, rows: Sequence[Example] | None) -> Evaluation:
        return await self.study.evaluate(self._probe(model, number), rows, traces=True)

    def _probe(self, model: str, number: int) -> Workflow:
        return self.workflow.patched(probe_patch(self.sites, {self.site.name: model}, number))

    def rows(self, results: Mapping[str, Mapping[str, Sequence[Result]]], unit: Unit) -> list[Row]:
        """The outcomes as rows; without those of which an answer is missing for want of a server."""
        made = (self._row(id_, by_model, unit) for id_, by_model in results.items())
        return [row for row in made if row is not None]

    def _row(self, id_: str, results: Mapping[str, Sequence[Result]], unit: Unit) -> Row | None:
        samples: dict[str, list[Sample]] = {}
        text, vector = None, ()
        for model, found in results.items():
            for result in found:
                span = next((s for s in result.trace.spans if s.node == self.site.name), None) if result.trace else None
                if result.score is None or span is None or "text" not in span.notes:
                    return None
                text, vector = span.notes["text"], tuple(span.notes.get("vector", ()))
                answer = None if span.error else self.site.node.answer_text(span.outputs)
                samples.setdefault(model, []).append(Sample(result.score, self._cost(result, unit), answer))
        if text is None or any(len(samples.get(model, ())) < n for model, n in self.site.draws.items()):
            return None
        return Row(id_, text, samples, vector)

    def _cost(self, result: Result, unit: Unit) -> float:
        """What the site spent on a row, without its embedder, which every candidate pays."""
        inside = f"{self.site.name}."
        spans = result.trace.spans if result.trace is not None else []
        calls = [call for span in spans if span.node.startswith(inside) for call in span.calls]
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


def recorded_path(place: str, base: Path) -> Path:
    """The file of recorded outcomes. Raises SpecError if it is not inside the folder of the workflow."""
    path = (base / place).resolve()
    if not path.is_relative_to(base.resolve()):
        raise SpecError(f"recorded outcomes must lie in the folder of the workflow: {place}", path=("recorded",))
    if not path.is_file():
        raise SpecError(f"there is no file of recorded outcomes: {place}", path=("recorded",))
    return path


def read_recorded(text: str, place: str, site: Site) -> list[Row]:
    """Rows of recorded outcomes. A line is JSON:

        {"inputs": {field: value}, "samples": {candidate: [{"score": 1, "cost": 0.002, "answer": "..."}]}}

    `answer` may be left out. Raises SpecError with the line.
    """
    rows: list[Row] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
            samples = {model: [_sample(s) for s in found["samples"][model]] for model in site.draws}
            short = [model for model, n in site.draws.items() if len(samples[model]) < n]
            if short:
                raise ValueError(f"{short[0]} needs {site.draws[short[0]]} samples")
            rows.append(Row(f"recorded:{number}", site.node.text_of(found["inputs"]), samples))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            said = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            raise SpecError(
                f"{place}, line {number}: {said}",
                hint='Write {"inputs": {...}, "samples": {"small": [{"score": 1, "cost": 0.002, "answer": "..."}]}}.',
                path=("recorded",),
            ) from None
    return rows


def _sample(value: Mapping[str, Any]) -> Sample:
    score, cost = float(value["score"]), float(value["cost"])
    if not 0 <= score <= 1 or not 0 <= cost < math.inf:
        raise ValueError("a score is in [0, 1], and a cost is not negative")
    answer = value.get("answer")
    return Sample(score, cost, None if answer is None else str(answer))
