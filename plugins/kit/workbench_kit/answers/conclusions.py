"""Find where an answer states its result: fields after their labels, and boxed, tagged or introduced results.

The last one counts: a model that corrects itself states the right one last.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

#: Text before a label at the beginning of a line: marks of Markdown, numbers of lists.
DECORATION = r"[ \t>*_`#-]*+(?:\d{1,3}[.)][ \t]*+[*_`]*+)?"
_AFTER = r"[*_`\]]*[ \t]*(?::(?!:)|\uff1a|=(?!=)|\uff1d|(?<=[ \t])[-\u2013\u2014\u2192][ \t])[ \t]*[*_`]*[ \t]*"
#: Words that introduce a result, independent of the field's name.
_WORDS = (
    "answer|conclusion|verdict|result|choice|option|decision|solution|label|category|classification|sentiment|output|"
    "total|antwort|respuesta|réponse|resposta|risposta|antwoord|ответ|odpowiedź|cevap"
)
_IS = (
    r"(?:(?:correcta|correcte|correta|corretta) )?(?:is|are|was|would be|should be|must be|has to be|remains|equals|"
    r"ist|lautet|es|est|é|è|jest)(?: (?:thus|therefore|then|clearly|hence))?"
)
#: The same for scripts without spaces between words.
_SPACELESS_WORDS = r"(?:答案|结论|結論|结果|結果|答え|正解|정답|답)[ \t]*(?:应该|應該)?[是为為はは은는이：:]"
#: Scripts without spaces between words, as a class of characters.
SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
#: Verbs that introduce a result without a noun.
_CHOOSES = (
    r"\bI(?:'d|'ll|'m)?(?: would| will| am)? (?:pick|picking|choose|choosing|select|say|go with|going with|"
    r"classify (?:it|this) as)|\b(?:classified|labell?ed|categori[sz]ed) as|\b(?:falls under|belongs to|best fits?)"
)
#: A LaTeX box, with up to three levels of braces in it, and words in it.
_BOXED = re.compile(r"\\boxed\s*\{((?>(?:[^{}]++|\{(?>(?:[^{}]++|\{(?>(?:[^{}]++|\{[^{}]*+\})*)\})*)\})*))\}")
_INNER = re.compile(r"\\(?:text|mathrm|mathbf|textbf)\s*\{([^{}]*)\}")
#: A line of a Markdown table.
_TABLE = re.compile(r"(?m)^[ \t]*(\|.*\|)[ \t]*$")
#: The end of a statement.
_STOP = re.compile(r"\n|(?<=[.!?;])\s|[\u3002\uff01\uff1f\uff1b]|[,\s](?:because|since)\b")
#: Words that introduce a correction.
CORRECTS = re.compile(
    r"(?i)\b(?:wait|actually|correct(?:ion|ed|ing)|sorry|hm+|mistake|(?:that|it)(?:'s| is| was) wrong|re-?check\w*|"
    r"moment|perd[o\xf3]n|en fait)\b|"
    r"(?:\.\.+|[\u2026\u2014\u2013-])\s*no,\s"
)
#: Separators between the words of a name.
_BETWEEN_WORDS = dict.fromkeys(map(ord, " _-\t\n"))
#: Maximum number of results that are examined, the last ones of a text; of characters at its end that are searched; of
#: keys of an object that may name outputs; and of labels.
MANY, _END, _KEYS = 20, 4_000, 1_000


@lru_cache(maxsize=512)
def _name(field: str) -> str:
    """Return a pattern for a field's name: first_name is also First Name, first-name and firstName."""
    return r"[\s_-]?".join(map(re.escape, field.split("_")))


