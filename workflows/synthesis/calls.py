"""Checks of calls that a model wrote, for the files beside this one: their form, and what holds those of a chain.

Source: GOAT (arXiv 2510.12218, section 3): a tool can follow another if the output of one can be an argument of the
other. Departure: its edges come from embeddings and a language model; here names and types of documented results are
compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: A plan's place for a value that an earlier call returns: {"$ref": "1.order.id"}.
REFERENCE = re.compile(r"[1-9]\d{0,2}(\..+)?")
TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def read_calls(calls: Any, tools: list[dict[str, Any]], least: int = 1, most: int = 1) -> list[dict[str, Any]]:
    """The calls, each of a tool that was shown, with arguments that fit its JSON Schema. Raises ValueError.

    More than one call, all of them without references, are independent; with references they are a chain.
    """
    if not isinstance(calls, list) or not least <= len(calls) <= most:
        raise ValueError(f"there must be {least} to {most} calls, not {calls!r:.80}")
    known = {tool["name"]: tool["parameters"] for tool in tools}
    for number, call in enumerate(calls, 1):
        name, arguments = (call.get("name"), call.get("arguments")) if isinstance(call, dict) else (None, None)
        if name not in known:
            raise ValueError(f"call {number} names {name!r}, which was not shown")
        if not isinstance(arguments, dict):
            raise ValueError(f"call {number}: the arguments are not an object")
        if reason := find_misfit(arguments, known[name]):
            raise ValueError(f"call {number}: {reason}")
        if call in calls[: number - 1]:
            raise ValueError(f"call {number} is a duplicate")
    return [{"name": call["name"], "arguments": call["arguments"]} for call in calls]


def read_chain(calls: Any, tools: list[dict[str, Any]], most: int = 3) -> list[dict[str, Any]]:
    """The calls of a chain, each of which takes a value from an earlier one or gives one to a later. Raises
    ValueError."""
    found = read_calls(calls, tools, 2, most)
    group = list(range(len(found)))
    for place, call in enumerate(found):
        for one in (value["$ref"] for _, value in walk(call["arguments"]) if is_reference(value)):
            if not REFERENCE.fullmatch(str(one)) or int(str(one).partition(".")[0]) > place:
                raise ValueError(f'call {place + 1} refers to {one!r}, no earlier call: write {{"$ref": "1.key"}}')
            into = group[int(str(one).partition(".")[0]) - 1]
            group = [into if g == group[place] else g for g in group]
    if len(set(group)) > 1:
        alone = next(place for place, g in enumerate(group) if g != group[0])
        raise ValueError(f"call {alone + 1} has nothing to do with the first: write a reference in place of a value")
    return found


def check_values(
    question: str,
    plan: list[dict[str, Any]],
    made: list[dict[str, Any]],
    results: list[Any],
    tools: list[dict[str, Any]],
) -> bool:
    """True for a chain whose values fit, and stand in the question where they do not come from an earlier result.
    Raises ValueError for a value that should be a reference: an earlier call returned it, or a part of its name."""
    schemas = {tool["name"]: tool["parameters"] for tool in tools}
    for number, call in enumerate(plan):
        if reason := find_misfit(made[number]["arguments"], schemas[call["name"]]):
            raise ValueError(f"call {number + 1}: {reason}")
        parts = [(n, *part) for n, result in enumerate(results[:number], 1) for part in walk(result)]
        for path, value in walk(call["arguments"]):
            fixed = "enum" in schemas[call["name"]]["properties"].get(path[0], {})
            if fixed or isinstance(value, bool | dict) or is_said(value, question):
                continue
            for n, at, known in parts:
                if (known == value and not isinstance(known, bool)) or (at and words(at[-1]) == words(path[-1])):
                    where = ".".join([str(n), *at])
                    raise ValueError(f'{path[-1]} is {value!r}, which the question does not say: write "{where}"')
    return True


def read_tools(path: str) -> list[dict[str, Any]]:
    """The name, description and parameters of each tool of a file beside this one."""
    lines = (Path(__file__).parent / path).read_text(encoding="utf-8").splitlines()
    return [{key: json.loads(line)[key] for key in ("name", "description", "parameters")} for line in lines]


def find_pair(name: str, parameters: Any, returns: Any, beside: list[dict[str, Any]]) -> list[str]:
    """Two tools, this one and one beside it, of which the second can follow the first: a part of the result has the
    type of an argument, and a word of its name. Where none does, the first of those beside it follows."""
    here = {"name": name, "parameters": parameters, "returns": returns}
    pairs = [pair for other in beside for pair in ((here, other), (other, here))]
    fitting = [pair for pair in pairs if can_follow(*pair)]
    return [tool["name"] for tool in (fitting or pairs)[0]]


def can_follow(first: dict[str, Any], second: dict[str, Any]) -> bool:
    takes = second["parameters"].get("properties", {})
    return any(
        kind == about.get("type") and at and words(at[-1]) & words(name)
        for at, kind in walk(first.get("returns"))
        for name, about in takes.items()
    )


def find_misfit(value: Any, schema: Any, place: str = "arguments") -> str | None:
    """The reason why a value does not fit a JSON Schema (type, enum, properties, required, items, anyOf); None if it
    does. A reference fits."""
    if not isinstance(schema, dict) or is_reference(value):
        return None
    if isinstance(schema.get("anyOf"), list):
        reasons = [find_misfit(value, option, place) for option in schema["anyOf"]]
        return None if None in reasons else reasons[0]
    kinds = schema.get("type") or ("object" if "properties" in schema else [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, TYPES[k]) and isinstance(value, bool) <= (k == "boolean") for k in kinds):
        return f"{place} must be of type {' or '.join(kinds)}, not {json.dumps(value)[:60]}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{place} must be one of {schema['enum']}, not {json.dumps(value)[:60]}"
    if isinstance(value, dict) and isinstance(schema.get("properties"), dict):
        properties = schema["properties"]
        if odd := [name for name in value if name not in properties]:
            return f"{place} has an unknown '{odd[0]}'"
        if missing := [name for name in schema.get("required", ()) if name not in value]:
            return f"{place} lacks '{missing[0]}'"
        reasons = (find_misfit(part, properties[name], f"{place}.{name}") for name, part in value.items())
        return next((reason for reason in reasons if reason), None)
    if isinstance(value, list) and "items" in schema:
        return next((r for i, v in enumerate(value) if (r := find_misfit(v, schema["items"], f"{place}[{i}]"))), None)
    return None


def is_reference(value: Any) -> bool:
    return isinstance(value, dict) and "$ref" in value


def walk(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(keys, value) of each single value, and of each reference."""
    if isinstance(value, dict) and not is_reference(value):
        for key, part in value.items():
            yield from walk(part, (*path, str(key)))
    elif isinstance(value, list):
        for part in value:
            yield from walk(part, path)
    elif value is not None:
        yield path, value


def words(name: str) -> frozenset[str]:
    """The words of a name; those of `orderId` and `order_id` are equal."""
    return frozenset(re.findall(r"[a-z]+|\d+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()))


def is_said(value: Any, question: str) -> bool:
    if isinstance(value, str):
        return re.search(rf"(?<!\w){re.escape(value.lower())}(?!\w)", question.lower()) is not None
    return any(float(n) == abs(value) for n in re.findall(r"\d+(?:\.\d+)?", question.replace(",", "")))
