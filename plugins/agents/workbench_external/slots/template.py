"""Texts with parts that vary: `You are a guide. Today is {{1}}.`"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from urllib.parse import quote, quote_plus

HOLE = re.compile(r"\{\{(\w+)\}\}")
_TOKEN = re.compile(r"\{\{\w+\}\}|\s+|\w+|[^\w\s]")
#: Parts that vary between runs, although all runs of one day may show the same value.
VOLATILE = re.compile(
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\b"
    r"|\b\d\d:\d\d:\d\d\b"
    r"|\b(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day,? )?"
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December) \d{1,2},? \d{4}\b"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b"
    r"|\b1[5-9]\d{8}(?:\d{3})?\b"
    r"|/tmp/[\w./-]+"
)
#: Characters that two texts must share in a row to rule out chance, and the minimum share of the longer text.
_BLOCK, _ALIKE = 12, 0.5
#: Maximum pairs of tokens, or of lines, to compare: about a tenth of a second.
_MAX_PAIRS = 1_000_000
#: Letters that texts must share at their start and end if the rest is long, such as retrieved passages.
_FRAME = 30
#: Shorter inputs may occur in texts by chance.
SHORTEST_INPUT = 3
#: Minimum length for a transformed form of an input.
_DISTINCT = 8
#: Longer inputs are not words, and patterns of them are slow.
_PHRASE = 200


class Template:
    """A text with holes. Two holes are always separated by text.

    names: the possible names of holes; anything else that looks like a hole is text. None: any name.
    """

    def __init__(self, text: str, names: Collection[str] | None = None):
        self.text, self.constants, self.names = text, [""], list[str]()
        for place, part in enumerate(HOLE.split(text)):
            if place % 2 == 0:
                self.constants[-1] += part
            elif names is None or part in names:
                self.names.append(part)
                self.constants.append("")
            else:
                self.constants[-1] += f"{{{{{part}}}}}"

    def match(self, text: str) -> dict[str, str] | None:
        """Match a text, and return the contents of its holes; None if it does not match. Each constant is matched at
        its first place."""
        first, *rest = self.constants
        if not rest:
            return {} if text == first else None
        *middle, last = rest
        if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
            return None
        end, at = len(text) - len(last), len(first)
        found: list[str] = []
        for constant in middle:
            place = text.find(constant, at, end)
            if place < 0:
                return None
            found.append(text[at:place])
            at = place + len(constant)
        return dict(zip(self.names, [*found, text[at:end]], strict=True))

    def find_all(self, text: str) -> Iterator[tuple[int, int, dict[str, str]]]:
        """Yield (start, end, contents of the holes) for each match in a text, which begins and ends with a constant."""
        at = 0
        while self.constants[0] and (places := find_constants(text, self.constants, at)) is not None:
            ends = [place + len(constant) for place, constant in zip(places, self.constants, strict=True)]
            values = [text[end:place] for end, place in zip(ends, places[1:], strict=False)]
            yield places[0], ends[-1], dict(zip(self.names, values, strict=True))
            at = ends[-1]


def find_constants(text: str, constants: Sequence[str], start: int = 0) -> list[int] | None:
    """Return the places of constants in a text, each the first after the previous one; None if one is missing."""
    places: list[int] = []
    for constant in constants:
        if (start := text.find(constant, start)) < 0:
            return None
        places.append(start)
        start += len(constant)
    return places


def fill(text: str, values: Mapping[str, str]) -> str:
    """Fill the holes of a text. Values without a hole are appended, so that nothing of the agent is lost. An unknown
    hole is text, and stays."""
    used = set(HOLE.findall(text))
    filled = HOLE.sub(lambda hole: values.get(hole[1], hole[0]), text)
    return "\n".join([filled, *(value for name, value in values.items() if name not in used and value.strip())])


def mark_inputs(text: str, inputs: Mapping[str, object]) -> str:
    """Replace the inputs of a row in a text by holes, in the forms that programs write, if they are whole words; also
    dates and ids."""
    names: dict[str, str] = {}
    for name, value in inputs.items():
        names.setdefault(str(value), name)
    for name, value in inputs.items():
        for form in _forms_of(value, text):
            names.setdefault(form, name)
    values = [value for value in names if len(value) >= SHORTEST_INPUT and value in text and not HOLE.search(value)]
    values.sort(key=len, reverse=True)
    for value in values:
        if len(value) > _PHRASE:
            text = text.replace(value, f"{{{{{names[value]}}}}}")
    words = [_as_word(value) for value in values if len(value) <= _PHRASE]
    # In one pass, and skipping holes: the name of one may be an input, too.
    pattern = "|".join([HOLE.pattern, *words])
    text = re.sub(pattern, lambda held: f"{{{{{names[held[0]]}}}}}" if held[0] in names else held[0], text)
    return VOLATILE.sub("{{0}}", text)


def _forms_of(value: object, text: str) -> Iterator[str]:
    """Yield forms of a value in programs: stripped, as JSON, escaped, with other space, quoted, or cut."""
    if not isinstance(value, str):
        yield json.dumps(value, default=str)
        yield json.dumps(value, ensure_ascii=False, default=str)
        inner: list[object] = [*value.values()] if isinstance(value, Mapping) else []
        inner = [*value] if isinstance(value, list | tuple) else inner
        for one in inner:  # the messages of a conversation
            yield from (str(one), *_forms_of(one, text)) if isinstance(one, str | Mapping) else ()
        return
    bare = value.strip()
    yield bare
    for text_of in (value, bare):
        marked = html.escape(text_of)
        forms = [json.dumps(text_of)[1:-1], json.dumps(text_of, ensure_ascii=False)[1:-1], repr(text_of)[1:-1], marked]
        forms += [marked.replace("&#x27;", "&#39;"), html.escape(text_of, quote=False), text_of.replace('"', '""')]
        forms += [" ".join(text_of.split()), quote(text_of), quote_plus(text_of), text_of.lower()]
        yield from (form for form in forms if len(form) >= _DISTINCT)
    first, *others = bare.split("\n")
    lines = [first.rstrip(), *(line.strip(" \t\r>|#*-") for line in others)]
    # Possessive, since a row may have any number of empty lines.
    pattern = r"[ \t\r>|#*-]*+\n[ \t>|#*-]*+".join(map(re.escape, lines))
    if others and (quoted := re.search(pattern, text)) is not None:
        yield quoted[0]
    if len(bare) > _DISTINCT and bare not in text and (cut := _shared_begin(bare, text)):
        yield cut


def _shared_begin(value: str, text: str) -> str:
    """Return the beginning of a value that a text contains, followed by dots; "" if it does not."""
    for dots in ("...", "\u2026", "[...]", " ["):
        at = text.find(value[:_DISTINCT])
        end = text.find(dots, at) if at >= 0 else -1
        if end > at and value.startswith(text[at:end].rstrip()):
            return text[at:end].rstrip()
    return ""


def _as_word(value: str) -> str:
    """Return a pattern for a value that is not part of a longer word. Only ASCII letters count, since other scripts may
    have no spaces between words."""
    begins, ends = (re.fullmatch(r"[A-Za-z0-9_]", char) is not None for char in (value[0], value[-1]))
    return (r"(?<![A-Za-z0-9_])" if begins else "") + re.escape(value) + (r"(?![A-Za-z0-9_])" if ends else "")


def find_template(texts: Sequence[str]) -> Template | None:
    """Return the template of similar texts, as returned by `mark_inputs`; None if one has too little in common with the
    first. Holes are numbered, except for inputs."""
    tokens = _TOKEN.findall(texts[0])
    for text in dict.fromkeys(texts[1:]):
        if text == texts[0]:
            continue
        tokens = _merge(tokens, _TOKEN.findall(text))
        constant = sum(len(t) for t in tokens if not HOLE.fullmatch(t))
        if constant < _ALIKE * max(len(texts[0]), len(text)):
            return None
    return Template(_numbered(tokens))


def find_frame(texts: Sequence[str]) -> Template | None:
    """Return the template of texts that begin and end alike, however long the rest; None if too little is shared.

    Chance overlaps must not decide where the hole begins and ends, so it goes from the end of a line, a colon or a tag
    to the end of a line.
    """
    all_tokens = [_TOKEN.findall(text) for text in texts]
    first, shortest = all_tokens[0], min(map(len, all_tokens))
    start = next((n for n in range(shortest) if any(t[n] != first[n] for t in all_tokens)), shortest)
    left = shortest - start
    end = next((n for n in range(left) if any(t[-1 - n] != first[-1 - n] for t in all_tokens)), left)
    begin, rest = "".join(first[:start]), "".join(first[len(first) - end :])
    begin = begin[: 1 + max(begin.rfind(mark) for mark in "\n:>")]
    found = re.search(r"\n", rest) or re.search(r"\s", rest)
    rest = rest[found.start() :] if found else ""
    if len(re.sub(r"\W", "", HOLE.sub("", begin + rest))) < _FRAME:
        return None
    return Template(_numbered([*_TOKEN.findall(begin), "{{0}}", *_TOKEN.findall(rest)]))


def _merge(one: list[str], other: list[str]) -> list[str]:
    """Return the tokens that two texts share, with holes between."""
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    end = 0
    while end < min(len(one), len(other)) - start and one[-1 - end] == other[-1 - end]:
        end += 1
    shared = _align(one[start : len(one) - end], other[start : len(other) - end])
    return [*one[:start], *shared, *one[len(one) - end :]]


def _align(here: list[str], there: list[str]) -> list[str]:
    """Return the tokens that two texts share, with holes between. Long texts are compared by lines, and by words only
    between shared lines, because the time grows with the product of their lengths."""
    by_line = len(here) * len(there) > _MAX_PAIRS
    ours, theirs = (_lines(here), _lines(there)) if by_line else (here, there)
    if len(ours) * len(theirs) > _MAX_PAIRS:
        return ["{{0}}"]
    merged, at = list[str](), (0, 0)
    for block in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        if block.size and sum(map(len, ours[block.a : block.a + block.size])) < _BLOCK:
            continue
        if (block.a, block.b) != at:
            between = [_TOKEN.findall("".join(u)) for u in (ours[at[0] : block.a], theirs[at[1] : block.b])]
            small = by_line and 0 < len(between[0]) * len(between[1]) <= _MAX_PAIRS
            merged += _merge(*between) if small else ["{{0}}"]
        merged += ours[block.a : block.a + block.size]
        at = (block.a + block.size, block.b + block.size)
    return _TOKEN.findall("".join(merged)) if by_line else merged


def _lines(tokens: Sequence[str]) -> list[str]:
    return "".join(tokens).splitlines(keepends=True)


def _numbered(tokens: Sequence[str]) -> str:
    """Return the text of tokens. Adjacent holes are merged, and those that are not inputs get a number."""
    parts: list[str] = []
    numbers, names = 0, set[str]()
    for token in tokens:
        hole = HOLE.fullmatch(token)
        if hole is None:
            parts.append(token)
            continue
        if parts and HOLE.fullmatch(parts[-1]):
            continue
        name = hole[1]
        if name.isdigit() or name in names:
            numbers += 1
            name = str(numbers)
        names.add(name)
        parts.append(f"{{{{{name}}}}}")
    return "".join(parts)
