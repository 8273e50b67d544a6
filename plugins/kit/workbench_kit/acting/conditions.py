"""Conditions, as under `until` and `keep`: comparisons of fields, in the notation of Python."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from workbench.errors import NodeError, SpecError
from workbench_kit.answers import TRUTH, read_number

_HINT = "Write e.g. finished, not open_questions, score >= 0.8, verdict == 'right', or several with and, or."
_CONSTANTS = {"true": True, "false": False, "null": None}
_ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class FieldCondition:
    """A condition on fields.

    It consists of names of fields, texts, numbers, true and false, lists of these, `len(field)`, comparisons, `in`,
    `not`, `and` and `or`. A text is compared without case and outer spaces; with a number, as the number that it
    spells; by itself, as a truth value. An empty text or list, and 0, are false.

    Args:
        text: the condition.
        key: the setting that it stands under, for errors.

    Raises:
        SpecError: the text is no such condition.
    """

    def __init__(self, text: str, key: str = "until"):
        self.text, self._key = text, key
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise SpecError(f"cannot read the condition '{text:.80}'", hint=_HINT, path=(self._key,)) from None
        self._check(self._tree)

    @property
    def names(self) -> list[str]:
        """Return the fields that it reads."""
        return list(dict.fromkeys(_names(self._tree)))

    @property
    def wanted(self) -> tuple[str, Any] | None:
        """Return (field, value) if the whole condition is `field == value`."""
        tree = self._tree
        if isinstance(tree, ast.Compare) and [type(op) for op in tree.ops] == [ast.Eq]:
            left, right = tree.left, tree.comparators[0]
            if isinstance(left, ast.Name) and isinstance(right, ast.Constant):
                return left.id, right.value
        return None

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Return True if the condition holds. Raise NodeError for a text that is no truth value or no number."""
        return self._truth(self._tree, values)

    def _check(self, tree: ast.expr) -> None:
        match tree:
            case ast.BoolOp():
                parts = tree.values
            case ast.UnaryOp(op=ast.Not()):
                parts = [tree.operand]
            case ast.Compare():
                parts = [tree.left, *tree.comparators]
            case ast.List() | ast.Tuple():
                parts = tree.elts
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name() as field], keywords=[]):
                parts = [field]
            case ast.Name() | ast.Constant():
                return
            case _:
                shown = ast.unparse(tree)
                raise SpecError(f"a condition cannot have '{shown:.60}'", hint=_HINT, path=(self._key,))
        for part in parts:
            self._check(part)

    def _truth(self, tree: ast.expr, values: Mapping[str, Any]) -> bool:
        match tree:
            case ast.BoolOp(op=ast.And()):
                return all(self._truth(part, values) for part in tree.values)
            case ast.BoolOp():
                return any(self._truth(part, values) for part in tree.values)
            case ast.UnaryOp(op=ast.Not()):
                return not self._truth(tree.operand, values)
            case ast.Compare():
                sides = [self._value(side, values) for side in (tree.left, *tree.comparators)]
                pairs = zip(tree.ops, sides, sides[1:], strict=False)
                return all(self._compare(op, left, right) for op, left, right in pairs)
        value = self._value(tree, values)
        if not isinstance(value, str) or not value.strip():
            return bool(value.strip() if isinstance(value, str) else value)
        if (read := TRUTH.read(value)) is None:
            shown = f"'{ast.unparse(tree)}' is {value!r:.80}, neither true nor false"
            raise NodeError("unparsed", f"{self._key}: {shown}. Declare the field as bool, or compare it with a value.")
        return bool(read[0])

    def _value(self, tree: ast.expr, values: Mapping[str, Any]) -> Any:
        match tree:
            case ast.Constant():
                return tree.value
            case ast.Name():
                return values.get(tree.id, _CONSTANTS.get(tree.id))
            case ast.Call():
                found = self._value(tree.args[0], values)
                return len(found) if isinstance(found, str | list | dict) else 0
            case ast.List() | ast.Tuple():
                return [self._value(part, values) for part in tree.elts]
        return self._truth(tree, values)

    def _compare(self, op: ast.cmpop, left: Any, right: Any) -> bool:
        if isinstance(op, ast.In | ast.NotIn):
            return _is_in(left, right) == isinstance(op, ast.In)
        if order := _ORDERS.get(type(op)):
            return order(self._number(left), self._number(right))
        return _same(left, right) == isinstance(op, ast.Eq | ast.Is)

    def _number(self, value: Any) -> float:
        if isinstance(value, bool | int | float):
            return value
        if isinstance(value, str) and (read := read_number(value)) is not None:
            return read[0].value
        raise NodeError("unparsed", f"{self._key}: '{self.text}' compares numbers, and {value!r:.80} is none")


def _names(tree: ast.expr) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in _CONSTANTS and node.id != "len":
            yield node.id


def _is_in(part: Any, whole: Any) -> bool:
    if isinstance(whole, str):
        return str(part).casefold() in whole.casefold()
    return any(_same(part, one) for one in whole) if isinstance(whole, list | tuple | dict) else False


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left.strip().casefold() == right.strip().casefold()
    for text, other in ((left, right), (right, left)):
        if isinstance(text, str) and isinstance(other, bool):
            read = TRUTH.read(text)
            return read is not None and read[0] == other
        if isinstance(text, str) and isinstance(other, int | float):
            number = read_number(text)
            return number is not None and not number[1] and number[0].value == other
    return bool(left == right)
