"""The outline of a DSPy module from its source, without running it: its fields and its predictors."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from workbench.errors import SpecError
from workbench.spec import Address
from workbench.workflow import Signature, parse_signature
from workbench_dspy.predictors import predictor_name

#: Classes of DSPy whose first argument is the signature of the predictor that they are, or contain.
_PREDICTORS = ("Predict", "ChainOfThought")


def find_class(address: Address, base: Path) -> ast.ClassDef | None:
    """Return the class in the source of a file next to the workflow; None if it is defined elsewhere."""
    path = address.file(base)
    if not path.is_file():
        return None
    with suppress(SyntaxError, ValueError, OSError, RecursionError, MemoryError):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ClassDef) and node.name == address.name:
                return node
    return None


def declared_signature(found: ast.ClassDef | None, arguments: Mapping[str, Any]) -> str | None:
    """Return the signature of a module: the class attribute `signature`, or the argument of this name."""
    for node in found.body if found is not None else ():
        names = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(n, ast.Name) and n.id == "signature" for n in names):
            value = getattr(node, "value", None)
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    given = arguments.get("signature")
    return given if isinstance(given, str) and "->" in given else None


def declared_predictors(found: ast.ClassDef | None) -> dict[str, Signature]:
    """Return the predictors that `__init__` makes from a signature in notation, by their names in addresses."""
    predictors: dict[str, Signature] = {}
    for name, text in _assigned(found) if found is not None else ():
        with suppress(SpecError):
            predictors[predictor_name(name)] = parse_signature(text)
    return predictors


def _assigned(found: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield (attribute, signature) of each `self.NAME = dspy.Predict("...")`."""
    for node in ast.walk(found):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args):
            continue
        target, first = node.targets[0], node.value.args[0]
        made = ast.unparse(node.value.func).rpartition(".")[2]
        if isinstance(target, ast.Attribute) and isinstance(first, ast.Constant) and made in _PREDICTORS:
            if isinstance(first.value, str):
                yield target.attr, first.value
