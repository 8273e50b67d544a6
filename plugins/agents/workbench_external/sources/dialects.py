"""The readings of a text: unchanged, without its margin, and as a template of the usual forms.

A file does not show which reading a program uses. Readings of the same text differ in how a new text is written, and a
trial of the agent shows the right one (`workbench_external.trial`).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from workbench_external.slots.template import VOLATILE
from workbench_external.sources.passages import CannotWrite, Field, Part, Passage, compact, only_text

_LINE = re.compile(r"\n[ \t]*")


@dataclass(frozen=True)
class Dialect:
    """A form of templates.

    Args:
        name: in our settings.
        token: special parts: fields, in the group `field`, and escapes.
        unescaped: returns the text of an escape; None if the token shows that the text is not such a template.
        escape: encodes a constant, given whether a field follows. Raises CannotWrite.
        ordered: returns whether a field is filled by position.
        field: encodes a field, given the text after it.
    """

    name: str
    token: re.Pattern[str]
    unescaped: Callable[[str], str | None]
    escape: Callable[[str, bool], str]
    ordered: Callable[[str], bool] = lambda field: False
    field: Callable[[str, str], str] = lambda field, behind: field

    def read(self, parts: Sequence[Part], known: Collection[str] | None = None) -> tuple[Part, ...] | None:
        """Parse the parts of a text as this template; None if it is not one. known: the marks that a program fills."""
        found: list[Part] = []
        for part in parts:
            if isinstance(part, Field):
                found.append(part)
                continue
            at = 0
            for token in self.token.finditer(part):
                found.append(part[at : token.start()])
                at = token.end()
                if self in _REPLACED and known is not None and token[0] not in known:
                    found.append(token[0])
                elif (field := token["field"]) is not None:
                    found.append(Field(field, self.name, self.ordered(field)))
                elif (text := self.unescaped(token[0])) is None:
                    return None
                else:
                    found.append(text)
            found.append(part[at:])
        return compact(found)

    def lower(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Encode the parts of a text for its source, where this template's fields are text."""
        found: list[Part] = []
        for part, behind in zip_longest(parts, parts[1:]):
            if isinstance(part, str):
                own = isinstance(behind, Field) and behind.level == self.name
                found.append(self.escape(part, own))
            elif part is not None and part.level == self.name:
                found.append(self.field(part.source, behind if isinstance(behind, str) else ""))
            elif part is not None:
                found.append(part)
        return compact(found)


def _escape_jinja(text: str, before_field: bool) -> str:
    return re.sub(r"\{\{|\{%|\{#" + (r"|\{\Z" if before_field else ""), lambda mark: f'{{{{ "{mark[0]}" }}}}', text)


def _escape_mustache(text: str, before_field: bool) -> str:
    if "{{" in text or (before_field and text.endswith("{")):
        raise CannotWrite("the new text has {{, which this form of templates has no escape for")
    return text


#: {name}, as in str.format, LangChain and CrewAI.
FORMAT = Dialect(
    "format",
    re.compile(r"\{\{|\}\}|(?P<field>\{[\w.\[\]]*(?:![rsa])?(?::[^{}\"'\n]*)?\})|[{}]"),
    lambda token: {"{{": "{", "}}": "}"}.get(token),
    lambda text, _: text.replace("{", "{{").replace("}", "}}"),
    lambda field: field[1:2] in ("}", ":", "!"),
)
#: {{ name }}, as in Jinja. The text between its tags is read separately (`sources.messages`).
JINJA = Dialect(
    "jinja",
    re.compile(r"\{\{ ?\"(?P<mark>\{\{|\{%|\{#|\{)\" ?\}\}|(?P<field>\{\{.*?\}\})|\{%.*?%\}|\{#.*?#\}", re.DOTALL),
    lambda token: token.strip("{} ").strip('"') if token.startswith("{{") else None,
    _escape_jinja,
)
MUSTACHE = Dialect("mustache", re.compile(r"(?P<field>\{\{\{?.*?\}\}\}?)", re.DOTALL), lambda _: None, _escape_mustache)
#: $name, as in string.Template.
DOLLAR = Dialect(
    "dollar",
    re.compile(r"\$\$|(?P<field>\$\{[_a-zA-Z]\w*\}|\$[_a-zA-Z]\w*)|\$"),
    lambda token: "$" if token == "$$" else None,
    lambda text, _: text.replace("$", "$$"),
    field=lambda field, behind: field if field[1] == "{" or not re.match(r"\w", behind) else f"${{{field[1:]}}}",
)
#: %s and %(name)s, read only with the operator %.
PERCENT = Dialect(
    "percent",
    re.compile(r"%%|(?P<field>%(?:\(\w+\))?[#0\- +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[diouxXeEfFgGcrsa])|%"),
    lambda token: "%" if token == "%%" else None,
    lambda text, _: text.replace("%", "%%"),
    lambda field: not field.startswith("%("),
)


def replaced(name: str, field: str) -> Dialect:
    """Return a dialect for marks that a program searches and replaces. All else is unchanged and needs no escapes."""
    return Dialect(name, re.compile(f"(?P<field>{field})"), lambda _: None, lambda text, _: text)


