"""Signatures in DSPy's notation, `question, context -> answer: int`, read without importing DSPy.

Types: str (default), int, float, bool, list[...], dict[...], Literal[...], Optional[...], objects with named parts,
`{name: str, age: Optional[int]}`, and, for inputs, Image. All but Image nest. A node may name more types as pydantic
classes. Other types of DSPy are built with `dspy.Signature` when a DSPy adapter is used.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NotRequired, Optional, get_args

from workbench.errors import SpecError

_QUOTED_OR_ARROW = re.compile(r"""'[^']*'|"[^"]*"|->""")
_ELLIPSIS = ast.dump(ast.parse("...").body[0])


class Image:
    """The type of an input that is an image: a path, an address, a data URI or bytes."""


_TYPES: dict[str, Any] = {
    "Image": Image,
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list,
    "dict": dict,
    "Any": Any,
}


@dataclass(frozen=True)
class Field:
    """A field of a signature. values: the values that a Literal allows."""

    name: str
    type: Any = str
    values: tuple[Any, ...] = ()

    @property
    def closed(self) -> bool:
        """Return True if the answer is one short value rather than free text."""
        return bool(self.values) or self.type in (int, float, bool)

    @property
    def allowed(self) -> tuple[Any, ...]:
        """Return the values that the field may have, if they can be listed."""
        return self.values or ((True, False) if self.type is bool else ())


@dataclass(frozen=True)
class Signature:
    """The input and output fields of a step."""

    inputs: tuple[Field, ...]
    outputs: tuple[Field, ...]

    @property
    def reasons_first(self) -> bool:
        """Return True if the first of several outputs is `reasoning`, a free text."""
        first = self.outputs[0] if len(self.outputs) > 1 else None
        return first is not None and first.name == "reasoning" and first.type is str and not first.closed


def _sides(text: str) -> list[str]:
    """Split a text at its arrows, except those inside quoted text."""
    arrows = [found.start() for found in _QUOTED_OR_ARROW.finditer(text) if found.group() == "->"]
    return [text[a:b] for a, b in zip([0, *(a + 2 for a in arrows)], [*arrows, len(text)], strict=True)]


#: Types by the name that a signature uses for them; None: any name is a type, and only the fields' names matter.
Types = Mapping[str, Any] | None


def parse_signature(text: str, types: Mapping[str, Any] | None = None) -> Signature:
    """Read a signature. The SpecError that it raises says what to write instead. types: further types by name."""
    return _parse(text, tuple(sorted((types or {}).items(), key=lambda item: item[0])))


@lru_cache(maxsize=1024)
def _parse(text: str, types: tuple[tuple[str, Any], ...] | None) -> Signature:
    sides = _sides(text)
    if len(sides) != 2:  # e.g. an unclosed quote
        sides = text.split("->")
    if len(sides) != 2:
        raise _error(text, "a signature has one '->' between inputs and outputs")
    known = None if types is None else dict(types)
    inputs, outputs = (_fields(side, text, known) for side in sides)
    if not outputs:
        raise _error(text, "a signature needs at least one output")
    if drawn := [f.name for f in outputs if f.type is Image]:
        raise _error(text, f"'{drawn[0]}' is an output, and only inputs may be images")
    if nested := [f.name for f in (*inputs, *outputs) if f.type is not Image and _holds_image(f.type)]:
        raise _error(text, f"the type of '{nested[0]}' has an image in it, and only a whole input may be one")
    for side, word in ((inputs, "input"), (outputs, "output")):
        if len({f.name for f in side}) < len(side):
            raise _error(text, f"an {word} is named twice")
    return Signature(inputs, outputs)


def with_inputs(text: str, *, add: Iterable[str] = (), drop: Collection[str] = ()) -> str:
    """Return a signature without the inputs in `drop`, and with those in `add` after its own.

    add: fields as written, e.g. "facts: list[str]". Fields that the signature already has are not added again.
    """
    here = [f.name for f in _parse(text, None).inputs]
    more = [a for a in add if a.partition(":")[0].strip() not in here]
    if not more and not set(drop) & set(here):
        return text
    inputs, outputs = written_fields(text)
    kept = [f for f, name in zip(inputs, here, strict=True) if name not in drop]
    return f"{', '.join([*kept, *more])} -> {', '.join(outputs)}".strip()


def written_fields(text: str) -> tuple[list[str], list[str]]:
    """Return the inputs and outputs of a signature as written, e.g. `label: Literal['a', 'b']`. Raises SpecError."""
    _parse(text, None)  # raises if anything is wrong
    sides = _sides(text)
    found: list[list[str]] = []
    for side in sides if len(sides) == 2 else text.split("->"):
        function = ast.parse(f"def f({side.strip()}): ...").body[0]
        assert isinstance(function, ast.FunctionDef)
        found.append([ast.unparse(argument) for argument in function.args.args])
    return found[0], found[1]


