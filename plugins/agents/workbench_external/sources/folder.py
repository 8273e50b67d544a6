"""The files of an agent, and the places of a text in them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from workbench_external.slots.template import HOLE, Template
from workbench_external.sources import (
    CannotWrite,
    Field,
    Part,
    Passage,
    compact,
    describe_syntax,
    is_shell,
    read_texts,
    split,
)
from workbench_external.sources.dialects import without_margin
from workbench_external.sources.treatments import Program

_SKIPPED = {"venv", "node_modules", "__pycache__", "dist", "build", "site-packages"}
#: Maximum bytes of a file, since larger ones are data, and maximum files to read of a folder.
_LARGEST, _MAX = 1 << 20, 4000
#: Minimum characters of a line to look for in files that cannot be written.
_LINE = 12
#: Files that no program reads, though they may quote a prompt.
_IGNORED = re.compile(r"\.(?!env\b)|README|CHANGELOG|LICENSE", re.IGNORECASE)
_OF_OURS = re.compile(r"\bexternal\b")
_CODE = (".py", ".ipynb", ".js", ".mjs", ".cjs", ".ts", ".mts", ".jsx", ".tsx", ".sh", ".bash")
#: Words for a quick search before a file is parsed.
LONG_WORD = re.compile(r"[A-Za-z]{5,}")


@dataclass(frozen=True)
class Place:
    """A text of an agent in a file.

    inner: of a message in a text (`Passage`). ways: functions that write another text there, one per reading, the
    likeliest first. has_margin: its lines are indented in the source, and the indentation may not be sent.
    """

    path: Path
    line: int
    start: int
    end: int
    inner: tuple[int, int]
    ways: tuple[Callable[[str], str], ...]
    has_margin: bool = False


@dataclass(frozen=True)
class SourceFile:
    """A file as it was read. Its texts are parsed on first use.

    is_setting: not a file but the value of a node's setting, which its path names.
    """

    path: Path
    text: str
    is_setting: bool = False

    @cached_property
    def texts(self) -> list[Passage] | None:
        if self.is_setting:
            return [Passage(0, len(self.text), (self.text,), self._refuse)]
        return read_texts(self.path, self.text)

    def _refuse(self, new: Sequence[Part]) -> str:
        raise CannotWrite(f"it is a setting of the node: change `{self.path}` in the workflow file by hand")

    @cached_property
    def words(self) -> frozenset[str]:
        """Its longer words, used to skip files that cannot contain a text."""
        return frozenset(LONG_WORD.findall(self.text))

    def line_of(self, place: int) -> int:
        return self.text.count("\n", 0, place) + 1


def read_source(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")  # newlines unchanged
    except (OSError, UnicodeDecodeError):
        return None


@dataclass
class Sources:
    """The files of some folders, without links, folders whose name begins with a dot, and third-party files.

    settings: (name, value) of texts that a workflow file passes to the agent, such as a word of its command.
    """

    folders: Sequence[Path]
    settings: Sequence[tuple[str, str]] = ()
    _files: list[SourceFile] | None = field(default=None, repr=False)

    @property
    def files(self) -> list[SourceFile]:
        if self._files is None:
            paths = dict.fromkeys(path for folder in self.folders for path in find_files(folder))
            read = [SourceFile(path, text) for path in paths if (text := read_source(path)) is not None]
            # A workflow file has the text only to match it.
            yaml = (".yaml", ".yml")
            self._files = [one for one in read if one.path.suffix not in yaml or not _OF_OURS.search(one.text)]
            self._files += [SourceFile(Path(name), text, is_setting=True) for name, text in self.settings]
        return self._files

    @cached_property
    def program(self) -> Program:
        """Return the program that consists of the files."""
        code = [file for file in self.files if file.path.suffix in _CODE and not file.is_setting]
        shell = [file.text for file in self.files if not file.is_setting and is_shell(file.path, file.text)]
        literals = (one.parts[0] for file in code for one in file.texts or () if len(one.parts) == 1)
        return Program.of(shell, (file.text for file in code), (text for text in literals if isinstance(text, str)))

    def find(self, match: str) -> list[Place]:
        """Return the places of the text that a slot replaces. Of nested places, the innermost."""
        template, words = Template(match.strip()), _longest_word(match)
        found: dict[tuple[SourceFile, int, int, tuple[int, int]], list[Callable[[str], str]]] = {}
        margins = set[tuple[SourceFile, int]]()
        for file in self.files:
            if words not in file.text:
                continue
            for passage in file.texts or ():
                if not any(words in part for part in passage.parts if isinstance(part, str)):
                    continue
                for reading in self.program.readings(passage):
                    if (way := way_to_write(reading, match, template)) is not None:
                        found.setdefault((file, passage.start, passage.end, passage.inner), []).append(way)
                        margins |= {(file, passage.start)} if without_margin(passage) is not None else set()
        places = [
            Place(file.path, file.line_of(start), start, end, inner, tuple(ways), (file, start) in margins)
            for (file, start, end, inner), ways in found.items()
        ]
        return [one for one in places if not any(_holds(one, other) for other in places)]

    def find_unwritable(self, match: str, any_case: bool = False) -> list[tuple[Path, int, str]]:
        """Return (path, line, why) for files that contain a text and cannot be written. any_case: ignore case."""
        lines = [line.strip() for part in HOLE.split(match)[::2] for line in part.splitlines()]
        wanted = [line for line in lines if len(line) >= _LINE] or [line for line in lines if line]
        found: list[tuple[Path, int, str]] = []
        for file in self.files if wanted else ():
            text = file.text.lower() if any_case else file.text
            lines = [line.lower() if any_case else line for line in wanted]
            forms = [(line, json.dumps(line)[1:-1], json.dumps(line, ensure_ascii=False)[1:-1]) for line in lines]
            if all(any(form in text for form in one) for one in forms):
                at = min(text.find(form) for form in forms[0] if form in text)
                why = describe_syntax(file.path) if file.texts is None else _COMPOSED
                found.append((file.path, file.line_of(at), why))
        return found


def _holds(one: Place, other: Place) -> bool:
    """Return True if a place contains another one."""
    spans = (one.start, one.end), (other.start, other.end)
    inside = one.start <= other.start and other.end <= one.end and spans[0] != spans[1]
    return one.path == other.path and (inside or (spans[0] == spans[1] and not any(one.inner) and any(other.inner)))


_COMPOSED = "its form there differs from the one that is sent"


def find_files(folder: Path, hidden_files: Collection[str] = ()) -> Iterator[Path]:
    """Yield the files of a folder that are the user's own source. hidden_files: names that may begin with a dot."""
    count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        for path in (Path(place, name) for name in sorted(names) if name in hidden_files or not _IGNORED.match(name)):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= _LARGEST:
                count += 1
                if count > _MAX:
                    return
                yield path


