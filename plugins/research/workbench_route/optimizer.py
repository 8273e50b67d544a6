"""The optimizer `route`: learns from outcomes which candidate answers which input.

Source: BEST-Route (Ding et al., arXiv 2506.22716). Departures, with reasons, are in the README.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pydantic import Field, field_validator

from workbench import Example, Optimizer, Patch, Study, Workflow
from workbench.errors import SpecError, errors_at
from workbench.lm import enter_model
from workbench.spec import home_folder, lm_spec
from workbench.task import check_lms
from workbench_route import report
from workbench_route.curve import Point, Table, choose_point, cross_table, make_table
from workbench_route.fitting import MIN_ROWS, check_library
from workbench_route.gather import (
    Collector,
    Site,
    blank_router,
    choose_unit,
    find_sites,
    probe_patch,
    wrap_nodes,
)
from workbench_route.learn import Problem, learn_router
from workbench_route.outcomes import Row, complete_rows
from workbench_route.router import Router, Rule

#: Buckets for hashed words: more of them make a larger file.
DIMS = 2048


class LearnRoute(Optimizer):
    """Learns where `route` nodes send their inputs, from the outcomes of all candidates on train.

    Val chooses the threshold, and compares the router with single candidates, a random mix, a cascade, nearest
    neighbours, and itself with shuffled labels.
    """

    lms: list[str | dict[str, Any]] = Field(
        default_factory=list,
        description="in a workflow without a `route` node: cheaper models, which every step may use besides its own",
    )
    rule: Rule = Field(
        "value",
        description="value: the best predicted score less the price of its cost; match: the cheapest candidate that is "
        "likely no worse than the reference (BEST-Route)",
    )
    aim: Literal["auto", "save", "score"] = Field(
        "auto",
        description="what the threshold is chosen for on val: save: the least cost within `margin` of the best single "
        "candidate; score: the best predicted score; auto: save where `objectives:` names a cost",
    )
    margin: float = Field(0.0, ge=0, le=1, description="score that may be lost on val, with the aim to save")
    ceiling: float | None = Field(None, gt=0, description="most mean cost on val, as a share of the reference's")
    cost: Literal["auto", "usd", "tokens", "calls"] = Field(
        "auto", description="what is saved; auto: usd where calls have a price, else tokens"
    )
    rows: int = Field(
        1000, ge=MIN_ROWS, le=100_000, description="maximum number of train rows; every candidate runs on each"
    )
    learn_from: Literal["train", "train and val"] = Field(
        "train",
        description="train and val: for few rows; the threshold is then chosen by predictions of rows that were left "
        "out, and the score on val is that of rows it was learned from. Only the sealed test is evidence",
    )

    @field_validator("lms")
    @classmethod
    def _models(cls, value: list[str | dict[str, Any]]) -> list[str | dict[str, Any]]:
        for lm in value:
            enter_model(lm, home_folder())
            try:
                lm_spec(lm)
            except SpecError as error:
                raise ValueError(f"{error.message}. {error.hint or ''}".strip()) from None
        return value

    def reads_search(self) -> bool:
        return False

    def missing(self, workflow: Workflow) -> str | None:
        if find_sites(wrap_nodes(workflow, self.lms)):
            return None
        return "a node of the kind `route`, or `lms:` with models to route to"

    async def ready(self, study: Study) -> None:
        check_library()
        for place, lm in enumerate(self.lms):
            with errors_at("lms", place):
                check_lms(lm_spec(lm))

    def max_calls(self, workflow: Workflow, train: Sequence[Example], val: Sequence[Example]) -> int | None:
        start = wrap_nodes(workflow, self.lms)
        sites = find_sites(start)
        # A router without knowledge may take any candidate: so much may the learned ones take.
        blank = {site.address("learned"): blank_router(site).dump() for site in sites}
        routed = start.patched(Patch(blank, tuple(a for site in sites for a in set_before(start, site))))
        total = len(val) * routed.max_calls * len(sites)
        for site in sites:
            rows = len(val) + min(self.rows, len(train))
            probes = {m: start.patched(probe_patch(sites, site, m)).max_calls for m in site.draws}
            total += rows * sum(n * probes[m] for m, n in site.draws.items())
        return total

    async def optimize(self, study: Study) -> Workflow:
        start = wrap_nodes(study.best, self.lms)
        sites = find_sites(start)
        if not sites or not study.val:
            study.log("there is no `route` node, and no `lms:` to route to")
            return study.best
        await _Learning(self, study, start, sites).run()
        return study.best


def set_before(workflow: Workflow, site: Site) -> tuple[str, ...]:
    """The addresses of what the file decides for a site, and a learned router decides anew."""
    given = workflow.get(f"nodes.{site.name}")
    return tuple(site.address(key) for key in ("always", "first_sample", "threshold") if key in given)


@dataclass
class _Learning:
    """A run of the optimizer. workflow: with the routers learned so far."""

    settings: LearnRoute
    study: Study
    workflow: Workflow
    sites: Sequence[Site]

    async def run(self) -> None:
        for site in self.sites:
            seed = self.study.rng.randrange(2**31)
            router = await self._learn(site, seed)
            if router is None:
                continue
            values = {site.address("learned"): router.dump()}
            patch = Patch(values, set_before(self.workflow, site), note=f"routes of {site.name} learned")
            self.workflow = self.workflow.patched(patch)
            await self.study.evaluate(self.workflow)

    async def _learn(self, site: Site, seed: int) -> Router | None:
        """The router of a site, with its threshold; None if there is too little to learn from."""
        s, study = self.settings, self.study
        collector = Collector(study, self.workflow, self.sites, site)
        chosen = self._affordable(collector)
        if len(chosen) < MIN_ROWS:
            study.log(f"{site.name}: the budget or train is too small: {len(chosen)} rows, {MIN_ROWS} needed")
            return None
        on_val = await collector.collect(None)
        on_train = await collector.collect(chosen)
        unit = s.cost if s.cost != "auto" else choose_unit(collector, on_val)
        candidates = site.node.candidates
        train = complete_rows(collector.rows(on_train, unit), candidates)
        val = complete_rows(collector.rows(on_val, unit), candidates)
        if len(train) < MIN_ROWS or not val:
            study.log(
                f"{site.name}: too few rows were answered by all candidates: {len(train)} of train, {len(val)} of val"
            )
            return None
        problem = Problem(candidates, site.node.reference, s.rule, unit=unit, dims=DIMS)
        router, table = await asyncio.to_thread(partial(self._fit, problem, train, val, seed))
        point = self._choose(table)
        figures = await asyncio.to_thread(partial(report.compare, problem, table, train, val, point, seed))
        study.log(report.summary(site.name, figures), **figures)
        if point is None or point.threshold is None:
            return None
        return router.model_copy(update={"threshold": point.threshold})

    def _fit(self, problem: Problem, train: Sequence[Row], val: Sequence[Row], seed: int) -> tuple[Router, Table]:
        """The router, and its view of rows that it was not learned from; these are val, in any case."""
        if self.settings.learn_from == "train":
            router = learn_router(problem, train, seed)
            return router, make_table(router, val)
        rows = [*train, *val]
        router = learn_router(problem, rows, seed)
        whole = cross_table(problem, router, rows, seed)
        first = len(train)
        return router, Table(router, whole.scores[first:], whole.costs[first:], whole.found[first:])

    def _affordable(self, collector: Collector) -> list[Example]:
        """Rows of train, drawn at random, that can be paid for besides val."""
        study, train = self.study, list(self.study.train)
        rows = study.rng.sample(train, min(self.settings.rows, len(train)))
        left = study.remaining("calls")
        each = collector.planned_calls(rows[:1]) if rows else 0
        if left == math.inf or not each:
            return rows
        return rows[: max(0, int((left - collector.planned_calls(study.val)) // each))]

    def _choose(self, table: Table) -> Point | None:
        """The point of the curve on val; None if none meets the aim."""
        s = self.settings
        save = s.aim == "save" or (s.aim == "auto" and any(o != "score" for o in self.study.objectives))
        singles = report.single_points(table)
        reference = singles[table.router.reference]
        best = max(point.score for point in singles.values())
        ceiling = math.inf if s.ceiling is None else s.ceiling * reference.cost
        if save or s.rule == "match":
            return choose_point(table.curve(), least=best - s.margin if save else 0.0, ceiling=ceiling, save=save)
        # Quality alone is the lowest price: the luckiest of a hundred prices on val is no better one.
        affordable = [p for p in table.curve() if p.cost <= ceiling + 1e-12]
        return min(affordable, key=lambda p: p.threshold or 0.0, default=None)
