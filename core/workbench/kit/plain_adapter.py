"""The plain adapter: instructions, allowed values, demos and inputs in as few tokens as possible.

system     instructions, then one line `field: one of a, b` for each output with allowed values
user       one line `name: value` for each input, then `first_output:`
assistant  the first output's value, then a line `name: value` for each further output

DSPy's ChatAdapter spends several hundred tokens a call on markers and rules that small models do not follow.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from workbench.errors import NodeError
from workbench.workflow import Field, Signature


def system_text(signature: Signature, instructions: str, descriptions: Mapping[str, str], show_values: bool) -> str:
    lines = [instructions.strip() or default_instructions(signature)]
    for field in (*signature.inputs, *signature.outputs):
        if descriptions.get(field.name):
            lines.append(f"{field.name}: {descriptions[field.name]}")
    for field in signature.outputs:
        if show_values and field.allowed:
            lines.append(f"{field.name}: one of {', '.join(map(as_text, field.allowed))}")
        elif shape := object_shape(field.type):
            lines.append(f"{field.name}: JSON {shape}")
    return "\n".join(lines)


@lru_cache(maxsize=256)
def object_shape(kind: Any) -> str:
    """The form of a type that has objects with named parts, as `{name: string, age?: integer}`; empty for others."""
    if kind in (str, int, float, bool, list, dict, Any):
        return ""
    schema = _type_adapter(kind).json_schema()
    text = json.dumps(schema)
    return _shape(schema, schema.get("$defs", {}), 0) if '"properties"' in text else ""


def _shape(schema: Mapping[str, Any], known: Mapping[str, Any], depth: int) -> str:
    if "$ref" in schema:
        schema = {**known.get(str(schema["$ref"]).rpartition("/")[2], {}), **schema}
    if depth > 6:  # a type that holds itself
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


def default_instructions(signature: Signature) -> str:
    outputs = " and ".join(f.name for f in signature.outputs)
    return f"Give the {outputs}." if signature.outputs else ""


def user_text(signature: Signature, values: Mapping[str, Any]) -> str:
    lines = [f"{f.name}: {as_text(values.get(f.name, ''))}" for f in signature.inputs]
    return "\n".join([*lines, f"{signature.outputs[0].name}:"])


def assistant_text(signature: Signature, values: Mapping[str, Any]) -> str:
    first, *rest = signature.outputs
    lines = [as_text(values.get(first.name, ""))]
    return "\n".join([*lines, *(f"{f.name}: {as_text(values[f.name])}" for f in rest if f.name in values)])


def messages(
    signature: Signature,
    system: str,
    demos: Sequence[Mapping[str, Any]],
    values: Mapping[str, Any],
    content: Callable[[Signature, Mapping[str, Any]], Any] = user_text,
) -> list[dict[str, Any]]:
    """The chat for one example. content: makes that of a user's message."""
    out: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for demo in demos:
        out.append({"role": "user", "content": content(signature, demo)})
        out.append({"role": "assistant", "content": assistant_text(signature, demo)})
    out.append({"role": "user", "content": content(signature, values)})
    return out


def stop_strings(signature: Signature) -> tuple[str, ...]:
    """Stop strings: the end of the line for one short value, otherwise the start of the next example."""
    if len(signature.outputs) == 1 and signature.outputs[0].closed:
        return ("\n",)
    return (f"\n{signature.inputs[0].name}:",) if signature.inputs else ()


def as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict | None) else str(value)


def parse(signature: Signature, text: str, cut: bool = False) -> tuple[dict[str, Any], bool]:
    """Parse an answer into (outputs, loose). loose: whether a value was found in plain text, not after its label.

    cut: whether the answer ended at max_tokens; then free text is incomplete, and short values must be whole.
    Raises NodeError("unparsed") and NodeError("cut").
    """
    first, *rest = signature.outputs
    body = re.sub(rf"^\s*{re.escape(first.name)}\s*:\s*", "", text, flags=re.IGNORECASE)
    parts = {first.name: body}
    for field in rest:
        for name, part in list(parts.items()):
            found = re.search(rf"(?im)^[ \t]*{re.escape(field.name)}[ \t]*:[ \t]*", part)
            if found:
                parts[name], parts[field.name] = part[: found.start()], part[found.end() :]
                break
    if not parts[first.name].strip():  # the first output may follow the others
        for name, part in list(parts.items()):
            found = re.search(rf"(?im)^[ \t]*{re.escape(first.name)}[ \t]*:[ \t]*", part)
            if found:
                parts[name], parts[first.name] = part[: found.start()], part[found.end() :]
                break
    values, read = {}, False
    for field in signature.outputs:
        if field.name in parts:
            values[field.name], loose = convert(field, parts[field.name].strip())
        elif field.closed:
            values[field.name], loose = convert(field, text.strip())  # one plain reading of the whole answer
            loose = True
        else:
            raise NodeError("cut" if cut else "unparsed", f"no line '{field.name}: ...' in the answer: {text[:200]!r}")
        read = read or loose
        if cut and field.closed and not _whole(field, values[field.name], text):
            raise NodeError("cut", f"the answer was cut at max_tokens, maybe within a value: {text[:200]!r}")
        if cut and not field.closed and field is signature.outputs[-1]:
            raise NodeError("cut", f"the answer was cut at max_tokens: {text[:200]!r}")
    return values, read


