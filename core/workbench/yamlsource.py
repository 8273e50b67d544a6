"""YAML with positions: plain values, and for each of them its line and column. Everything unsafe or odd is refused.

Only true and false are booleans (`no` stays text), numbers are decimal, and there are no aliases, tags or dates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from workbench.errors import SpecError

MAX_BYTES = 1_000_000
MAX_DEPTH = 40
MAX_DIGITS = 18

Path_ = tuple[str | int, ...]

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_ODD = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True)
class Source:
    """A parsed file: its value, its text, and where everything stands."""

    value: Any
    file: str
    text: str
    _keys: dict[Path_, tuple[int, int]] = field(default_factory=dict)
    _values: dict[Path_, tuple[int, int]] = field(default_factory=dict)

    def has(self, path: Path_) -> bool:
        """Whether the file itself has this place."""
        return path in self._values

    def position(self, path: Path_, of: str = "key") -> tuple[int, int]:
        """(line, column), from 1, of the key (or, of="value", of the value); of the nearest ancestor if need be."""
        table = self._values if of == "value" else self._keys
        for end in range(len(path), -1, -1):
            if path[:end] in table:
                return table[path[:end]]
        return (1, 1)

    def error(self, path: Path_, message: str, hint: str | None = None) -> SpecError:
        """A SpecError at a place in this file."""
        line, column = self.position(path)
        return SpecError(message, file=self.file, line=line, column=column, hint=hint, path=path)

    def with_value(self, value: Any) -> Source:
        """The same file with settings from outside put into its value."""
        return replace(self, value=value)


def load_yaml_file(path: Path) -> Source:
    """Read a file. Raises SpecError if it is missing, too large, or not UTF-8."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.glob("*.y*ml"))[:8] if path.parent.is_dir() else []
        hint = f"YAML files there: {', '.join(near)}." if near else "Start one with: workbench init"
        raise SpecError(f"there is no file {path}", hint=hint) from None
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise SpecError(f"the file has {len(data):,} bytes, at most {MAX_BYTES:,} are read", file=str(path), line=1,
                        column=1, hint="Put data into a file of its own and name it under data:.")  # fmt: skip
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise SpecError("the file is not UTF-8", file=str(path), line=line, column=column,
                        hint="Save it as UTF-8.") from None  # fmt: skip
    return load_yaml(text, str(path))


def load_yaml(text: str, file: str) -> Source:
    """Parse YAML. Raises SpecError with line and column for everything that is refused."""
    if len(text) > MAX_BYTES:
        raise SpecError("the text is too large", file=file, line=1, column=1)
    bad = _CONTROL.search(text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        raise SpecError(f"control character U+{ord(bad.group()):04X}", file=file, line=line,
                        column=bad.start() - text.rfind("\n", 0, bad.start()), hint="Remove it.")  # fmt: skip
    try:
        _check_events(text, file)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, file) from None
    except yaml.YAMLError as error:
        raise SpecError(f"this is not YAML: {error}", file=file, line=1, column=1) from None
    if node is None:
        raise SpecError("the file is empty", file=file, line=1, column=1,
                        hint="Start one with: workbench init")  # fmt: skip
    source = Source(None, file, text)
    value = _build(node, (), source)
    if not isinstance(value, dict):
        raise SpecError("the file must be a mapping (key: value)", file=file, line=1, column=1,
                        hint="Write e.g. name: my-workflow.")  # fmt: skip
    return replace(source, value=value)


def _check_events(text: str, file: str) -> None:
    """Refuse what must not reach the recursive composer: aliases, tags, depth, several documents."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = documents = 0
    for event in yaml.parse(text, Loader=loader):
        at = {"file": file, "line": event.start_mark.line + 1, "column": event.start_mark.column + 1}
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise SpecError("anchors and aliases are not allowed", **at, hint="Write the value out in both places.")
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            if event.tag is not None and event.tag != "!":
                raise SpecError(f"the tag '{event.tag}' is not allowed", **at, hint="Write the plain value.")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise SpecError(f"more than {MAX_DEPTH} levels of nesting", **at, hint="Nest less deeply.")
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise SpecError("a second document begins here", **at, hint="Put each workflow into its own file.")


def _syntax_error(error: yaml.MarkedYAMLError, file: str) -> SpecError:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    problem = error.problem or "not YAML"
    hint = "Check quotes, brackets and indentation around here."
    if "\\t" in problem or "'\t'" in problem:
        problem, hint = "a tab is used for indentation", "Indent with spaces."
    elif "mapping values are not allowed" in problem:
        hint = "Put texts that contain ': ' into quotes."
    return SpecError(f"this is not YAML: {problem}", file=file, line=line, column=column, hint=hint)


def _build(node: yaml.Node, path: Path_, source: Source) -> Any:
    place = (node.start_mark.line + 1, node.start_mark.column + 1)
    source._values[path] = place
    source._keys.setdefault(path, place)
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, path, source)
    if isinstance(node, yaml.SequenceNode):
        return [_build(child, (*path, i), source) for i, child in enumerate(node.value)]
    values: dict[str, Any] = {}
    first: dict[str, int] = {}
    for key_node, child in node.value:
        line, column = key_node.start_mark.line + 1, key_node.start_mark.column + 1
        at = {"file": source.file, "line": line, "column": column}
        if not isinstance(key_node, yaml.ScalarNode):
            raise SpecError("a key must be a plain word", **at, hint="Write key: value.")
        key = key_node.value
        if key == "<<" and key_node.style is None:
            raise SpecError("merge keys (<<) are not allowed", **at, hint="Write the settings out.")
        if key in values:
            raise SpecError(f"the key '{key}' stands here a second time; the first is in line {first[key]}", **at,
                            hint="Remove one of them.")  # fmt: skip
        first[key] = line
        source._keys[(*path, key)] = (line, column)
        values[key] = _build(child, (*path, key), source)
    return values


def _scalar(node: yaml.ScalarNode, path: Path_, source: Source) -> Any:
    """A plain scalar as YAML 1.2's core schema reads it; anything quoted is text."""
    text = node.value
    if node.style is not None:
        return text
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE"):
        return True
    if text in ("false", "False", "FALSE"):
        return False
    if _INT.fullmatch(text):
        if len(text.lstrip("+-")) > MAX_DIGITS:
            raise source.error(path, f"a number of {len(text)} digits", f"Use at most {MAX_DIGITS} digits, or quotes.")
        return int(text)
    if _ODD.fullmatch(text):
        raise source.error(path, f"'{text}' is not a usable number", "Write a finite number.")
    if _FLOAT.fullmatch(text) and re.search(r"[.eE]", text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise source.error(path, f"'{text}' is too large", "Write a finite number.")
        return value
    return text
