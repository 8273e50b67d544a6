"""Values of other formats as JSON, for rows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.base.plain_values import plain_or_text
from workbench.base.type_guards import is_dict, is_list
from workbench.errors import NodeError

#: Called for each value without a form in JSON, which becomes null: its field (dotted if nested), the value, and the
#: fault.
Missing = Callable[[str, Any, str], None]


def as_json(value: Any, missing: Missing, field: str = "", feature: Any = None) -> Any:
    """Convert a value to JSON: times and dates to texts, numbers of labels to their names, images to data URIs.

    feature: a hub dataset's description of the value, as `datasets.Features.to_dict` writes it.
    """
    kind = feature.get("_type") if is_dict(feature) else None
    if isinstance(value, list | tuple):
        if value and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):  # a map of Arrow's
            return as_json(dict(value), missing, field)
        return [as_json(item, missing, field, _inside(feature)) for item in value]
    if isinstance(value, Mapping):
        if kind == "Image":
            return as_json(value.get("path") if value.get("bytes") is None else value["bytes"], missing, field)
        inner = _inside(feature)
        known = inner if is_dict(inner) else {}
        return {
            str(k): as_json(v, missing, f"{field}.{k}" if field else str(k), known.get(k)) for k, v in value.items()
        }
    if value is None:
        return None
    if kind == "ClassLabel":
        return _label(value, feature, missing, field)
    if kind == "Json" and isinstance(value, str):
        return as_json(json.loads(value), missing, field)
    return _scalar(value, missing, field)


def _inside(feature: Any) -> Any:
    """Return the type of a list's items, also for a list of objects that Arrow has made an object of lists."""
    if is_list(feature):
        return feature[0] if feature else None
    return feature["feature"] if is_dict(feature) and "_type" in feature and "feature" in feature else feature


def _label(value: Any, feature: Mapping[str, Any], missing: Missing, field: str) -> Any:
    names = feature.get("names")
    if not is_list(names) or not isinstance(value, int):
        return value
    if 0 <= value < len(names):
        return names[value]
    missing(field, value, f"has no label: {value} is none of the {len(names)} in its dataset")
    return None


def _scalar(value: Any, missing: Missing, field: str) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        missing(field, value, "is not a finite number")
        return None
    if isinstance(value, str | int):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return _content(bytes(value), missing, field)
    found = plain_or_text(value)
    return as_json(found, missing, field) if is_list(found) or isinstance(found, float) else found


def _content(value: bytes, missing: Missing, field: str) -> str | None:
    """Return bytes as a text, or as the data URI of an image."""
    from workbench_kit.prompting import image_url

    try:
        return value.decode()
    except UnicodeDecodeError:
        try:
            return image_url(value, Path(), field)
        except NodeError:
            missing(field, value, "is neither a text nor an image")
            return None