def convert(field: Field, text: str) -> tuple[Any, bool]:
    """Convert a text to (typed value, whether it was found within other text). Raises NodeError("unparsed")."""
    bare = text.strip().strip("\"'`*").strip()
    if field.allowed:
        by_text = {_plain(as_text(v)): v for v in field.allowed}
        first_line = bare.split("\n", 1)[0]
        exact = {as_text(v): v for v in field.allowed}
        if bare in exact:
            return exact[bare], False
        if _plain(bare) in by_text:
            return by_text[_plain(bare)], False
        if _plain(first_line) in by_text:
            return by_text[_plain(first_line)], False
        if field.type is bool and _plain(bare) in ("yes", "no"):
            return _plain(bare) == "yes", True
        return _mentioned(field, text), True
    if field.type is str or field.type is Any:
        if not text:
            raise NodeError("unparsed", f"no value for '{field.name}'")
        return text, False
    if field.type in (int, float):
        return _number(field, bare)
    return _structured(field, bare)


def _plain(text: str) -> str:
    """Normalise case, quotes and final stops; hyphens and underscores between words become spaces."""
    return re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", text.strip().strip(".,:;!\"'`*").strip().lower())


def _whole(field: Field, value: Any, text: str) -> bool:
    """Whether a value in a cut answer is certainly complete: `12` at the end may be the beginning of `125`."""
    end = text.rstrip().lower()
    if not field.allowed:
        return not end[-1:].isdigit()
    said = as_text(value).lower()
    return not end.endswith(said) or not any(
        (other := as_text(v).lower()) != said and other.startswith(said) for v in field.allowed
    )


def _mentioned(field: Field, text: str) -> Any:
    """The first allowed value that the text mentions. Raises NodeError("unparsed") if there is none."""
    places = []
    for value in field.allowed:
        said = _plain(as_text(value))
        if not said:
            continue
        words = re.escape(said).replace(r"\ ", r"[\s_-]+")
        before = r"(?<![\w.,+-])" if said[0].isdigit() else r"(?<!\w)"  # `1` is neither in `-1` nor in `0.1`
        after = r"(?!\w|[.,]\d)" if said[-1].isdigit() else r"(?!\w)"
        found = re.search(before + words + after, text.replace("\u2212", "-"), flags=re.IGNORECASE)
        if found:
            places.append((found.start(), -len(as_text(value)), value))
    if not places:
        raise NodeError("unparsed", f"'{field.name}' is none of the allowed values: {text[:200]!r}")
    return min(places, key=lambda p: p[:2])[2]


_NUMBER = re.compile(r"(?:(?<![\w.)])[-+])?\$?(?:\d[\d,]*(?:\.\d+)?|(?<!\w)\.\d+)(?:[eE][-+]?\d+)?")


def _number(field: Field, text: str) -> tuple[Any, bool]:
    def typed(digits: str) -> Any:
        digits = digits.replace(",", "").replace("$", "")
        if field.type is int and digits.lstrip("+-").isdigit() and len(digits) <= 300:
            return int(digits)  # a float would round long ones
        value = float(digits)
        if not math.isfinite(value):
            raise NodeError("unparsed", f"the number for '{field.name}' is too large: {text[:200]!r}")
        if field.type is int:
            if value != int(value):
                raise NodeError("unparsed", f"'{field.name}' must be a whole number: {text[:200]!r}")
            return int(value)
        return value

    text = text.replace("\u2212", "-")
    if _NUMBER.fullmatch(text.rstrip(".")):
        return typed(text.rstrip(".")), False
    found = _NUMBER.findall(text)
    if not found:
        raise NodeError("unparsed", f"no number for '{field.name}': {text[:200]!r}")
    return typed(found[-1]), True


def _structured(field: Field, text: str) -> tuple[Any, bool]:
    """Lists, mappings and optional values as JSON, repaired where possible."""
    from pydantic import ValidationError

    adapter, wrong = _type_adapter(field.type), ""
    for candidate, loose in ((text, False), (_embedded(text), True)):
        if candidate is None:
            continue
        try:
            return adapter.dump_python(adapter.validate_json(candidate), mode="json"), loose
        except ValidationError as error:
            first = error.errors()[0]
            wrong = f" ({'.'.join(map(str, first['loc']))}: {first['msg']})" if first["loc"] else wrong
        except ValueError:
            continue
    if (field.type is list or getattr(field.type, "__origin__", None) is list) and "[" not in text:
        parts = [re.sub(r"^([-*\u2022]|\d+[.)])\s+", "", part.strip()) for part in re.split(r"[,\n]", text)]
        with suppress(ValidationError):
            return adapter.validate_python([part for part in parts if part]), True
    try:
        if text.strip(" .").lower() in ("none", "null"):
            return adapter.validate_python(None), False
    except ValidationError:
        pass
    try:
        return adapter.dump_python(adapter.validate_python(text), mode="json"), False
    except ValidationError:
        shown = object_shape(field.type) or field.type
        raise NodeError("unparsed", f"'{field.name}' is not of type {shown}{wrong}: {text[:200]!r}") from None


def as_json(field: Field, value: Any) -> Any:
    """A value of the field's type as plain JSON values: a class of pydantic as a mapping."""
    return (
        value
        if isinstance(value, str | int | float | bool)
        else _type_adapter(field.type).dump_python(value, mode="json")
    )


def _embedded(text: str) -> str | None:
    """The text from the first opening bracket to the last closing one, without a quadratic pattern; None if absent."""
    opens = min((place for mark in "[{" if (place := text.find(mark)) >= 0), default=-1)
    closes = max(text.rfind("]"), text.rfind("}"))
    return text[opens : closes + 1] if 0 <= opens < closes else None


@lru_cache(maxsize=256)
def _type_adapter(annotation: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(annotation)