_REPLACED = (
    replaced("braces", r"\{[_a-zA-Z]\w*\}"),
    replaced("double braces", r"\{\{ *[_a-zA-Z]\w* *\}\}"),
    replaced("dates", VOLATILE.pattern),
    replaced("dollar braces", r"\$\{[_a-zA-Z]\w*\}"),
    replaced("marks", r"<<\w+>>|\[\[\w+\]\]|__[A-Z_]+__|%%?[A-Z_]+%%?|\[[A-Z_]{2,}\]|<[A-Z_]{2,}>|([@#$])\w+\2"),
)
DIALECTS = {dialect.name: dialect for dialect in (FORMAT, JINJA, MUSTACHE, DOLLAR, PERCENT, *_REPLACED)}
#: The dialects to try if none is known.
_USUAL = ("", "format", "jinja", "dollar", *(dialect.name for dialect in _REPLACED))


def with_dialect(passage: Passage, dialect: Dialect, known: Collection[str] | None = None) -> Passage | None:
    """Read a passage as a template; None if it is not one."""
    parts = dialect.read(passage.parts, known)
    write = passage.write
    return None if parts is None else replace(passage, parts=parts, write=lambda new: write(dialect.lower(new)))


def without_margin(passage: Passage) -> Passage | None:
    """Remove the common indentation of a passage's lines, like `textwrap.dedent` and `inspect.cleandoc`; None if there
    is none."""
    lines = "".join(part if isinstance(part, str) else "\0" for part in passage.parts).split("\n")[1:]
    starts = [line[: len(line) - len(line.lstrip(" \t"))] for line in lines if line.strip(" \t")]
    margin = min(starts, key=len) if starts else passage.margin
    while not all(start.startswith(margin) for start in starts):
        margin = margin[:-1]
    if not margin:
        return None

    def without(text: str) -> str:
        return _LINE.sub(lambda found: "\n" + found[0][1:].removeprefix(margin), text)

    last = passage.parts[-1]
    end = re.search(r"\n[ \t]*\Z", last) if isinstance(last, str) else None

    def write(new: Sequence[Part]) -> str:
        inside = [re.sub(r"\n(?!\n|\Z)", f"\n{margin}", p) if isinstance(p, str) else p for p in new]
        if inside and isinstance(inside[-1], str) and end is not None:
            inside[-1] = re.sub(r"\n\Z", end[0], inside[-1])
        lines = "".join(part if isinstance(part, str) else "\0" for part in inside).split("\n")
        further = [line for line in lines[1:] if line.strip(" \t")]
        if lines[0].strip() and further and all(line.startswith((f"{margin} ", f"{margin}\t")) for line in further):
            return passage.write([f"\n{margin}", *inside])  # else their extra indentation would be taken for the margin
        return passage.write(inside)

    parts = tuple(without(part) if isinstance(part, str) else part for part in passage.parts)
    return replace(passage, parts=parts, write=write)


def joined(passage: Passage) -> Passage | None:
    """Return a passage as one line, like `" ".join(text.split())`; None if it is one line, or has fields."""
    text = "".join(part if isinstance(part, str) else "\0" for part in passage.parts)
    one = " ".join(text.split())
    if "\0" in text or one == text.strip():
        return None
    lines = text.strip().split("\n")
    inside = re.match(r"[ \t]*", lines[-1])
    margin = inside[0] if inside is not None and len(lines) > 1 else ""

    def write(new: Sequence[Part]) -> str:
        words = only_text(new, "a text that is joined").strip()
        if words != " ".join(words.split()):
            raise CannotWrite("the program joins its lines to one")
        filled = textwrap.wrap(
            words, max(map(len, lines)), break_long_words=False, break_on_hyphens=False, subsequent_indent=margin
        )
        head, tail = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
        return passage.write([head + "\n".join(filled) + tail])

    return replace(passage, parts=(one,), write=write)


def _shapes(passage: Passage) -> list[Passage]:
    """Return a passage with and without its margin, the likelier first."""
    plain = without_margin(passage)
    return [passage] if plain is None else [plain, passage] if passage.margin else [passage, plain]


def read_as(
    passage: Passage, forms: Iterable[Dialect | None], known: Collection[str] | None = None
) -> Iterator[Passage]:
    """Yield a passage in some forms. None: unchanged. known: the marks that a program replaces."""
    for form in forms:
        for shape in _shapes(passage):
            found = shape if form is None else with_dialect(shape, form, known)
            if found is not None:
                yield found


def readings(passage: Passage, known: Collection[str] | None = None, more: Sequence[Dialect] = ()) -> Iterator[Passage]:
    """Yield a passage in all readings that a program may use, the likeliest first.

    known: the marks that a program replaces; None: any that look like marks. more: forms for a text of any form.
    """
    names = _USUAL if passage.dialects is None else passage.dialects
    forms = [*map(DIALECTS.get, names), *(more if passage.dialects is None else ())]
    yield from read_as(passage, forms, known)
    if passage.dialects is None:
        for shape in _shapes(passage):  # without a %, no program looks for one
            found = with_dialect(shape, PERCENT)
            if found is not None and any(
                isinstance(part, Field) and part.level == PERCENT.name for part in found.parts
            ):
                yield found
    if (one := joined(passage)) is not None:
        yield one
