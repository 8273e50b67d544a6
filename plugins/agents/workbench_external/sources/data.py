"""Texts in JSON, YAML, TOML, INI and notebooks."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import yaml

from workbench.base.text import one_line
from workbench_external.sources.passages import CannotWrite, Part, Passage, newline_of, only_text
from workbench_external.sources.python import read_python

_JSON = re.compile(r"//[^\n]*|/\*.*?\*/|(?P<text>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')(?P<key>\s*:)?", re.DOTALL)
_TOML = re.compile(
    r"#[^\n]*|(?P<text>\"\"\"(?:[^\\]|\\.)*?\"{3,5}|'''.*?'{3,5}|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')"
    r"(?P<key>[ \t]*[=.\]])?",
    re.DOTALL,
)
_TABLE = re.compile(r"^[ \t]*\[+[ \t]*([^\]\n]+)\]", re.MULTILINE)
#: Tools and keys of a pyproject.toml whose texts are commands or code.
_COMMAND = re.compile(
    r"script|task|command|cmd|\brun|exec|shell|hook|build|plugin|\b(poe|hatch|pdm|tox|nox|setuptools|poetry|uv)\b", re.I
)
#: A value of an INI file, with the indented lines below it.
_INI = re.compile(r"^[^\s#;\[=:][^=:\n]*[=:][ \t]*(?P<text>.*(?:\n(?:[ \t]*\r?$|[ \t]+\S.*))*)", re.MULTILINE)
#: A list of texts, which a program may join as lines.
_LINES = re.compile(r"\[(?P<space>\s*)\"(?:[^\"\\\n]|\\.)*\"(?:\s*,\s*\"(?:[^\"\\\n]|\\.)*\")+(?P<end>\s*)\]")
#: Possible text before a YAML scalar.
_MARKS = re.compile(r"(?:[&!]\S*\s+)*")


def read_json(source: str) -> Iterator[Passage]:
    """Yield the texts of a JSON file, which may have comments, and its lists of lines. Keys are excluded."""
    for found in _LINES.finditer(source):
        with suppress(ValueError):
            text = "\n".join(json.loads(found[0], strict=False))
            yield Passage(*found.span(), (text,), partial(_write_json_lines, "\\u" not in found[0], found))
    for found in _JSON.finditer(source):
        if found["text"] is None or found["key"] is not None:
            continue
        try:
            value = json.loads(_in_double_quotes(found["text"]), strict=False)
        except ValueError:
            continue
        plain = not found["text"].isascii() or "\\u" not in found["text"]
        yield Passage(*found.span("text"), (value,), partial(_write_json, plain))


def _in_double_quotes(text: str) -> str:
    """Convert a JSON5 string to JSON."""
    if text[0] == '"':
        return text
    inside = re.sub(r"\\.|\"", lambda found: {"\\'": "'", '"': '\\"'}.get(found[0], found[0]), text[1:-1])
    return f'"{inside}"'


def _write_json(plain: bool, new: Sequence[Part]) -> str:
    text = only_text(new, "a string of JSON")
    # Files cannot contain lone surrogates.
    plain = plain and not any(0xD800 <= ord(char) < 0xE000 for char in text)
    return _escape_unseen(json.dumps(text, ensure_ascii=not plain))


def _write_json_lines(plain: bool, found: re.Match[str], new: Sequence[Part]) -> str:
    lines = [_write_json(plain, (line,)) for line in only_text(new, "a list of JSON").split("\n")]
    separator = "," + (found["space"] or " ")
    return f"[{found['space']}{separator.join(lines)}{found['end']}]"


def read_toml(source: str) -> Iterator[Passage]:
    """Yield the texts of a TOML file, without keys."""
    for found in _TOML.finditer(source):
        if found["text"] is None or found["key"] is not None:
            continue
        try:
            value = tomllib.loads(f"x = {found['text']}")["x"]
        except tomllib.TOMLDecodeError:
            continue
        several = found["text"][:3] in ('"""', "'''")
        newline = newline_of(source)
        value = value.replace("\r\n", "\n") if several else value
        yield Passage(*found.span("text"), (value,), partial(_write_toml, several, newline))


