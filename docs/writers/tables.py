"""Tables of the parameters of pydantic models, for docs/reference and the plugins' READMEs."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from workbench.cli.file_schema import BASICS
from workbench.plugins import plugins
from workbench.workflow import node_class

ROOT = Path(__file__).parents[2]


def bundled(kind: str) -> list[str]:
    return plugins().names(kind)


Row = tuple[str, str, str, str]
HEAD = "| key | type | default | what it is |\n| --- | --- | --- | --- |\n"


def fields(model: Any, shown: set[Any] | None = None) -> str:
    """A table of a pydantic model's fields, those of models inside it too: `schedule.steps`, `rewards[].kind`.

    shown: models that are not written out again, to which those found are added; None: each is, where it is held.
    """
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in _rows(model, shown))


def _rows(model: Any, shown: set[Any] | None, prefix: str = "", inside: tuple[Any, ...] = ()) -> Iterator[Row]:
    for name, field in model.model_fields.items():
        kind = str(inspect.formatannotation(field.annotation)).replace("typing.", "").replace("|", "or")
        kind = re.sub(r"Annotated\[(.+?), FieldInfo\(.*?\)\]\)\]", r"\1", kind)
        default = "required" if field.is_required() else _default(field)
        text = (field.description or "").replace("|", "\\|")
        key = f"{prefix}{field.alias or name}"
        shown_key = f"**`{key}`**" if name in BASICS.get(model.__name__, ()) else f"`{key}`"
        yield shown_key, _short_type(kind), default, text
        for inner, mark in _models(field.annotation):
            if inner not in (model, *inside, *(shown or ())) and not _told_elsewhere(inner):
                if shown is not None:
                    shown.add(inner)
                yield from _rows(inner, shown, f"{key}{mark}.", (*inside, model))


def _told_elsewhere(model: Any) -> bool:
    """Whether a model is core's, which has pages of its own; those of the kit are parts of plugins' settings."""
    return model.__module__.startswith("workbench.") and not model.__module__.startswith("workbench_kit.")


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
    """A README with the table between each pair of marks filled from the optimizers, executors or node kind that they
    name.

    A model that several fields hold is written out where the page names it first.
    """
    shown = set[Any]()

    def fill(match: re.Match[str]) -> str:
        found = _named(match)
        models = {
            name: node_class(name).Config if kind == "node_kinds" else plugins().get(kind, name) for kind, name in found
        }
        table = fields(models.popitem()[1], shown) if len(models) == 1 else shared_fields(models)
        return f"<!-- parameters of {match.group(1) or ''}{match.group(2)} -->\n{table}<!-- end of parameters -->"

    return _TABLE.sub(fill, path.read_text(encoding="utf-8"))


@cache
def places() -> dict[tuple[str, str], str]:
    """The section with the settings of each optimizer, executor and node kind, by (kind of thing, name)."""
    found = dict[tuple[str, str], str]()
    for page in sorted((ROOT / "plugins").glob("*/workbench_*/README.md")):
        text = page.read_text(encoding="utf-8")
        for match in _TABLE.finditer(text):
            title = re.findall(r"^## (.+)$", text[: match.start()], re.MULTILINE)[-1]
            anchor = re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")
            found |= dict.fromkeys(_named(match), f"{page.relative_to(ROOT)}#{anchor}")
    return found


def _named(match: re.Match[str]) -> list[tuple[str, str]]:
    """The kind and the name of all that a mark names; `node` tells a node kind from an optimizer of the same name."""
    node, names = match.groups()
    others = {} if node else {name: kind for kind in ("optimizers", "executors") for name in bundled(kind)}
    return [(others.get(name, "node_kinds"), name) for name in names.split()]


def shared_fields(models: Mapping[str, Any]) -> str:
    """One table of the fields of several optimizers; a field that differs between them has a row for each form."""
    held: dict[Row, list[str]] = {}
    for name, model in models.items():
        for row in _rows(model, set()):
            held.setdefault(row, []).append(name)
    lines = ["| key | of | type | default | what it is |", "| --- | --- | --- | --- | --- |"]
    for (key, *rest), of in held.items():
        lines.append(f"| {' | '.join([key, 'all' if len(of) == len(models) else ', '.join(of), *rest])} |")
    return "\n".join([*lines, ""])
