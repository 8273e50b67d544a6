"""Chains of calls: references to what earlier calls returned, and which tools can follow one another.

A reference replaces a value: {"$ref": "1"} is the whole result of the first call, {"$ref": "1.items.0.id"} a part of
it. Source: GOAT (arXiv 2510.12218, section 3), whose graph has an edge if the output of a tool can be an argument of
another. Departure: its edges come from similarity of embeddings and a language model; ours compare names and types of
documented results, or of observed results if there are any.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench_synthesize.apis import UNKNOWN, Api, find_misfit

#: Maximum parts of a result that are considered, and their depth.
_PARTS, _DEPTH = 24, 4
#: The same for the search for a value.
_MANY = 1000
#: Maximum depth of nested arguments.
DEEPEST = 30


@dataclass(frozen=True)
class Reference:
    """A part of an earlier call's result. call: its number, from 1. path: keys, and indices of lists."""

    call: int
    path: tuple[str, ...]


def read_reference(value: Any) -> Reference | None:
    """Read a value as a reference; None if it is not one. Raises ValueError for a malformed reference."""
    if not isinstance(value, Mapping) or "$ref" not in value:
        return None
    text = value["$ref"]
    if len(value) > 1 or not isinstance(text, str) or not re.fullmatch(r"[1-9]\d{0,3}(\..+)?", text):
        raise ValueError(f'a reference is written {{"$ref": "1"}} or {{"$ref": "1.key"}}, not {str(dict(value))[:80]}')
    number, _, path = text.partition(".")
    return Reference(int(number), tuple(path.split(".")) if path else ())


def find_references(value: Any) -> list[Reference]:
    """All references in arguments. Raises ValueError for malformed ones and for arguments nested too deeply."""
    found, rest = [], [(value, 0)]
    while rest:
        part, depth = rest.pop()
        if depth > DEEPEST:
            raise ValueError("its arguments are nested too deeply")
        if (one := read_reference(part)) is not None:
            found.append(one)
        elif isinstance(part, Mapping | list):
            rest += [(child, depth + 1) for child in (part.values() if isinstance(part, Mapping) else part)]
    return found


def fill_references(value: Any, fill: Callable[[Reference], Any]) -> Any:
    """Arguments with each reference replaced by `fill(reference)`."""
    if (one := read_reference(value)) is not None:
        return fill(one)
    if isinstance(value, Mapping):
        return {key: fill_references(part, fill) for key, part in value.items()}
    return [fill_references(part, fill) for part in value] if isinstance(value, list) else value


def resolve_reference(one: Reference, results: Sequence[Any]) -> Any:
    """The value of a reference. Raises LookupError if the result has no such part."""
    value = results[one.call - 1]
    for part in one.path:
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise LookupError(
                f"call {one.call} returned no {'.'.join(one.path)}, but {str(results[one.call - 1])[:80]}"
            )
    return value


def find_unlinked(calls: Sequence[Mapping[str, Any]]) -> str | None:
    """The reason why calls are not a chain (a reference to no earlier call, an unconnected call); None if they are."""
    group = list(range(len(calls)))
    for place, call in enumerate(calls):
        for one in find_references(call["arguments"]):
            if one.call > place:
                return f"call {place + 1} refers to call {one.call}, which is none before it"
            joined, into = group[place], group[one.call - 1]
            group = [into if g == joined else g for g in group]
    if len(set(group)) == len(calls):
        return "no call takes a value from an earlier one: write a reference in its place"
    if len(set(group)) > 1:
        return f"call {next(i for i, g in enumerate(group) if g != group[0]) + 1} has nothing to do with the first"
    return None


def find_made_up(call: Mapping[str, Any], api: Api, question: str, results: Sequence[Any]) -> str | None:
    """The reason why an argument of a later call should be a reference; None if none should.

    The question does not contain its value, and an earlier call returned that value, or one of that name. Considers
    only texts and numbers.
    """
    earlier = [
        (n, path, value) for n, result in enumerate(results, 1) for path, value in find_parts(result, _MANY, _MANY)
    ]
    for place, value in _values(call["arguments"]):
        about = api.parameters.get(place[0]) if place else None
        if (isinstance(about, Mapping) and "enum" in about) or _said(value, question):
            continue
        for number, path, known in earlier:
            if (known == value and not isinstance(known, bool)) or (
                path and place and split_name(path[-1]) == split_name(place[-1])
            ):
                at = ".".join([str(number), *path])
                return f'{".".join(place)} is {value!r}, which the question does not say: write {{"$ref": "{at}"}}'
    return None


