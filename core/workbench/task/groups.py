"""Rows that belong together although nobody says so: turns of one conversation, questions of one user.

Their scores hang together, so that a test that takes them for independent shows gains that are not there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from workbench.hashing import canonical
from workbench.task.dataset import Example
from workbench.task.tokens import input_tokens

#: Words in the names of fields that say what rows have in common. Values of such a field that repeat are groups.
_GROUPS = frozenset(
    "account article author book caller case chat client cluster context conv conversation customer dialog "
    "dialogue doc document employee encounter episode event family game group household interview meeting member "
    "message page paper paragraph parent participant passage patient person player respondent scene sender session "
    "source speaker story student subject template thread trajectory trial user video visit visitor worker".split()
)
#: Those that name nothing else, so that few groups are enough.
_TALKS = frozenset(
    "chat conv conversation customer dialog dialogue encounter episode interview participant patient respondent "
    "session speaker student thread trajectory user visit visitor".split()
)
#: Words in the names of fields that sort rows by kind: as many rows of one kind as there are tell nothing.
_KINDS = frozenset(
    "answer category class difficulty domain field gold intent kind label lang language level locale score section "
    "skill split subset subject tag target task topic type variant version year".split()
)
_IDS = frozenset("hash id ids identifier ref uid uuid".split())
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
#: What a value without spaces looks like that names one of many: letters and digits, as in c12 or 9f3a-77.
_NAMES_ONE = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w.:/#-]{2,64}|[\d-]{6,}")

#: Fewer groups, or groups of which most have a single row, are none; by ids and values alone, it takes more.
LEAST_GROUPS, LEAST_ROWS, MOST_ROWS = 3, 1.25, 50
SURE_GROUPS, SURE_ROWS = 10, 2.0

#: A row continues another one if it begins with all of its tokens, so many at least.
LEAST_START = 8

#: The end of an id that numbers the rows of a group: conv12-turn3, 9f3a7/2.
_NUMBERED = re.compile(r"[\W_]+[A-Za-z]{0,9}[\W_]*\d+$")


def find_group_field(rows: Sequence[Example], without: Collection[str]) -> str | None:
    """The field whose values group the rows, as a conversation does; None if there is none.

    Args:
        rows: of one split.
        without: fields that are known for something else: inputs and label.
    """
    found: list[tuple[float, str]] = []
    for name in _fields(rows):
        if name in without or any(name.startswith(f"{other}.") for other in without):
            continue
        values = [row.get(name) for row in rows]
        given = [canonical(v) for v in values if isinstance(v, str | int) and not isinstance(v, bool)]
        if len(given) < 0.8 * len(rows):
            continue
        count = len({*given})
        if count < LEAST_GROUPS or not LEAST_ROWS * count <= len(given) <= MOST_ROWS * count:
            continue
        if _names_groups(name, [v for v in values if v is not None], count):
            found.append((count, name))
    return max(found)[1] if found else None


def _names_groups(name: str, values: Sequence[Any], count: int) -> bool:
    words = {word.casefold() for word in _WORD.findall(name)}
    plain = words | {word.removesuffix("s") for word in words} | ({"id"} if name.endswith("id") else set())
    if plain & _KINDS:
        return False
    if plain & _TALKS:
        return True
    if plain & _GROUPS or plain & _IDS:
        return count >= SURE_GROUPS
    # A field of another name counts only if its values name things, and many of them.
    return count >= SURE_GROUPS and all(isinstance(v, str) and _NAMES_ONE.fullmatch(v) for v in values)


def find_groups_of_ids(rows: Sequence[Example]) -> list[str]:
    """For each row the group that its id names, as conv12-3 names conv12; empty if the ids name none."""
    groups = [_NUMBERED.sub("", str(row.get("id", ""))) for row in rows]
    count = len({*groups})
    named = all(_DIGIT.search(group) for group in groups) and len({str(row.get("id")) for row in rows}) == len(rows)
    return groups if named and count >= SURE_GROUPS and len(rows) >= SURE_ROWS * count else []


def find_continuations(rows: Sequence[Example], inputs: Sequence[str]) -> list[int]:
    """For each row, the place of the first row that it continues, as a later turn does whose history begins with all
    of an earlier one; its own if there is none."""
    texts = [input_tokens(row, inputs) for row in rows]
    found, whole = [*range(len(rows))], dict[int, int]()  # by the rolling hash of all tokens of a row, its place
    for place in sorted(found, key=lambda place: len(texts[place])):
        rolling = 0
        for count, token in enumerate(texts[place], start=1):
            rolling = hash((rolling, token))
            other = whole.get(rolling) if LEAST_START <= count < len(texts[place]) else None
            if other is not None and texts[other] == texts[place][:count]:
                found[place] = found[other]
        whole.setdefault(rolling, place)
    return found


def _fields(rows: Sequence[Example]) -> Iterator[str]:
    """The names of the fields of all rows, those of objects in them dotted."""
    seen: dict[str, None] = {}
    for row in rows:
        for name, value in row.fields.items():
            seen[name] = None
            if isinstance(value, Mapping):
                seen.update(dict.fromkeys(f"{name}.{inner}" for inner in value))
    yield from seen
