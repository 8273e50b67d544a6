"""Tools as their documents describe them, and whether a call fits: a subset of JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.errors import SpecError
from workbench.tools import Tool, load_tool

#: Names of types in documents of APIs, as JSON Schema has them.
TYPES = {"str": "string", "int": "integer", "float": "number", "double": "number", "bool": "boolean", "list": "array",
         "tuple": "array", "dict": "object", "any": None}  # fmt: skip
_PYTHON: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list,
                           "object": dict, "null": type(None)}  # fmt: skip


@dataclass(frozen=True)
class Api:
    """A tool: name, description, JSON Schema of its arguments, and what runs it, if anything does.

    source: Python that defines a function of its name, for the sandbox. tool: the user's own callable.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    source: str = ""
    tool: Tool | None = None

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "parameters": dict(self.schema)}


def load_apis(file: str | None, tools: list[str], base: Path) -> list[Api]:
    """All tools, each name once; a callable takes the place of the document of its name. Raises SpecError."""
    found = {api.name: api for api in (_read(base / file) if file else ())}
    for address in tools:
        tool = load_tool(address, base)
        documented = found.get(tool.name)
        api = Api(tool.name, tool.description, tool.schema, tool=tool)
        found[tool.name] = replace(documented, tool=tool) if documented else api
    if not found:
        raise SpecError(f"{file} describes no tool", path=("apis",))
    return list(found.values())


def _read(path: Path) -> list[Api]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot read {path}: {error}", path=("apis",)) from None
    except json.JSONDecodeError as error:
        raise SpecError(f"{path} is no JSON: {error}", path=("apis",)) from None
    if isinstance(raw, dict):
        raw = [{"name": name, **(about if isinstance(about, dict) else {"description": about})} for name, about in raw.items()]  # fmt: skip
    if not isinstance(raw, list):
        raise SpecError(f"{path} holds no tools", hint='Write {"NAME": {"description": ..., "parameters": {...}}}.',
                        path=("apis",))  # fmt: skip
    return [_api(entry, path) for entry in raw]


def _api(entry: Any, path: Path) -> Api:
    """Forms that are met: ours, OpenAI's {"function": {...}}, API-Bank's `input_parameters`."""
    if isinstance(entry, Mapping) and isinstance(entry.get("function"), Mapping):
        entry = entry["function"]
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise SpecError(f"{path}: a tool has no name: {str(entry)[:100]}", path=("apis",))
    given = entry.get("parameters", entry.get("input_parameters", {})) or {}
    if isinstance(given, list):  # API-Bank's ["None"]
        given = {}
    if not isinstance(given, dict):
        raise SpecError(
            f"{path}: the parameters of {entry.get('name')} are no JSON Schema: {str(given)[:60]}", path=("apis",)
        )
    schema = _schema(given if "properties" in given else {"properties": given, "required": list(given)})
    return Api(entry["name"], str(entry.get("description") or ""), schema, str(entry.get("source") or ""))


def _schema(schema: Any) -> Any:
    """A schema with the names of types that JSON Schema knows."""
    if not isinstance(schema, Mapping):
        return schema
    out = {k: v for k, v in schema.items() if k != "type"}
    kind = schema.get("type")
    if isinstance(kind, str):
        kind = TYPES.get(kind.lower(), kind)
    if kind is not None:
        out["type"] = kind
    for key in ("properties",):
        if isinstance(out.get(key), Mapping):
            out[key] = {name: _schema(part) for name, part in out[key].items()}
    if isinstance(out.get("items"), Mapping):
        out["items"] = _schema(out["items"])
    return out


def misfit(value: Any, schema: Any, place: str = "arguments") -> str | None:
    """Why a value does not fit a schema; None if it does. Knows type, enum, properties, required, items and anyOf.

    Arguments that a schema does not name are refused, as calling the function would.
    """
    if not isinstance(schema, Mapping):
        return None
    if isinstance(schema.get("anyOf"), list):
        reasons = [misfit(value, option, place) for option in schema["anyOf"]]
        return None if None in reasons else reasons[0]
    kinds = schema.get("type") or ("object" if "properties" in schema else [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        return f"{place} must be of type {' or '.join(kinds)}, not {json.dumps(value)[:60]}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{place} must be one of {schema['enum']}, not {json.dumps(value)[:60]}"
    if isinstance(value, Mapping) and isinstance(schema.get("properties"), Mapping):
        properties = schema["properties"]
        for name in schema.get("required") or ():
            if name not in value:
                return f"{place} lacks '{name}'"
        for name, part in value.items():
            if name not in properties:
                return f"{place} has an unknown '{name}'"
            if reason := misfit(part, properties[name], f"{place}.{name}"):
                return reason
    if isinstance(value, list) and "items" in schema:
        return next((r for i, v in enumerate(value) if (r := misfit(v, schema["items"], f"{place}[{i}]"))), None)
    return None


def _is(value: Any, kind: str) -> bool:
    if kind in ("integer", "number") and isinstance(value, bool):
        return False
    return isinstance(value, _PYTHON[kind]) if kind in _PYTHON else True
