"""Identification of the same row in another run, by its own text, independent of the file.

Another file may name other inputs, rename them, or add one without meaning. So a row is compared by the field that
distinguishes it from all others of its file (`workbench.task.copies.RowRule`), or by all fields if no single one does,
with all texts of the other row.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from workbench.base.hashing import digest
from workbench.task.copies import TOKENS_AN_EDIT, NearTexts, RowRule, are_near, find_rule
from workbench.task.dataset import Example
from workbench.task.tokens import Words, normalised_inputs, words_of

#: A text of at least this many tokens inside another one is the same row in a template.
MIN_HELD = 8

#: Shorter texts that are no input are dropped: labels, names, numbers.
MIN_KEPT = 5


def describe_rows(
    rows: Sequence[Example], inputs: Sequence[str], rule: RowRule | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """Return (key, texts) of rows of one split, in the form for the store.

    key: a hash of the inputs. texts: `telling`, the texts that distinguish the row from others, and `others`, its other
    texts: by field, each as tokens separated by spaces.

    rule: the file's; None: derived from these rows.
    """
    telling = (rule or find_rule(rows, inputs)).telling
    found = list[tuple[str, dict[str, Any]]]()
    for row in rows:
        texts = {name: " ".join(w for words in words_of(row, name) for w in words) for name in {*inputs, *row.fields}}
        kept = {n: t for n, t in texts.items() if n in inputs or t.count(" ") >= MIN_KEPT - 1}
        parts = {
            "telling": {name: texts[name] for name in telling if texts.get(name)},
            "others": {name: kept[name] for name in sorted(kept.keys() - {*telling}) if kept[name]},
        }
        found.append((digest(normalised_inputs(row, inputs)), parts))
    return found


def match_rows(
    rows: Iterable[tuple[str, Mapping[str, Any]]], known: Iterable[tuple[str, Mapping[str, Any]]]
) -> dict[str, str]:
    """Map the key of each known row to the key of the row that it equals or nearly equals. Both come from
    `describe_rows`.

    Two rows are the same if the `telling` texts of either are near copies of texts of the other, or are inside them.
    """
    index, texts = NearTexts(), list[tuple[str, str, bool, Words]]()
    wanted: dict[str, int] = {}
    for key, parts in rows:
        wanted[key] = len(parts["telling"])
        for kind in ("telling", "others"):
            for name, text in cast(Mapping[str, str], parts[kind]).items():
                words = tuple(text.split())
                index.add(words, len(texts))
                texts.append((key, name, kind == "telling", words))
    found: dict[str, str] = {}
    for key, parts in known:
        if (same := _match(parts, index, texts, wanted)) is not None:
            found[key] = same
    return found


def _hold(a: Words, b: Words) -> bool:
    """Return True if one text is inside the other, like a row in a template."""
    short, long = sorted((a, b), key=len)
    return len(short) >= MIN_HELD and f" {' '.join(short)} " in f" {' '.join(long)} "


def _match(
    parts: Mapping[str, Any],
    index: NearTexts,
    texts: Sequence[tuple[str, str, bool, Words]],
    wanted: Mapping[str, int],
) -> str | None:
    """Return the key of the row that a known row is a copy of; None if there is none."""
    ours, theirs = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for kind in ("telling", "others"):
        for name, text in cast(Mapping[str, str], parts[kind]).items():
            words = tuple(text.split())
            near = index.candidates(words) if len(words) >= TOKENS_AN_EDIT else []
            for number in dict.fromkeys([*index.equal(words), *near]):
                key, field, telling, other = texts[number]
                if (telling or kind == "telling") and (are_near(words, other) or _hold(words, other)):
                    if telling:
                        ours[key].add(field)
                    if kind == "telling":
                        theirs[key].add(name)
    needed = len(parts["telling"]) or math.inf
    for key in {**ours, **theirs}:
        if len(ours[key]) >= (wanted[key] or math.inf) or len(theirs[key]) >= needed:
            return key
    return None
