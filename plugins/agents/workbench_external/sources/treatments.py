"""Treatments of a text by the program that reads it: a shell fills in or unescapes parts, and changes of spaces or
lines may affect a new text but not the old one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from workbench_external.sources.dialects import Dialect, read_as, readings, replaced
from workbench_external.sources.passages import CannotWrite, Part, Passage

Treatment = Callable[[str], str]
#: A mark that a program may look for: only signs, and not punctuation of prose.
_MARK = re.compile(r"\^?(?P<mark>(?=[^\w\s]*[#<>|%@~=*_^&`]|(?P<sign>[^\w\s])(?P=sign){2})[^\w\s]{1,6})(?:\.\*)?\$?")
#: A text that a program searches and replaces, as `t.replace("[name]", name)`, or as a pattern, `/\\[name\\]/`.
_REPLACES = re.compile(
    r"(?:\.replace(?:All)?|\b(?:sub|escape|compile))\(\s*(?:r?([\"'`])(?P<text>.{2,60}?)\1|/(?P<pattern>[^/\n]{2,60})/)"
)
_LITERAL = re.compile(r"[^\\*+?|()^]*\w{2}[^\\*+?|()^]*")
#: Commands of a shell program that evaluate a text after filling it in; in a here-document, or in single quotes.
_EVALUATES = re.compile(
    r"(?:\beval\b|\b(?:ba|da|z|k)?sh[ \t]+-\w*c\b)(?=.*(?:\$\{?\w|\bcat\b|\$\(<))"
    r"(?:.*(?P<document><<-?[ \t]*[\"'\\]?(?P<end>\w+))|.*(?P<single>'[^'\n]*\$))?"
)
#: Code that reads the lines of a text separately, in programs of any language, and in shell programs.
_BY_LINE = re.compile(r"splitlines\(|split\(\s*r?[\"'`/](?:\\r\??)?\\n|common-tags|stripIndent")
_BY_LINE_IN_SHELL = re.compile(r"(?<!IFS= )\bread\b|\b(?:xargs|awk|sed)\b")
#: In a shell, quoted text and here-documents; and an unquoted value, except in an assignment.
_QUOTED = re.compile(r"<<-?[ \t]*[\"']?(\w+).*?\n[ \t]*\1\b|\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"|^[ \t]*#.*?$", re.S | re.M)
_UNQUOTED = re.compile(r"(?<![\w=])\$[({\w]")


def _escaped(name: str, token: str, marks: str) -> Dialect:
    """Return the form of a text whose backslashes a shell program unescapes. marks: characters escaped by doubling."""

    def escape(text: str, before_field: bool) -> str:
        return re.sub(r"[\\%]" if marks else r"\\", lambda mark: mark[0] * 2, text)

    letters = {"\\n": "\n", "\\t": "\t"}
    return Dialect(name, re.compile(token), lambda found: letters.get(found, found[1:]), escape, lambda field: True)


def _evaluated(name: str, marks: str) -> Dialect:
    """Return the form of a text that a shell evaluates. marks: characters that a backslash escapes there."""
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
    """A program's treatments of texts, judged by its sources.

    shell: its shell code. code: its other code. marks: signs that it may look for in a text.
    replaced: texts that it searches and replaces.
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
        """The further forms of a text that may have any form."""
        names = "|".join(map(re.escape, sorted(self.replaced, key=len, reverse=True)))
        return (*((*_EVALUATED, *_ESCAPED) if self.shell else ()), *([replaced("literals", names)] if names else ()))

    def readings(self, passage: Passage, known: Collection[str] | None = None) -> Iterator[Passage]:
        """Yield a passage in all readings that this program may use, the likeliest first. known: see `readings`."""
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
        """Return what the program may do to a new text but not to the old one, as a sentence; "" if unknown."""
        old, new = old.strip(), new.strip()
        for what, treat in self._treatments(has_margin):
            if treat(old) == old and treat(new) != new:
                return what
        looked_for = sorted(mark for mark in self.marks | self.replaced if mark in new and mark not in old)
        return f"the program may look for its {' '.join(looked_for)}" if looked_for else ""

    def _treatments(self, has_margin: bool) -> Iterator[tuple[str, Treatment]]:
        yield "its line ends may change", lambda text: re.sub(r"\r\n?", "\n", text)
        if has_margin:  # as in `inspect.getdoc` and `textwrap.dedent`
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
    """Write a text. danger: a pattern of parts that a shell would run, or that would end the text for it."""
    if any(re.search(danger, part, re.MULTILINE) for part in new if isinstance(part, str)):
        raise CannotWrite("a shell may run a part of it")
    return write(new)
