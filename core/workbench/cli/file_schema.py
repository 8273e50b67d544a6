"""The JSON Schema of workflow files, with the settings of all installed node kinds and optimizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workbench.plugins import plugins
from workbench.spec import NODE_KEYS, LMSpec, Spec
from workbench.workflow import node_class

#: The settings to start with, by the class that has them. Docs and the schema mark all others as advanced.
BASICS: dict[str, list[str]] = json.loads(Path(__file__).with_name("basics.json").read_text(encoding="utf-8"))

_NODE_KEYS: dict[str, Any] = {
    "needs": {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        "description": "nodes that must finish first",
    },
    "optional": {"type": "boolean", "description": "if this node fails, the run continues without its fields"},
    "enabled": {"type": "boolean", "description": "whether the node runs"},
}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of workflow files (draft 2020-12), for editors and validators."""
    schema = Spec.model_json_schema(by_alias=True, ref_template="#/$defs/{model}")
    definitions = schema["$defs"]
    kinds = []
    for kind in plugins().names("node_kinds"):
        definitions[f"node_{kind}"] = _node_schema(kind, definitions)
        kinds.append({"$ref": f"#/$defs/node_{kind}"})
    properties = schema["properties"]
    properties["nodes"]["additionalProperties"] = {"anyOf": kinds}
    lm = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/LMSpec"}], "description": LMSpec.__doc__}
    properties["lm"] = lm
    roles = dict.fromkeys(("proposer", "judge", "teacher", "user"), lm)
    properties["roles"] = {"type": "object", "properties": roles, "additionalProperties": False}
    properties["optimize"] = _optimize_schema(definitions)
    domain = {"$ref": "#/$defs/DomainSpec"}
    short = [{"type": "array", "minItems": 1}, {"const": "optional"}]
    properties["search"]["additionalProperties"] = {"anyOf": [*short, domain]}
    for slot in definitions["DomainSpec"]["properties"]["any_of"]["anyOf"]:
        if slot.get("type") == "object":
            slot["additionalProperties"] = {"anyOf": kinds}
    for name, one in {"": schema, **definitions}.items():
        _mark_advanced(name, one)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "workbench workflow file"}


def _mark_advanced(name: str, schema: dict[str, Any]) -> None:
    """Mark what nobody needs at first: optimizers and node kinds without basic settings, and the other settings of
    those that have some."""
    basic, properties = BASICS.get(schema.get("title", "")), schema.get("properties", {})
    if basic is None and name.startswith(("optimizer_", "node_")):
        schema["description"] = f"(advanced) {schema.get('description', '')}".strip()
    for key in (key for key in properties if basic is not None and key not in basic):
        marked = f"(advanced) {properties[key].get('description', '')}".strip()
        properties[key] = {**properties[key], "description": marked}  # a new one, as others may share it


def _node_schema(kind: str, definitions: dict[str, Any]) -> dict[str, Any]:
    cls = node_class(kind)
    schema = _inlined(cls.Config, definitions)
    properties = schema.get("properties", {})
    for name in (n for n, what in cls.learnable.items() if what == "functions"):
        properties[name] = _or_references(properties[name])
    required = [name for name in schema.get("required", []) if name != cls.primary]
    primary = properties.pop(cls.primary, {})
    extra = {key: _NODE_KEYS[key] for key in NODE_KEYS}
    return {
        "type": "object",
        "title": cls.Config.__name__,
        "description": (cls.__doc__ or "").strip().split("\n")[0],
        "properties": {kind: primary, **properties, **extra},
        "required": [kind, *required],
        "additionalProperties": False,
    }


def _or_references(functions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list of functions that also accepts references to other files (see `workbench.task`)."""
    text = {"type": "string", "description": "FILE#nodes.NAME: the functions of another workflow file"}
    items = {"anyOf": [text, functions["items"]]}
    return {
        **{k: v for k, v in functions.items() if k not in ("type", "items")},
        "anyOf": [text, {"type": "array", "items": items}],
    }


def _optimize_schema(definitions: dict[str, Any]) -> dict[str, Any]:
    choices: list[dict[str, Any]] = [{"enum": plugins().names("optimizers")}]
    for name in plugins().names("optimizers"):
        cls = plugins().get("optimizers", name)
        definitions[f"optimizer_{name}"] = _inlined(cls, definitions)
        reference = {"anyOf": [{"type": "null"}, {"$ref": f"#/$defs/optimizer_{name}"}]}
        choices.append(
            {"type": "object", "properties": {name: reference}, "required": [name], "additionalProperties": False}
        )
    one = {"anyOf": choices}
    return {"anyOf": [one, {"type": "array", "items": one}], "description": "optimizers, run in this order"}


def _inlined(model: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template="#/$defs/{model}")
    definitions.update(schema.pop("$defs", {}))
    return schema
