"""Texts in a text: messages of a template (`{% message role="system" %}`, `<message role="system">`, `system:`), text
between its tags (`{% if x %}`), and JSON strings in a literal or a here-document."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from workbench_external.sources.passages import Part, Passage, compact

#: The messages of Haystack, LlamaIndex (`{% chat %}`), Semantic Kernel, and Prompty.
_MESSAGE = re.compile(
    r"\{%-?\s*(?P<tag>message|chat)\b(?:(?!%\}).)*%\}(?P<block>.*?)\{%-?\s*end(?P=tag)\s*-?%\}"
    r"|<message\b[^<>]*>(?P<element>.*?)</message>"
    r"|^[ \t]*(?:system|developer|user|assistant):[ \t]*\n"
    r"(?P<role>.*?)(?=^[ \t]*(?:system|developer|user|assistant):[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
#: Jinja tags, which select the text to send and are not text themselves. Fields are skipped.
_TAG = re.compile(r"\{\{.*?\}\}|(?P<tag>\{%.*?%\}|\{#.*?#\})", re.DOTALL)
#: A JSON string, and the ends of an object or a list.
_STRING = re.compile(r"\"(?P<text>(?:[^\"\\\n]|\\.)*)\"(?P<key>\s*:)?")
_JSON = re.compile(r"\s*(?:\{.*\}|\[.*\])\s*", re.DOTALL)


class Spliced(str):
    """The source of a text with one new message.

    whole: the text. start, end: of the message, in letters. parts: the new ones.
    """

    whole: Passage
    start: int
    end: int
    parts: tuple[Part, ...]


def read_messages(whole: Passage) -> Iterator[Passage]:
    """Yield the messages in a text, and the parts between its tags, as separate texts."""
    units = _units(whole.parts)
    text = "".join(unit if isinstance(unit, str) else "\0" for unit in units)
    kinds = dict[tuple[int, int], str]()
    for found in _MESSAGE.finditer(text):
        kind = next(kind for kind in ("block", "element", "role") if found[kind] is not None)
        kinds[found.span(kind)] = kind
    tags = [found.span() for found in _TAG.finditer(text) if found["tag"] is not None]
    for (_, start), (end, _) in zip([(0, 0), *tags], [*tags, (len(text), 0)], strict=True) if tags else ():
        kinds.setdefault((start, end), "between")
    for (start, end), kind in kinds.items():
        inside = text[start:end]
        start, end = start + len(inside) - len(inside.lstrip()), end - len(inside) + len(inside.rstrip())
        if start >= end:
            continue
        write = partial(_splice, whole, start, end)
        piece = replace(whole, parts=compact(units[start:end]), write=write, inner=(start, end))
        yield replace(piece, dialects=("jinja",), is_piece=True) if kind == "between" else piece
        if kind == "element":
            parts = compact(html.unescape(part) if isinstance(part, str) else part for part in piece.parts)
            yield replace(piece, parts=parts, write=partial(_write_escaped, write))


def read_strings(whole: Passage) -> Iterator[Passage]:
    """Yield the strings of a text that is JSON, as separate texts, without keys."""
    units = _units(whole.parts)
    text = "".join(unit if isinstance(unit, str) else "0" for unit in units)
    try:
        is_json = _JSON.fullmatch(text) is not None and bool(json.loads(text))
    except (ValueError, RecursionError):
        return
    for found in _STRING.finditer(text) if is_json else ():
        start, end = found.span("text")
        if found["key"] is None and start < end:
            with suppress(ValueError):  # an escape broken by a field
                parts = compact(_unescaped(part) for part in compact(units[start:end]))
                write = partial(_write_string, partial(_splice, whole, start, end))
                yield replace(whole, parts=parts, write=write, inner=(start, end))


def _unescaped(part: Part) -> Part:
    return json.loads(f'"{part}"') if isinstance(part, str) else part


def _write_string(write: Callable[[Sequence[Part]], str], new: Sequence[Part]) -> str:
    return write([json.dumps(part, ensure_ascii=False)[1:-1] if isinstance(part, str) else part for part in new])


def _splice(whole: Passage, start: int, end: int, new: Sequence[Part]) -> str:
    return join([(start, end, tuple(new))], whole)


def join(messages: Sequence[tuple[int, int, tuple[Part, ...]]], whole: Passage) -> Spliced:
    """Write a text with some of its messages replaced. Of overlapping ones, the first wins. Raises CannotWrite."""
    units, last = _units(whole.parts), len(_units(whole.parts)) + 1
    for start, end, parts in sorted(messages, key=lambda one: -one[0]):
        if end <= last:
            units[start:end], last = parts, start
    spliced = Spliced(whole.write(compact(units)))
    spliced.whole, (spliced.start, spliced.end, spliced.parts) = whole, messages[0]
    return spliced


def _write_escaped(write: Callable[[Sequence[Part]], str], new: Sequence[Part]) -> str:
    return write([html.escape(part, quote=False) if isinstance(part, str) else part for part in new])


def _units(parts: Sequence[Part]) -> list[Part]:
    """Return the letters and fields of a text."""
    return [unit for part in parts for unit in (part if isinstance(part, str) else (part,))]