def read_pyproject(source: str) -> Iterator[Passage]:
    """Yield the texts of a pyproject.toml. Only those in tables of tools can be written, except commands."""
    for passage in read_toml(source):
        tables = [*_TABLE.finditer(source, 0, passage.start)]
        key = source[source.rfind("\n", 0, passage.start) + 1 : passage.start]
        path = f"{tables[-1][1]}.{key}" if tables else key
        is_text = path.startswith("tool.") and not _COMMAND.search(path)
        yield passage if is_text else replace(passage, write=_refuse_command)


def _refuse_command(new: Sequence[Part]) -> str:
    raise CannotWrite("the text there may be a command, and is not written")


def _write_toml(several: bool, newline: str, new: Sequence[Part]) -> str:
    text = only_text(new, "a string of TOML")
    if any(0xD800 <= ord(char) < 0xE000 for char in text):
        raise CannotWrite("TOML has no half letters")
    if not several and "\n" not in text:
        return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    escaped = re.sub(r"\"{3,}|\"+\Z", lambda marks: '\\"' * len(marks[0]), text.replace("\\", "\\\\"))
    escaped = re.sub(r"[^\n\t -~\u0080-\U0010ffff]", lambda char: f"\\u{ord(char[0]):04x}", escaped)
    return f'"""\n{escaped}"""'.replace("\n", newline)  # a line break after the quotes is not part of the text


def read_ini(source: str) -> Iterator[Passage]:
    """Yield the values of an INI file, as `configparser` reads them."""
    newline = newline_of(source)
    for found in _INI.finditer(source):
        lines = [line.strip() for line in found["text"].rstrip().split("\n")]
        if any(lines) and not any(line[:1] in ("#", ";") for line in lines[1:]):
            end = found.start("text") + len(found["text"].rstrip())
            forms = ("", "percent", "format", "braces", "double braces")
            yield Passage(found.start("text"), end, ("\n".join(lines),), partial(_write_ini, newline), "", forms)


def _write_ini(newline: str, new: Sequence[Part]) -> str:
    text = only_text(new, "a value of an INI file")
    if not re.sub(r"[\n\t]", "", text).isprintable():
        raise CannotWrite("the new text has a character that such a file does not keep")
    if comment := re.search(r"\n[ \t]*([#;].*)", text):
        raise CannotWrite(f"its line {one_line(comment[1])!r} would be a comment there")
    return text.replace("\n", f"{newline}    ").replace(f"    {newline}", newline)


def read_yaml(source: str) -> Iterator[Passage]:
    """Yield the texts of a YAML file: plain, quoted and block scalars, without keys. Raises yaml.YAMLError."""
    for document in yaml.compose_all(source, Loader=yaml.SafeLoader):
        yield from _scalars(source, document, False, set())


def _scalars(source: str, node: yaml.Node | None, flow: bool, seen: set[int]) -> Iterator[Passage]:
    if node is None or id(node) in seen:  # an alias is read at its anchor
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:str":
        yield _yaml_passage(source, node, flow)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield from _scalars(source, value, flow or bool(node.flow_style), seen)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _scalars(source, value, flow or bool(node.flow_style), seen)


def _yaml_passage(source: str, node: yaml.ScalarNode, flow: bool) -> Passage:
    start = source.startswith("\ufeff") + node.start_mark.index
    end = source.startswith("\ufeff") + node.end_mark.index
    marks = _MARKS.match(source, start, end)
    start = start if marks is None else marks.end()
    end = start + len(source[start:end].rstrip())
    line = source[source.rfind("\n", 0, start) + 1 : start]
    indent = len(line) - len(line.lstrip(" -")) if line.strip(" -") else len(line)
    begins = indent if re.match(r"\s*(?:- +)*\S", line) else 0
    newline = newline_of(source)
    # A block takes the rest of its line.
    may_be_block = not flow and (node.style in ("|", ">") or not source[end:].partition("\n")[0].strip())
    written = partial(_write_yaml, may_be_block, node.style in ("|", ">"), begins + 2, newline)
    return Passage(start, end, (node.value,), written)


