"""Descriptions of tools, and checks of calls against them: a subset of JSON Schema."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.errors import SpecError, suggest
from workbench.kit.acting import Tool, load_tools
from workbench.spec import Source, load_yaml

#: JSON Schema's names for the types in API documents.
TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "json": "object",
    "datetime": "string",
    "date": "string",
    "time": "string",
    "file": "string",
    "any": None,
}
_PYTHON: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


@dataclass(frozen=True)
class Api:
    """A tool: name, description, JSON Schema of its arguments, and an implementation, if any.

    source: Python that defines a function of the same name, for the sandbox. tool: the user's own callable. returns:
    JSON Schema of its result, if documented.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    source: str = ""
    tool: Tool | None = None
    returns: Mapping[str, Any] | None = None

    @property
    def runs(self) -> bool:
        """Return True if a call of it can be run."""
        return self.tool is not None or bool(self.source)

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.schema.get("properties") or {}

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "parameters": dict(self.schema)}


def load_apis(file: str | None, tools: list[str], base: Path, env: Mapping[str, str] | None = None) -> list[Api]:
    """Load all tools, with unique names; a callable replaces the description of the same name. Raises SpecError."""
    found = {api.name: api for api in (_read(base / file) if file else ())}
    for tool in load_tools(tools, base, env).values():
        documented = found.get(tool.name)
        api = Api(tool.name, tool.description, tool.schema, tool=tool)
        found[tool.name] = replace(documented, tool=tool) if documented else api
    if not found:
        raise SpecError(f"{file} describes no tool", path=("apis",))
    return list(found.values())


def _read(path: Path) -> list[Api]:
    try:
        text = path.read_text(encoding="utf-8")
        raw = json.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot read {path}: {error}", path=("apis",)) from None
    except json.JSONDecodeError as error:
        raise SpecError(f"{path} is not JSON: {error}", path=("apis",)) from None
    places, names = _places(text, path), list(raw) if isinstance(raw, dict) else []
    if isinstance(raw, dict):
        raw = [
            {"name": name, **(about if isinstance(about, dict) else {"description": about})}
            for name, about in raw.items()
        ]
    if not isinstance(raw, list):
        raise SpecError(
            f"{path} contains no tools",
            hint='Write {"NAME": {"description": ..., "parameters": {...}}}.',
            path=("apis",),
        )
    apis: list[Api] = []
    for place, entry in zip(names or range(len(raw)), raw, strict=True):
        try:
            api = _api(entry, path)
            if any(api.name == other.name for other in apis):
                raise _Wrong(f"a second tool is named '{api.name}'", hint="Rename or remove it.")
            apis.append(_checked(api))
        except _Wrong as error:
            if places is None:
                raise SpecError(f"{path}: {error.message}", hint=error.hint) from None
            raise places.locate(SpecError(error.message, hint=error.hint, path=(place,))) from None
    return apis


class Unknown:
    """A value that is known only when the calls run. It fits every schema."""


UNKNOWN = Unknown()


class _Wrong(SpecError):
    """An error in a tool, whose position in the file is not known yet."""


def _places(text: str, path: Path) -> Source | None:
    """The positions in the file; None if our YAML reader cannot read it. Raises SpecError for a duplicate key, of which
    the JSON reader would keep the last."""
    try:
        return load_yaml(text, str(path))
    except SpecError as error:
        if "a second time" in error.message:
            raise
        return None


