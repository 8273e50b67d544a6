"""The search: initial design, then rounds that select a parent, propose children and evaluate the best-ranked one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from workbench import Evaluation, Patch, Study
from workbench.errors import SpecError
from workbench.task import Space
from workbench_kit.answers import read_objects
from workbench_kit.credit import Blame, blame_nodes, node_of
from workbench_kit.prompting import Proposer, runs_left, show_results
from workbench_kit.searching import (
    Menu,
    Node,
    Widening,
    back_up,
    describe_edit,
    draw,
    edit_options,
    places,
    pool,
    read_edit,
    select,
    softmix,
    uct,
)
from workbench_mcts import prompts
from workbench_mcts.design import Candidate, Design, Genome, make_covering_array
from workbench_mcts.features import Features, extract_features
from workbench_mcts.settings import Settings
from workbench_mcts.surrogate import GaussianProcess, Label

#: Minimum number of evaluated candidates for a surrogate.
_MIN = 4
#: Unusable answers of the proposer in a round before operators are used instead.
_TRIES = 2
#: Proposals in a round without a surrogate: the first affordable one is taken.
_FEW = 8

#: Train rows on which a guided search examines the best candidate.
_GUIDES = 8
#: Minimum number of rounds before convergence.
_ROUNDS = 4
#: Soft mixing: parents to choose from, the weight of a difference of one per cent in scores, and the share of uniform
#: probability (lambda). AFlow (arXiv 2410.10762), the defaults of its code.
SAMPLE, ALPHA, MIX = 4, 0.2, 0.3
#: Convergence: number of candidates in the mean. AFlow's, too.
TOP = 3
#: With `policy: uct`, a workflow visited N times has up to 2 N**WIDENING children.
WIDENING = 0.5
#: Maximum number of nodes of a workflow, inner nodes included.
MAX_NODES = 10


@dataclass
class State:
    """A candidate in the tree. experience: outcomes of its changes, as text."""

    candidate: Candidate
    evaluation: Evaluation
    experience: list[str] = field(default_factory=list)


@dataclass
class Counts:
    """Statistics of the search.

    evaluated: candidates, without the initial design. ranked: distinct proposals ranked by a surrogate. broken: invalid
    proposals, repetitions included. ended: why the search ended.
    """

    evaluated: int = 0
    ranked: dict[str, None] = field(default_factory=dict)
    broken: int = 0
    repeated: int = 0
    ended: str = "rounds"


class Convergence:
    """AFlow's convergence test: the mean of the `top` best scores is unchanged for `patience` rounds, after at least
    four rounds."""

    def __init__(self, patience: int, top: int = TOP):
        self.patience, self.top = patience, top
        self.means: list[float] = []

    def tell(self, scores: Sequence[float]) -> bool:
        """Record a round. Returns True on convergence. scores: of all candidates so far."""
        best = sorted(scores, reverse=True)[: self.top]
        self.means.append(math.fsum(best) / len(best))
        if len(self.means) <= max(self.patience, _ROUNDS - 1):
            return False
        steps = range(len(self.means) - self.patience, len(self.means))
        return all(abs(self.means[i] - self.means[i - 1]) <= 1e-12 for i in steps)


class Search:
    def __init__(self, settings: Settings, study: Study, space: Space | None, edits: Sequence[str], menu: Menu):
        self.settings, self.study, self.edits, self.menu = settings, study, edits, menu
        self.design = Design(space, study.best, study.rng)
        self.surrogate = GaussianProcess() if settings.surrogate == "gp" else None
        self.proposer = Proposer(study, settings.temperature, max_tokens=300)
        self.seen = {self.design.root.key}
        self.known: dict[str, Features] = {}
        self.counts = Counts()
        self.asked = 0
        self.blame = Blame()

    async def run(self, initial: int) -> None:
        root = Node(State(self.design.root, await self.study.evaluate(self.design.root.workflow)))
        root.reward = root.state.evaluation.score
        back_up(root.path, "leaf")
        await self.cover(root, initial)
        ended = Convergence(self.settings.patience)
        for _ in range(self.settings.rounds):
            parent = self.parent(root)
            if parent is None:
                self.counts.ended = "exhausted"
                return
            proposed = self.ranked(root, await self.children(root, parent))
            child = next((c for c in proposed if self.affords(c)), None)
            parent.closed = not proposed
            if child is not None:
                await self.grow(parent, child)
                self.counts.evaluated += 1
            elif proposed:
                self.counts.ended = "budget"
                return
            if ended.tell([node.state.evaluation.score for node in root.walk()]):
                self.counts.ended = "converged"
                return

    async def cover(self, root: Node[State], most: int) -> None:
        """Evaluate the initial design: the starts of the space, then rows that cover all pairs of choices.

        It ends after `most` candidates or a third of the remaining calls. Actual calls count, since candidates may
        share requests, which the journal answers.
        """
        rows = itertools.chain(self.design.starts, make_covering_array(self.design.options, self.study.rng))
        rest = runs_left(self.study) * 2 / 3
        while (
            most > 0 and runs_left(self.study) - len(self.study.val) >= rest and (row := next(rows, None)) is not None
        ):
            candidate = self.new(Genome({**root.state.candidate.genome.picks, **row}), "initial design")
            if candidate is not None and self.affords(candidate):
                most -= 1
                await self.grow(root, candidate)

    def affords(self, candidate: Candidate) -> bool:
        """Return True if the budget covers an evaluation plus a quarter for retries: an incomplete one is wasted."""
        val = list(self.study.val)
        return self.study.affords(candidate.workflow, val + val[: (len(val) + 3) // 4])

    def parent(self, root: Node[State]) -> Node[State] | None:
        """Choose a parent by the policy, among the nodes that can have a new child. Returns None if there is none."""
        if self.settings.policy == "uct":
            return select(root, uct, Widening(2.0, WIDENING))
        found = pool(root, SAMPLE)
        weights = softmix([n.reward or 0.0 for n in found], mix=MIX, alpha=ALPHA)
        return draw(found, weights, self.study.rng)

    def spares(self, before: Genome, after: Genome) -> bool:
        """Return True if a guided search skips a mutation: it changes only nodes that decide no failure."""
        names = sorted(n for n in {**before.picks, **after.picks} if before.picks.get(n) != after.picks.get(n))
        nodes = [node_of(name) for name in self.design.options]
        return bool(names) and all(self.blame.spares(node_of(n), nodes, self.study.rng) for n in names)

    async def children(self, root: Node[State], parent: Node[State]) -> list[Candidate]:
        """Return new candidates: one change away, and some with two changes or recombined from two parents."""
        proposed: list[Candidate] = []
        if self.settings.guided:
            self.blame = await blame_nodes(self.study, self.study.best, self.study.train[:_GUIDES])
        if self.settings.proposals != "operators":
            proposed = await self.from_model(parent)
        if not proposed or (self.settings.proposals == "both" and self.surrogate is not None):
            proposed += self.from_operators(root, parent)
        return proposed

    def ranked(self, root: Node[State], proposed: list[Candidate]) -> list[Candidate]:
        """Return candidates sorted by predicted score plus its uncertainty, highest first."""
        states = [n.state for n in root.walk()]
        if self.surrogate is None or len(states) < _MIN or not proposed:
            return proposed
        self.surrogate.fit(
            [Label(self.features(s.candidate), s.evaluation.score, len(s.evaluation.results)) for s in states]
        )
        means, spreads = self.surrogate.predict([self.features(c) for c in proposed])
        self.counts.ranked |= {c.key: None for c in proposed}
        bounds = [float(m + s) for m, s in zip(means, spreads, strict=True)]
        return [proposed[i] for i in sorted(range(len(proposed)), key=lambda i: -bounds[i])]

    def features(self, candidate: Candidate) -> Features:
        if candidate.key not in self.known:
            self.known[candidate.key] = extract_features(candidate)
        return self.known[candidate.key]

    async def grow(self, parent: Node[State], candidate: Candidate) -> None:
        """Evaluate a child and record the outcome."""
        before = parent.state.candidate.workflow
        workflow = before.patched(Patch.between(before, candidate.workflow, candidate.note))
        evaluation = await self.study.evaluate(workflow, race=self.settings.race)
        candidate = replace(candidate, workflow=workflow)
        self.seen.add(candidate.key)
        parent.state.experience.append(f"{candidate.note}: {parent.reward or 0.0:.3f} -> {evaluation.score:.3f}")
        node = parent.add(State(candidate, evaluation), evaluation.score, key=candidate.key)
        back_up(node.path, "leaf")

    def new(self, genome: Genome, note: str) -> Candidate | None:
        """Return a genome's candidate if it is valid, new and small enough, else None. Costs no calls."""
        try:
            candidate = self.design.made(genome, note)
        except (SpecError, KeyError):
            self.counts.broken += 1
            return None
        if candidate.key in self.seen:
            self.counts.repeated += 1
            return None
        small = len(list(places(candidate.workflow))) <= MAX_NODES
        return candidate if small else None

    def from_operators(self, root: Node[State], parent: Node[State]) -> list[Candidate]:
        """Return new candidates in random order, multi-step ones last. Without a surrogate, a few suffice."""
        found: dict[str, Candidate] = {}
        enough = self.settings.pool if self.surrogate is not None else _FEW
        for genome, note in self.genomes(root, parent):
            candidate = self.new(genome, note)
            if candidate is not None:
                found.setdefault(candidate.key, candidate)
            if len(found) >= enough:
                break
        return list(found.values())

    def genomes(self, root: Node[State], parent: Node[State]) -> Iterator[tuple[Genome, str]]:
        rng, genome = self.study.rng, parent.state.candidate.genome
        steps = [step for step in self.design.mutations(genome) if not self.spares(genome, step[0])]
        options = edit_options(parent.state.candidate.workflow, self.menu, self.edits) if self.edits else []
        steps += [(Genome(genome.picks, (*genome.edits, edit)), describe_edit(edit)) for edit in options]
        yield from rng.sample(steps, len(steps))
        others = sorted((n for n in root.walk() if n is not parent), key=lambda n: -(n.reward or 0.0))
        for other in others[: 2 * SAMPLE]:
            for _ in range(2):
                yield self.design.recombined(genome, other.state.candidate.genome)
        for _ in range(self.settings.pool // 2):
            twice = self.design.mutated_twice(genome)
            if twice is None:
                return
            yield twice

    async def from_model(self, parent: Node[State]) -> list[Candidate]:
        """Return valid, new candidates from the proposer. Invalid proposals become experience."""
        state = parent.state
        for _ in range(_TRIES):
            evidence = ""
            rows = list(self.study.train)[: self.settings.batch]
            if rows and self.study.affords(state.candidate.workflow, [*rows, *self.study.val]):
                results = (await self.study.evaluate(state.candidate.workflow, rows, traces=True)).results
                evidence = show_results(results, 2000)
            self.asked += 1
            asked = prompts.request(
                state.candidate.workflow,
                parent.reward or 0.0,
                self.edits,
                self.design.options,
                state.experience[-20:],
                self.menu,
                evidence,
            )
            text = await self.proposer.ask(asked, self.asked)
            found = [c for c in (self.read(value, parent) for value in read_objects(text or "")) if c is not None]
            if found:
                return found
        return []

    def read(self, value: dict, parent: Node[State]) -> Candidate | None:
        """Return the candidate of a proposal as the model wrote it; None if it is unusable."""
        genome, name = parent.state.candidate.genome, value.get("pick")
        options = self.design.options.get(str(name), [])
        try:
            if name is not None:
                if value.get("value") not in options:
                    raise SpecError(f"pick {name}: no such choice")
                made, note = (
                    Genome({**genome.picks, str(name): value["value"]}, genome.edits),
                    f"{name}: {value['value']}",
                )
            else:
                edit = read_edit(value, parent.state.candidate.workflow, self.menu, self.edits)
                made, note = Genome(genome.picks, (*genome.edits, edit)), describe_edit(edit)
        except SpecError as error:
            self.counts.broken += 1
            parent.state.experience.append(f"refused: {error.message}"[:200])
            return None
        candidate = self.new(made, note)
        if candidate is None:
            parent.state.experience.append(f"refused, broken or tried before: {note}")
        return candidate

    def report(self) -> None:
        """Log the number of evaluations that the surrogate saved, as an event of the run."""
        c = self.counts
        saved = 1 - c.evaluated / len(c.ranked) if c.ranked else 0.0
        self.study.record_event(
            "mcts",
            evaluated=c.evaluated,
            ranked=len(c.ranked),
            saved=round(saved, 4),
            broken=c.broken,
            repeated=c.repeated,
            ended=c.ended,
        )
