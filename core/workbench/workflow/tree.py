"""The tree of a workflow's settings: read, compared and edited by address.

An address is the path of a setting in that tree: `nodes.answer.instructions`, `nodes.vote.of.samples`, `lm.model`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Tree = dict[str, Any]
GONE = object()


def inner_orders(value: Any) -> Iterator[list[str]]:
    """The order of keys of each mapping of several that is called `nodes`."""
    if isinstance(value, list):
        for item in value:
            yield from inner_orders(item)
    elif isinstance(value, dict):
        for key in sorted(value):
            if key == "nodes" and isinstance(value[key], dict) and len(value[key]) > 1:
                yield list(value[key])
            yield from inner_orders(value[key])


def edit_tree(tree: Any, path: list[str], value: Any, address: str) -> Any:
    """A copy of tree with the value at path replaced; only what lies on the path is copied."""
    head, rest = path[0], path[1:]
    if isinstance(tree, list):
        if not head.isdigit() or int(head) >= len(tree):
            raise KeyError(address)
        copy: Any = list(tree)
        key: Any = int(head)
    elif isinstance(tree, dict):
        copy, key = dict(tree), head
    else:
        raise KeyError(address)
    if rest:
        if isinstance(tree, dict) and head not in tree:
            if len(rest) > 1 or value is GONE:
                raise KeyError(address)
            copy[key] = {rest[0]: value}  # a settings group that was left out, e.g. `decoding`
            return copy
        copy[key] = edit_tree(tree[key], rest, value, address)
    elif value is GONE:
        if isinstance(copy, dict) and key not in copy:
            raise KeyError(address)
        del copy[key]
    else:
        copy[key] = value
    return copy


def find_changes(here: Tree, there: Tree, prefix: str = "") -> tuple[Tree, list[str]]:
    """(settings to write, addresses to remove). A list is one value, as is a mapping whose keys make no addresses."""
    changed: Tree = {}
    gone: list[str] = []
    for key in [*there, *(k for k in here if k not in there)]:
        address = f"{prefix}{key}"
        if key not in there:
            gone.append(address)
        elif key not in here:
            changed[address] = there[key]
        elif here[key] != there[key] or type(here[key]) is not type(there[key]):
            both = here[key], there[key]
            if all(isinstance(v, dict) and v and not any(not k or "." in k for k in v) for v in both):
                inner = find_changes(*both, f"{address}.")
                changed |= inner[0]
                gone += inner[1]
            else:
                changed[address] = there[key]
    return changed, gone


def leaves_of(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(address, value) of every setting; a list of rows (demos, tools) counts as one value."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from leaves_of(value, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, tree
