"""pydantic's errors in our words, with a hint for each."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from workbench.errors import MAX_LISTED, SpecError, merge_errors, suggest
from workbench.spec.base import NODE_KEYS


def spec_error(error: ValidationError, model: type[BaseModel], prefix: tuple[str | int, ...] = ()) -> SpecError:
    """Convert pydantic's errors to one SpecError, unknown keys first. prefix: the path of the model in the file."""
    details = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    # An unknown key next to a missing one is usually a misspelling of it.
    mistyped = {e["loc"][:-1] for e in details if e["type"] == "extra_forbidden"}
    details = [e for e in details if e["type"] != "missing" or e["loc"][:-1] not in mistyped]
    details = [e for e in details if not _is_overruled(e, details)]
    found: dict[Any, SpecError] = {}
    for number, detail in enumerate(details):
        if len(found) == MAX_LISTED:
            found[next(iter(found))].omitted = len(details) - number
            break
        made = _complaint(detail, model, prefix)
        # Every member of a union reports its own error; the first one about a location is enough. But several keys may
        # be missing in one location.
        shared = len(made.path) - _steps_in_member(model, made.path[len(prefix) :])
        found.setdefault((made.path[:shared], made.message if detail["type"] == "missing" else ""), made)
    return merge_errors(found.values())


def _is_overruled(detail: Any, others: list[Any]) -> bool:
    """Return True if one member of a union rejects a mapping as no text or number, but another member accepts it as a
    mapping and reports an error inside it."""
    if not (_is_of_member(detail) and isinstance(detail["input"], Mapping)):
        return False
    place = detail["loc"][:-1]
    return any(e["loc"][: len(place)] == place and not (e["loc"][:-1] == place and _is_of_member(e)) for e in others)


def _is_of_member(detail: Any) -> bool:
    """Return True if a union's member rejects a value as no text or number. The location ends with its name."""
    loc = detail["loc"]
    return bool(loc) and detail["type"].startswith(_MEMBERS.get(loc[-1], "\0"))


def _complaint(detail: Any, model: type[BaseModel], prefix: tuple[str | int, ...]) -> SpecError:
    loc = detail["loc"][:-1] if _is_of_member(detail) else detail["loc"]
    path = prefix + tuple(part for part in loc if _in_file(part))
    name = ".".join(str(part) for part in path) or "the file"
    kind, given = detail["type"], detail.get("input")
    shown = repr(given) if len(repr(given)) <= 60 else repr(given)[:57] + "..."
    if kind == "extra_forbidden":
        place = detail["loc"][:-1]
        known = _fields_at(model, place)
        if prefix[:1] == ("nodes",) and len(prefix) == 2 and len(detail["loc"]) == 1:
            known = [*known, *NODE_KEYS]
        key = str(detail["loc"][-1])
        homes = [name for name in known if name != _WRITTEN and key in _fields_at(model, (*place, name))]
        hint = (
            f"`{key}` goes under {' or '.join(f'`{home}`' for home in homes)}: write "
            f"{' or '.join(f'{home}: {{{key}: ...}}' for home in homes)}."
            if 1 <= len(homes) <= 2
            else _MEANT.get(key) or suggest(key, known)
        )
        return SpecError(f"unknown key '{key}'", hint=hint, path=path)
    if kind == "missing":
        parent = path[:-1] if path and path[-1] == detail["loc"][-1] else path
        message = f"'{detail['loc'][-1]}' is missing" + (f" in {'.'.join(map(str, parent))}" if parent else "")
        return SpecError(message, hint=_example_of((*parent, detail["loc"][-1])), path=parent)
    message = detail["msg"].removeprefix("Value error, ")
    if kind == "value_error":
        return SpecError(f"{name}: {message}", path=path)
    return SpecError(f"{name}: {_plain(kind, detail)}, not {shown}", hint=_example_of(path), path=path)


#: What is meant by a key that must not be there, however alike another is.
_MEANT = {"api_key": "Export the key, and write the name of its variable: api_key_env: OPENAI_API_KEY."}

#: The section that only `optimize` writes.
_WRITTEN = "configurations"

_MEMBERS = {"str": "string_", "int": "int_", "float": "float_", "bool": "bool_"}


