"""Operations on the tree of a workflow's settings: read, compare and edit by address.

An address is the path of a setting in that tree: `nodes.answer.instructions`, `nodes.vote.of.samples`, `lm.model`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workbench.base.type_guards import is_dict, is_list

Tree = dict[str, Any]
#: As the value of an edit: remove the setting. As a default: raise KeyError.
GONE = object()


def inner_orders(value: Any) -> Iterator[list[str]]:
    """Yield the keys, in order, of each mapping under a key `nodes` inside a value that has several keys."""
    if is_list(value):
        for item in value:
            yield from inner_orders(item)
    elif is_dict(value):
        for key in sorted(value):
            if key == "nodes" and is_dict(value[key]) and len(value[key]) > 1:
                yield list(value[key])
            yield from inner_orders(value[key])


def edit_tree(tree: Any, path: list[str], value: Any, address: str) -> Any:
    """Return a copy of a tree with the value at a path replaced. Only the containers on the path are copied.

    Args:
        tree: a mapping or list.
        path: keys and, for lists, indexes as texts.
        value: what to write; GONE removes the setting.
        address: the whole address, for the KeyError raised if it leads nowhere.
    """
    head, rest = path[0], path[1:]
    copy: Any
    key: Any
    if is_list(tree):
        if not head.isdigit() or int(head) >= len(tree):
            raise KeyError(address)
        copy, key = list(tree), int(head)
    elif is_dict(tree):
        copy, key = dict(tree), head
    else:
        raise KeyError(address)
    if rest:
        if is_dict(tree) and head not in tree:
            if len(rest) > 1 or value is GONE:
                raise KeyError(address)
            copy[key] = {rest[0]: value}  # a settings group that was left out, e.g. `decoding`
            return copy
        copy[key] = edit_tree(tree[key], rest, value, address)
    elif value is GONE:
        if is_dict(copy) and key not in copy:
            raise KeyError(address)
        del copy[key]
    else:
        copy[key] = value
    return copy


def find_changes(here: Tree, there: Tree, prefix: str = "") -> tuple[Tree, list[str]]:
    """Return (settings to write, addresses to remove) that turn `here` into `there`.

    A list counts as one value, and so does a mapping with keys that cannot be part of an address.
    """
    changed: Tree = {}
    gone: list[str] = []
    for key in [*there, *(k for k in here if k not in there)]:
        address = f"{prefix}{key}"
        if key not in there:
            gone.append(address)
        elif key not in here:
            changed[address] = there[key]
        elif here[key] != there[key] or type(here[key]) is not type(there[key]):
            if _has_addresses(here[key]) and _has_addresses(there[key]):
                inner = find_changes(here[key], there[key], f"{address}.")
                changed |= inner[0]
                gone += inner[1]
            else:
                changed[address] = there[key]
    return changed, gone


def _has_addresses(value: Any) -> bool:
    return is_dict(value) and bool(value) and not any(not key or "." in key for key in value)


def leaves_of(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (address, value) of every setting. A list (of demos, of tools) is one value."""
    if is_dict(tree) and tree:
        for key, value in tree.items():
            yield from leaves_of(value, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, tree