def _fields(side: str, text: str, types: Types) -> tuple[Field, ...]:
    if not side.strip():
        return ()
    try:
        function, *more = ast.parse(f"def f({side.strip()}): ...").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        blank = next((part.strip() for part in side.split(",") if re.fullmatch(r"\s*\w+( \w+)+\s*", part)), "")
        renamed = f"{blank.replace(' ', '_').lower()}: {blank}"
        why = f": a name has no blank; write data: {{fields: {{{renamed}}}}} and use the new name" if blank else ""
        raise _error(text, f"cannot read '{side.strip()[:60]}'{why}") from error
    assert isinstance(function, ast.FunctionDef)
    if more or [ast.dump(part) for part in function.body] != [_ELLIPSIS]:  # the side closed the bracket and went on
        raise _error(text, f"cannot read '{side.strip()[:60]}'")
    if beside := _beside(side):
        raise _error(text, f"between {beside[0]} and {beside[1]} a comma is missing")
    arguments = function.args
    if arguments.defaults or arguments.vararg or arguments.kwonlyargs or arguments.posonlyargs or arguments.kwarg:
        raise _error(text, "fields have a name and a type, nothing else")
    return tuple(_field(a, text, types) for a in arguments.args)


def _field(argument: ast.arg, text: str, types: Types) -> Field:
    if argument.annotation is None:
        return Field(argument.arg)
    annotation = _type(argument.annotation, text, types)
    if annotation is None:
        raise _error(text, f"'{argument.arg}' can only be null")
    values = getattr(annotation, "__args__", ()) if getattr(annotation, "__origin__", None) is Literal else ()
    return Field(argument.arg, annotation, tuple(values))


def _beside(side: str) -> tuple[str, str] | None:
    """Return two quoted texts with nothing between them, which Python would join into one; None if there are none."""
    if "'" not in side and '"' not in side:
        return None
    tokens = [
        t
        for t in tokenize.generate_tokens(io.StringIO(f"({side})").readline)
        if t.type not in (tokenize.NL, tokenize.COMMENT)
    ]
    pairs = ((a, b) for a, b in pairwise(tokens) if a.type == b.type == tokenize.STRING)
    return next(((a.string, b.string) for a, b in pairs), None)


def _type(node: ast.expr, text: str, types: Types) -> Any:
    if isinstance(node, ast.Name) and (types is None or node.id in types or node.id in _TYPES):
        return _TYPES.get(node.id) or (types or {}).get(node.id, Any)
    if isinstance(node, ast.Dict):
        return _object(node, text, types)
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        try:
            return _type(node.left, text, types) | _type(node.right, text, types)
        except TypeError as error:
            raise _error(text, f"unknown type '{ast.unparse(node)}'") from error
    if isinstance(node, ast.Subscript):
        outer = ast.unparse(node.value).removeprefix("typing.")
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if outer == "Literal":
            try:
                values = tuple(ast.literal_eval(p) for p in parts)
                if not values or not all(isinstance(v, str | int | float | bool | None) for v in values):
                    raise ValueError(values)
                return Literal[values]  # type: ignore[misc]
            except (ValueError, TypeError) as error:
                raise _error(text, "the values of Literal must be quoted texts or numbers") from error
        inner = tuple(_type(p, text, types) for p in parts)
        if outer == "Optional" and len(inner) == 1:
            return Optional[inner[0]]  # noqa: UP045  (built at run time)
        if outer in ("list", "List") and len(inner) == 1:
            return list[inner[0]]
        if outer in ("dict", "Dict") and len(inner) == 2:
            return dict[inner[0], inner[1]]
    raise _error(text, f"unknown type '{ast.unparse(node)}'")


def _object(node: ast.Dict, text: str, types: Types) -> Any:
    """Return the type of an object with named parts. A part that may be None may also be left out."""
    parts: list[tuple[str, Any]] = []
    for key, value in zip(node.keys, node.values, strict=True):
        name = key.id if isinstance(key, ast.Name) else key.value if isinstance(key, ast.Constant) else None
        if not isinstance(name, str) or not name:
            raise _error(text, f"the parts of '{ast.unparse(node)[:60]}' need names")
        parts.append((name, _type(value, text, types)))
    if not parts or len({name for name, _ in parts}) < len(parts):
        raise _error(text, f"'{ast.unparse(node)[:60]}' has no parts, or one of them twice")
    try:
        return _typed_dict(tuple(parts), ast.unparse(node).replace("'", ""))
    except TypeError as error:
        raise _error(text, f"unknown type '{ast.unparse(node)[:60]}'") from error


def _holds_image(kind: Any) -> bool:
    """Return True if a type is Image or contains it."""
    parts = [*get_args(kind), *(kind.__annotations__.values() if hasattr(kind, "__total__") else ())]
    return kind is Image or any(_holds_image(part) for part in parts)


@lru_cache(maxsize=1024)
def _typed_dict(parts: tuple[tuple[str, Any], ...], shown: str) -> Any:
    from typing_extensions import TypedDict

    fields = {name: NotRequired[kind] if type(None) in get_args(kind) else kind for name, kind in parts}
    return TypedDict(shown, fields)  # type: ignore[operator]


def _error(text: str, message: str) -> SpecError:
    shown = text if len(text) <= 60 else text[:57] + "..."
    return SpecError(
        f"signature '{shown}': {message}",
        hint="Write e.g. \"text -> label: Literal['a', 'b']\"; types: str, int, float, bool, list[str], "
        "dict[str, str], Literal[...], {name: str, age: int}; Image, of inputs; classes of yours under `types:`.",
        path=("signature",),
    )
