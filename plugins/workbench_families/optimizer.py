"""A search that first finds out what pays.

A share of the budget buys one candidate of each kind of change: examples, reasoning, adapter, votes, wording. Each is
raced against the start on the same rows. What is clearly worse is left; the rest is searched together, as MIPROv2
(Opsahl-Ong et al., arXiv 2406.11695, section 4) searches instructions and demos. Departures: kinds are screened first,
since most bring nothing on a given task and each doubles the space; settings take part; candidates are scored on all of
val, and losers are stopped early, where MIPROv2 scores on minibatches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import Field

from workbench import Evaluation, Optimizer, Patch, Study, Workflow
from workbench.kit.prompting import AS_WRITTEN, DemoSearch, run_for_successes
from workbench.study import Race, p_worse, paired_race
from workbench_families.kinds import Kind, find_settings, write_instructions

#: One-sided p below which a candidate of the screening is worse than the start, and left, or surely better. Larger than
#: that of a race for the best (0.1), since what stays is searched together with all else.
APART = 0.2
#: Repeated choices after which the search ends.
REPEATS = 20
EXAMPLES = "examples"


class Families(Optimizer):
    """Tries one change of each kind on the same rows as the start, then searches those that pay together.

    Kinds of change: examples; each setting with few values, e.g. reasoning, adapter, votes; instructions by the
    proposer or from templates. It needs no setting and no proposer.
    """

    powers = {}

    trials: int = Field(
        40, ge=1, le=1000, description="maximum number of candidates; the budget may end the search earlier"
    )
    share: float = Field(
        0.4, gt=0, le=1, description="share of the calls that may be spent on finding out which kinds of change pay"
    )

    def reads_search(self) -> bool:
        return False

    async def optimize(self, study: Study) -> Workflow:
        found = [*find_settings(study.workflow), await write_instructions(study)]

        def cost(kind: Kind) -> int:
            first = next(iter(kind.options.values()))
            return study.worst_calls(study.workflow.patched(Patch(first)), study.val)

        kinds = sorted((kind for kind in found if kind.options), key=cost)
        search = _Search(self, study, kinds, DemoSearch(study, optional=True))
        search.demos.add(study.workflow, {})
        if search.kinds or search.demos.pools:
            await search.screen()
            await search.go_on()
        return study.best


@dataclass
class _Search:
    """A search under way.

    kinds: those whose options trials choose from, besides demos. tried: the choices of each candidate, by hash.
    gains: of the candidates of the screening that were not stopped, by kind and option, the mean difference to the
    start, and how sure it is that they are better (1 - p). screened: their choices.
    """

    settings: Families
    study: Study
    kinds: list[Kind]
    demos: DemoSearch
    tried: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    gains: dict[tuple[str, str], tuple[float, float]] = field(
        default_factory=dict[tuple[str, str], tuple[float, float]]
    )
    screened: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def __post_init__(self) -> None:
        self.searcher = self._make_searcher()

    def _make_searcher(self) -> Any:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=self.study.rng.randrange(2**31), n_startup_trials=6)
        return optuna.create_study(direction="maximize", sampler=sampler)

    async def screen(self) -> None:
        """Try the kinds one by one, the likeliest option of each first, and leave those that are clearly worse."""
        study = self.study
        base = await study.evaluate(study.workflow)
        race = paired_race(base.scores, p=APART)
        nothing = {kind.name: AS_WRITTEN for kind in self.kinds}
        asked = [(n, EXAMPLES, str(n), nothing | start) for n, start in enumerate(self.demos.starts())]
        for kind in self.kinds:
            for n, option in enumerate(kind.options):
                asked.append((n, kind.name, option, nothing | self.demos.leave() | {kind.name: option}))
        asked.sort(key=lambda one: one[0])  # the likeliest option of each kind first
        lost, said, kept = set[tuple[str, str]](), list[str](), [nothing | self.demos.leave()]
        alike = {kind.name for kind in self.kinds if kind.alike}
        most = study.remaining() * (1 - self.settings.share)  # calls that are left to search with
        for _, name, option, choices in asked:
            if name in alike and any(name == one for one, _ in lost):
                continue
            calls = study.worst_calls(study.workflow.patched(Patch(self._values(choices))), study.val)
            if self.tried and (len(self.tried) >= self.settings.trials or study.remaining() - calls < most):
                continue
            evaluation = await self.try_one(choices, race)
            if evaluation is None:
                continue
            pairs = list(zip(evaluation.scores, base.scores, strict=False))
            gain = sum(a - b for a, b in pairs) / len(pairs)
            said.append(f"{name} {option} {gain:+.3f}{'' if evaluation.complete else ', left'}")
            if evaluation.complete:
                self.gains[name, option] = gain, 1 - p_worse(base.scores, evaluation.scores)
                kept.append(self.tried[evaluation.workflow.hash])
            else:
                lost.add((name, option))
        self._leave(lost)
        left = {kind.name for kind in self.kinds}
        self.screened = [{n: v for n, v in choices.items() if n in left or n not in nothing} for choices in kept]
        if said:
            study.log(f"kinds of change, less the start: {'; '.join(said)}")

    def _leave(self, lost: set[tuple[str, str]]) -> None:
        """Take out of the search what lost, and the kinds of which nothing was tried."""
        tried = {name for name, _ in self.gains}
        options = [{o: v for o, v in kind.options.items() if (kind.name, o) not in lost} for kind in self.kinds]
        pairs = zip(self.kinds, options, strict=True)
        self.kinds = [replace(kind, options=left) for kind, left in pairs if kind.name in tried]

    async def go_on(self) -> None:
        """Search what is left together, beginning with all at once that gained."""
        gained = self._best_by_kind(least=0.0)
        sure = self._best_by_kind(least=1 - APART) or gained
        # Examples of the changed workflow, e.g. with its reasoning, which labelled rows lack.
        changed = self.study.workflow.patched(Patch(self._values(sure)))
        labelled = len(self.demos.starts())
        self.demos.add(self.study.workflow, await run_for_successes(self.study, changed))
        self.searcher = self._make_searcher()  # what is left has other choices, which a sampler cannot be told
        for choices in self.screened:
            await self.try_one(choices, False)
        written, starts = {kind.name: AS_WRITTEN for kind in self.kinds}, self.demos.starts()
        first, _ = int(gained.pop(EXAMPLES, len(starts))), sure.pop(EXAMPLES, None)
        queue = [written | gained | start for start in starts[first : first + 1]]
        queue += [written | sure | start for start in starts[labelled:]]
        queue.append(written | gained | self.demos.leave())
        repeats = 0
        while len(self.tried) < self.settings.trials and repeats < REPEATS:
            known = len(self.tried)
            if more := self.demos.widen(self.tried.get(self.study.best.hash, {})):
                queue.insert(0, more)
            if await self.try_one(queue.pop(0) if queue else None, True) is None and not self.affords_start():
                return
            repeats = repeats + 1 if len(self.tried) == known else 0

    def affords_start(self) -> bool:
        """Return True if a candidate that costs what the start costs can be paid."""
        return self.study.affords(self.study.workflow)

    def _best_by_kind(self, least: float) -> dict[str, str]:
        """The best option of each kind that gained. least: of a test that it did, 1 - p."""
        ranked = sorted(self.gains, key=lambda key: self.gains[key][0])
        return dict(key for key in ranked if self.gains[key][0] > 0 and self.gains[key][1] >= least)

    def _values(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        values = dict[str, Any]()
        for kind in self.kinds:
            values |= kind.options.get(choices.get(kind.name, AS_WRITTEN), {})
        return values

    async def try_one(self, choices: Mapping[str, Any] | None, race: Race | bool) -> Evaluation | None:
        """Evaluate a candidate and tell the sampler; None for one that was tried before or cannot be paid.

        choices: by the names of the sampler's parameters; None: what the sampler suggests.
        """
        import optuna

        if choices is not None:
            self.searcher.enqueue_trial(dict(choices))
        trial = self.searcher.ask()
        names = {kind.name: trial.suggest_categorical(kind.name, _names(kind)) for kind in self.kinds}
        demos, note = self.demos.suggest(trial)
        notes = [f"{name}: {option}" for name, option in names.items() if option != AS_WRITTEN]
        values = self._values(names) | demos
        candidate = self.study.workflow.patched(Patch(values, note=", ".join([*notes, *([note] if note else [])])))
        if candidate.hash in self.tried or not self.study.affords(candidate):
            known = self.study.known(candidate)
            if known is None:
                self.searcher.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                self.searcher.tell(trial, known.score)
            return None
        self.tried[candidate.hash] = trial.params
        evaluation = await self.study.evaluate(candidate, race=race)
        self.searcher.tell(trial, evaluation.score)  # a stopped one tells what it had: a bad score is news, too
        return evaluation


def _names(kind: Kind) -> Sequence[str]:
    return [AS_WRITTEN, *kind.options]
