"""Candidates: choices in the design space of `search:`, and edits of the structure on top of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.base.hashing import canonical
from workbench.study import RandomTrial
from workbench.task import Space
from workbench.workflow import Workflow
from workbench_kit.searching import Edit, apply_edit, describe_edit
from workbench_mcts.graph_hash import graph_hash

#: An integer range with more values than this is not enumerated.
LISTED = 32


@dataclass(frozen=True)
class Genome:
    """A point of the search space. picks: values by parameter name. edits: applied in order after the picks."""

    picks: Mapping[str, Any] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """The workflow of a genome. key: equal for equivalent candidates. note: describes the change."""

    genome: Genome
    workflow: Workflow
    key: str
    note: str = ""


class _Recorder(RandomTrial):
    """Suggests the given values, draws the others, and records all values with their alternatives."""

    def __init__(self, given: Mapping[str, Any], rng: random.Random):
        super().__init__(rng)
        self.given, self.values, self.options = given, dict[str, Any](), dict[str, list[Any]]()

    def _keep(self, name: str, value: Any, options: list[Any] | None) -> Any:
        self.values[name] = value
        if options:
            self.options[name] = options
        return value

    def suggest_float(
        self, name: str, low: float, high: float, *, log: bool = False, step: float | None = None
    ) -> float:
        value = self.given[name] if name in self.given else super().suggest_float(name, low, high, log=log, step=step)
        return self._keep(name, value, None)

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False, step: int = 1) -> int:
        value = self.given[name] if name in self.given else super().suggest_int(name, low, high, log=log, step=step)
        values = list(range(low, high + 1, step))
        return self._keep(name, value, values if len(values) <= LISTED else None)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        value = self.given[name] if name in self.given and self.given[name] in choices else self.rng.choice(choices)
        return self._keep(name, value, list(choices))


class Design:
    """Makes candidates from genomes. space: None if the file has no `search:`.

    options: the known values of each enumerable name; a choice may add others. starts: picks to try first, e.g. the
    maximum number of nearest examples. The picks of the root describe the starting workflow; a starting value outside
    its domain is not a pick, and is kept until a value is picked.
    """

    def __init__(self, space: Space | None, start: Workflow, rng: random.Random):
        self.space, self.start, self.rng = space, start, rng
        self.options: dict[str, list[Any]] = {}
        self._bases: dict[str, Workflow] = {}  # workflows by picks, if no pick was drawn
        self.outside: dict[
            str, list[str]
        ] = {}  # by address: names of picks, if the starting value is outside the domain
        here, *self.starts = space.starts(start) if space else [{}]
        made = self.made(Genome(here))
        for name in made.genome.picks:
            address = _address(name)
            more_demos = space is not None and space.domains[address].demos is not None and start.get(address, None)
            if name not in here or more_demos:
                self.outside.setdefault(address, []).append(name)
        picks = {n: v for n, v in made.genome.picks.items() if _address(n) not in self.outside}
        self.root = Candidate(Genome(picks), start, graph_hash(start))
        if space:
            for name, values in list(self.options.items()):  # names that other choices add
                for value in values:
                    _record(space, {**self.root.genome.picks, name: value}, rng, start, self.options)

    def made(self, genome: Genome, note: str = "") -> Candidate:
        """Return the candidate of a genome. Raise SpecError and KeyError if it is invalid."""
        base, picks = self._base(genome.picks)
        workflow = base
        for edit in genome.edits:
            workflow = apply_edit(edit, workflow, base)
        return Candidate(Genome(picks, genome.edits), workflow, graph_hash(workflow), note)

    def _base(self, picks: Mapping[str, Any]) -> tuple[Workflow, Mapping[str, Any]]:
        if self.space is None:
            return self.start, picks
        name = canonical(picks)
        if name in self._bases:
            return self._bases[name], picks
        named = {_address(n) for n in picks}
        domains = {a: d for a, d in self.space.domains.items() if a in named or a not in self.outside}
        space = replace(self.space, domains=domains)
        recorder, values = _record(space, picks, self.rng, self.start, self.options)
        base = self.start.patched(values)
        if recorder.values == picks:
            self._bases[name] = base
        return base, recorder.values

    def mutations(self, genome: Genome) -> Iterator[tuple[Genome, str]]:
        """Yield mutated genomes with notes: each other value of each pick, a drawn one for ranges, each edit undone."""
        for name, value in genome.picks.items():
            for other in self.options.get(name, ()):
                if other != value or type(other) is not type(value):
                    yield Genome({**genome.picks, name: other}, genome.edits), f"{name}: {other}"
            if name not in self.options:
                rest = Genome({n: v for n, v in genome.picks.items() if n != name}, genome.edits)
                if _address(name) in self.outside:  # without a pick, the starting value is kept
                    drawn = (Genome({**rest.picks, name: v}, rest.edits) for v in self._drawn(name, rest))
                    rest = next(drawn, rest)
                yield rest, f"drew {name}"
        for name in (names[0] for a, names in self.outside.items() if a not in map(_address, genome.picks)):
            for value in self.options.get(name) or self._drawn(name, genome):
                yield Genome({**genome.picks, name: value}, genome.edits), f"{name}: {value}"
        for index, edit in enumerate(genome.edits):
            yield Genome(genome.picks, genome.edits[:index] + genome.edits[index + 1 :]), f"undo {describe_edit(edit)}"

    def _drawn(self, name: str, genome: Genome) -> list[Any]:
        """Return a list with a random value for a pick that the genome lacks; empty if there is none."""
        assert self.space is not None, "without a space there is nothing outside it"
        values = _record(self.space, genome.picks, self.rng, self.start, self.options)[0].values
        return [values[name]] if name in values else []

    def recombined(self, one: Genome, other: Genome) -> tuple[Genome, str]:
        """Return a genome with each pick from either parent with equal probability, and the edits of one parent."""
        picks = {n: other.picks[n] if n in other.picks and self.rng.random() < 0.5 else v for n, v in one.picks.items()}
        return Genome(picks, other.edits if self.rng.random() < 0.5 else one.edits), "recombined"

    def mutated_twice(self, genome: Genome) -> tuple[Genome, str] | None:
        """Return a genome with two picks redrawn together, which no single mutation reaches; None if impossible."""
        names = [n for n, values in self.options.items() if n in genome.picks and len(values) > 1]
        if len(names) < 2:
            return None
        chosen = self.rng.sample(names, 2)
        picks = {n: self.rng.choice(self.options[n]) for n in chosen}
        return Genome({**genome.picks, **picks}, genome.edits), f"drew {' and '.join(chosen)}"


def _address(name: str) -> str:
    """Return the address of a parameter name, e.g. nodes.n.demos for `nodes.n.demos#count`."""
    return name.partition("#")[0]


def _record(
    space: Space, picks: Mapping[str, Any], rng: random.Random, start: Workflow, options: dict[str, list[Any]]
) -> tuple[_Recorder, dict[str, Any]]:
    recorder = _Recorder(picks, rng)
    values = space.suggest(recorder, start)
    for name, found in recorder.options.items():
        options.setdefault(name, found)
    return recorder, values


#: Number of random rows from which the best is taken.
TRIES = 24


def make_covering_array(options: Mapping[str, Sequence[Any]], rng: random.Random) -> Iterator[dict[str, Any]]:
    """Yield rows that cover every pair of values of any two names, rows with most new pairs first.

    Greedy, after AETG (Cohen et al. 1997): a row starts from an uncovered pair, takes for each further name, in random
    order, the value with most new pairs, and is the best of TRIES such rows. With fewer than two names: every value.
    """
    names = [n for n in options if len(options[n]) > 1]
    if len(names) < 2:
        yield from ({n: v} for n in names for v in options[n])
        return
    left: dict[tuple[Any, ...], None] = {}
    for (i, one), (j, two) in itertools.combinations(enumerate(names), 2):
        left |= {(i, a, j, b): None for a in range(len(options[one])) for b in range(len(options[two]))}
    while left:
        rows = [_row(left, names, options, rng) for _ in range(TRIES)]
        best = max(rows, key=lambda row: len(_pairs(row) & left.keys()))
        left = {pair: None for pair in left if pair not in _pairs(best)}
        yield {names[i]: options[names[i]][index] for i, index in sorted(best.items())}


def _row(
    left: Mapping[tuple[Any, ...], None], names: Sequence[str], options: Mapping[str, Sequence[Any]], rng: random.Random
) -> dict[int, int]:
    i, a, j, b = rng.choice(list(left))
    row = {i: a, j: b}
    for k in rng.sample([k for k in range(len(names)) if k not in row], len(names) - 2):
        gains = [sum(_pair(k, v, m, x) in left for m, x in row.items()) for v in range(len(options[names[k]]))]
        row[k] = rng.choice([v for v, gain in enumerate(gains) if gain == max(gains)])
    return row


def _pair(i: int, a: int, j: int, b: int) -> tuple[int, int, int, int]:
    return (i, a, j, b) if i < j else (j, b, i, a)


def _pairs(row: Mapping[int, int]) -> set[tuple[int, int, int, int]]:
    return {_pair(i, a, j, b) for (i, a), (j, b) in itertools.combinations(row.items(), 2)}
