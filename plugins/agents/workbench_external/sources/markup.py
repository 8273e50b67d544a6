"""Texts in XML, and in tables (CSV, TSV)."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterator, Sequence
from functools import partial
from xml.parsers import expat

from workbench_external.sources.passages import CannotWrite, Part, Passage, check_kept, newline_of, only_text

_TOKEN = re.compile(
    r"<!--.*?-->|<\?.*?\?>|(?P<cdata><!\[CDATA\[.*?\]\]>)|(?P<text>[^<]+)"
    r"|(?P<tag></?[^\s<>/!?][^<>\"']*(?:(?:\"[^\"]*\"|'[^']*')[^<>\"']*)*>)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"[\w:.-]+\s*=\s*(?P<text>\"[^\"]*\"|'[^']*')")
#: Characters that XML does not allow.
_NO_CHAR = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_xml(source: str) -> Iterator[Passage]:
    """Yield the texts and attributes of an XML file. Raises ValueError if it is invalid, or may define entities."""
    if "<!DOCTYPE" in source:
        raise ValueError("it may have entities of its own")
    try:
        expat.ParserCreate().Parse(source.removeprefix("\ufeff"), True)
    except expat.ExpatError as error:
        raise ValueError(str(error)) from None
    newline = newline_of(source)
    for token in _TOKEN.finditer(source):
        if token["cdata"] is not None:
            yield Passage(*token.span(), (_unix(token[0][9:-3]),), partial(_write_cdata, newline))
        elif token["text"] is not None and token[0].strip():
            yield Passage(*token.span(), (html.unescape(_unix(token[0])),), partial(_write_text, newline))
        for found in _ATTRIBUTE.finditer(token[0]) if token["tag"] else ():
            start, end = (token.start() + place for place in found.span("text"))
            value = html.unescape(re.sub(r"[\t\n]", " ", _unix(found["text"][1:-1])))
            yield Passage(start, end, (value,), partial(_write_attribute, found["text"][0]))


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def _text(new: Sequence[Part]) -> str:
    if _NO_CHAR.search(text := only_text(new, "a text of XML")):
        raise CannotWrite("the new text has a character that XML does not have")
    return text


def _write_text(newline: str, new: Sequence[Part]) -> str:
    text = html.escape(_text(new), quote=False).replace("\r", "&#13;")
    return text.replace("\n", newline)


def _write_cdata(newline: str, new: Sequence[Part]) -> str:
    if "\r" in (text := _text(new)) or "]]>" in text:
        raise CannotWrite("the new text has a mark that CDATA does not keep")
    return f"<![CDATA[{text}]]>".replace("\n", newline)


def _write_attribute(mark: str, new: Sequence[Part]) -> str:
    text = html.escape(_text(new), quote=False).replace(mark, "&quot;" if mark == '"' else "&apos;")
    return mark + re.sub(r"[\t\n\r]", lambda char: f"&#{ord(char[0])};", text) + mark


def read_table(source: str) -> Iterator[Passage]:
    """Yield the cells of a table. Raises ValueError if `csv` reads it differently."""
    first = source.partition("\n")[0]
    separator = max(",;\t|", key=first.count)
    cell = re.compile(
        rf"(?P<text>\"(?:[^\"]|\"\")*\"|[^{re.escape(separator)}\r\n\"]*)(?:{re.escape(separator)}|\r?\n|\Z)"
    )
    mark, at = source.startswith("\ufeff"), 0
    at, cells, found = int(mark), list[str](), list[Passage]()
    while at < len(source):
        if (one := cell.match(source, at)) is None:
            raise ValueError("a cell is not closed")
        text = one["text"][1:-1].replace('""', '"') if one["text"].startswith('"') else one["text"]
        cells.append(text)
        if text.strip():
            is_quoted = one["text"][0] == '"'
            found.append(Passage(*one.span("text"), (text,), partial(_write_cell, separator, is_quoted)))
            if '"' not in source:  # also readable by a program that only splits the lines
                found.append(Passage(*one.span("text"), (text,), partial(_write_bare, separator)))
        at = one.end()
    rows = csv.reader(io.StringIO(source[int(mark) :], newline=""), delimiter=separator)
    if [one for row in rows for one in row if one] != [one for one in cells if one]:
        raise ValueError("it is another kind of table")
    yield from found


def _write_bare(separator: str, new: Sequence[Part]) -> str:
    if _write_cell(separator, False, new) != (text := only_text(new, "a cell")):
        raise CannotWrite("a cell without quotes has one line")
    return text


def _write_cell(separator: str, is_quoted: bool, new: Sequence[Part]) -> str:
    text = only_text(new, "a cell")
    check_kept(text, "\0")
    is_quoted = is_quoted or text != text.strip() or any(mark in text for mark in f'{separator}"\r\n')
    return '"' + text.replace('"', '""') + '"' if is_quoted else text
