"""A search that first finds out what pays.

A share of the budget buys one candidate of each kind of change: examples, reasoning, adapter, votes, wording, structure
and tools. Each is raced against the start on the same rows. Kinds that are clearly worse are dropped. A structure that
is surely better becomes the start for the other kinds, which are searched together, as MIPROv2 (Opsahl-Ong et al.,
arXiv 2406.11695, section 4) searches instructions and demos. Departures: kinds are screened first, since most bring
nothing on a given task and each doubles the space; settings and structure take part; candidates are scored on all of
val, and losers are stopped early, where MIPROv2 scores on minibatches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import Field

from workbench import Evaluation, Optimizer, Patch, Study, Workflow
from workbench.errors import SpecError
from workbench.study import Race, p_worse, paired_race
from workbench_families.kinds import INSTRUCTIONS, VOTES, Kind, find_settings, find_structures, write_instructions
from workbench_kit.prompting import AS_WRITTEN, DemoSearch, make_searcher, run_for_successes, tell

#: One-sided p below which a screened candidate is worse than the start and dropped, or surely better. Larger than that
#: of a race for the best (0.1), since the kinds that stay are searched together.
APART = 0.2
#: Consecutive repeated choices after which the search ends.
REPEATS = 20
EXAMPLES, STRUCTURE = "examples", "structure"
#: Share of the screening budget for structure. Most structures take two or three calls a row and bring nothing, so they
#: are tried only if the budget pays for dozens of candidates.
STRUCTURE_PART = 0.25
#: Limits of a budget other than time.
LIMITS = ("calls", "tokens", "usd")


class Families(Optimizer):
    """Tries one change of each kind on the same rows as the start, then searches those that pay together.

    Kinds of change: examples; each setting with few values, e.g. reasoning, adapter, votes; instructions by the
    proposer or from templates; structure and tools, by the edits of plugins. It needs no setting and no proposer.
    """

    trials: int = Field(
        40, ge=1, le=1000, description="maximum number of candidates; the budget may end the search earlier"
    )
    share: float = Field(
        0.4,
        gt=0,
        le=1,
        description="share of calls, tokens and usd that may be spent on finding out which kinds of change pay",
    )

    def reads_search(self) -> bool:
        return False

    async def optimize(self, study: Study) -> Workflow:
        base = await study.evaluate(study.workflow)
        if not study.affords(study.workflow):
            return study.best
        search = _Search(self, study, DemoSearch(study, optional=True))
        search.demos.fill({})
        search.kinds = sorted([*find_settings(study.workflow), *await write_instructions(study)], key=search.cost)
        await search.screen(base)
        if (start := await search.screen_structures(base)) is not None:
            search = search.moved_to(start)
        await search.go_on()
        return study.best


@dataclass
class _Search:
    """The state of a search.

    kinds: those whose options trials choose from, besides demos. tried: the choices of each candidate, by hash. gains:
    for screened candidates that did not lose, by kind and option, the mean difference to the start and the confidence
    that they are better (1 - p).
    """

    settings: Families
    study: Study
    demos: DemoSearch
    kinds: list[Kind] = field(default_factory=list[Kind])
    tried: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    gains: dict[tuple[str, str], tuple[float, float]] = field(
        default_factory=dict[tuple[str, str], tuple[float, float]]
    )

    def __post_init__(self) -> None:
        self.searcher = make_searcher(self.study)

    def cost(self, kind: Kind) -> int:
        """Return the maximum number of calls that its first option takes."""
        changed = self.study.workflow.patched(Patch(next(iter(kind.options.values()))))
        return self.study.planned_calls(changed, self.study.val)

    async def screen(self, base: Evaluation) -> None:
        """Try the kinds one by one, the most promising option of each first, and drop those that are clearly worse.

        base: the start's evaluation.
        """
        study = self.study
        race = paired_race(base.scores, p=APART)
        limits = await self._limits()
        asked = [(n, EXAMPLES, source, start) for n, (source, start) in enumerate(self.demos.starts().items())]
        for kind in self.kinds:
            asked += [(n, kind.name, option, {kind.name: option}) for n, option in enumerate(kind.options)]
        asked.sort(key=lambda one: one[0])
        lost, said = set[tuple[str, str]](), list[str]()
        alike = {kind.name for kind in self.kinds if kind.alike}
        for _, name, option, choices in asked:
            if name in alike and any(name == one for one, _ in lost):
                continue
            changed = study.workflow.patched(Patch(self._values(choices)))
            if self.tried and (len(self.tried) >= self.settings.trials or not self._within(limits, base, changed)):
                continue
            calls = study.ledger.spent.calls
            evaluation = await self.try_one(self.choose(choices), race)
            if evaluation is None:
                continue
            gain, worse = _compare(evaluation, base)
            if evaluation.scores == base.scores[: len(evaluation.scores)] and study.ledger.spent.calls == calls:
                worse = True  # the same requests: the change has no effect
            said.append(f"{name} {option} {gain:+.3f}{', dropped' if worse else ''}")
            if worse:
                lost.add((name, option))
            else:
                self.gains[name, option] = gain, 1 - p_worse(base.scores, evaluation.scores)
        self._drop(lost)
        if said:
            study.log(f"kinds of change, less the start: {'; '.join(said)}")

    async def screen_structures(self, base: Evaluation) -> Workflow | None:
        """Try each structure, one of each edit first. Return the best that is surely better than the start, or None.

        base: the start's evaluation.
        """
        limits, race = await self._limits(STRUCTURE, STRUCTURE_PART), paired_race(base.scores, p=APART)
        best, most, said = None, 0.0, list[str]()
        asked = [one for made in find_structures(self.study.workflow).values() for one in enumerate(made)]
        for _, made in sorted(asked, key=lambda one: one[0]):
            if len(self.tried) >= self.settings.trials or not self._within(limits, base, made):
                continue
            self.tried[made.hash] = {}
            evaluation = await self.study.evaluate(made, race=race)
            gain, worse = _compare(evaluation, base)
            said.append(f"{made.patch.note if made.patch else ''} {gain:+.3f}{', dropped' if worse else ''}")
            if not worse and gain > most and p_worse(base.scores, evaluation.scores) < APART:
                best, most = made, gain
        if said:
            self.study.log(f"structures, less the start: {'; '.join(said)}")
        return best

    def moved_to(self, start: Workflow) -> _Search:
        """Return this search for another structure, with the kinds that still apply."""
        study = self.study.narrow(workflow=start, name=STRUCTURE)
        known = {(kind.name, option) for kind in self.kinds for option in kind.options}
        kinds = [*find_settings(start), *(kind for kind in self.kinds if kind.name == INSTRUCTIONS)]
        moved = _Search(self.settings, study, DemoSearch(study, optional=True, dropped=self.demos.dropped))
        moved.demos.fill({})
        for kind in kinds:
            options = {o: v for o, v in kind.options.items() if (kind.name, o) in known and _fits(start, v)}
            moved.kinds += [replace(kind, options=options)] if options else []
        there = {(kind.name, option) for kind in moved.kinds for option in kind.options}
        there |= {(EXAMPLES, source) for source in moved.demos.starts()}  # none if rows lack a new step's fields
        moved.tried, moved.gains = self.tried, {key: gain for key, gain in self.gains.items() if key in there}
        return moved

    async def _limits(self, part: str = "", share: float = 1.0) -> Mapping[str, float]:
        """Compute the calls, tokens and usd that the run may have spent when the screening, or a part of it, ends."""
        study = self.study

        async def limits() -> Mapping[str, float]:
            left = {what: study.remaining(what) for what in LIMITS}
            spent = study.ledger.spent
            return {w: getattr(spent, w) + n * self.settings.share * share for w, n in left.items() if n < math.inf}

        # Journalled, so that a run resumed with a larger budget repeats the screening of the smaller one.
        return await study.ledger.effect("share", [study.run_id, study.name, "families", *filter(None, [part])], limits)

    def _within(self, limits: Mapping[str, float], base: Evaluation, changed: Workflow) -> bool:
        """Return True if the screening can still pay for a candidate, estimated from the start's cost per call."""
        study = self.study
        calls = study.planned_calls(changed, study.val)
        times = calls / max(1, study.planned_calls(study.workflow, study.val))
        needed = {"calls": float(calls)}
        needed |= {what: times * len(study.val) * base.objectives.get(what, 0.0) for what in ("tokens", "usd")}
        return all(getattr(study.ledger.spent, what) + needed[what] <= limit for what, limit in limits.items())

    def _drop(self, lost: set[tuple[str, str]]) -> None:
        """Drop the lost options, and every kind without an entry in `gains`."""
        for name, source in sorted(lost):
            if name == EXAMPLES:
                self.demos.drop(source)
        known = {name for name, _ in self.gains}
        options = [{o: v for o, v in kind.options.items() if (kind.name, o) not in lost} for kind in self.kinds]
        pairs = zip(self.kinds, options, strict=True)
        self.kinds = [replace(kind, options=left) for kind, left in pairs if kind.name in known]

    async def go_on(self) -> None:
        """Search the remaining kinds together, beginning with all gains at once."""
        await self._begin_anew()
        gained = self._best_by_kind(least=0.0)
        starts, best = self.demos.starts(), gained.pop(EXAMPLES, "")
        queue = [self.choose({**gained, **starts[best]})] if best else []
        await self._run([*queue, self.choose(gained)], more=False)
        sure = self._best_by_kind(least=1 - APART) or gained
        sure = {name: option for name, option in sure.items() if name not in (EXAMPLES, VOTES)}
        # Examples from the changed workflow, e.g. with its reasoning, which labelled rows lack. The budget should still
        # cover two candidates that show them.
        changed = self.study.workflow.patched(Patch(self._values(sure)))
        if self.study.affords(changed, [*self.study.train, *self.study.val, *self.study.val]):
            self.demos.fill(await run_for_successes(self.study, changed))
            await self._begin_anew()
        new = {source: start for source, start in self.demos.starts().items() if source not in starts}
        await self._run([self.choose({**sure, **start}) for start in new.values()])

    async def _begin_anew(self) -> None:
        """Start a new sampler for the remaining choices, and report earlier results to it."""
        self.searcher = make_searcher(self.study)
        names = {kind.name: kind.options for kind in self.kinds}
        await self.try_one(self.choose({}), False)
        for params in [*self.tried.values()]:
            settings = {n: v for n, v in params.items() if " " not in n and v != AS_WRITTEN}
            if self.demos.allows(params) and all(value in names.get(n, ()) for n, value in settings.items()):
                known = {n: v for n, v in params.items() if " " in n or n in names}
                await self.try_one(self.choose(known), None)

    async def _run(self, queue: list[dict[str, Any]], more: bool = True) -> None:
        """Try the queued choices and then, if `more`, the sampler's suggestions."""
        repeats = 0
        while len(self.tried) < self.settings.trials and repeats < REPEATS and (queue or more):
            known = len(self.tried)
            if wider := self.demos.widen(self.tried.get(self.study.best.hash, {})):
                queue.insert(0, wider)
            evaluation = await self.try_one(queue.pop(0) if queue else None, True)
            if evaluation is None and not self.study.affords(self.study.workflow):
                return
            repeats = repeats + 1 if len(self.tried) == known else 0

    def choose(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        """Complete choices: everything not chosen stays as written."""
        return {**dict.fromkeys((kind.name for kind in self.kinds), AS_WRITTEN), **self.demos.leave(), **choices}

    def _best_by_kind(self, least: float) -> dict[str, str]:
        """Return the best option of each kind that gained. least: the minimum confidence in the gain, 1 - p."""
        ranked = sorted(self.gains, key=lambda key: self.gains[key][0])
        return dict(key for key in ranked if self.gains[key][0] > 0 and self.gains[key][1] >= least)

    def _values(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        values = dict[str, Any]()
        for kind in self.kinds:
            values |= kind.options.get(choices.get(kind.name, AS_WRITTEN), {})
        return values

    async def try_one(self, choices: Mapping[str, Any] | None, race: Race | bool | None) -> Evaluation | None:
        """Evaluate a candidate and report it to the sampler. Return None if it was tried before or cannot be paid.

        choices: by the names of the sampler's parameters; None: the sampler's suggestion. race: None reports known
        results to the sampler and evaluates nothing.
        """
        if choices is not None:
            self.searcher.enqueue_trial(dict(choices))
        trial = self.searcher.ask()
        names = {kind.name: trial.suggest_categorical(kind.name, [AS_WRITTEN, *kind.options]) for kind in self.kinds}
        demos, note = self.demos.suggest(trial)
        notes = [f"{name}: {option}" for name, option in names.items() if option != AS_WRITTEN]
        values = self._values(names) | demos
        candidate = self.study.workflow.patched(Patch(values, note=", ".join([*notes, *([note] if note else [])])))
        if race is None or candidate.hash in self.tried or not self.study.affords(candidate):
            tell(self.searcher, trial, self.study.known(candidate))
            return None
        self.tried[candidate.hash] = trial.params
        evaluation = await self.study.evaluate(candidate, race=race)
        tell(self.searcher, trial, evaluation)
        return evaluation


def _compare(evaluation: Evaluation, base: Evaluation) -> tuple[float, bool]:
    """Return the mean difference to the start, and whether it is clearly worse."""
    pairs = list(zip(evaluation.scores, base.scores, strict=False))
    worse = not evaluation.complete or p_worse(evaluation.scores, base.scores) < APART
    return sum(a - b for a, b in pairs) / len(pairs), worse


def _fits(workflow: Workflow, values: Mapping[str, Any]) -> bool:
    try:
        workflow.patched(Patch(values))
    except SpecError:
        return False
    return True
