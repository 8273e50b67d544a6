"""The reader of values: a text as the type of an output, by the readers of choices, numbers and JSON.

Every rule holds inside Optional, unions, lists and objects, too.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, reduce
from itertools import islice
from operator import getitem
from typing import Any, Literal, Union, get_args, get_origin

from workbench.base.text import spells_nothing
from workbench.errors import NodeError
from workbench.workflow import Field, read_nothing, says_nothing
from workbench_kit.answers.call_bodies import names_call
from workbench_kit.answers.choices import TRUTH, choices_of
from workbench_kit.answers.conclusions import (
    DECORATION,
    find_boxed,
    find_parts,
    find_rows,
    is_introduced,
    split_fields,
)
from workbench_kit.answers.json_text import load, read_values
from workbench_kit.answers.numbers import find_numbers, normalise, read_number
from workbench_kit.answers.shapes import object_shape, type_adapter

_ITEM = re.compile(
    r"(?m)^[ \t]*(?:(?:[-*+\u2013]|\(?(?:\d{1,3}[.)]|[a-z]\)))[ \t]+|"
    r"[\u2022\u30fb][ \t]*|\d{1,3}[.)\u3001\uff0e](?=[^\d\s]))(.*)$"
)
#: Text before each numbered item of one line, and between items without numbers; an item, in which quotes and thousands
#: groups may contain commas.
_INLINE = re.compile(r"(?<=\S)[ \t]+(?=\d{1,2}[.)][ \t]+\S)")
_SEPARATOR = re.compile(r",(?!\d{3}\b)|[;\u3001\u060c\uff0c\uff1b]")
_PART = re.compile(
    r"""(?>(?:"[^"\n]*+"|(?<!\w)'[^'\n]*+'(?!\w)|,(?=\d{3}\b)|[^"',;\u3001\u060c\uff0c\uff1b]++|["'])+)"""
)
#: Characters around the items of a line.
_AROUND = re.compile(
    r"^[\[(](.*)[\])]$|^(?:[^,;:]{0,80}\b(?:are|is|sind|sont|son)(?: as follows)?|[^,;:]{0,20}\b[Hh]ere (?:are|is)\b"
    r"[^,;:]{0,60})\s*[:\uff1a]\s*|^[^,;:\u3001\uff0c\uff1a]{1,20}\uff1a(?!.*\uff1a)"
)
#: The last two items of a line, which need no comma; a key and its value on a line.
_LAST = re.compile(r"^\s*([^\W\d]+) (?:and|or|und|oder|et|ou|y|o|e) ([^\W\d]+)\s*$")
_PAIR = re.compile(rf"{DECORATION}((?>(?:[^:=\n\[{{\u2192-]|-(?!>))+))(?:[:=]>?|->|\u2192)[ \t*_`]*+(.++)$")
#: Contents of a call of a type, as Python shows objects: `dict(a=1)`; contents of braces.
_CALL = re.compile(r"^(?:\w*\(|\{)(.*)[)}]$")
#: A text that is a single fence.
_FENCED = re.compile(r"```\w*[ \t]*\n((?>(?:[^`]++|`(?!``))*))```")
_AROUND_WORDS = " .\"'`*"
#: Maximum number of values of a text that are tried; of parts of one, or items in lines, that are read as texts; and of
#: characters of a line in which numbers are searched.
_MANY, _PARTS, _LINE = 100, 500, 10_000
#: Kinds of pydantic's errors for single values, by the expected type.
_WANTED = {"int": int, "float": float, "bool": bool, "decimal": float}


def as_text(value: Any) -> str:
    """Return a value in the form of prompts and answers."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict | None):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def convert(field: Field, text: str) -> tuple[Any, bool]:
    """Convert a text to (typed value, whether it was found within other text). Raises NodeError("unparsed")."""
    kind = Literal[field.values] if field.values else field.type  # type: ignore[valid-type]
    if (found := _read(kind, text.strip(), field.name)) is not None:
        return read_nothing(found[0], field.type), found[1]
    named = object_shape(field.type) or (field.type.__name__ if isinstance(field.type, type) else field.type)
    wanted = "certainly one of the allowed values" if field.allowed else f"of type {named}{_explain(field, text)}"
    raise NodeError("unparsed", f"'{field.name}' is not {wanted}: {text[:200]!r}")


def _explain(field: Field, text: str) -> str:
    """Explain what is wrong with the first JSON value of a text, in brackets."""
    from pydantic import ValidationError

    for value, _ in _candidates(text, field.name):
        try:
            type_adapter(field.type).validate_python(value)
        except ValidationError as error:
            first = error.errors()[0] if error.error_count() <= _PARTS else {"loc": (), "msg": "nothing fits"}
            return f" ({': '.join(filter(None, ('.'.join(map(str, first['loc'])), first['msg'])))})"
    return ""


