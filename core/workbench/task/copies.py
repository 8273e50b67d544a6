"""Copies: is a row a copy of another row, or does a text repeat a row?

Texts are compared by their tokens: lower-case words and signs of arithmetic. Case, spaces and punctuation make no
difference, so that a full stop added to a row does not make it a new row.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

from workbench.task.dataset import Example

#: A row is a near copy of another if at most one in this many tokens differs. Shorter rows must be equal.
TOKENS_AN_EDIT = 10

#: Consecutive tokens that two near copies must share somewhere.
SHINGLE = 3

#: A shingle in more rows than this belongs to a template and says nothing.
COMMON = 200

#: The most rows that are compared in full with one row.
CANDIDATES = 20

#: A text repeats a row if a stretch at most twice as long as the row has this share of the row's different tokens.
COVERED = 0.85

#: Of a row with fewer different tokens than this, all must be there;
WHOLE = 10
#: and with fewer than this, in their order.
SHORT = 5
_TOKEN = re.compile(r"\w+|[-+*/=<>^%$€£]")


def tokenize(text: str) -> list[str]:
    """Lower-case words and signs of arithmetic; the whole text if it has neither."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return _TOKEN.findall(text) or ([stripped] if (stripped := text.strip()) else [])


def _texts_of(value: Any) -> Iterator[str]:
    """Every text and number in a JSON value, in order."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts_of(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts_of(inner)
    elif value is not None:
        yield value if isinstance(value, str) else json.dumps(value, default=str)


def input_tokens(row: Example, inputs: Sequence[str]) -> list[str]:
    """The tokens of some fields of a row."""
    return [token for name in inputs if name in row for text in _texts_of(row[name]) for token in tokenize(text)]


def normalised_inputs(row: Example, inputs: Sequence[str]) -> str:
    """The inputs of a row as one text: equal texts mean the same row."""
    return " ".join(input_tokens(row, inputs))


def number_fields(rows: Sequence[Example], inputs: Sequence[str]) -> list[str]:
    """Inputs that only number the rows: a single token that differs in every row, beside texts that already tell most
    rows apart."""
    found: list[str] = []
    for name in inputs:
        values = [input_tokens(row, [name]) for row in rows]
        if len(rows) > 2 and all(len(v) == 1 for v in values) and len({v[0] for v in values}) == len(rows):
            found.append(name)
    rest = [name for name in inputs if name not in found]
    texts = [input_tokens(row, rest) for row in rows]
    telling = len({" ".join(words) for words in texts}) >= len(rows) / 2 and sum(map(len, texts)) >= 5 * len(rows)
    return found if found and telling else []


class Copies:
    """Finds the row that another row is a copy of.

    Args:
        rows: the rows to search, each with the name of its split.
        inputs: the fields to compare.
        target: the field with the label, if there is one. Rows with different labels are no near copies: the token
            that differs is the one that matters.
        numbered: fields that only number the rows were left out of inputs; then no copy is exact.
    """

    def __init__(
        self,
        rows: Sequence[tuple[str, Example]],
        inputs: Sequence[str],
        target: str | None = None,
        numbered: bool = False,
    ):
        self.inputs, self.target, self.numbered = inputs, target, numbered
        self.rows = [(split, row, input_tokens(row, inputs)) for split, row in rows]
        self._same: dict[str, list[int]] = defaultdict(list)
        self._with: dict[Hashable, list[int]] = defaultdict(list)
        for number, (_, _, words) in enumerate(self.rows):
            self._same[" ".join(words)].append(number)
            for shingle in set(_shingles(words)):
                self._with[shingle].append(number)

    def find(self, row: Example) -> tuple[str, Example, bool] | None:
        """(split, row, whether it is only a near copy) of the row that this one is a copy of, or None."""
        words = input_tokens(row, self.inputs)
        for number in self._same.get(" ".join(words), ()):
            split, other, _ = self.rows[number]
            if not self.numbered or self._same_label(row, other):
                return split, other, self.numbered
        if (edits := len(words) // TOKENS_AN_EDIT) == 0:
            return None
        for number in self._candidates(words):
            split, other, theirs = self.rows[number]
            if self._same_label(row, other) and _within(words, theirs, edits):
                return split, other, True
        return None

    def _candidates(self, words: Sequence[str]) -> list[int]:
        """The rows that share the most shingles with these tokens."""
        shared: Counter[int] = Counter()
        for shingle in set(_shingles(words)):
            if len(having := self._with.get(shingle, ())) <= COMMON:
                shared.update(having)
        return [number for number, _ in shared.most_common(CANDIDATES)]

    def _same_label(self, row: Example, other: Example) -> bool:
        if self.target is None or self.target not in row or self.target not in other:
            return True
        return row[self.target] == other[self.target]


def _shingles(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(words[i : i + SHINGLE]) for i in range(len(words) - SHINGLE + 1))


def _within(a: Sequence[str], b: Sequence[str], edits: int) -> bool:
    """Whether at most this many tokens are added, removed or replaced between a and b, none of them a number: rows of
    one template with different numbers are different rows."""
    here, there = Counter(a), Counter(b)
    if max((here - there).total(), (there - here).total()) > edits:  # an edit mends one token of each
        return False
    tried = 1  # a narrow band first: most near copies differ in a few tokens of thousands
    while tried < edits:
        if _within_band(a, b, tried):
            return True
        tried *= 2
    return _within_band(a, b, edits)


def _within_band(a: Sequence[str], b: Sequence[str], edits: int) -> bool:
    """Levenshtein in a band as wide as the edits allow."""
    if abs(len(a) - len(b)) > edits:
        return False
    far = edits + 1
    before = [j if j <= edits else far for j in range(len(b) + 1)]
    for i, word in enumerate(a, start=1):
        now = [far] * (len(b) + 1)
        first, last = max(0, i - edits), min(len(b), i + edits)
        for j in range(first, last + 1):
            if j == 0:
                now[0] = i
                continue
            other = b[j - 1]
            cost = 0 if word == other else far if word.isdigit() and other.isdigit() else 1
            now[j] = min(before[j - 1] + cost, before[j] + 1, now[j - 1] + 1, far)
        before = now
        if min(before[first : last + 1]) >= far:
            return False
    return before[-1] <= edits


class Repeats:
    """Finds rows that are repeated by texts.

    Args:
        texts: the texts to search, by address.
        fair: the tokens of texts that may be repeated, such as train rows; what one of them has whole counts as theirs.
    """

    def __init__(self, texts: Mapping[str, str], fair: Sequence[Sequence[str]]):
        self.texts = {address: tokenize(text) for address, text in texts.items()}
        self.vocabulary = {address: set(words) for address, words in self.texts.items()}
        self.fair = [set(words) for words in fair]
        self._fair_with: dict[str, list[int]] = defaultdict(list)
        for number, words in enumerate(self.fair):
            for word in words:
                self._fair_with[word].append(number)

    def find(self, words: Sequence[str], telling: Collection[str] = ()) -> str | None:
        """The address of the first text that repeats a row, or None.

        Args:
            words: the tokens of the row.
            telling: those that tell the row from others of its kind; a text without them repeats the template only.
        """
        for address, text in self.texts.items():
            there = set(words) & self.vocabulary[address]
            if not words or len(there) < _needed(set(words)):
                continue
            if not self.is_short(words):
                found = _stretch(words, set(telling), text)
            else:
                found = there if _contains(text, words) else None
            if found and not self._is_fair(found):
                return address
        return None

    @staticmethod
    def is_short(words: Sequence[str]) -> bool:
        """Whether a row is so short that texts may contain it by chance."""
        return len(set(words)) < SHORT

    def _is_fair(self, found: set[str]) -> bool:
        """Whether a single fair text has all repeated tokens."""
        rarest = min(found, key=lambda word: len(self._fair_with.get(word, ())))
        return any(found <= self.fair[number] for number in self._fair_with.get(rarest, ()))


def _needed(words: Collection[str]) -> float:
    """How many of a row's different tokens a text must have to repeat the row."""
    return len(words) if len(words) < WHOLE else COVERED * len(words)


def _stretch(words: Sequence[str], telling: set[str], text: Sequence[str]) -> set[str] | None:
    """The tokens of a row that a stretch of a text has, if these are nearly all of its tokens and of its telling
    ones."""
    wanted, length = set(words), 2 * len(words)
    needed, needed_telling = _needed(wanted), COVERED * len(telling)
    inside: Counter[str] = Counter()
    for i, word in enumerate(text):
        if word in wanted:
            inside[word] += 1
        if i >= length and (gone := text[i - length]) in wanted:
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
        if len(inside) >= needed and len(telling & inside.keys()) >= needed_telling:
            return set(inside)
    return None


def _contains(text: Sequence[str], words: Sequence[str]) -> bool:
    """Whether the text has the tokens one after the other."""
    first, n = words[0], len(words)
    return any(word == first and list(text[i : i + n]) == list(words) for i, word in enumerate(text))