def _values(arguments: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(keys, value) of each literal text and number."""
    if isinstance(arguments, Mapping) and "$ref" not in arguments:
        for key, part in arguments.items():
            yield from _values(part, (*place, key))
    elif isinstance(arguments, list):
        for part in arguments:
            yield from _values(part, place)
    elif isinstance(arguments, str | int | float) and not isinstance(arguments, bool):
        yield place, arguments


def _said(value: Any, question: str) -> bool:
    if isinstance(value, str):
        return re.search(rf"(?<!\w){re.escape(value.lower())}(?!\w)", question.lower()) is not None
    return any(float(n) == abs(value) for n in re.findall(r"\d+(?:\.\d+)?", question.replace(",", "")))


def find_parts(value: Any, most: int = _PARTS, entries: int = 1) -> list[tuple[tuple[str, ...], Any]]:
    """(path, value) of at most `most` single values in a result, with the first `entries` of each list."""
    found: list[tuple[tuple[str, ...], Any]] = []

    def walk(value: Any, path: tuple[str, ...]) -> None:
        if len(found) >= most or len(path) > _DEPTH:
            return
        if isinstance(value, Mapping):
            for key, part in value.items():
                walk(part, (*path, str(key)))
        elif isinstance(value, list):
            for place, part in enumerate(value[:entries]):
                walk(part, (*path, str(place)))
        elif value is not None:
            found.append((path, value))

    walk(value, ())
    return found


def split_name(name: str) -> frozenset[str]:
    """The words of a name; those of `orderId` and `order_id` are equal."""
    return frozenset(re.findall(r"[a-z]+|\d+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()))


class Links:
    """Which tool can use results of which other, from documents at first, and from results once there are any."""

    def __init__(self, apis: Sequence[Api]):
        self.apis = {api.name: api for api in apis}
        self.documented = {a.name: _typed(a.returns) for a in apis if a.returns is not None}
        self.seen: dict[str, dict[tuple[str, ...], str | None]] = {}
        self.proven: set[tuple[str, str]] = set()

    def see(self, name: str, result: Any) -> None:
        """Record a result of a tool."""
        known = self.seen.setdefault(name, {})
        for path, value in find_parts(result):
            if len(known) < _PARTS:
                known.setdefault(path, _kind(value))

    def prove(self, names: Sequence[str], calls: Sequence[Mapping[str, Any]]) -> None:
        """Record a chain of calls that passed every check."""
        for name, call in zip(names, calls, strict=True):
            self.proven |= {(names[one.call - 1], name) for one in find_references(call["arguments"])}

    def returned(self, name: str) -> dict[tuple[str, ...], str | None] | None:
        """Paths and types of a tool's results; None if unknown."""
        return self.seen.get(name) or self.documented.get(name)

    def rank(self, first: str, second: str) -> int:
        """Rate how well results of the first tool fit arguments of the second. 2: by name and type; 1: by type only,
        since a part has no name, or the results are unknown; 0: not at all."""
        if (first, second) in self.proven:
            return 2
        if not (known := self.returned(first)):
            return 1
        takes = self.apis[second].parameters.items()
        return max((_fit(p, kind, name, about) for p, kind in known.items() for name, about in takes), default=0)

    def pair(self, about: str, rng: random.Random) -> tuple[str, str]:
        """Draw two tools, one of them `about`, of which the second can follow the first, from the pairs that fit best.
        Some tool must take an argument."""
        others = [name for name in self.apis if name != about] or [about]
        pairs = [(about, other) for other in others if self.apis[other].parameters]
        pairs += [(other, about) for other in others if self.apis[about].parameters]
        known = [(self.rank(*pair), pair) for pair in dict.fromkeys(pairs)]
        best = max(rank for rank, _ in known)
        return rng.choice([pair for rank, pair in known if rank == best])

    def told(self, name: str) -> str:
        """The description of a tool's results in a request."""
        known = self.returned(name)
        if not known:
            return f"What `{name}` returns is not known in detail: refer to its whole result."
        shape = {".".join(path) or "(the whole result)": kind or "any" for path, kind in known.items()}
        return f"Parts of what `{name}` returns, with their types: {', '.join(f'{p}: {k}' for p, k in shape.items())}."


def _typed(schema: Any) -> dict[tuple[str, ...], str | None]:
    """Paths and types of the single values in a schema."""
    found: dict[tuple[str, ...], str | None] = {}

    def walk(schema: Any, path: tuple[str, ...]) -> None:
        if not isinstance(schema, Mapping) or len(found) >= _PARTS or len(path) > _DEPTH:
            return
        if isinstance(schema.get("properties"), Mapping):
            for key, part in schema["properties"].items():
                walk(part, (*path, str(key)))
        elif isinstance(schema.get("items"), Mapping):
            walk(schema["items"], (*path, "0"))
        else:
            kind = schema.get("type")
            found[path] = kind if isinstance(kind, str) else None

    walk(schema, ())
    return found


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "integer" if isinstance(value, int) else "number" if isinstance(value, float) else "string"


#: A value of each type, to test whether a schema accepts the type.
_SAMPLES = {"boolean": True, "integer": 1, "number": 1.5, "string": "", "array": [], "object": {}}


def _fit(path: tuple[str, ...], kind: str | None, name: str, about: Any) -> int:
    """Rate how well a part of a result fits an argument: 2 if the types and a word of the names agree, 1 if the types
    agree and the part has no name, else 0."""
    sample = _SAMPLES.get(kind or "", UNKNOWN)
    schema = {k: v for k, v in about.items() if k in ("type", "anyOf")} if isinstance(about, Mapping) else {}
    named = next((part for part in reversed(path) if not part.isdecimal()), None)
    if find_misfit(sample, schema) is not None:
        return 0
    return 1 if named is None else 2 * bool(split_name(named) & split_name(name))