def _write_yaml(may_be_block: bool, is_block: bool, indent: int, newline: str, new: Sequence[Part]) -> str:
    text = only_text(new, "a scalar of YAML")
    if any(0xD800 <= ord(char) < 0xE000 for char in text):
        raise CannotWrite("YAML has no half letters")
    lines = text.rstrip("\n").split("\n")
    fit = all(char.isprintable() or char in "\n\t" for char in text) and not text[:1].isspace()
    if may_be_block and (is_block or "\n" in text) and fit and text.strip():
        ends = len(text) - len(text.rstrip("\n"))
        written = [f"|{'-' if not ends else '' if ends == 1 else '+'}"]
        written += [" " * indent + line if line else "" for line in lines] + [""] * max(0, ends - 1)
        return newline.join(written)
    if _is_plain(text):
        return text
    return _escape_unseen(json.dumps(text, ensure_ascii=False))


def _escape_unseen(quoted: str) -> str:
    """Escape invisible characters, and those that some readers take for line ends, in a double-quoted string."""
    return re.sub(r"[\x7f-\x9f\ufeff\u2028\u2029]", lambda char: f"\\u{ord(char[0]):04x}", quoted)


def _is_plain(text: str) -> bool:
    """Return True if a text needs no quotes in any place."""
    if not re.fullmatch(r"[A-Za-z][\w .;()/'-]*[\w.)]", text):
        return False
    return yaml.safe_load(text) == text


def read_notebook(source: str) -> Iterator[Passage]:
    """Yield the texts in the Python cells of a notebook. Raises ValueError for an invalid one."""
    cells = [cell for cell in json.loads(source)["cells"] if cell.get("cell_type") == "code"]
    at = 0
    for cell in cells:
        lines = cell["source"]
        if not isinstance(lines, list) or not lines:
            continue
        spans = list[tuple[int, int]]()
        found = re.search(rf"\"source\"\s*:\s*\[\s*(?={re.escape(_first_of(source, lines[0], at))})", source[at:])
        if found is None:
            continue
        at += found.end()
        for _ in lines:
            if (text := _JSON.search(source, at)) is None:
                break
            spans.append(text.span("text"))
            at = text.end()
        yield from _cell_passages(source, lines, spans)


def _first_of(source: str, line: str, at: int) -> str:
    """Return the form of a line in the notebook."""
    written = json.dumps(line, ensure_ascii=False)
    return written if written in source[at:] else json.dumps(line)


def _cell_passages(source: str, lines: Sequence[str], spans: Sequence[tuple[int, int]]) -> Iterator[Passage]:
    code = "".join(lines)
    # Commands of the notebook itself are not Python.
    plain = "".join(re.sub(r"\A(\s*)[%!?]", r"\1#", line) for line in lines)
    if len(spans) < len(lines):
        return
    begins = [sum(map(len, lines[:n])) for n in range(len(lines) + 1)]
    try:
        inner = [*read_python(plain, breaks=False)]
    except (SyntaxError, ValueError, RecursionError):
        return
    separator = source[spans[0][1] : spans[1][0]] if len(spans) > 1 else ",\n    "
    for passage in inner:
        first = max(n for n in range(len(lines)) if begins[n] <= passage.start)
        last = max(n for n in range(len(lines)) if begins[n] < max(passage.end, 1))
        head, tail = code[begins[first] : passage.start], code[passage.end : begins[last + 1]]
        write = partial(_write_cell, passage, head, tail, separator)
        start, end = spans[first][0], spans[last][1]
        yield Passage(start, end, passage.parts, write, passage.margin, passage.dialects)


def _write_cell(passage: Passage, head: str, tail: str, separator: str, new: Sequence[Part]) -> str:
    lines = (head + passage.write(new) + tail).splitlines(keepends=True)
    return separator.join(json.dumps(line, ensure_ascii=False) for line in lines)