def _longest_word(match: str) -> str:
    return max(re.findall(r"[A-Za-z]+", HOLE.sub(" ", match)), key=len, default="")


def way_to_write(reading: Passage, match: str, template: Template) -> Callable[[str], str] | None:
    """Return a function that writes another text in place of one; None if the passage is another text.

    match: the text in the slot. template: of the same text, stripped.
    """
    for head, core, tail in cores(reading.parts):
        constants, groups = split(core)
        if constants != template.constants:
            continue
        named = dict(zip(template.names, groups, strict=True))
        if (_text(head), _text(tail)) == _space_around(match):  # the space around it is sent
            return lambda text: reading.write(new_parts(text, named))
        return lambda text: reading.write(compact([*head, *new_parts(text.strip(), named), *tail]))
    return None


def cores(parts: Sequence[Part]) -> Iterator[tuple[Sequence[Part], Sequence[Part], Sequence[Part]]]:
    """Yield (head, text, tail) of a passage, the space around it split off; then also without fields at its ends."""
    first = _trimmed(parts)
    yield first
    inner = list(first[1])
    head, tail = list(first[0]), list(first[2])
    while inner and isinstance(inner[0], Field):
        head.append(inner.pop(0))
    while inner and isinstance(inner[-1], Field):
        tail.insert(0, inner.pop())
    if len(inner) < len(first[1]) and inner:
        more = _trimmed(inner)
        yield [*head, *more[0]], more[1], [*more[2], *tail]


def _trimmed(parts: Sequence[Part]) -> tuple[Sequence[Part], Sequence[Part], Sequence[Part]]:
    inner = list(parts)
    head = tail = ""
    if inner and isinstance(inner[0], str):
        head = inner[0][: len(inner[0]) - len(inner[0].lstrip())]
        inner[0] = inner[0].lstrip()
    if inner and isinstance(inner[-1], str):
        tail = inner[-1][len(inner[-1].rstrip()) :]
        inner[-1] = inner[-1].rstrip()
    return compact([head]), compact(inner), compact([tail])


def _space_around(text: str) -> tuple[str, str]:
    if not text.strip():
        return text, ""
    return text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]


def _text(parts: Sequence[Part]) -> str:
    return "".join(part if isinstance(part, str) else "\0" for part in parts)


def new_parts(text: str, named: dict[str, tuple[Field, ...]]) -> tuple[Part, ...]:
    """Return the parts of a new text, with fields by the names of holes. As in `fill`, a missing field is appended, and
    an unknown hole is text. Raises CannotWrite."""
    words = HOLE.split(text)
    parts: list[Part] = []
    for place, word in enumerate(words):
        parts += [word] if place % 2 == 0 else named.get(word, [f"{{{{{word}}}}}"])
    for name, fields in named.items():
        if name not in words[1::2]:
            parts += ["\n", *fields]
    before = [one for fields in named.values() for one in fields if one.ordered]
    after = [part for part in parts if isinstance(part, Field) and part.ordered]
    if [*map(id, before)] != [*map(id, after)]:
        raise CannotWrite("its fields are filled by their places, which the new text changes")
    return compact(parts)
