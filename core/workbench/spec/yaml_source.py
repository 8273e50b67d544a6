"""A strict YAML reader that keeps the position of everything, so that errors can name line and column.

It reads the part of YAML 1.2 that a workflow file needs. Everything else is refused while the parser's events are read,
without recursion and before any value is built, so that a hostile file costs neither time nor memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench.errors import SpecError
from workbench.spec.doors import enter_text

MAX_BYTES = 1_000_000
MAX_DEPTH = 40
_TOO_DEEP, _LESS_DEEP = f"more than {MAX_DEPTH} levels of nesting", "Nest less deeply."
MAX_DIGITS = 18
Path_ = tuple[str | int, ...]
Place = tuple[int, int]
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z")
_BAD_CHAR = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufeff\ufffe\uffff\ud800-\udfff]")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}


@dataclass(frozen=True)
class Source:
    """A parsed file: its value (plain values only), its text, and the position of everything in it.

    Paths are tuples of keys and list indexes. partial: made in Python, and possibly without settings that flags add.
    """

    value: Any
    file: str
    text: str
    partial: bool = field(default=False, kw_only=True)
    _places: dict[Path_, Place] = field(default_factory=dict[Path_, Place], repr=False)
    _origins: dict[Path_, str] = field(default_factory=dict[Path_, str], repr=False)

    def has(self, path: Path_) -> bool:
        """Return True if the file itself has something at a path."""
        return path in self._places

    def position(self, path: Path_) -> Place:
        """Return (line, column), from 1, of a key or a list's item, or of its nearest ancestor if the file has none."""
        while path and path not in self._places:
            path = path[:-1]
        return self._places.get(path, (1, 1))

    def locate(self, error: SpecError) -> SpecError:
        """Fill in file, line and column of an error from its path, and of each error in its `more`. Returns the error.

        An error that already names a file keeps it. If a flag or the environment set the value, that is named instead
        of a line.
        """
        for one in (error, *error.more):
            if one.file is not None:
                continue
            one.file = self._origin(one.path)
            if one.file and one.file.endswith(address := ".".join(map(str, one.path))):  # an origin names its address
                one.message = one.message.removeprefix(f"{address}: ")
            if one.file is None:
                one.file = self.file
                one.line, one.column = self.position(one.path)
        return error

    @contextmanager
    def locating(self) -> Generator[None]:
        """Locate every SpecError raised in the block (see `locate`)."""
        try:
            yield
        except SpecError as error:
            self.locate(error)
            raise

    def _origin(self, path: Path_) -> str | None:
        """Return the flag or variable that set the value at a path, if it does not come from the file."""
        for place, origin in self._origins.items():
            if path[: len(place)] == place or (path and place[: len(path)] == path and not self.has(path)):
                return origin
        return None

    def with_value(self, value: Any, origins: dict[Path_, str] | None = None) -> Source:
        """Return the same file with outer settings in its value. origins: by path, where the settings came from."""
        return replace(self, value=value, _origins=origins or {})


def reads_as_text(text: str) -> bool:
    """Return True if an unquoted text is read as text again, as far as numbers and words go. 12e34567 is not."""
    return text not in _WORDS and not any(form.match(text) for form in (_INT, _FLOAT, _NOT_FINITE))


def read_source(file: str | Path | Source) -> Source:
    """Read a file, or return one that was already read. Raises SpecError."""
    return file if isinstance(file, Source) else load_yaml_file(file)


def load_yaml_file(path: str | Path) -> Source:
    """Read and parse a file. Raises SpecError, also if the file is missing, too large, or not UTF-8."""
    path = Path(path)
    try:
        if path.is_fifo() and not path.is_relative_to("/dev"):  # a shell's <(...) is /dev/fd/N
            raise SpecError(f"{path} is a pipe, which may never end", hint="Give the path of a YAML file.")
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.glob("*.y*ml"))[:8] if path.parent.is_dir() else []
        hint = f"YAML files there: {', '.join(near)}." if near else "Start one with: workbench init"
        raise SpecError(f"there is no file {path}", hint=hint) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"cannot read {path}: {reason}", hint="Give the path of a YAML file.") from None
    if len(raw) > MAX_BYTES:
        raise _too_large(str(path))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _place(raw.decode("utf-8-sig", "replace"), len(raw[: error.start].decode("utf-8-sig")))
        raise SpecError(
            "the file is not UTF-8", file=str(path), line=line, column=column, hint="Save it as UTF-8."
        ) from None
    enter_text(path, text.removeprefix("\ufeff").encode())
    return load_yaml(text, str(path))


