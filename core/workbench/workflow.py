"""Workflows as immutable values: a tree of settings with a content hash, patches, and a graph.

An address is the path of a setting in that tree: `nodes.answer.instructions`, `nodes.vote.of.samples`, `lm.model`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.graph import writers_of

if TYPE_CHECKING:
    import networkx

Tree = dict[str, Any]

_GONE = object()


def canonical(value: Any) -> str:
    """JSON with sorted keys: equal values give equal text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)


def digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode("utf-8", "backslashreplace")).hexdigest()[:16]


@dataclass(frozen=True)
class Patch:
    """A typed edit: settings to write and settings to remove, by address, and why."""

    set: Mapping[str, Any] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    note: str = ""

    def as_dict(self) -> Tree:
        return {"set": dict(self.set), "unset": list(self.unset), "note": self.note}

    @classmethod
    def between(cls, here: Workflow, there: Workflow, note: str = "") -> Patch:
        """What makes `there` of `here`."""
        changed, gone = _changes(here.tree, there.tree)
        names = [n for n in (*here.nodes, *there.nodes) if n in there.nodes]
        moved = Workflow({**there.tree, "nodes": {n: there.nodes[n] for n in dict.fromkeys(names)}}, there.base)
        if moved != there:  # a node that is written anew stands last, and here it matters where it stands
            changed = {k: v for k, v in changed.items() if not k.startswith("nodes.")} | {"nodes": there.nodes}
            gone = [address for address in gone if not address.startswith("nodes.")]
        return cls(changed, tuple(gone), note)

    def inverse(self, workflow: Workflow) -> Patch:
        """The patch that undoes this one. workflow: what this one applies to."""
        return Patch.between(workflow.patched(self), workflow, f"undo {self.note}".strip())


@dataclass(frozen=True, eq=False)
class Workflow:
    """An immutable workflow.

    tree: {"name", "lm", "nodes": {name: {"kind", ..., "needs", "optional", "enabled"}}}, plain JSON values.
    base: the folder that relative paths start from; not part of the hash.
    parent, patch: how it was made; equal trees are equal workflows, whatever their parents.
    """

    tree: Tree
    base: Path = field(default_factory=Path.cwd)
    parent: str | None = None
    patch: Patch | None = None

    @cached_property
    def hash(self) -> str:
        """Of everything but the name; of the order of nodes as far as it decides who reads what.

        That order depends on what the node kinds read and write. So a node that cannot be made, for want of a plugin say, has
        no hash: another one, of the tree alone, would make two workflows of one. Raises SpecError and PluginError.
        """
        content = {k: v for k, v in self.tree.items() if k != "name"}
        order = self._order()
        return digest([content, order] if order else content)

    def _order(self) -> list[list[str]]:
        """Who writes and reads each field that several nodes write, in the order of the file, which settles who gets whose
        value; and the order of nodes in sub-workflows, as it is."""
        from workbench.nodes import made_nodes

        trees = self.tree.get("nodes")
        if not trees:
            return []
        nodes = made_nodes(self)
        shared = {f: set(names) for f, names in writers_of(nodes).items() if len(names) > 1}
        met = [
            [n for n, node in nodes.items() if n in names or f in node.inputs] for f, names in sorted(shared.items())
        ]
        return [*met, *_inner_orders(list(trees.values()))]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workflow) and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        known = vars(self).get(
            "hash", ""
        )  # else not computed: a workflow that cannot be made has none, and no repr may raise
        return f"<Workflow {self.tree.get('name', '')} {known[:8]}>"

    @property
    def nodes(self) -> Tree:
        return self.tree["nodes"]

    def get(self, address: str, default: Any = _GONE) -> Any:
        """The value at an address. Raises KeyError if there is none and no default is given."""
        value: Any = self.tree
        for part in address.split("."):
            try:
                value = value[int(part)] if isinstance(value, list) else value[part]
            except (KeyError, IndexError, ValueError, TypeError):
                if default is _GONE:
                    raise KeyError(address) from None
                return default
        return value

    def patched(self, patch: Patch | Mapping[str, Any], note: str = "") -> Workflow:
        """A new workflow with the patch applied; self stays as it is.

        Raises KeyError for an address whose parent does not exist, and SpecError (from the node kinds) for values
        that a node does not accept.
        """
        patch = patch if isinstance(patch, Patch) else Patch(dict(patch), note=note)
        tree: Tree = self.tree
        for address in patch.unset:
            tree = _edit(tree, address.split("."), _GONE, address)
        for address, value in patch.set.items():
            value = json.loads(json.dumps(value, ensure_ascii=False, default=str))
            tree = _edit(tree, address.split("."), value, address)
        child = Workflow(tree, self.base, self.hash, patch)
        _ = child.graph  # so that a bad value is refused here, and not where it is used
        return child

    def diff(self, other: Workflow) -> list[tuple[str, Any, Any]]:
        """(address, value here, value there) for each setting that differs; None where there is none."""
        here, there = dict(_leaves(self.tree)), dict(_leaves(other.tree))
        return [
            (address, here.get(address), there.get(address))
            for address in sorted(here.keys() | there.keys())
            if here.get(address) != there.get(address)
        ]

    @cached_property
    def graph(self) -> networkx.DiGraph:
        """Enabled nodes and their dependencies (see `workbench.graph.build_graph`)."""
        from workbench.nodes import check_nodes

        return check_nodes(self)


def _inner_orders(value: Any) -> Iterator[list[str]]:
    """The order of keys of each mapping of several that is called `nodes`."""
    if isinstance(value, list):
        for item in value:
            yield from _inner_orders(item)
    elif isinstance(value, dict):
        for key in sorted(value):
            if key == "nodes" and isinstance(value[key], dict) and len(value[key]) > 1:
                yield list(value[key])
            yield from _inner_orders(value[key])


def _edit(tree: Any, path: list[str], value: Any, address: str) -> Any:
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
            if len(rest) > 1 or value is _GONE:
                raise KeyError(address)
            copy[key] = {rest[0]: value}  # a settings group that was left out, e.g. `decoding`
            return copy
        copy[key] = _edit(tree[key], rest, value, address)
    elif value is _GONE:
        if isinstance(copy, dict) and key not in copy:
            raise KeyError(address)
        del copy[key]
    else:
        copy[key] = value
    return copy


def _changes(here: Tree, there: Tree, prefix: str = "") -> tuple[Tree, list[str]]:
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
                inner = _changes(*both, f"{address}.")
                changed |= inner[0]
                gone += inner[1]
            else:
                changed[address] = there[key]
    return changed, gone


def _leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(address, value) of every setting; a list of rows (demos, tools) counts as one value."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix, tree