def _in_file(part: Any) -> bool:
    """Return True if a part of pydantic's loc is a key or index, not the name of a validator or of a union's member."""
    return isinstance(part, int) or not (part.startswith(("function-", "lax-or-", "constrained-")) or "[" in part)


def _plain(kind: str, detail: Any) -> str:
    words = {
        "string_type": "must be text",
        "int_type": "must be a whole number",
        "int_from_float": "must be a whole number",
        "float_type": "must be a number",
        "bool_type": "must be true or false",
        "dict_type": "must be a mapping (key: value)",
        "model_type": "must be a mapping (key: value)",
        "model_attributes_type": "must be a mapping (key: value)",
        "list_type": "must be a list",
        "too_long": f"must have at most {detail.get('ctx', {}).get('max_length')} items",
        "too_short": _too_short(detail),
        "literal_error": f"must be {detail.get('ctx', {}).get('expected', 'one of the known words')}",
    }
    if kind in words:
        return words[kind]
    message = detail["msg"]
    if message.startswith("Input should "):
        return f"must {message.removeprefix('Input should ')}"
    return message[0].lower() + message[1:]


def _too_short(detail: Any) -> str:
    least = detail.get("ctx", {}).get("min_length")
    return "must have at least one item" if least == 1 else f"must have at least {least} items"


_EXAMPLES = {
    "data": "Write e.g. data: {file: rows.jsonl, split: {train: 60, val: 60, test: 120}}.",
    "metric": "Write e.g. metric: exact_match(label).",
    "nodes": 'Write e.g. nodes: {answer: {predict: "question -> answer"}}.',
    **dict.fromkeys(("split", "train", "val", "test"), "Write e.g. split: {train: 60, val: 60, test: 120}."),
    "budget": "Write e.g. budget: {calls: 1000, usd: 1.00, minutes: 30}.",
    "search": "Write e.g. search: {nodes.answer.samples: {int: [1, 5]}}.",
    "optimize": "Write e.g. optimize: [{bootstrap: {max_demos: 8}}].",
    "lm": "Write e.g. lm: bundled/nano, or lm: {model: openai/NAME, api_base: http://127.0.0.1:8000/v1}.",
    "model": "Write e.g. lm: bundled/nano.",
    "seed": "Write a whole number, e.g. seed: 0.",
    "calls": "Write a whole number of calls, e.g. budget: {calls: 1000}.",
    "file": "Write the path of a .jsonl, .json, .csv or .parquet file.",
}


def _example_of(path: tuple[Any, ...]) -> str | None:
    """Return an example of the key at a path. Settings of nodes share some names, with other meanings."""
    if path[:1] == ("nodes",) and path[-1] not in ("nodes", "lm", "model"):
        return None
    return _EXAMPLES.get(str(path[-1])) if path else None


def _fields_at(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """Return the known keys at a location, found by walking the models along loc."""
    here: Any = model
    for part in loc:
        if isinstance(here, type) and issubclass(here, BaseModel):
            by_key = {(f.alias or n): f for n, f in here.model_fields.items()}
            if part not in by_key:
                continue
            here = by_key[part].annotation
        here = _item_type(here)
    if isinstance(here, type) and issubclass(here, BaseModel):
        return [f.alias or n for n, f in here.model_fields.items()]
    return []


def _steps_in_member(model: type[BaseModel], path: tuple[str | int, ...]) -> int:
    """Count the steps at the end of a path inside a union's member, which pydantic's loc names by its class."""
    here: Any = model
    for done, part in enumerate(path):
        if get_origin(here) in (Union, types.UnionType) and part in _class_names(here):
            return len(path) - done
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = next((f for n, f in here.model_fields.items() if part == (f.alias or n)), None)
            here = field.annotation if field is not None else None
        else:
            here = _item_type(here)
    return 0


def _class_names(union: Any) -> list[str]:
    return [cls.__name__ for cls in get_args(union) if isinstance(cls, type) and issubclass(cls, BaseModel)]


def _item_type(annotation: Any) -> Any:
    """Return the model inside Optional[...], list[...] or dict[..., ...], if there is one."""
    if get_origin(annotation) in (Union, types.UnionType, list, dict, Annotated):
        for argument in get_args(annotation):
            found = _item_type(argument)
            if isinstance(found, type) and issubclass(found, BaseModel):
                return found
    return annotation
