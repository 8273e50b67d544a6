"""The parts of a docstring that frameworks send: its description, and those of its parameters."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from workbench_external.sources.passages import Part, Passage, newline_of, only_text
from workbench_external.sources.python_literals import escape_quotes

#: The beginning of a section, in the forms of Google, NumPy and Sphinx.
_SECTION = re.compile(
    r"^[ \t]*(?:(?:Args|Arguments|Parameters|Params|Keyword Args|Other Parameters|Returns?|Yields?|Raises|Examples?|"
    r"Notes?|Attributes|See Also|References|Warnings?|Usage|Todo)(?::[ \t]*$|[ \t]*\n[ \t]*-{3,}[ \t]*$)"
    r"|:(?:param|parameter|arg|type|returns?|rtype|raises?|keyword)\b|@(?:param|returns?)\b)",
    re.MULTILINE,
)
#: `name (type): what`, up to the next entry: a line with no more indentation.
_GOOGLE = re.compile(
    r"^(?P<indent>[ \t]*)\*{0,2}\w+[ \t]*(?:\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\))?:[ \t]+"
    r"(?P<text>\S.*(?:\n(?:(?P=indent)[ \t]+\S.*|[ \t]*(?=\n(?P=indent)[ \t]+\S)))*)",
    re.MULTILINE,
)
_SPHINX = re.compile(
    r"^(?P<indent>[ \t]*)[:@](?:param|parameter|arg|keyword)\b[^:\n]*:[ \t]*"
    r"(?P<text>\S.*(?:\n(?P=indent)[ \t]+\S.*)*)",
    re.MULTILINE,
)
#: `name : type`, then the description, further indented.
_NUMPY = re.compile(
    r"^(?P<indent>[ \t]*)\*{0,2}\w+(?:[ \t]*:[^\n]*)?\n"
    r"(?P<text>(?P=indent)[ \t]+\S.*(?:\n(?P=indent)[ \t]+\S.*)*)",
    re.MULTILINE,
)


#: A letter of a literal, or an escape.
_LETTER = re.compile(
    r"\\(?:\r\n|N\{[^}]*\}|U[0-9a-fA-F]{8}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[0-7]{1,3}|.)|\r\n|.", re.DOTALL
)


def parts_of_docstring(whole: Passage, value: str, written: str) -> Iterator[Passage]:
    """Yield a docstring's description, and those of its parameters, as separate texts.

    Args:
        whole: the docstring as a passage.
        value: its text, with the margin of its lines.
        written: its source, quotes included.
    """
    section = _SECTION.search(value)
    if section is None or (literal := _Literal.read(whole, value, written)) is None:
        return
    if value[: section.start()].strip():
        yield literal.part(0, len(value[: section.start()].rstrip()), whole.margin)
    for form in (_GOOGLE, _SPHINX, _NUMPY):
        for entry in form.finditer(value, section.start()):
            yield literal.part(*entry.span("text"), entry["indent"] + "    ")


@dataclass(frozen=True)
class _Literal:
    """A docstring in triple quotes. places: the position of each letter of its text in its source."""

    whole: Passage
    value: str
    mark: str
    is_raw: bool
    newline: str
    places: list[int]

    @classmethod
    def read(cls, whole: Passage, value: str, written: str) -> _Literal | None:
        """Parse a docstring; None if it is not a single literal."""
        begin = re.match(r"([rRuU]?)(\"\"\"|''')", written)
        if begin is None:
            return None
        is_raw, places, read, at = begin[1] in ("r", "R"), list[int](), "", begin.end()
        while at < len(written) - 3 and (token := _LETTER.match(written, at)) is not None:
            text = token[0].replace("\r\n", "\n")
            if text.startswith("\\") and not is_raw:
                text = ast.literal_eval(f'"""{text}"""') if text not in ("\\'", '\\"') else text[1]
            elif is_raw and len(text) > 1:
                text = text[0]
            places += [at] * len(text)
            read += text
            at = at + 1 if is_raw and token[0][0] == "\\" else token.end()
        newline = newline_of(written)
        return cls(whole, value, begin[2][0], is_raw, newline, [*places, at]) if read == value else None

    def part(self, start: int, end: int, margin: str) -> Passage:
        start += len(self.value[start:end]) - len(self.value[start:end].lstrip())
        first, behind = self.whole.start + self.places[start], self.whole.start + self.places[end]
        return replace(
            self.whole, start=first, end=behind, parts=(self.value[start:end],), write=self._write, margin=margin
        )

    def _write(self, new: Sequence[Part]) -> str:
        text = only_text(new, "a docstring")
        if not self.is_raw:
            text = escape_quotes(text.replace("\\", "\\\\"), self.mark)
            text = re.sub(r"[^\n\t -~\u00a0-\ud7ff\ue000-\U0010ffff]", lambda char: f"\\u{ord(char[0]):04x}", text)
        return text.replace("\n", self.newline)
