"""Rows that belong together although the file does not say so: turns of one conversation, questions of one user.

Their scores depend on each other. A test that takes them for independent shows gains that do not exist.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from workbench.base.hashing import canonical
from workbench.task.dataset import Example
from workbench.task.tokens import tokenize

#: Words in field names that say what rows have in common. Rows with the same value of such a field are a group.
_GROUPS = frozenset(
    "account article author book caller case cluster context doc document family game group household meeting page "
    "paper paragraph parent passage person player post scene sender story ticket video worker".split()
)
#: Words that have no other meaning, so that few groups are enough.
_TALKS = frozenset(
    "chat conv conversation convo customer dialog dialogue discussion dlg encounter episode interview participant "
    "patient respondent session student talk thread trajectory user visit visitor".split()
)
_IDS = frozenset("hash id ids identifier ref uid uuid".split())
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
#: Fewer groups, or groups that mostly have one row, do not count. Ids, and ambiguous words, need more.
MIN_GROUPS, MIN_ROWS, MAX_ROWS = 3, 1.25, 50
SURE_GROUPS, SURE_ROWS = 10, 2.0

#: A row continues another one if it begins with all of its tokens, at least this many.
MIN_START = 8
#: The most rows that may follow one turn, if a conversation was resumed.
MAX_FOLLOWERS = 2

#: The end of an id that numbers the rows of a group: conv12-turn3, 9f3a7/2. A longer text is no id.
_NUMBERED = re.compile(r"[\W_]+[A-Za-z]{0,9}[\W_]*\d+$")
LONGEST_ID = 100
#: Words for parts of a conversation, as in a field `turn_id` or an id c12-turn3.
_TURNS = frozenset("message msg turn utt utterance".split())


def find_group_field(rows: Sequence[Example], without: Collection[str]) -> str | None:
    """Return the field whose values group the rows, as a conversation does; None if there is none.

    Args:
        rows: of one split.
        without: fields with another known role: inputs and label.
    """
    found: list[tuple[int, str]] = []
    for name in _fields(rows):
        if name in without or any(name.startswith(f"{other}.") for other in without):
            continue
        values = [row.get(name) for row in rows]
        given = [canonical(v) for v in values if isinstance(v, str | int | float) and not isinstance(v, bool)]
        if len(given) < 0.8 * len(rows):
            continue
        count = len({*given})
        if count < MIN_GROUPS or not MIN_ROWS * count <= len(given) <= MAX_ROWS * count:
            continue
        if _names_groups(name, count):
            found.append((count, name))
    return max(found)[1] if found else None


def _names_groups(name: str, count: int) -> bool:
    """Return True if a field's name says what rows have in common, by its last word without `id` and the like."""
    words = _words(name.rpartition(".")[2])
    while words and words[-1] in _IDS:
        words.pop()
    if not words:
        return count >= SURE_GROUPS
    last = words[-1] if words[-1] in _TALKS | _GROUPS else words[-1].removesuffix("s")
    return last in _TALKS or (last in _GROUPS and count >= SURE_GROUPS)


def find_groups_of_ids(rows: Sequence[Example], without: Collection[str]) -> list[str]:
    """Return the group of each row by an id of it: conv12-3 and c12-turn3 are in groups conv12 and c12. Empty if there
    is no such id. without: as in `find_group_field`."""
    for name in dict.fromkeys(("id", *_fields(rows))):
        ids = [str(row.get(name, "")) for row in rows]
        if name in without or any(len(value) > LONGEST_ID for value in ids):
            continue
        groups = [_NUMBERED.sub("", value) for value in ids]
        count = len({*groups})
        if not all(0 < len(a) < len(b) for a, b in zip(groups, ids, strict=True)):
            continue
        if not SURE_GROUPS <= count <= len(rows) / SURE_ROWS:
            continue
        if {*_words(name)} & _TURNS or all(map(_names_conversation, ids, groups)):
            return groups
    return []


def _names_conversation(value: str, group: str) -> bool:
    """Return True if an id names a conversation before the number of a row."""
    said = {*_words(group)} & _TALKS or {*_words(value[len(group) :])} & _TURNS
    return bool(said) and _DIGIT.search(group) is not None


def _words(name: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(name)]


def find_continuations(rows: Sequence[Example], inputs: Sequence[str]) -> list[int]:
    """Return, for each row, the position of the first row that it continues, like a later turn whose history begins
    with all of an earlier one; its own if there is none."""
    texts = [[token for name in inputs for text in _said(row.get(name)) for token in tokenize(text)] for row in rows]
    found, whole = [*range(len(rows))], dict[int, int]()  # position of a row, by the rolling hash of all its tokens
    for place in sorted(found, key=lambda place: len(texts[place])):
        rolling = 0
        for count, token in enumerate(texts[place], start=1):
            rolling = hash((rolling, token))
            other = whole.get(rolling) if MIN_START <= count < len(texts[place]) else None
            if other is not None and texts[other] == texts[place][:count]:
                found[place] = other
        whole.setdefault(rolling, place)
    # A turn has one follower. If many rows begin with a row, each in its own way, it is a template.
    followers = Counter(earlier for place, earlier in enumerate(found) if place != earlier)
    first = [place if followers[earlier] > MAX_FOLLOWERS else earlier for place, earlier in enumerate(found)]
    for place in sorted(range(len(rows)), key=lambda place: len(texts[place])):
        first[place] = first[first[place]]
    return first


def _said(value: Any) -> Iterator[str]:
    """Yield the texts in a value, without the speakers' roles."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from () if name in ("role", "type", "name") else _said(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _said(inner)
    elif value is not None:
        yield str(value)


def _fields(rows: Sequence[Example]) -> Iterator[str]:
    """Yield the names of the fields of all rows, with dotted names for fields of objects."""
    seen: dict[str, None] = {}
    for row in rows:
        for name, value in row.fields.items():
            seen[name] = None
            if isinstance(value, Mapping):
                seen.update(dict.fromkeys(f"{name}.{inner}" for inner in value))
    yield from seen