def load_yaml(text: str, file: str) -> Source:
    """Parse a workflow file's text. Raises SpecError with line, column and a hint."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _too_large(file)
    text = text.removeprefix("\ufeff")
    bad = _BAD_CHAR.search(text)
    if bad:
        line, column = _place(text, bad.start())
        raise SpecError(
            f"control character U+{ord(bad[0]):04X}",
            file=file,
            line=line,
            column=column,
            hint='Remove it, or write it as an escape in double quotes, such as "\\x1b".',
        )
    return _Builder(file).build(text)


def _too_large(file: str) -> SpecError:
    return SpecError(
        f"the file is larger than {MAX_BYTES:,} bytes",
        file=file,
        line=1,
        column=1,
        hint="Keep data in files of their own and name them under 'data:'.",
    )


def _place(text: str, index: int) -> Place:
    """Return line and column of a character, from 1 as YAML counts lines."""
    before = re.sub("\r\n?", "\n", text[:index])
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


class _Frame:
    """A mapping or list that is being filled."""

    __slots__ = ("container", "path", "key")

    def __init__(self, container: dict[str, Any] | list[Any], path: Path_):
        self.container, self.path = container, path
        self.key: str | None = None


class _Builder:
    """Builds values from parser events, without recursion."""

    def __init__(self, file: str):
        self.file = file
        self.places: dict[Path_, Place] = {}
        self.stack: list[_Frame] = []
        self.root: Any = None
        self.documents = 0

    def build(self, text: str) -> Source:
        import yaml

        for event in self._events(text, yaml):
            if isinstance(event, yaml.DocumentStartEvent):
                self._document(event)
            elif isinstance(event, yaml.AliasEvent):
                raise self._error(event, "anchors and aliases are not allowed", "Write the value out in both places.")
            elif isinstance(event, yaml.NodeEvent):
                self._node(event, yaml)
            elif isinstance(event, yaml.CollectionEndEvent):
                self.stack.pop()
        if not self.documents:
            raise SpecError(
                "the file is empty", file=self.file, line=1, column=1, hint="Start one with: workbench init"
            )
        return Source(self.root, self.file, text, self.places)

    def _events(self, text: str, yaml: Any) -> Iterator[Any]:
        """Yield PyYAML's events. Its errors become SpecErrors."""
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            yield from yaml.parse(text, Loader=loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            raise self._scan_error(text, error, line, column) from None
        except (yaml.YAMLError, RecursionError) as error:
            message = f"this is not YAML: {str(error)[:200]}"
            raise SpecError(message, file=self.file, line=1, column=1, hint="Check the file's first lines.") from None

    def _scan_error(self, text: str, error: Any, line: int, column: int) -> SpecError:
        problem = error.problem or str(error)
        lines = re.split("\r\n|\r|\n", text)
        row = lines[line - 1] if line <= len(lines) else ""
        indent = row[: len(row) - len(row.lstrip())]
        if "nesting" in problem:  # libyaml's own limit, reached while it looks ahead
            return SpecError(_TOO_DEEP, file=self.file, line=line, column=column, hint=_LESS_DEEP)
        hint = "Check quotes, brackets and indentation here and in the line before."
        if "\t" in indent or row[column - 1 : column] == "\t":
            problem, hint = "tabs cannot be used for indentation", "Indent with spaces."
        elif "mapping values are not allowed" in problem:
            hint = "Put a text that contains ': ' in quotes, or start a new line for a new key."
        elif "cannot start any token" in problem:
            hint = "Put the text in quotes."
        elif "undefined tag handle" in problem or "tag" in problem:
            hint = "Write the plain value; put a text that starts with '!' in quotes."
        elif "%" in row[:1]:
            hint = "Remove the directive."
        return SpecError(f"this is not YAML: {problem}", file=self.file, line=line, column=column, hint=hint)

    def _document(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            raise self._error(event, "a second document starts here", "Keep one document in a file: remove '---'.")

    def _error(self, event: Any, message: str, hint: str) -> SpecError:
        mark = event.start_mark
        return SpecError(message, file=self.file, line=mark.line + 1, column=mark.column + 1, hint=hint)

    def _node(self, event: Any, yaml: Any) -> None:
        """Process a scalar, or the start of a mapping or list: a key or value of the open container."""
        if event.anchor is not None:
            hint = "Write the value out in both places."
            raise self._error(event, "anchors and aliases are not allowed", hint)
        if event.tag not in (None, "!"):
            hint = "Write the plain value; put a text that starts with '!' in quotes."
            raise self._error(event, f"the tag '{event.tag[:60]}' is not allowed", hint)
        scalar = isinstance(event, yaml.ScalarEvent)
        frame = self.stack[-1] if self.stack else None
        if frame is None and not isinstance(event, yaml.MappingStartEvent):
            if scalar and event.value == "" and not event.style:
                raise self._error(event, "the file is empty", "Start one with: workbench init")
            raise self._error(event, "the file must be a mapping (key: value)", "Write e.g. name: my-workflow.")
        if frame is not None and isinstance(frame.container, dict) and frame.key is None:
            self._key(event, frame, scalar)
        elif scalar:
            self._add(event, self._scalar(event), frame)
        else:
            self._open(event, {} if isinstance(event, yaml.MappingStartEvent) else [], frame)

    def _key(self, event: Any, frame: _Frame, scalar: bool) -> None:
        if not scalar:
            raise self._error(event, "a key must be a text, not a mapping or a list", "Write key: value.")
        key = event.value  # `true:` and `1:` are the texts "true" and "1", as needed for the cases of a branch
        if key == "<<" and not event.style:
            raise self._error(event, "merge keys (<<) are not allowed", "Write the entries out.")
        path = (*frame.path, key)
        if path in self.places:
            message = f"the key '{key[:60]}' occurs here a second time; the first is in line {self.places[path][0]}"
            raise self._error(event, message, "Remove one of them.")
        frame.key = key
        self.places[path] = (event.start_mark.line + 1, event.start_mark.column + 1)

    def _add(self, event: Any, value: Any, frame: _Frame | None) -> Path_:
        """Put a value into the open mapping or list. Its position is that of its key, if it has one."""
        path: Path_ = ()
        if frame is None:
            self.root = value
        elif isinstance(frame.container, list):
            path = (*frame.path, len(frame.container))
            frame.container.append(value)
        else:
            assert frame.key is not None
            path = (*frame.path, frame.key)
            frame.container[frame.key] = value
            frame.key = None
        self.places.setdefault(path, (event.start_mark.line + 1, event.start_mark.column + 1))
        return path

    def _open(self, event: Any, container: dict[str, Any] | list[Any], frame: _Frame | None) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise self._error(event, _TOO_DEEP, _LESS_DEEP)
        self.stack.append(_Frame(container, self._add(event, container, frame)))

    def _value_error(self, event: Any, message: str, hint: str) -> SpecError:
        """Make an error about a value, located at its key like errors of the spec's checks."""
        frame = self.stack[-1] if self.stack else None
        if frame is None or frame.key is None:
            return self._error(event, message, hint)
        line, column = self.places[(*frame.path, frame.key)]
        return SpecError(message, file=self.file, line=line, column=column, hint=hint)

    def _scalar(self, event: Any) -> Any:
        """Return the value of a scalar. Plain ones follow YAML 1.2 (010 is a text); others are texts."""
        text = event.value
        if event.style:  # plain scalars: None, or "" from the C parser
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INT.match(text):
            digits = len(text.lstrip("+-"))
            if digits > MAX_DIGITS:
                hint = f"Use at most {MAX_DIGITS} digits, or quotes if it is a text."
                raise self._value_error(event, f"a number of {digits:,} digits", hint)
            return int(text)
        if _FLOAT.match(text):
            number = float(text)
            if math.isfinite(number):
                return number
        elif not _NOT_FINITE.match(text):
            return text
        raise self._value_error(
            event, f"'{text[:60]}' is not a usable number", "Write a finite number, or put a text in quotes."
        )
