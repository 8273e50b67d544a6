"""JSON Schemas of a tool's arguments: their one-line form, their defaults, and values that fit them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from workbench.base.type_guards import is_dict, is_list

Schema = Mapping[str, Any]

#: Maximum depth of nested objects in a description.
_DEEPEST = 4
#: Maximum number of characters of an argument's type.
_LONGEST = 4000
#: Maximum number of an enumeration's values in a description.
_MAX_VALUES = 30
_NUMBER = re.compile(r"[+-]?(\d+)(\.\d+)?([eE][+-]?\d+)?")


def schema_defaults(schema: Schema) -> dict[str, Any]:
    """Return the default values in a JSON Schema of arguments."""
    properties = schema.get("properties", {})
    return {name: p["default"] for name, p in properties.items() if isinstance(p, Mapping) and "default" in p}


def as_parameters(schema: Schema) -> dict[str, Any]:
    """Return the schema in the form of function calling: an object with its properties."""
    return {"type": "object", "properties": {}, **schema}


def told_arguments(schema: Schema, hidden: Collection[str] = ()) -> dict[str, Any]:
    """Describe the arguments without the hidden ones, each by its type; `...` stands for any other argument."""
    properties = schema.get("properties", {})
    told = {name: _told_argument(one, schema) for name, one in properties.items() if name not in hidden}
    return {**told, **({"...": "any"} if schema.get("additionalProperties") else {})}


def _told_argument(schema: Any, root: Schema) -> Any:
    """Describe an argument: its type and, if that is a word, the schema's description.

    The depth is limited by length: types that contain themselves or each other would fill a prompt.
    """
    told = _told_type(schema, root, 0)
    for depth in range(1, _DEEPEST + 1):
        deeper = _told_type(schema, root, depth)
        if len(json.dumps(deeper, ensure_ascii=False)) > _LONGEST:
            break
        told = deeper
    about = " ".join(str(schema.get("description", "")).split()) if is_dict(schema) else ""
    return f"{told}, {about}" if about and isinstance(told, str) else told


def _told_type(schema: Any, root: Schema, depth: int) -> Any:
    """Describe a type as a word, an object by its parts and a list by its items, down to a depth."""
    if not is_dict(schema) or depth < 0:
        return "any"
    schema = _referred(schema, root)
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if is_list(values := schema.get("enum")):
        return " or ".join(json.dumps(value, ensure_ascii=False) for value in values[:_MAX_VALUES])
    for key in ("anyOf", "oneOf"):
        if is_list(ways := schema.get(key)):
            told = [_told_type(way, root, depth - 1) for way in ways]
            return " or ".join(t if isinstance(t, str) else json.dumps(t, ensure_ascii=False) for t in told)
    if is_dict(parts := schema.get("properties")):
        return {name: _told_type(part, root, depth - 1) for name, part in parts.items()}
    if is_dict(items := schema.get("items")):
        return [_told_type(items, root, depth - 1)]
    kind = schema.get("type", "any")
    return " or ".join(map(str, kind)) if is_list(kind) else str(kind)


def _referred(schema: Mapping[str, Any], root: Schema) -> Mapping[str, Any]:
    """Resolve a schema's reference from the root; return the schema itself if it has none."""
    for _ in range(_DEEPEST):
        found: Any = root
        parts = str(schema.get("$ref", "")).removeprefix("#/").split("/")
        for part in parts if "$ref" in schema else ():
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if is_dict(found) else None
        if "$ref" not in schema or not is_dict(found):
            break
        schema = found
    return schema


def fit_values(schema: Schema, values: Mapping[str, Any]) -> dict[str, Any]:
    """Parse numbers and truth values that are given as texts, if the schema allows no text.

    Values that do not fit are returned unchanged; the callee reports what is wrong with them.
    """
    properties = schema.get("properties")
    known = properties if is_dict(properties) else {}
    return {
        name: _fitting(value, _referred(known[name], schema)) if is_dict(known.get(name)) else value
        for name, value in values.items()
    }


def _fitting(value: Any, schema: Schema) -> Any:
    if not isinstance(value, str):
        return value
    ways = schema.get("anyOf") or schema.get("oneOf") or [schema]
    listed: Sequence[Any] = [way.get("type") for way in ways if is_dict(way)]
    kinds = {kind for found in listed for kind in (found if is_list(found) else [found])}
    if kinds & {"string", None}:
        return value
    text = value.strip()
    if kinds & {"integer", "number"} and (number := _NUMBER.fullmatch(text)):
        if number[2] is None and number[3] is None:
            return int(text) if len(text) < 1000 else value
        return float(text) if "number" in kinds else value
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kinds & {"object", "array"} and text[:1] in ("{", "["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return value
        return found if {dict: "object", list: "array"}[type(found)] in kinds else value
    return value
