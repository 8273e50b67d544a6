"""Detection of equal rows: one rule for the splits, within the test, and across runs.

Rows are copies if each of their fields is a copy, token by token (`workbench.task.tokens`): ten questions on one
passage are ten rows, however long the passage.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from workbench.task.dataset import Example
from workbench.task.groups import find_group_field
from workbench.task.tokens import Words, input_tokens, words_of

#: A text is a near copy of another if at most one token in this many differs. Shorter texts must be equal.
TOKENS_AN_EDIT = 10

#: The most tokens that may differ in a text of any length: the work grows with their square.
MAX_EDITS = 64

#: The most tokens of a greeting before a copy.
GREETING = 6

#: Consecutive tokens that two near copies must share somewhere.
SHINGLE = 3

#: A shingle in more rows than this belongs to a template and is ignored.
COMMON = 200

#: A field of up to this many tokens does not matter next to longer ones.
MIN_SAID = 2

#: Approximate number of shingles to compare; longer texts are sampled.
SAMPLE = 2048

#: The most rows to compare in full with one row.
CANDIDATES = 20

#: Tokens of a field that can distinguish rows by itself.
MIN_TOKENS = 3

#: This many rows of one template with different numbers and one label show that the numbers do not matter.
ALIKE = 4


class Texts(NamedTuple):
    """The texts of a row, by field, and all of them as one."""

    fields: tuple[tuple[Words, ...], ...]
    pooled: Words


def are_near(a: Words, b: Words) -> bool:
    """Return True if two texts are equal except for one token in ten, and have the same numbers: rows of one template
    with different numbers are different rows.

    Edits of a copy are scattered. If more than SHINGLE tokens in one place differ, as for different questions after one
    passage, the rows are different.
    """
    if a == b or _greets(a, b) or _greets(b, a):
        return True
    edits = min(max(len(a), len(b)) // TOKENS_AN_EDIT, MAX_EDITS)
    if not edits or abs(len(a) - len(b)) > edits:
        return False
    start = _run(a, b, 0, 0)
    end = min(_run(a[::-1], b[::-1], 0, 0), min(len(a), len(b)) - start)
    a, b = a[start : len(a) - end], b[start : len(b) - end]
    edits = min(edits, max(SHINGLE, max(len(a), len(b)) // TOKENS_AN_EDIT))
    here, there = Counter(a), Counter(b)
    if max((here - there).total(), (there - here).total()) > edits:  # one edit fixes one token of each
        return False
    return [w for w in a if w.isdigit()] == [w for w in b if w.isdigit()] and _within(a, b, edits)


def _greets(a: Words, b: Words) -> bool:
    """Return True if one text is the other after a greeting, such as "Hi there, one quick question"."""
    extra = len(a) - len(b)
    if not 0 < extra <= GREETING or len(b) < TOKENS_AN_EDIT:
        return False
    return a[extra:] == b and not any(word.isdigit() for word in a[:extra])


def _within(a: Words, b: Words, edits: int) -> bool:
    """Return True if at most a number of tokens are added, removed or replaced. For each number of edits, computes how
    far the texts match on each diagonal (E. Ukkonen, Algorithms for approximate string matching, 1985, section 3)."""
    end, reached = len(b) - len(a), {0: _run(a, b, 0, 0)}
    for _ in range(edits + 1):
        if reached.get(end, -1) >= len(a):
            return True
        following: dict[int, int] = {}
        for way in {w + step for w in reached for step in (-1, 0, 1)}:
            # a token replaced, added in b, or removed from a
            far = max(reached.get(way, -2) + 1, reached.get(way - 1, -1), reached.get(way + 1, -2) + 1)
            far = min(far, len(a), len(b) - way)
            if far >= max(0, -way):
                following[way] = far + _run(a, b, far, far + way)
        reached = following
    return False


def _run(a: Words, b: Words, i: int, j: int) -> int:
    """Count the equal tokens from these positions on."""
    start, length = i, 8
    while length:
        if i + length <= len(a) and a[i : i + length] == b[j : j + length]:
            i, j, length = i + length, j + length, 2 * length
        else:
            length //= 2
    return i - start


def _shingles(words: Words) -> set[Any]:
    """Return the sequences of consecutive tokens; of a long text a sample, which is the same in a near copy."""
    found = {words[i : i + SHINGLE] for i in range(len(words) - SHINGLE + 1)}
    if len(words) < 2 * SAMPLE:
        return found
    every = 1 << (len(words) // SAMPLE).bit_length() - 1  # in a text twice as long, sample half as many
    return {shingle for shingle in found if zlib.crc32(" ".join(shingle).encode("utf-8", "replace")) % every == 0}


def number_fields(rows: Sequence[Example], inputs: Sequence[str]) -> list[str]:
    """Return the inputs that only number the rows: a single token that differs in every row, next to texts that already
    distinguish most rows."""
    found: list[str] = []
    for name in inputs:
        values = [input_tokens(row, [name]) for row in rows]
        if len(rows) > 2 and all(len(v) == 1 for v in values) and len({v[0] for v in values}) == len(rows):
            found.append(name)
    rest = [name for name in inputs if name not in found]
    texts = [input_tokens(row, rest) for row in rows]
    telling = len({" ".join(words) for words in texts}) >= len(rows) / 2 and sum(map(len, texts)) >= 5 * len(rows)
    return found if found and telling else []


def label_fields(rows: Sequence[Example], inputs: Sequence[str], target: str | None) -> list[str]:
    """Return the fields that distinguish rows of one template: the label, or, if the metric names none, the fields that
    are not inputs and have repeated values or answers in words."""
    if target is not None:
        return [target]
    names = {name for row in rows for name in row.fields} - {*inputs, find_group_field(rows, inputs)}
    kinds = {name: {repr(row.fields.get(name)) for row in rows} for name in sorted(name for name in names if name)}
    return [name for name, values in kinds.items() if 2 <= len(values) <= len(rows) / 2 or _are_references(rows, name)]


def _are_references(rows: Sequence[Example], name: str) -> bool:
    """Return True if the values of a field are answers in words, and not ids or dates."""
    words = [word for row in rows for text in words_of(row, name) for word in text if word.isalpha()]
    return len(words) >= 2 * len(rows)


class NearTexts:
    """Finds texts that are near copies of one another. Each is added under a number."""

    def __init__(self) -> None:
        self._equal: dict[Words, list[int]] = defaultdict(list)
        self._with: dict[Hashable, list[int]] = defaultdict(list)

    def add(self, words: Words, number: int, of: Mapping[int, int] | None = None) -> None:
        """Add a text. of: by number, the known group of copies of a text; one text per group is enough."""
        for having in (self._equal[words], *(self._with[shingle] for shingle in _shingles(words))):
            if of is None or not any(of[other] == of[number] for other in having[-COMMON:]):
                having.append(number)

    def equal(self, words: Words) -> Sequence[int]:
        """Return the numbers of texts that are equal to this one."""
        return self._equal.get(words, ())

    def candidates(self, words: Words) -> list[int]:
        """Return the numbers of texts that share the rarest shingles with this one, the likeliest first."""
        shared: Counter[int] = Counter()
        for shingle in _shingles(words):
            if len(having := self._with.get(shingle, ())) <= COMMON:
                for number in having:
                    shared[number] += 1 / len(having)  # pyright: ignore[reportArgumentType]
        return [number for number, _ in shared.most_common(CANDIDATES)]


@dataclass(frozen=True)
class RowRule:
    """The rule by which rows of a file are the same row: for its splits, within its test, and across runs.

    Attributes:
        inputs: the fields to compare.
        labels: the fields with labels. Rows with different labels are not near copies: the differing token matters.
        numbered: True if fields that only number the rows were left out of inputs; then no copy is exact.
        exact: near copies are different rows (`data: {cluster: false}`).
        telling: the fields that distinguish rows: the longest input that does so by itself, else all that differ. Rows
            that are near copies in them are the same row, even if another file compares other fields.
    """

    inputs: tuple[str, ...]
    labels: tuple[str, ...] = ()
    numbered: bool = False
    exact: bool = False
    telling: tuple[str, ...] = ()


def find_rule(
    rows: Sequence[Example], inputs: Sequence[str], target: str | None = None, exact: bool = False
) -> RowRule:
    """Derive the rule of a file. rows: all of its splits."""
    numbers, labels = number_fields(rows, inputs), label_fields(rows, inputs, target)
    rule = RowRule(tuple(n for n in inputs if n not in numbers), tuple(labels), bool(numbers), exact)
    return replace(rule, telling=_find_telling(rows, rule) or tuple(inputs))


def _find_telling(rows: Sequence[Example], rule: RowRule) -> tuple[str, ...]:
    texts = {name: [words_of(row, name) for row in rows] for name in rule.inputs}
    lengths = {name: sum(len(w) for of in found for w in of) / max(1, len(rows)) for name, found in texts.items()}
    differing = [name for name, of in texts.items() if len({*of}) > 1]
    long = [name for name in differing if lengths[name] >= MIN_TOKENS]
    for name in sorted(long, key=lambda name: -lengths[name]):
        if len(rule.inputs) == 1 or _tells_apart(rows, name, rule):
            return (name,)
    return tuple(differing)


def _tells_apart(rows: Sequence[Example], name: str, rule: RowRule) -> bool:
    """Return True if rows that are near copies in one field are near copies in all fields. Each row is compared with
    one row of each group of copies."""
    alone, group = Copies([], RowRule((name,))), list[int]()
    whole = [texts_of(row, rule) for row in rows]
    for number, row in enumerate(rows):
        texts = texts_of(row, alone.rule)
        found = [other for other, _ in alone.find_all(row, texts)]
        if not all(are_copies(whole[number], whole[other]) for other in found):
            return False
        group.append(group[found[0]] if found else number)
        alone.add("", row, texts, group=group[number])
    return True


def texts_of(row: Example, rule: RowRule) -> Texts:
    """Return the texts of a row to compare."""
    fields = tuple(words_of(row, name) for name in rule.inputs)
    return Texts(fields, _pooled(text for texts in fields for text in texts))


class Copies:
    """Finds the original of a copied row. rows: the rows to search, each with the name of its split."""

    def __init__(self, rows: Sequence[tuple[str, Example]], rule: RowRule):
        self.rule = rule
        self.rows: list[tuple[str, Example, Texts]] = []
        self._near, self._group = NearTexts(), dict[int, int]()
        for split, row in rows:
            self.add(split, row, texts_of(row, rule))

    def add(self, split: str, row: Example, texts: Texts, group: int | None = None) -> None:
        """Add a row. group: a number shared by rows that are copies of each other."""
        number = len(self.rows)
        self.rows.append((split, row, texts))
        self._group[number] = -1 - number if group is None else group
        self._near.add(texts.pooled, number, None if group is None else self._group)

    def find(self, row: Example) -> tuple[str, Example, bool] | None:
        """Return (split, row, True if it is only a near copy) of the row that this one is a copy of, or None."""
        for number, near in self.find_all(row, texts_of(row, self.rule)):
            split, other, _ = self.rows[number]
            return None if near and self.rule.exact else (split, other, near or self.rule.numbered)
        return None

    def find_all(self, row: Example, texts: Texts) -> Iterator[tuple[int, bool]]:
        """Yield (number, True if it is only a near copy) of each row that this one is a copy of, equal ones first. For
        rows added as one group, at least one."""
        words, seen = texts.pooled, set[int]()
        for number in self._near.equal(words):
            seen.add(number)
            if words and (not self.rule.numbered or self._same_label(row, self.rows[number][1])):
                yield number, False
        for number in self._near.candidates(words) if len(words) >= TOKENS_AN_EDIT else ():
            _, other, theirs = self.rows[number]
            if number not in seen and self._same_label(row, other) and are_copies(texts, theirs):
                yield number, True

    def _same_label(self, row: Example, other: Example) -> bool:
        return same_labels(row, other, self.rule.labels)


def same_labels(row: Mapping[str, Any], other: Mapping[str, Any], labels: Iterable[str]) -> bool:
    """Return True if two rows agree in all labels that both have."""
    return all(row[name] == other[name] for name in labels if name in row and name in other)


def _pooled(texts: Iterable[Words]) -> Words:
    return tuple(word for words in texts for word in words)


def are_copies(a: Texts, b: Texts) -> bool:
    """Return True if all fields are near copies, text by text; lists of different lengths count as one text. A field of
    a word or two next to longer texts does not matter."""
    for here, there in zip(a.fields, b.fields, strict=True):
        if max(sum(map(len, here)), sum(map(len, there))) <= MIN_SAID and len(a.pooled) >= TOKENS_AN_EDIT:
            continue
        pairs = zip(here, there, strict=True) if len(here) == len(there) else [(_pooled(here), _pooled(there))]
        if not all(are_near(x, y) for x, y in pairs):
            return False
    return True


def group_copies(
    rows: Sequence[Example], inputs: Sequence[str], target: str | None = None, rule: RowRule | None = None
) -> list[int]:
    """Return, for each row, the position of the first row that it is a direct or indirect copy of; its own if none.

    Rows that differ only in numbers, in at most one token in ten, are copies if the labels show that the numbers do not
    matter: there are at least ALIKE of them, and all have one label.

    rule: None: derived from these rows.
    """
    from networkx.utils import UnionFind  # pyright: ignore[reportMissingTypeStubs]

    rule = rule or find_rule(rows, inputs, target)
    labels, copies = rule.labels, Copies([], rule)
    groups: Any = UnionFind(range(len(rows)))
    alike: dict[Words, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        texts = texts_of(row, rule)
        groups.union(place, *(number for number, _ in copies.find_all(row, texts)))
        copies.add("", row, texts, group=groups[place])
        masked = tuple("0" if word.isdigit() else word for word in texts.pooled)
        if 0 < masked.count("0") <= len(masked) // TOKENS_AN_EDIT:
            alike[masked].append(place)
    for places in alike.values() if labels else ():
        said = {repr([rows[place].get(name) for name in labels]) for place in places}
        if len({groups[place] for place in places}) >= ALIKE and len(said) == 1:
            groups.union(*places)
    return first_of_groups(groups, range(len(rows)))


def first_of_groups(groups: Any, places: Iterable[int]) -> list[int]:
    """Return, for each position, the first one of its group. groups: a union-find of positions."""
    first = dict[int, int]()
    return [first.setdefault(groups[place], place) for place in places]