def _read(kind: Any, text: str, name: str) -> tuple[Any, bool] | None:
    """Return (value, whether it is among other words) of a text as a type; None if it holds none."""
    if kind is str or kind is Any:
        return (_unboxed(text), False) if text else None
    if fenced := _FENCED.fullmatch(text):
        found = _read(kind, fenced[1].strip(), name)
        return found and (found[0], True)
    if kind is bool:
        return TRUTH.read(text, name)
    if get_origin(kind) is Literal:
        values = get_args(kind)
        return choices_of(tuple(map(as_text, values)), values).read(text, name)
    if kind in (int, float):
        found = read_number(text, name) if not names_call(load(text)) else None  # a call's arguments are no answer
        kept = found is not None and (kind is float or found[0].value == int(found[0].value))
        return (kind(found[0].value), found[1]) if found and kept else None
    if get_origin(kind) in (Union, types.UnionType):
        return _read_union(get_args(kind), text, name)
    return _read_structured(kind, text, name)


def _unboxed(text: str) -> str:
    """Return the content of a LaTeX box at the end of the last line; without a box, the text."""
    last = text.rpartition("\n")[2].rstrip(" .$")
    return (find_boxed(last) or text) if "\\boxed" in last and last.endswith("}") else text


def _read_union(kinds: Sequence[Any], text: str, name: str) -> tuple[Any, bool] | None:
    """Read a union: words for None first, unless they are values of their own, then types that read the whole text,
    then types that find a value in it, then text."""
    if says_nothing(_word(text), kinds):
        return None, False
    found = [_read(kind, text, name) for kind in kinds if kind not in (str, Any, type(None))]
    exact = [one for one in found if one is not None and not one[1]]
    plain = [_read(kind, text, name) for kind in kinds if kind in (str, Any)]
    return next((one for one in [*exact, *plain, *found] if one is not None), None)


def _word(text: str) -> str:
    """Return a text without quotes, stops and emphasis around it; unchanged if nothing else is left."""
    return text.strip(_AROUND_WORDS) or text


def _read_structured(kind: Any, text: str, name: str) -> tuple[Any, bool] | None:
    """Read lists, mappings and objects: the JSON value introduced as the result, else the first one that fits, repaired
    if possible; else lines."""
    adapter, parts = type_adapter(kind), getattr(kind, "model_fields", getattr(kind, "__annotations__", {}))
    names = [*parts] if isinstance(kind, type) else []
    text = inner if text.startswith('"') and isinstance(inner := load(text), str) else text  # JSON in a text
    text = f"[{text}" if text[:1] in ("'", '"') and text.endswith("]") and "[" not in text else text  # in the prompt
    for n, (value, whole) in enumerate(_candidates(text, name, names)):
        if (fitted := _fit(adapter, value, max(3, _PARTS >> n))) is not None:
            return fitted[0], not whole
    if kind is list or get_origin(kind) is list:
        return _read_list(kind, text, name)
    parts = split_fields(_CALL.sub(r"\1", text), names, all_labelled=True)
    if kind is dict or get_origin(kind) is dict:
        parts = _pairs(text) or parts
    parts = {key: value.strip("\"', ") for key, value in parts.items()}
    if parts and (fitted := _fit(adapter, parts)) is not None:
        return fitted[0], True
    return None


def _pairs(text: str) -> dict[str, str]:
    """Return keys and values, one pair per line, or all on one line, as `a=1, b=2`. Empty if some part is no pair, e.g.
    of cut JSON."""
    lines, bare = text.split("\n"), _CALL.sub(r"\1", text)
    if len(lines) == 1:
        lines = [] if len(text) > _LINE or set(bare) & set("[{") else [bare]
    for items in (_SEPARATOR.split(bare) if len(lines) == 1 else [], lines):
        pairs = [pair for pair in map(_PAIR.match, items) if pair]
        if len(pairs) == len(items) > 0:
            return {pair[1].strip(" \t*_`\"'"): pair[2] for pair in pairs}
    return {}


@lru_cache(maxsize=2)
def first_values(text: str) -> tuple[tuple[Any, int, int], ...]:
    """Return (value, start, end) of the first lists and objects in a text, and of its table. Cached for all callers."""
    found = [*islice(read_values(text), _MANY)]
    if rows := find_rows(text):
        cells = [[*row.values()] for row in rows]
        simple = {1: lambda: [cell for (cell,) in cells], 2: lambda: dict(cells)}.get(len(rows[0]), list)()
        found += [(value, 0, 0) for value in (rows[0] if len(rows) == 1 else None, rows, simple) if value]
    return tuple(found)


