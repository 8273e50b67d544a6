"""Differences between two values of a setting, word by word."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from workbench.task import dump_yaml

#: A sign (`-`: only before, `+`: only after, a space: in both), and a text.
Piece = tuple[str, str]
#: Maximum words to compare two texts by word, and not by line: comparing is quadratic.
_MAX_WORDS = 4000
#: A word with the space before it: single spaces would all be equal, and comparing them quadratic.
_WORD = re.compile(r"\s*(?:\w+|[^\w\s])|\s+")


@dataclass(frozen=True)
class Change:
    """A setting that differs. kind: `text` (words that differ), `code` (lines side by side), `value` (as YAML)."""

    address: str
    kind: Literal["text", "code", "value"]
    pieces: Sequence[Piece] = ()
    lines: Sequence[tuple[str, str, str]] = ()  # (sign, before, after); a changed line has both


def describe_change(address: str, old: Any, new: Any) -> Change:
    """Describe the change of a setting; None means no value."""
    if _is_code(address, old, new):
        return Change(address, "code", lines=diff_lines(_as_text(old), _as_text(new)))
    if isinstance(old if old is not None else new, str) and isinstance(new if new is not None else old, str):
        return Change(address, "text", pieces=diff_words(old or "", new or ""))
    return Change(address, "value", lines=diff_lines(_as_text(old), _as_text(new)))


def list_changes(found: Iterable[tuple[str, Any, Any]]) -> list[Change]:
    """List the changes of settings: texts first, as they matter most."""
    return sorted((describe_change(*one) for one in found), key=lambda change: change.kind != "text")


def diff_words(old: str, new: str) -> list[Piece]:
    """Return two texts as pieces, with words that differ in pieces of their own."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    if len(before) + len(after) > _MAX_WORDS:
        before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    pieces: list[Piece] = []
    for what, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if what == "equal":
            pieces.append((" ", "".join(before[a:b])))
            continue
        removed, added = "".join(before[a:b]), "".join(after[c:d])
        if gap := _shared_space(removed, added):
            kept = pieces.pop()[1] if pieces and pieces[-1][0] == " " else ""
            pieces.append((" ", kept + gap))
            removed, added = removed[len(gap) :], added[len(gap) :]
        pieces += [("-", removed)] if removed else []
        pieces += [("+", added)] if added else []
    return pieces


def _shared_space(one: str, other: str) -> str:
    """Return the space that both begin with."""
    both = takewhile(lambda pair: pair[0] == pair[1] and pair[0].isspace(), zip(one, other, strict=False))
    return "".join(sign for sign, _ in both)


def diff_lines(old: str, new: str) -> list[tuple[str, str, str]]:
    """Pair lines: (" ", line, line), ("-", before, ""), ("+", "", after); ("-", before, after): changed."""
    before, after = old.splitlines(), new.splitlines()
    rows: list[tuple[str, str, str]] = []
    for what, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if what == "equal":
            rows += [(" ", line, line) for line in before[a:b]]
            continue
        left, right = before[a:b], after[c:d]
        for n in range(max(len(left), len(right))):
            one, other = left[n] if n < len(left) else "", right[n] if n < len(right) else ""
            rows.append(("-" if n < len(left) else "+", one, other))
    return rows


def _is_code(address: str, old: Any, new: Any) -> bool:
    texts = [value for value in (old, new) if value is not None]
    return address.rpartition(".")[2] in ("source", "code") and all(isinstance(text, str) for text in texts)


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float | bool):
        return json.dumps(value)
    return dump_yaml(value)
