"""A Python function that a model calls: arguments are bound by its signature, converted and checked by pydantic."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import Parameter, Signature
from typing import Annotated, Any

from workbench.errors import NodeError
from workbench_kit.answers import load_loose

#: For callables without a signature, e.g. some functions written in C.
_ANY = Signature([Parameter("given", Parameter.VAR_POSITIONAL), Parameter("named", Parameter.VAR_KEYWORD)])
_SHOWN = 80


class BoundFunction:
    """A function with the JSON Schema of its arguments. Calls give all arguments by name, also positional-only ones.

    Arguments for `**options` are passed on unconverted; `*parts` is an argument that is a list.
    """

    def __init__(self, function: Callable[..., Any], signature: Signature | None = None):
        self.function, self.signature = function, signature or _signature_of(function)
        parameters = self.signature.parameters.values()
        self._rest = next((p for p in parameters if p.kind is p.VAR_KEYWORD), None)
        # Together with **options, *args is most often a decorator's, whose function has names for its arguments.
        self._given = [p for p in parameters if p.kind is not p.VAR_KEYWORD and not (self._rest and _is_listed(p))]

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """Return the default values of optional arguments, by name, as a policy's rules compare them."""
        return self.as_json({p.name: p.default for p in self._given if p.default is not p.empty})

    @cached_property
    def _types(self) -> dict[str, Any]:
        """Return converters by parameter, except for parameters without a type, or with one that JSON cannot hold."""
        found: dict[str, Any] = {}
        for parameter in [*self._given, *([self._rest] if self._rest else [])]:
            adapter = _adapter(_annotation(parameter, self.function), _is_listed(parameter))
            if adapter is not None:
                found[parameter.name] = adapter
        return found

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments. References point to `$defs` at its root."""
        told, shared = _schemas(self._types)
        needed = [p.name for p in self._given if p.default is p.empty and not _is_listed(p)]
        found = {
            "type": "object",
            "properties": {p.name: told.get(p.name, {}) for p in self._given},
            "required": needed,
        }
        if self._rest is not None:
            found["additionalProperties"] = told.get(self._rest.name) or True
        return {**found, **shared}

    def read(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert the arguments to the types of the function. name: of the tool. Raises NodeError("tool") with the
        wrong argument and the expected type."""
        known = {p.name for p in self._given}
        if self._rest is None and (unknown := sorted(set(arguments) - known)):
            raise NodeError("tool", f"{name} takes no argument '{unknown[0]}'")
        if missing := [n for n in self.schema["required"] if n not in arguments]:
            raise NodeError("tool", f"{name} needs the argument '{sorted(missing)[0]}'")
        rest = self._rest.name if self._rest else ""
        return {n: self._converted(name, n, n if n in known else rest, value) for n, value in arguments.items()}

    def _converted(self, tool: str, argument: str, parameter: str, value: Any) -> Any:
        from pydantic import ValidationError

        if (kind := self._types.get(parameter)) is None:
            return value
        try:
            return kind.validate_python(value)
        except ValidationError as error:
            wrong = error.errors(include_url=False)[0]
        except RecursionError:
            raise NodeError("tool", f"{tool}: the argument '{argument}' is nested too deeply") from None
        if isinstance(value, str):  # models write objects, and null, as text
            found = load_loose(value)
            try:
                if found is not None or value.strip() in ("null", "None"):
                    return kind.validate_python(found)
            except (ValidationError, ValueError, RecursionError):
                pass
        if value is None and argument in self.defaults:  # models omit one like this if the schema requires all
            return self.defaults[argument]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in wrong["loc"])
        if wrong["type"] == "missing":
            raise NodeError("tool", f"{tool}: the argument '{argument}{place}' is missing")
        told = repr(wrong["input"])
        told = told if len(told) <= _SHOWN else f"{told[:_SHOWN]}..."
        raise NodeError("tool", f"{tool}: the argument '{argument}{place}' is {told}. {wrong['msg']}")

    def as_json(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return converted arguments as a policy's rules compare them."""
        return {name: self._dumped(name, value) for name, value in values.items()}

    def _dumped(self, name: str, value: Any) -> Any:
        kind = self._types.get(name) or (self._types.get(self._rest.name) if self._rest else None)
        try:
            return value if kind is None else kind.dump_python(value, mode="json", warnings=False)
        except Exception:  # also from a serializer of the user's
            return value

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Call the function with converted arguments."""
        values, placed = dict(values), list[Any]()
        listed = next((p for p in self._given if _is_listed(p)), None)
        for parameter in self._given:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                if parameter.name not in values and not self._is_given_later(parameter, values):
                    break
                placed.append(values.pop(parameter.name, parameter.default))
            elif listed is not None and values.get(listed.name) and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                placed.append(values.pop(parameter.name, parameter.default))  # before *parts, all are positional
        if listed is not None:
            placed += values.pop(listed.name, ())
        return self.function(*placed, **values)

    def _is_given_later(self, parameter: Parameter, values: Mapping[str, Any]) -> bool:
        later = self._given[self._given.index(parameter) + 1 :]
        return any(p.name in values and p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL) for p in later)


def _is_listed(parameter: Parameter) -> bool:
    return parameter.kind is parameter.VAR_POSITIONAL


def _signature_of(function: Callable[..., Any]) -> Signature:
    for evaluated in (True, False):
        try:
            return inspect.signature(function, eval_str=evaluated)
        except (ValueError, TypeError):
            return _ANY
        except Exception:  # an annotation that cannot be evaluated, e.g. of an import for type checkers only
            continue
    return _ANY


def _annotation(parameter: Parameter, function: Callable[..., Any]) -> Any:
    """Return a parameter's type; Parameter.empty if it has none, or one that cannot be found."""
    found = parameter.annotation
    if not isinstance(found, str):
        return found
    try:
        return eval(found, getattr(inspect.unwrap(function), "__globals__", {}))
    except Exception:
        return parameter.empty


def _adapter(annotation: Any, listed: bool) -> Any:
    """Return a converter of values; None if every value is valid."""
    from pydantic import ConfigDict, Field, TypeAdapter
    from pydantic.errors import PydanticUserError

    if annotation is Parameter.empty:
        return None
    said = [getattr(one, "documentation", one) for one in getattr(annotation, "__metadata__", ())]
    if words := next((one for one in said if isinstance(one, str)), None):  # Annotated[str, "the name of a city"]
        annotation = Annotated[annotation, Field(description=words)]
    kind = list[annotation] if listed else annotation
    try:
        try:  # models write numbers for texts, e.g. a postcode
            found = TypeAdapter(kind, config=ConfigDict(coerce_numbers_to_str=True))
        except PydanticUserError:  # a class of pydantic has its own configuration
            found = TypeAdapter(kind)
        found.json_schema()
    except Exception:  # a class that pydantic cannot inspect, or that fails during inspection; a function
        return None
    return found


def _schemas(types: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (the schema of each type, {"$defs": ...} of all together or {})."""
    from pydantic import TypeAdapter

    found, shared = TypeAdapter.json_schemas([(name, "validation", adapter) for name, adapter in types.items()])
    definitions = {"$defs": shared["$defs"]} if shared.get("$defs") else {}
    return {str(name): dict(schema) for (name, _), schema in found.items()}, definitions
