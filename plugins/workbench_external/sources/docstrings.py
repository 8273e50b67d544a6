"""The parts of a docstring that frameworks send: what stands before its sections, and what it says of each parameter."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from workbench_external.sources.passages import Part, Passage, only_text

#: What begins a section, in the forms of Google, NumPy and Sphinx.
_SECTION = re.compile(
    r"^[ \t]*(?:(?:Args|Arguments|Parameters|Params|Keyword Args|Other Parameters|Returns?|Yields?|Raises|Examples?|Notes?|"
    r"Attributes|See Also|References|Warnings?|Usage|Todo)(?::[ \t]*$|[ \t]*\n[ \t]*-{3,}[ \t]*$)"
    r"|:(?:param|parameter|arg|type|returns?|rtype|raises?|keyword)\b|@(?:param|returns?)\b)",
    re.MULTILINE,
)
#: `name (type): what`, up to the next entry: a line with no more indentation.
_GOOGLE = re.compile(
    r"^(?P<indent>[ \t]*)\*{0,2}\w+[ \t]*(?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\))?:[ \t]+(?P<text>\S.*(?:\n(?:(?P=indent)[ \t]+\S.*|[ \t]*(?=\n(?P=indent)[ \t]+\S)))*)",
    re.MULTILINE,
)
_SPHINX = re.compile(
    r"^(?P<indent>[ \t]*)[:@](?:param|parameter|arg|keyword)\b[^:\n]*:[ \t]*(?P<text>\S.*(?:\n(?P=indent)[ \t]+\S.*)*)", re.MULTILINE
)
#: `name : type`, then what, further in.
_NUMPY = re.compile(
    r"^(?P<indent>[ \t]*)\*{0,2}\w+(?:[ \t]*:[^\n]*)?\n(?P<text>(?P=indent)[ \t]+\S.*(?:\n(?P=indent)[ \t]+\S.*)*)", re.MULTILINE
)


def parts_of_docstring(whole: Passage, value: str, written: str) -> Iterator[Passage]:
    """Its description, and the descriptions of its parameters, as texts of their own.

    Args:
        whole: the docstring as a passage.
        value: its text, with the margin of its lines.
        written: its source, quotes included.
    """
    section = _SECTION.search(value)
    if section is None:
        return
    if value[: section.start()].strip():
        yield _part(whole, value, written, 0, len(value[: section.start()].rstrip()), whole.margin)
    for form in (_GOOGLE, _SPHINX, _NUMPY):
        for entry in form.finditer(value, section.start()):
            yield _part(whole, value, written, *entry.span("text"), entry["indent"] + "    ")


def _part(whole: Passage, value: str, written: str, start: int, end: int, margin: str) -> Passage:
    start += len(value[start:end]) - len(value[start:end].lstrip())
    quotes = re.match(r"[uU]?(\"\"\"|''')", written)
    newline = "\r\n" if "\r\n" in written else "\n"
    if quotes is None or written[quotes.end() : -3].replace("\r\n", "\n") != value:  # it has escapes

        def write(new: Sequence[Part]) -> str:
            return whole.write((value[:start] + only_text(new, "a docstring") + value[end:],))

        return replace(whole, parts=(value[start:end],), write=write, margin=margin)

    def write_inside(new: Sequence[Part]) -> str:
        text = only_text(new, "a docstring").replace("\\", "\\\\").replace(quotes[1][0], "\\" + quotes[1][0])
        return re.sub(r"[^\n\t -~\u00a0-\ud7ff\ue000-\U0010ffff]", _as_escape, text).replace("\n", newline)

    def place(at: int) -> int:
        return whole.start + quotes.end() + at + (len(newline) - 1) * value.count("\n", 0, at)

    return replace(
        whole, start=place(start), end=place(end), parts=(value[start:end],), write=write_inside, margin=margin
    )


def _as_escape(char: re.Match[str]) -> str:
    return f"\\u{ord(char[0]):04x}"
