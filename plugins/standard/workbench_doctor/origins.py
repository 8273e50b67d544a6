"""The origins of a workflow file's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.spec import Setting, Spec, config_settings, environment_settings, load_spec


def find_origins(file: Path) -> list[Setting]:
    """List every top-level setting of a workflow file with the origin of its value. Raises SpecError."""
    spec, source = load_spec(file)
    outside = {s.address: s for s in environment_settings()}
    config = {s.address: s for s in config_settings()}
    found = []
    for name, field in Spec.model_fields.items():
        value: Any = getattr(spec, name)
        if name in source.value:
            origin = f"{source.file}:{source.position((name,))[0]}"
        elif name in config:
            value, origin = config[name].value, config[name].origin
        elif field.is_required():
            continue
        else:
            origin = "default"
        found.append(Setting(name, _short(value), origin))
    return found + list(outside.values())


def _short(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        value = value.model_dump(exclude_none=True, exclude_defaults=True, by_alias=True)
    elif isinstance(value, dict):
        value = {key: _short(item) for key, item in value.items()}
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
