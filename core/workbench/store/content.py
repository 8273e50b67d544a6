"""What is read from a run database is checked: texts are JSON of the form that workbench writes, and checksums match.

A database may be a stranger's, or damaged. What cannot be what was written ends in a StoreError that names the place.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, TypeVar

from workbench.errors import StoreError
from workbench.type_guards import is_dict

T = TypeVar("T", dict[str, Any], list[Any])


def checksum(*parts: object) -> str:
    """24 hexadecimal digits that change with any part. Guards against damage, not against forgery."""
    text = "\0".join("" if part is None else str(part) for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def text_key(text: str) -> str:
    """The key of a large text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def check_sum(stored: str | None, place: str, *parts: object) -> None:
    """Raise StoreError if the parts are not those that a checksum was made of. None: written before there were any.

    place: names the table and the row.
    """
    if stored is not None and stored != checksum(*parts):
        raise StoreError(f"{place} is damaged: its content does not match its checksum; use a copy of the database")


def parse_json(text: str, place: str, kind: type[T]) -> T:
    """A stored text as the JSON that it must be. Raises StoreError, which names the place."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError, TypeError):
        value = None
    if not isinstance(value, kind):
        what = "an object" if kind is dict else "a list"
        raise StoreError(f"{place} is damaged: it is no JSON of {what}; use a copy of the database")
    return value


def check_tree(tree: dict[str, Any], place: str) -> dict[str, Any]:
    """A workflow's tree, if it has the form of one: nodes by name, each with a kind. Raises StoreError."""
    nodes = tree.get("nodes")
    if not is_dict(nodes) or not all(is_dict(n) and isinstance(n.get("kind"), str) for n in nodes.values()):
        raise StoreError(f"{place} is damaged: it is no workflow; use a copy of the database")
    return tree
