"""Tables of the parameters of pydantic models, for docs/reference and the plugins' READMEs."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from workbench.plugins import plugins
from workbench.workflow import node_class


def bundled(kind: str) -> list[str]:
    return plugins().names(kind)


def fields(model: Any) -> str:
    """A table of a pydantic model's fields, those of models inside it too: `schedule.steps`, `rewards[].kind`."""
    return _table(_rows(model))


def fields_apart(models: Mapping[str, Any]) -> tuple[dict[str, str], dict[tuple[str, ...], str]]:
    """Tables of the fields of several models, each field once: those of one model alone by its name, and those that
    several have by their names. A model that several fields hold is written out at the first."""
    held: dict[str, list[str]] = {}
    for name, model in models.items():
        for row in _rows(model, shown=set()):
            held.setdefault(row, []).append(name)
    owners = dict.fromkeys(tuple(names) for names in held.values())
    tables = {of: _table(row for row, names in held.items() if tuple(names) == of) for of in owners}
    return {of[0]: table for of, table in tables.items() if len(of) == 1}, {
        of: table for of, table in tables.items() if len(of) > 1
    }


def _table(rows: Iterable[str]) -> str:
    return "\n".join(["| key | type | default | what it is |", "| --- | --- | --- | --- |", *rows]) + "\n"


def _rows(model: Any, prefix: str = "", inside: tuple[Any, ...] = (), shown: set[Any] | None = None) -> Iterator[str]:
    """shown: models that are not written out again, to which those found are added; None: each is, where it is held."""
    for name, field in model.model_fields.items():
        kind = str(inspect.formatannotation(field.annotation)).replace("typing.", "").replace("|", "or")
        kind = re.sub(r"Annotated\[(.+?), FieldInfo\(.*?\)\]\)\]", r"\1", kind)
        default = "required" if field.is_required() else _default(field)
        text = (field.description or "").replace("|", "\\|")
        key = f"{prefix}{field.alias or name}"
        yield f"| `{key}` | {_short_type(kind)} | {default} | {text} |"
        for inner, mark in _models(field.annotation):
            if inner not in (model, *inside, *(shown or ())) and not _told_elsewhere(inner):
                if shown is not None:
                    shown.add(inner)
                yield from _rows(inner, f"{key}{mark}.", (*inside, model), shown)


def _told_elsewhere(model: Any) -> bool:
    """Whether a model is core's, which has pages of its own; those of the kit are parts of plugins' settings."""
    return model.__module__.startswith("workbench.") and not model.__module__.startswith("workbench.kit.")


def _models(kind: Any, mark: str = "") -> Iterator[tuple[Any, str]]:
    """The models in a type, and what their keys bear before them in a list ([]) or in a mapping (.NAME)."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind, mark
    origin = get_origin(kind)
    step = "[]" if origin in (list, tuple, Sequence) else ".NAME" if origin in (dict, Mapping) else ""
    for part in get_args(kind):
        yield from _models(part, mark + step)


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    return f"`{json.dumps(_plain(value), ensure_ascii=False, default=str)}`"


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items()}
    return (
        value.model_dump(exclude_none=True, exclude_defaults=True, by_alias=True)
        if isinstance(value, BaseModel)
        else value
    )


def _short_type(text: str) -> str:
    return re.sub(r"\b(?:workbench\w*|collections)(?:\.\w+)*\.(\w+)", r"\1", text)


_TABLE = re.compile(r"<!-- parameters of (node )?(\w+(?: \w+)*) -->\n.*?<!-- end of parameters -->", re.DOTALL)


def with_parameters(path: Path) -> str:
    """A README with the table between each pair of marks filled from the optimizers or the node kind that they name.

    A model that several fields hold is written out where the page names it first.
    """
    shown = set[Any]()

    def fill(match: re.Match[str]) -> str:
        node, names = match.groups()
        found = {}
        for name in names.split():
            optimizer = not node and name in bundled("optimizers")
            found[name] = plugins().get("optimizers", name) if optimizer else node_class(name).Config
        table = parameters(next(iter(found.values())), shown) if len(found) == 1 else shared_parameters(found)
        return f"<!-- parameters of {node or ''}{names} -->\n{table}\n<!-- end of parameters -->"

    return _TABLE.sub(fill, path.read_text(encoding="utf-8"))


def parameters(model: Any, shown: set[Any]) -> str:
    """A table of a model's fields, without types; models in `shown` are left out, and others added to it."""
    rows = [f"| `{name}` | {default} | {text} |" for name, default, text in _fields(model, shown)]
    return "\n".join(["| parameter | default | what it is |", "| --- | --- | --- |", *rows])


def shared_parameters(models: Mapping[str, Any]) -> str:
    """One table of the fields of several optimizers; a field that differs between them has a row for each form."""
    held: dict[tuple[str, str, str], list[str]] = {}
    for name, model in models.items():
        for row in _fields(model, set()):
            held.setdefault(row, []).append(name)
    lines = ["| parameter | of | default | what it is |", "| --- | --- | --- | --- |"]
    for (field, default, text), of in held.items():
        lines.append(f"| `{field}` | {'all' if len(of) == len(models) else ', '.join(of)} | {default} | {text} |")
    return "\n".join(lines)


def _fields(model: Any, shown: set[Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(name, default, description) of a model's fields and of those of the models that they hold."""
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else _default(field)
        yield f"{prefix}{field.alias or name}", default, (field.description or "").replace("|", "\\|")
        for inner, mark in _models(field.annotation):
            if inner not in shown and not _told_elsewhere(inner):
                shown.add(inner)
                yield from _fields(inner, shown, f"{prefix}{name}{mark}.")
