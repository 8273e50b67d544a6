"""Inner nodes: normalize their trees and create them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from workbench.errors import SpecError, errors_at
from workbench.spec import Code
from workbench.workflow import NodeKind, Signature, make_node, node_tree, parse_signature, with_inputs
from workbench_kit.prompting import default_instructions

T = TypeVar("T")


def child_tree(raw: Any, where: tuple[str | int, ...]) -> dict[str, Any]:
    """Return the normal form of a child's tree. Raise SpecError at `where` inside the parent."""
    if not isinstance(raw, Mapping):
        raise SpecError("a node must be a mapping", hint='Write e.g. of: {predict: "text -> label"}.', path=where)
    with errors_at(*where):
        return node_tree(raw)


def child_node(name: str, raw: Any, base: Path, where: tuple[str | int, ...], code: Code) -> NodeKind:
    """Create the node of a child. code: of the parent. Raise SpecError at its path inside the parent."""
    tree = child_tree(raw, where)
    try:
        with errors_at(*where):
            return make_node(name, tree, base, code)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise SpecError(f"{place}: {first['msg']}", path=(*where, *[p for p in first["loc"] if p in raw])) from None


def instructed_tree(raw: Any, node: NodeKind, aim: str) -> tuple[dict[str, Any], str]:
    """Return (the tree of a child, its instructions), for a child `of` that also gets a second prompt.

    aim: begins the error for a node without a signature or instructions.
    """
    tree, signature = child_tree(raw, ("of",)), getattr(node, "signature", None)
    if not isinstance(signature, Signature) or not hasattr(node.config, "instructions"):
        raise SpecError(
            f"{aim} '{tree['kind']}'",
            hint="It takes nodes with a signature and instructions: predict, agent.",
            path=("of",),
        )
    return tree, str(tree.get("instructions") or default_instructions(signature))


def with_new_inputs(signature: str, names: Sequence[str]) -> str:
    """Append inputs to a signature. Raises SpecError if it has inputs of these names."""
    if taken := [f.name for f in parse_signature(signature).inputs if f.name in names]:
        raise SpecError(
            f"the input '{taken[0]}' is reserved for the enclosing node", hint="Rename the input.", path=("of",)
        )
    return with_inputs(signature, add=names)
