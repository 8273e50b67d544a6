"""Detection of texts that repeat a row, to guard against winners that have memorized rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from workbench.task.tokens import tokenize

#: A text repeats a row if a stretch of it, at most twice as long as the row, has this share of the row's distinct
#: tokens.
COVERED = 0.85

#: For a row with fewer distinct tokens than this, all must be present,
WHOLE = 10
#: and for a row with fewer than this, in order.
SHORT = 5


class Repeats:
    """Finds rows that texts repeat.

    Args:
        texts: the texts to search, by address.
        fair: the tokens of texts that may be repeated, such as train rows. A repetition that is whole in one of them
            does not count.
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
        """Return the address of the first text that repeats a row, or None.

        Args:
            words: the tokens of the row.
            telling: tokens that distinguish the row from others of its kind; a text without them only repeats the
                template.
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
        """Return True if a row is so short that texts may contain it by chance."""
        return len(set(words)) < SHORT

    def _is_fair(self, found: set[str]) -> bool:
        """Return True if a single fair text has all repeated tokens."""
        rarest = min(found, key=lambda word: len(self._fair_with.get(word, ())))
        return any(found <= self.fair[number] for number in self._fair_with.get(rarest, ()))


def _needed(words: Collection[str]) -> float:
    """Compute how many of a row's distinct tokens a text must have to repeat the row."""
    return len(words) if len(words) < WHOLE else COVERED * len(words)


def _stretch(words: Sequence[str], telling: set[str], text: Sequence[str]) -> set[str] | None:
    """Return the tokens of a row in a stretch of a text, if nearly all of them and of its telling ones are there."""
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
    """Return True if the text has the tokens consecutively and in order."""
    first, n = words[0], len(words)
    return any(word == first and list(text[i : i + n]) == list(words) for i, word in enumerate(text))
