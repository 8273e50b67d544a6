"""Insertion of a search space's values into a raw tree, before anything in the tree is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.spec import Written, written_key

#: Stands for the value as written, in place of a choice.
_AS_WRITTEN = object()


def put_searched(value: Any, search: Any) -> Iterator[Any]:
    """Yield a tree with each choice of a search space at its address.

    An address may be inside another searched one, like `of.tools` inside `of`, or next to a searched `kind`. Its
    choices are then inserted into the written value and into every choice there, since a setting is searched in every
    chosen node that has it. Conditions (`when`) are ignored. Choices without a text are skipped, as they can name
    nothing.

    Args:
        value: the tree as written, in any form.
        search: domains as written, by address relative to the tree. Malformed ones are skipped.
    """
    domains = {str(address): domain for address, domain in search.items()} if is_dict(search) else {}
    for address, domain in domains.items():
        holders = sorted((other for other in domains if _holds(other, address)), key=len)
        for choice in _with_texts(domain):
            for picked in product(*([_AS_WRITTEN, *_with_texts(domains[holder])] for holder in holders)):
                made = value
                for at, new in (*zip(holders, picked, strict=True), (address, choice)):
                    made = made if new is _AS_WRITTEN else _put(made, at.split(".") if at else [], new)
                yield made


def _holds(outer: str, inner: str) -> bool:
    """Return True if a choice at one address affects the meaning of the other address."""
    node, _, setting = outer.rpartition(".")
    held = node if setting == "kind" else outer
    return outer != inner and (not held or inner.startswith(f"{held}."))


def _with_texts(domain: Any) -> list[Any]:
    return [choice for choice in _choices_of(domain) if any(True for _ in Written(choice, (), Path()).texts())]


def _choices_of(domain: Any) -> Iterable[Any]:
    """Return the explicit values of a domain: those of `choice`, and the nodes of `any_of`."""
    if not is_dict(domain):
        return domain if is_list(domain) else ()
    choice, nodes = domain.get("choice"), domain.get("any_of")
    return [*(choice if is_list(choice) else ()), *(nodes.values() if is_dict(nodes) else ())]


def _put(value: Any, keys: list[str], new: Any) -> Any:
    """Return a copy of a value with another value at an address, which need not exist."""
    if not keys:
        return new
    key, rest = keys[0], keys[1:]
    if is_list(value):
        if not key.isdigit() or int(key) > len(value):
            return value
        made = [*value, None] if int(key) == len(value) else [*value]
        made[int(key)] = _put(made[int(key)], rest, new)
        return made
    if isinstance(value, str):
        value = {"model": value}  # a model given by its name alone
    held: dict[str, Any] = dict(value) if is_dict(value) else {}
    key = written_key(held, key)
    held[key] = _put(held.get(key), rest, new)
    return held