def _checked(api: Api) -> Api:
    """Check a tool and return it. Raises _Wrong for a type unknown to JSON Schema, or a source without the function."""
    if unknown := next(_unknown(api.schema, "parameters"), None):
        raise _Wrong(
            f"'{api.name}': {unknown[0]} has the unknown type '{unknown[1]}'", hint=suggest(unknown[1], _PYTHON)
        )
    if api.source:
        try:
            made = {n.name for n in ast.parse(api.source).body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise _Wrong(f"'{api.name}': its source is not valid Python: {error}") from None
        if api.name not in made:
            raise _Wrong(f"'{api.name}': its source defines no function of that name", hint=suggest(api.name, made))
    return api


def _unknown(schema: Any, place: str) -> Iterator[tuple[str, str]]:
    """(place, type) of each type in a schema that is unknown to JSON Schema."""
    if not isinstance(schema, Mapping):
        return
    kinds = schema.get("type") or []
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind not in _PYTHON:
            yield place, str(kind)
    properties = schema.get("properties")
    for name, part in properties.items() if isinstance(properties, Mapping) else ():
        yield from _unknown(part, f"{place}.{name}")
    yield from _unknown(schema.get("items"), f"{place}.items")
    options = schema.get("anyOf")
    for option in options if isinstance(options, list) else ():
        yield from _unknown(option, place)


def _api(entry: Any, path: Path) -> Api:
    """A tool from an entry in our form, OpenAI's {"function": {...}}, or API-Bank's with `input_parameters`."""
    if isinstance(entry, Mapping) and isinstance(entry.get("function"), Mapping):
        entry = entry["function"]
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise SpecError(f"{path}: a tool has no name: {str(entry)[:100]}", path=("apis",))
    given = entry.get("parameters", entry.get("input_parameters", {})) or {}
    if isinstance(given, list):  # API-Bank's ["None"]
        given = {}
    if not isinstance(given, dict):
        raise SpecError(
            f"{path}: the parameters of {entry.get('name')} are not a JSON Schema: {str(given)[:60]}", path=("apis",)
        )
    schema = _schema(given if "properties" in given else {"properties": given, "required": list(given)})
    source, description = str(entry.get("source") or ""), str(entry.get("description") or "")
    return Api(entry["name"], description, schema, source, returns=_returns(entry))


def _returns(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema of the result: `returns`, `response`, or API-Bank's `output_parameters`; None if it is plain text."""
    given = next((entry[key] for key in ("returns", "response", "output_parameters") if entry.get(key)), None)
    if not isinstance(given, Mapping):
        return None
    whole = isinstance(given.get("type"), str | list) or "properties" in given or "anyOf" in given
    return _schema(given if whole else {"type": "object", "properties": given})


def _schema(schema: Any) -> Any:
    """A schema with its type names converted to JSON Schema's."""
    if not isinstance(schema, Mapping):
        return schema
    out = {k: v for k, v in schema.items() if k != "type"}
    kind = schema.get("type")
    if isinstance(kind, str):
        first = re.split(r"[^a-z]", kind.lower())[0]  # of `List[str]`, `float/int`, `list of dictionaries`
        kind = TYPES.get(first, kind)
    if kind is not None:
        out["type"] = kind
    for key in ("properties",):
        if isinstance(out.get(key), Mapping):
            out[key] = {name: _schema(part) for name, part in out[key].items()}
    if isinstance(out.get("items"), Mapping):
        out["items"] = _schema(out["items"])
    return out


def find_misfit(value: Any, schema: Any, place: str = "arguments") -> str | None:
    """The reason why a value does not fit a schema; None if it does.

    Supports type, enum, properties, required, items and anyOf. Arguments that are not in the schema are refused, as a
    call of the function would.
    """
    if not isinstance(schema, Mapping) or value is UNKNOWN:
        return None
    if isinstance(schema.get("anyOf"), list):
        reasons = [find_misfit(value, option, place) for option in schema["anyOf"]]
        return None if None in reasons else reasons[0]
    kinds = schema.get("type") or ("object" if "properties" in schema else [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        return f"{place} must be of type {' or '.join(kinds)}, not {json.dumps(value, default=str)[:60]}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{place} must be one of {schema['enum']}, not {json.dumps(value, default=str)[:60]}"
    if isinstance(value, Mapping) and isinstance(schema.get("properties"), Mapping):
        properties = schema["properties"]
        for name in schema.get("required") or ():
            if name not in value:
                return f"{place} lacks '{name}'"
        for name, part in value.items():
            if name not in properties:
                return f"{place} has an unknown '{name}'"
            if reason := find_misfit(part, properties[name], f"{place}.{name}"):
                return reason
    if isinstance(value, list) and "items" in schema:
        return next((r for i, v in enumerate(value) if (r := find_misfit(v, schema["items"], f"{place}[{i}]"))), None)
    return None


def _is(value: Any, kind: str) -> bool:
    if kind in ("integer", "number") and (isinstance(value, bool) or value in (math.inf, -math.inf)):
        return False  # 1e999 is not finite
    return isinstance(value, _PYTHON[kind]) if kind in _PYTHON else True
