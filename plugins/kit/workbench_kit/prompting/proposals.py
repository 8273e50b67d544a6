"""Proposals: parse a proposer's text, and judge it before paying for its evaluation.

In messages to and from the proposer, a prompt is enclosed in <prompt> and </prompt>.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from workbench.base.text import spells_nothing
from workbench.lm import is_refusal
from workbench.workflow import NodeKind, leaves_of
from workbench_kit.answers import find_code, read_objects

#: Maximum number of characters of an instruction.
MAX_PROMPT = 6000
#: Maximum number of characters of an instruction without tags.
_BARE = 1200

_PROMPT = re.compile(r"(?is)<prompt>((?:(?!<prompt>).)*?)(?:</prompt>|\Z)")
#: A part of a message, at the start of a line: up to its end tag, the next part, or the end of the answer.
_BEGIN, _CLOSE = r"<part[\s_-]?(\d{1,3})\b[^<>\n]*>", r"<\\?/part(?:[\s_-]?\d{1,3}\b[^<>\n]*)?>"
_PART = re.compile(rf"(?ims)^[ \t]*{_BEGIN}(.*?)({_CLOSE}|(?=^[ \t]*<part[\s_-]?\d)|\Z)")
_NEXT_PART = re.compile(rf"(?i)({_CLOSE})[ \t]*(?=<part)")
#: Text that keeps a part unchanged, and headings of parts without tags.
_SAME = re.compile(r"(?i)\W*(?:unchanged|not changed|no changes?|(?:the )?same(?: as before)?|as (?:before|it is))\W*")
_PART_HEADING = re.compile(r"(?im)^\W*part\s*\d+\W*$")
#: The end of a text in an answer.
_END = re.compile(rf"(?i)<\\?/prompt>|{_CLOSE}")
#: Keys under which models give a prompt in JSON.
_NAMES = frozenset(
    f"{new}{name}"
    for new in ("", "new_", "improved_", "revised_")
    for name in ("prompt", "instruction", "instructions")
)
_PREAMBLE = re.compile(r"(?i)\W*+(?:sure|certainly|of course|okay|here(?:'s| is| are)|below is)\b.*:\W*$")
_LABEL = re.compile(
    r"(?i)\A\W*+(?:(?:the )?(?:new|better|improved|revised|final) )?(?:instructions?|prompt)(?:\**:\**\s*|\W*\n\s*)"
)
#: The same after other lines, if it is certain.
_LATER = re.compile(r"(?im)^\W*(?:the )?(?:new|better|improved|revised) (?:instructions?|prompt)\**:\**\s*")
#: Text around a prompt: an element, rulers, DSPy's last mark.
_ELEMENT, _RULERS = re.compile(r"(?s)\A<(\w+)>(.*)</\1>\Z"), re.compile(r"(?s)\A-{3,}\n(.*?)\n-{3,}(?:\n.*)?\Z")
_COMPLETED = re.compile(r"\s*\[\[ ## completed ## \]\]\s*\Z")

#: End tags with an escaped slash, as in JSON, and remains of tags.
_ESCAPED, _TAG = re.compile(r"(?i)<\\/prompt>"), re.compile(r"(?i)</?(?:prompt|part[\s_-]?\d+\b[^<>\n]*)>")
#: Contents of a line of `show_results`, also with other values.
_SHOWN = re.compile(
    r"(?i)\b(?:answer|task|called)\W{0,3}:\s*\{[^{}]*(?:\}|\Z)|\bexpected\b[^,;\n]*,?\s*got\b[^;\n]*|"
    r"\bscore\W{1,3}[\d.]+|\b\w+: \d+ times [^\n]* was taken for [^\n]*"
)
#: The reason for rejecting the most frequent kind of proposal.
BEFORE = "it was there before"
#: Models' names for a step's inputs and outputs.
_SAID = ("answer", "output", "result", "task", "score")


def wrap_in_tags(prompt: str) -> str:
    return f"<prompt>\n{prompt}\n</prompt>"


def read_prompt(text: str, refuse: Callable[[str], object] = lambda prompt: None) -> str | None:
    """Return the text between the last <prompt> and </prompt>; None if it is empty, a refusal, or too long.

    Models forget the tags. A short answer without them is used without the words around it: the content of a fence, or
    of a JSON object under a prompt's key, else the whole. Texts for which `refuse` returns a reason are skipped: some
    models write an answer of the step after their prompt, in tags, too.
    """
    found = _PROMPT.findall(_ESCAPED.sub("</prompt>", text))
    for body in reversed(found) if found else [_bare_prompt(text)]:
        body = body.strip().strip('"\u201c\u201d').strip()
        if is_refusal(body) or is_placeholder(body) or len(body) > (MAX_PROMPT if found else _BARE):
            continue
        if not refuse(body):
            return body
    return None


def read_parts(
    text: str, count: int, own: int, refuse: Callable[[str], object] = lambda prompt: None
) -> dict[int, str]:
    """Return the parts of a message in an answer, by their place among `count`.

    A part is the text between <part N> and </part N>, the last one on duplicates. An answer in the form of a single
    prompt is the requested part, `own`. refuse: see `read_prompt`.
    """
    found = [(int(number) - 1, body.strip(), end) for number, body, end in _PART.findall(_NEXT_PART.sub("\\1\n", text))]
    if not found:
        body = read_prompt(text, refuse)
        return {} if body is None or _PART_HEADING.search(body) else {own: body}
    closed = any(end for _, _, end in found)
    places = {place: body for place, body, end in found if 0 <= place < count and (end or not closed)}
    return {
        place: body
        for place, body in places.items()
        if 0 < len(body) <= MAX_PROMPT and not is_refusal(body) and not _SAME.fullmatch(body)
    }


def keep_whole(text: str) -> str:
    """Return a truncated answer up to the end of its last complete text; "" if there is none."""
    ends = [*_END.finditer(text)]
    return text[: ends[-1].end()] if ends else ""


def _bare_prompt(text: str) -> str:
    """Return the prompt in an answer without tags."""
    named = [value for one in read_objects(text) for key, value in one.items() if key.lower() in _NAMES]
    if named:
        return named[-1] if isinstance(named[-1], str) else ""
    if fences := find_code(text):
        return max(fences, key=len)
    if len(text) > 2 * _BARE:
        return ""
    text = _COMPLETED.sub("", re.sub(r"(?i)</?prompt>|```\w*", "", text)).strip()
    first, line, rest = text.partition("\n")
    text = rest.strip() if line and _PREAMBLE.match(first) else text
    if later := [*_LATER.finditer(text)]:
        text = text[later[-1].end() :]
    if ruled := _RULERS.match(text):
        text = ruled[1]
    if (element := _ELEMENT.match(text)) and element[1].lower() in _NAMES:
        text = element[2]
    return _LABEL.sub("", text)


def why_unusable(
    text: str,
    node: NodeKind,
    known: Iterable[str],
    request: Sequence[Mapping[str, str]],
    rows: Iterable[Mapping[str, Any]],
) -> str | None:
    """Return why a proposed instruction cannot help; None if it may.

    Small models repeat the texts that they were shown. Case, spaces and punctuation are ignored.

    Args:
        node: the step that it is for.
        known: the current instruction, and those that were tried.
        request: the messages of the request. The last paragraph is the form of the answer.
        rows: of train, whose texts and answers are no instructions.
    """
    folded, known = fold(text), list(known)
    if _TAG.search(text) and not any(_TAG.search(one) for one in known):
        return "it holds a tag"
    if folded in map(fold, known):
        return BEFORE
    if is_placeholder(re.sub(r"\A\W*\w+\W{0,3}:", "", text)):
        return "it says that there is none"
    form = fold(str(request[-1]["content"]).rpartition("\n\n")[2])
    if len(folded.split()) > 2 and f" {folded} " in f" {form} ":
        return "it repeats the request"
    if _SHOWN.search(text) and len(fold(_SHOWN.sub(" ", text)).split()) < 3:
        return "it repeats the examples"
    names = "|".join(map(re.escape, (*node.inputs, *node.outputs, *_SAID)))
    said = fold(re.sub(rf"(?i)\b(?:{names})\b\W{{0,3}}:", " ", text))
    longest = 4 * len(text) + 40  # the text cannot contain a longer value, even without punctuation
    if any(not _without(said, values) for values in _answers(node, rows, longest)):
        return "it is a row or an answer"
    return None


def fold(text: str) -> str:
    """Return the words of a text, without case, spaces and punctuation."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def _answers(node: NodeKind, rows: Iterable[Mapping[str, Any]], longest: int) -> Iterator[list[str]]:
    """Yield the words of the values of each answer and row, the longest first."""
    signature = getattr(node, "signature", None)
    allowed = [{"": value} for field in signature.outputs for value in field.allowed] if signature else []
    for row in (*allowed, *rows):
        texts = (str(value) for _, value in leaves_of({**row}))
        yield sorted({fold(text) for text in texts if len(text) <= longest}, key=len, reverse=True)


def _without(folded: str, values: Iterable[str]) -> str:
    """Return the words of a text without those of these values."""
    left = f" {folded} "
    for value in values:
        left = left.replace(f" {value} ", " ") if value else left
    return left.strip()


_ANY_TAG = re.compile(r"</?[A-Za-z]\w*>")
#: Marks in place of a removed text.
_TAKEN_OUT = re.compile(r"(?i)[\[(<{*_]+\s*(?:redacted|removed|omitted|deleted|empty|blank|censored)\s*[\])>}*_]+")


def is_placeholder(text: str) -> bool:
    """Return True if a text only stands in for a prompt: signs such as `...` and `{}`, or a word for nothing such as
    `N/A` and `[REDACTED]`."""
    said = _ANY_TAG.sub("", text).strip()
    return not re.search(r"\w", said) or spells_nothing(said.strip("\"'`.")) or _TAKEN_OUT.fullmatch(said) is not None