def _candidates(text: str, name: str, names: Sequence[str] = ()) -> Iterator[tuple[Any, bool]]:
    """Yield (value, whether it is the whole text) for the JSON in a text, each also without a wrapper of any name.

    names: of the parts of an object, which may be written in other cases.
    """
    values = [one for one in first_values(text) if one[0] or not (text[: one[1]] + text[one[2] :]).strip()]
    stated = [one for one in values if one[2] and is_introduced(text, one[1], name)] if len(values) > 1 else []
    for value, start, end in [*stated[-1:], *values]:
        whole = not text[:start].strip() and not text[end:].strip()
        yield value, whole
        found = find_parts(value, [*names, name])
        if known := {part: found[part] for part in names if part in found}:
            yield known, whole
        if name in found:
            yield found[name], whole
        if isinstance(value, list | dict) and len(value) == 1:
            inner = value[0] if isinstance(value, list) else next(iter(value.values()))
            if isinstance(value, list) or isinstance(inner, list | dict):
                yield inner, whole


def _fit(adapter: Any, value: Any, most: int = _PARTS) -> tuple[Any] | None:
    """Return a value as plain JSON values of a type, in a tuple. At most `most` of its parts that do not fit are parsed
    as texts."""
    from pydantic import ValidationError

    for _ in range(2):
        try:
            return (adapter.dump_python(adapter.validate_python(value), mode="json"),)
        except ValidationError as error:
            errors = error.errors() if error.error_count() <= most else []
            if not any(isinstance(one["input"], str) for one in errors):  # nothing that can be parsed
                return None
            value = _mended(value, errors)
        except (ValueError, TypeError, RecursionError, OverflowError):
            return None
    return None


def _mended(value: Any, errors: Sequence[Mapping[str, Any]]) -> Any:
    """Return a value in which the parts refused by pydantic are parsed as texts."""
    value = json.loads(json.dumps(value))
    for error in errors:
        if not isinstance(given := error["input"], str):
            continue
        wanted = _WANTED.get(error["type"].partition("_")[0])
        if error["type"] == "literal_error":
            wanted = Literal[tuple(re.findall(r"'((?:[^'\\]|\\.)*)'", error["ctx"]["expected"]))]  # type: ignore[valid-type]
        found = _read(wanted, given, "answer") if wanted else (given, False)
        with suppress(LookupError, TypeError, ValueError):  # a path within a union ends with its type
            *way, last = error["loc"]
            reduce(getitem, way, value)[last] = (
                None if spells_nothing(_word(given), or_unknown=True) else (found or (given,))[0]
            )
    return value


def _read_list(kind: Any, text: str, name: str) -> tuple[Any, bool] | None:
    """Read a list in lines, or with commas; an empty one if the text says so."""
    named, inner = re.escape(name), (get_args(kind) or (Any,))[0]
    lead = rf"the (?:\w+ )?{named} (?:are|include):? (?!as )|[*_]*(?:final )?(?:answer|result)[*_]*:[*_]*\s+(?=\S)"
    text = re.sub(f"(?i)^(?:{lead})", "", text)
    if not text or re.match(r"\[\s*[\[{\"']", text):  # JSON that was cut, or invalid
        return None
    none = rf"(?i)empty|\[\]|(?:there (?:are|is|were) )?no (?:\w+ )?(?:items|{named})\b[^,;\n]*"
    if spells_nothing(_word(text), or_unknown=True) or re.fullmatch(none, text):
        return [], False
    items = [item for part in _items(text, inner) if (item := part.strip().strip("\"'\u201c\u201d"))]
    if not items or _read(inner, items[0], name) is None:
        return None
    if (fitted := _fit(type_adapter(kind), items)) is not None:
        return fitted[0], True
    found = [_read(inner, item, name) for item in items] if len(items) <= _PARTS else [None]
    return None if None in found else ([one[0] for one in found if one], True)


def _items(text: str, inner: Any) -> list[str]:
    """Return the items of a list in lines, or on one line with commas."""
    if text.startswith("1") and "\n" not in text:
        text = _INLINE.sub("\n", text)
    if items := _ITEM.findall(text):
        return items
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    lines = lines[1:] if len(lines) > 1 and lines[0].endswith((":", "\uff1a")) else lines
    if len(lines) > 1:
        return lines
    items = _PART.findall(_AROUND.sub(lambda found: found[1] or "", lines[0]))
    if inner in (int, float) and len(text) < _LINE:
        numbers = load(f"[{normalise(text).rstrip(' .')}]") or [one.value for one in find_numbers(normalise(text))]
        return [*map(str, numbers)]  # 100,200,300 as in brackets
    if len(items) > 1 or inner is not str:
        last = _LAST.sub(r"\1\n\2", re.sub(r"^\s*(?:and|und|et|y)\s|\.$", "", items.pop() if items else ""))
        items += last.split("\n")
    return items


def as_json(field: Field, value: Any) -> Any:
    """Return a value of the field's type as plain JSON values: a pydantic object as a mapping."""
    if isinstance(value, str | int | float | bool):
        return value
    return type_adapter(field.type).dump_python(value, mode="json")
