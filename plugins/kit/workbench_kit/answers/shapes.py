"""The form of a type, for models and readers of errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=256)
def object_shape(kind: Any) -> str:
    """Return the form of a type that has objects with named parts, as `{name: string, age?: integer}`; "" for
    others."""
    if kind in (str, int, float, bool, list, dict, Any):
        return ""
    schema = type_adapter(kind).json_schema()
    text = json.dumps(schema)
    return _shape(schema, schema.get("$defs", {}), 0) if '"properties"' in text else ""


def _shape(schema: Mapping[str, Any], known: Mapping[str, Any], depth: int) -> str:
    if "$ref" in schema:
        schema = {**known.get(str(schema["$ref"]).rpartition("/")[2], {}), **schema}
    if depth > 6:  # a type that contains itself
        return "..."
    if "properties" in schema:
        required = schema.get("required", ())
        parts = [
            f"{name}{'' if name in required else '?'}: {_shape(part, known, depth + 1)}"
            for name, part in schema["properties"].items()
        ]
        return f"{{{', '.join(parts)}}}"
    if "enum" in schema or "const" in schema:
        shown = " or ".join(json.dumps(v, ensure_ascii=False) for v in schema.get("enum", [schema.get("const")]))
    elif "anyOf" in schema:
        shown = " or ".join(_shape(part, known, depth + 1) for part in schema["anyOf"])
    elif schema.get("type") == "array":
        shown = f"[{_shape(schema.get('items', {}), known, depth + 1)}, ...]"
    else:
        shown = str(schema.get("format") or schema.get("type") or "anything")
    said = schema.get("description")
    return f"{shown} ({said})" if said else shown


@lru_cache(maxsize=256)
def type_adapter(annotation: Any) -> Any:
    """Return pydantic's reader and writer of a type."""
    from pydantic import TypeAdapter

    return TypeAdapter(annotation)