@lru_cache(maxsize=512)
def _labels(names: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern for labels at the beginning of a line: headings, DSPy's marks, or names with a colon. Each name
    has one group for both forms."""
    either = "|".join(f"({_name(name)})" for name in names)
    return re.compile(
        rf"(?im)^(?:\#{{1,6}}[ \t]*(?:{either})[ \t]*\#*$|\*\*(?:{either})\*\*[ \t]*$|\[\[ \#\# (?:{either}) \#\# \]\]|"
        rf"{DECORATION}(?:final[ \t]+|the[ \t]+)?(?:{either}){_AFTER})"
    )


@lru_cache(maxsize=512)
def _label_within(field: str) -> re.Pattern[str]:
    """Return a pattern for a label within a line, after another field: `answer: Paris, confidence: 0.9`."""
    return re.compile(rf"(?im)[,;|(][ \t]*[*_`\"']*{_name(field)}[\"']?{_AFTER}")


def split_fields(text: str, names: Sequence[str], all_labelled: bool = False) -> dict[str, str]:
    """Return the text after each field's label, up to the next label. The last one of a field counts.

    Text before all labels belongs to the first field, if it has no label of its own and not all_labelled.
    """
    if not names:
        return {}
    labels = deque(_labels(tuple(names)).finditer(text), _KEYS)
    found = [(m.start(), m.end(), names[((m.lastindex or 1) - 1) % len(names)]) for m in labels]
    if found and (missing := {*names[1:]} - {name for *_, name in found}):
        within = ((n, _label_within(n).search(text, found[0][1])) for n in missing)
        found = sorted([*found, *((m.start(), m.end(), name) for name, m in within if m)])
        found = [one for n, one in enumerate(found) if not n or one[0] >= found[n - 1][1]]
    parts, ends = dict[str, str](), [one[0] for one in found[1:]] + [len(text)]
    for (_, start, name), end in zip(found, ends, strict=False):
        part = text[start:end].strip()
        if part or name not in parts:
            parts[name] = part
    for name in names:
        if name not in parts and (tagged := _tagged(text, _name(name))):
            parts[name] = tagged[-1].strip()
    before = text[: found[0][0]].strip() if found else text.strip()
    if before and not all_labelled and not parts.get(names[0]):
        parts[names[0]] = before
    return parts


def ends_of(text: str) -> str:
    """Return the first line of a long text, and its end: a result is in one of them."""
    return text if len(text) <= _END else "\n".join((text[:200].split("\n")[0], text[-_END:]))


def _tagged(text: str, name: str) -> list[str]:
    """Extract the texts between tags of a name."""
    found = rf"(?is)<(?:{name})>((?:(?!</?(?:{name})>).){{0,20000}})</(?:{name})>"
    return re.findall(found, text) if "</" in text else []


def find_boxed(text: str) -> str | None:
    r"""Extract the content of the last \boxed{...} of LaTeX."""
    boxes = deque(_BOXED.finditer(text), 1)
    return _INNER.sub(r"\1", boxes[0][1]).strip(" $") if boxes else None


@lru_cache(maxsize=512)
def _introduced(field: str) -> re.Pattern[str]:
    noun = rf"\b(?:{_name(field)}|{_WORDS})\b[*_`\"']*(?:[ \t]+of(?:[ \t]+\w+){{1,3}}(?=[ \t]+is\b))?"
    article = r"[ \t]*:?[ \t]*(?:(?:the|la|le|die|el|il|option|choice|category|class|label)[ \t]+)*"
    return re.compile(
        rf"(?im)(?:{noun}(?:[ \t]+{_IS}\b|{_AFTER})|(?:{_CHOOSES})\b|{_SPACELESS_WORDS}|^[ \t]*\#{{4}})"
        rf"{article}"
    )


def find_conclusions(text: str, field: str) -> Iterator[str]:
    """Yield the places of a text that state its result, the likeliest first: boxed, tagged, then the last one
    introduced."""
    if boxed := find_boxed(text):
        yield boxed
    yield from reversed(_tagged(text, rf"(?:final_)?(?:{_WORDS})")[-MANY:])
    for found in [*_introduced(field).finditer(text)][::-1][:MANY]:
        ending = _STOP.search(text, found.end())
        said = text[found.end() : ending.start() if ending else len(text)].strip()
        if said and not said.endswith(("?", "\uff1f")) and not (ending and CORRECTS.search(text, ending.start())):
            yield said


def is_introduced(text: str, place: int, field: str) -> bool:
    """Return True if the text at a place is introduced as the result: `Answer: {...}`."""
    before = text[max(0, place - 80) : place]
    return any(not before[found.end() :].strip(" \t\r\n`*json") for found in _introduced(field).finditer(before))


def find_rows(text: str) -> list[dict[str, str]]:
    """Return the rows of the first Markdown table in a text, by the names in its head."""
    lines = [line.strip().strip("|").split("|") for line in _TABLE.findall(text)[: _KEYS + 2]]
    if len(lines) < 3 or set("".join(lines[1])) - set("-: "):
        return []
    head, _, *rows = ([cell.strip(" *_`") for cell in line] for line in lines)
    names = [name.lower().replace(" ", "_") for name in head]
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


def find_parts(value: object, names: Sequence[str]) -> dict[str, object]:
    """Select the parts that an object has, whatever the spelling of its keys."""
    wanted = {_plain_key(name): name for name in names}
    items = value.items() if isinstance(value, Mapping) and len(value) <= _KEYS else ()
    return {wanted[plain]: inner for key, inner in items if (plain := _plain_key(key)) in wanted}


def find_object(value: object, names: Sequence[str]) -> dict[str, object] | None:
    """Return the outputs in an object whose keys name all of them; None for another value."""
    return found if value and len(found := find_parts(value, names)) == len(names) else None


def _plain_key(key: object) -> str:
    return str(key).translate(_BETWEEN_WORDS).lower()
