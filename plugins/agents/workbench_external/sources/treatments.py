"""Treatments of a text by the program that reads it: what a shell fills in or unescapes, and what a change of spaces,
or of lines, does to a new text but not to the old one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from workbench_external.sources.dialects import Dialect, read_as, readings, replaced
from workbench_external.sources.passages import CannotWrite, Part, Passage

Treatment = Callable[[str], str]
#: A mark that a program may look for: of signs alone, and no punctuation of prose.
_MARK = re.compile(r"\^?(?P<mark>(?=[^\w\s]*[#<>|%@~=*_^&`]|(?P<sign>[^\w\s])(?P=sign){2})[^\w\s]{1,6})(?:\.\*)?\$?")
#: A text that a program looks for and replaces, as `t.replace("[name]", name)`, or as a pattern, `/\\[name\\]/`.
_REPLACES = re.compile(
    r"(?:\.replace(?:All)?|\b(?:sub|escape|compile))\(\s*(?:r?([\"'`])(?P<text>.{2,60}?)\1|/(?P<pattern>[^/\n]{2,60})/)"
)
_LITERAL = re.compile(r"[^\\*+?|()^]*\w{2}[^\\*+?|()^]*")
#: In programs of a shell, what runs a text that it fills in; as a here-document, or inside single quotes.
_EVALUATES = re.compile(
    r"(?:\beval\b|\b(?:ba|da|z|k)?sh[ \t]+-\w*c\b)(?=.*(?:\$\{?\w|\bcat\b|\$\(<))"
    r"(?:.*(?P<document><<-?[ \t]*[\"'\\]?(?P<end>\w+))|.*(?P<single>'[^'\n]*\$))?"
)
#: In other programs, and in those of a shell, what reads the lines of a text each by itself.
_BY_LINE = re.compile(r"splitlines\(|split\(\s*r?[\"'`/](?:\\r\??)?\\n|common-tags|stripIndent")
_BY_LINE_IN_SHELL = re.compile(r"(?<!IFS= )\bread\b|\b(?:xargs|awk|sed)\b")
#: In a shell, what is in quotes or a here-document; and a value without quotes, that of a variable's aside.
_QUOTED = re.compile(r"<<-?[ \t]*[\"']?(\w+).*?\n[ \t]*\1\b|\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"|^[ \t]*#.*?$", re.S | re.M)
_UNQUOTED = re.compile(r"(?<![\w=])\$[({\w]")


def _escaped(name: str, token: str, marks: str) -> Dialect:
    """Form of a text in which a program of a shell unescapes backslashes. marks: what is doubled by itself."""

    def escape(text: str, before_field: bool) -> str:
        return re.sub(r"[\\%]" if marks else r"\\", lambda mark: mark[0] * 2, text)

    letters = {"\\n": "\n", "\\t": "\t"}
    return Dialect(name, re.compile(token), lambda found: letters.get(found, found[1:]), escape, lambda field: True)


def _evaluated(name: str, marks: str) -> Dialect:
    """Form of a text that a shell evaluates. marks: what a backslash escapes there."""
    return Dialect(
        name,
        re.compile(rf"\\[{re.escape(marks)}]|(?P<field>\$\{{[^{{}}]*\}}|\$[A-Za-z_]\w*|\$\([^()]*\)|`[^`]*`)"),
        lambda token: token[1:],
        lambda text, before_field: re.sub(f"[{re.escape(marks)}]", lambda mark: f"\\{mark[0]}", text),
        field=lambda field, behind: (
            f"${{{field[1:]}}}" if re.match(r"\$\w", field) and re.match(r"\w", behind) else field
        ),
    )


#: Texts that a shell evaluates, as a here-document and in double quotes; those of `echo -e` and of `printf "$PROMPT"`.
_EVALUATED = (_evaluated("document", "\\$`"), _evaluated("double quotes", '\\$`"'))
_ESCAPED = (
    _escaped("echo", r"\\[\\nt](?P<field>(?!))?", ""),
    _escaped("printf", r"\\[\\nt]|%%|(?P<field>%s)", "%"),
)


@dataclass(frozen=True)
class Program:
    """Treatments of texts by the program that some sources are.

    shell: its parts in a language of a shell. code: its other parts. marks: signs that it may look for in a text.
    replaced: texts that it looks for and replaces.
    """

    shell: str = ""
    code: str = ""
    marks: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()

    @classmethod
    def of(cls, shell: Iterable[str], code: Iterable[str], texts: Iterable[str]) -> Program:
        """Return the program of some sources. texts: the literals in its code."""
        found = (_MARK.fullmatch(text.strip()) for text in texts if len(text) < 12)
        marks, source = frozenset(one["mark"] for one in found if one is not None), "\n".join(code)
        told = (re.sub(r"\\+(\W)", r"\1", one["text"] or one["pattern"]) for one in _REPLACES.finditer(source))
        return cls("\n".join(shell), source, marks, frozenset(filter(_LITERAL.fullmatch, told)))

    @cached_property
    def _forms(self) -> tuple[Dialect, ...]:
        """The forms of a text that may have any, besides the usual ones."""
        names = "|".join(map(re.escape, sorted(self.replaced, key=len, reverse=True)))
        return (*((*_EVALUATED, *_ESCAPED) if self.shell else ()), *([replaced("literals", names)] if names else ()))

    def readings(self, passage: Passage, known: Collection[str] | None = None) -> Iterator[Passage]:
        """A passage in all the ways in which this program may read it, the likeliest first. known: see `readings`."""
        if not (runs := [*_EVALUATES.finditer(self.shell)]):
            yield from readings(passage, known, self._forms)
            return
        ends = "|".join("'" if run["single"] else rf"^{run['end']}$" if run["document"] else r"(?!)" for run in runs)
        dangers = (ends if all(run["document"] for run in runs) else f'{ends}|"', ends)
        for form, danger in zip(_EVALUATED, dangers, strict=True):
            for one in read_as(passage, [form], known):
                yield replace(one, write=partial(_write_unrun, one.write, danger))
        for one in readings(passage, known, _ESCAPED):
            yield replace(one, write=partial(_write_unrun, one.write, rf"`|\$[({{]|{dangers[0]}"))

    def doubts(self, old: str, new: str, has_margin: bool) -> str:
        """Return what the program may do to a new text and not to the old one, as a sentence; "" if nothing is known
        that it may."""
        old, new = old.strip(), new.strip()
        for what, treat in self._treatments(has_margin):
            if treat(old) == old and treat(new) != new:
                return what
        looked_for = sorted(mark for mark in self.marks | self.replaced if mark in new and mark not in old)
        return f"the program may look for its {' '.join(looked_for)}" if looked_for else ""

    def _treatments(self, has_margin: bool) -> Iterator[tuple[str, Treatment]]:
        yield "its line ends may change", lambda text: re.sub(r"\r\n?", "\n", text)
        if has_margin:  # as `inspect.getdoc` and `textwrap.dedent`
            yield "its tabs may become spaces", str.expandtabs
            yield "space at the ends of its lines may be dropped", lambda text: _by_line(text, str.rstrip)
        if (has_margin and _BY_LINE.search(self.code)) or _BY_LINE_IN_SHELL.search(self.shell):
            yield "space at the ends of its lines may be dropped", lambda text: _by_line(text, str.strip)
            yield "its empty lines may be dropped", lambda text: re.sub(r"\n\s*\n", "\n", text)
        if _EVALUATES.search(self.shell):
            yield "a shell may read its quotes as its own", lambda text: re.sub("['\"]", "", text)
        if _UNQUOTED.search(_QUOTED.sub('""', self.shell)):
            yield "its lines may be joined", lambda text: " ".join(text.split())
            yield "its * and ? may be read as names of files", lambda text: re.sub(r"[*?]|\[", "", text)


def _by_line(text: str, treat: Treatment) -> str:
    return "\n".join(map(treat, text.splitlines()))


def _write_unrun(write: Callable[[Sequence[Part]], str], danger: str, new: Sequence[Part]) -> str:
    """danger: a pattern of what a shell would run, or what would end the text for it."""
    if any(re.search(danger, part, re.MULTILINE) for part in new if isinstance(part, str)):
        raise CannotWrite("a shell may run a part of it")
    return write(new)
