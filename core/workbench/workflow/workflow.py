"""Workflows as immutable values: a tree of settings with its content hash, patches, nodes and graph.

An address is the path of a setting in that tree: `nodes.answer.instructions`, `nodes.vote.of.samples`, `lm.model`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from workbench.base.hashing import digest
from workbench.base.type_guards import is_dict, is_list
from workbench.errors import PluginError, SpecError, collect_errors, errors_at, placed_at, suggest
from workbench.plugins import plugins
from workbench.spec import NODE_KEYS, Code, collection, spec_error, written_key
from workbench.workflow.graph import build_graph, fields_from_outside, needs_of, until_required, writers_of
from workbench.workflow.node import NodeKind
from workbench.workflow.tree import GONE, Tree, edit_tree, find_changes, inner_orders, leaves_of

if TYPE_CHECKING:
    from workbench.workflow.graph import Graph


@dataclass(frozen=True)
class Patch:
    """A typed edit of a workflow.

    set: settings to write, by address. unset: addresses to remove. note: the reason, for people.
    """

    set: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unset: tuple[str, ...] = ()
    note: str = ""

    def as_dict(self) -> Tree:
        return {"set": dict(self.set), "unset": list(self.unset), "note": self.note}

    @classmethod
    def between(cls, here: Workflow, there: Workflow, note: str = "") -> Patch:
        """Return the patch that turns `here` into `there`."""
        changed, gone = find_changes(here.tree, there.tree)
        names = [n for n in (*here.nodes, *there.nodes) if n in there.nodes]
        moved = there.with_tree({**there.tree, "nodes": {n: there.nodes[n] for n in dict.fromkeys(names)}})
        if moved != there:  # a patch appends new nodes, and in this workflow the order of nodes matters
            changed = {k: v for k, v in changed.items() if not k.startswith("nodes.")} | {"nodes": there.nodes}
            gone = [address for address in gone if not address.startswith("nodes.")]
        return cls(changed, tuple(gone), note)

    def inverse(self, workflow: Workflow) -> Patch:
        """Return the patch that undoes this one. workflow: the workflow that this patch applies to."""
        return Patch.between(workflow.patched(self), workflow, f"undo {self.note}".strip())


@dataclass(frozen=True, eq=False)
class Workflow:
    """An immutable workflow.

    tree: {"name", "lm", "nodes": {name: {"kind", ..., "needs", "optional", "enabled"}}}, plain JSON values.
    base: the folder that relative paths start from; not part of the hash.
    parent, patch: its origin. Workflows with equal trees are equal, whatever their parents.
    code: the state of the user code that its nodes are made with (`workbench.spec`), inherited by workflows made from
    this one. Default: `unread`, because a workflow is data.
    """

    tree: Tree
    base: Path = field(default_factory=Path.cwd)
    parent: str | None = None
    patch: Patch | None = None
    code: Code = "unread"

    @cached_property
    def hash(self) -> str:
        """Return the hash of everything but the name. The order of nodes counts only if it decides which node reads
        which.

        The nodes report the fields that they read and write, which loads no user code unless the workflow has it
        `loaded`. Keys of effects in stored runs contain the hash, so never change how it is computed. Raises SpecError
        and PluginError if a node cannot be made, e.g. if its plugin is missing.
        """
        content = {k: v for k, v in self.tree.items() if k != "name"}
        order = self._order()
        return digest([content, order] if order else content)

    def _order(self) -> list[list[str]]:
        """Return everything about the order of nodes that has a meaning: the writers and readers of each field that
        several nodes write, in the order of the file, and the order of the nodes in sub-workflows."""
        trees = self.tree.get("nodes")
        if not trees:
            return []
        nodes = _make_enabled(self)
        shared = {f: set(names) for f, names in writers_of(nodes).items() if len(names) > 1}
        met = [
            [n for n, node in nodes.items() if n in names or f in node.inputs] for f, names in sorted(shared.items())
        ]
        return [*met, *inner_orders(list(trees.values()))]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workflow) and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        known = vars(self).get("hash", "")  # not computed here: it may raise, and a repr must not
        return f"<Workflow {self.tree.get('name', '')} {known[:8]}>"

    @property
    def nodes(self) -> Tree:
        return self.tree["nodes"]

    def get(self, address: str, default: Any = GONE) -> Any:
        """Return the value at an address. Raises KeyError if there is none and no default is given."""
        value: Any = self.tree
        for part in written_place(self.tree, address.split(".")):
            try:
                value = value[int(part)] if is_list(value) else value[part]
            except (KeyError, IndexError, ValueError, TypeError):
                if default is GONE:
                    raise KeyError(address) from None
                return default
        return value

    def patched(self, patch: Patch | Mapping[str, Any], note: str = "") -> Workflow:
        """Return a new workflow with the patch applied. self does not change.

        Raises KeyError for an address whose parent does not exist, and SpecError for values that a node does not
        accept.
        """
        patch = patch if isinstance(patch, Patch) else Patch(dict(patch), note=note)
        tree: Tree = self.tree
        for address in patch.unset:
            tree = edit_tree(tree, written_place(tree, address.split(".")), GONE, address)
        for address, value in patch.set.items():
            value = json.loads(json.dumps(value, ensure_ascii=False, default=str))
            tree = edit_tree(tree, written_place(tree, address.split(".")), value, address)
        child = Workflow(tree, self.base, self.hash, patch, self.code)
        child.check()  # report a bad value here rather than where it is used
        return child

    def with_tree(self, tree: Tree) -> Workflow:
        """Return a workflow with another tree, and the same base and state of user code."""
        return Workflow(tree, self.base, code=self.code)

    def with_code(self, code: Code) -> Workflow:
        """Return the same workflow with its user code in this state."""
        return self if code == self.code else replace(self, code=code)

    def diff(self, other: Workflow) -> list[tuple[str, Any, Any]]:
        """List (address, value here, value there) for each setting that differs; a missing value is None."""
        here, there = dict(leaves_of(self.tree)), dict(leaves_of(other.tree))
        return [
            (address, here.get(address), there.get(address))
            for address in sorted(here.keys() | there.keys())
            if here.get(address) != there.get(address)
        ]

    @cached_property
    def graph(self) -> Graph:
        """Return the enabled nodes and their dependencies (see `workbench.workflow.graph.build_graph`).

        Disabled nodes are checked, too. Raises SpecError and PluginError.
        """
        _make_all(self, _node_trees(self))
        return build_graph(self.enabled_nodes, self.nodes)

    def check(self) -> None:
        """Raise SpecError or PluginError if a node cannot be made, or if the nodes form no graph."""
        _ = self.graph

    @property
    def enabled_nodes(self) -> dict[str, NodeKind]:
        """Return the enabled nodes by name, in the order of the file."""
        found = dict[str, NodeKind]()
        for name, tree in self.nodes.items():
            if tree.get("enabled", True):
                with placed_at("nodes", name):
                    found[name] = make_node(name, tree, self.base, self.code)
        return found

    def walk(self) -> Iterator[NodeKind]:
        """Yield the enabled nodes and all nodes inside them."""
        for node in self.enabled_nodes.values():
            yield from node.walk()

    @property
    def max_calls(self) -> int:
        """Return the most LM calls that one example can take, without retries."""
        return sum(node.max_calls for node in self.enabled_nodes.values())

    @property
    def input_fields(self) -> list[str]:
        """List the fields read from an example: those that a node reads and no node before it writes."""
        return fields_from_outside(self.graph)

    @property
    def output_fields(self) -> list[str]:
        """List the fields written by the last nodes, i.e. those that no other node depends on."""
        nodes, graph = self.enabled_nodes, self.graph
        return list(dict.fromkeys(f for name in graph if not graph.out_degree(name) for f in nodes[name].outputs))

    def is_needed(self, name: str) -> bool:
        """Return True if another node lists this one under its `needs`."""
        return any(name in needs_of(tree) for tree in self.nodes.values())

    def last_writers(self) -> dict[str, list[str]]:
        """Return, by field, the nodes that may give its final value: the last writer and, while these are optional, the
        writers before it."""
        writers = writers_of(self.enabled_nodes)
        return {field: until_required(names[::-1], self.nodes) for field, names in writers.items()}


def written_place(tree: Any, place: Iterable[str | int]) -> list[Any]:
    """Return the keys that lead to a place of the normal form in a tree that may be written in short forms."""
    found: list[Any] = []
    for part in place:
        if is_dict(tree):
            part = written_key(tree, str(part))
            tree = tree.get(part)
        else:
            tree = tree[int(part)] if is_list(tree) and str(part).isdigit() and int(part) < len(tree) else None
        found.append(part)
    return found


def node_tree(raw: Mapping[str, Any]) -> Tree:
    """Return a node as written (`{predict: ..., instructions: ...}`) in normal form (`{"kind": "predict", ...}`).

    Raises SpecError, with a path inside the node, if it does not name exactly one kind.
    """
    known = plugins().names("node_kinds")
    if "kind" in raw:  # already the normal form, as exported
        kinds = [raw["kind"]]
        rest = {k: v for k, v in raw.items() if k != "kind"}
    else:
        named = [key for key in raw if key in known]
        kinds, rest = [kind for kind in named if not _is_setting(kind, named)], dict(raw)
    if len(kinds) != 1 or kinds[0] not in known:
        if kinds:
            raise SpecError(f"a node has one kind, this one names {', '.join(map(str, kinds))}")
        others = [k for k in raw if k not in NODE_KEYS]
        hint = suggest(str(others[0]), known) if others else f"Known: {', '.join(known)}."
        if others and plugins().set_aside:
            hint += f" Plugins that failed to load: {', '.join(sorted(plugins().set_aside))}."
        raise SpecError("no node kind is named here", hint=hint, path=(others[0],) if others else ())
    for key in ("optional", "enabled"):
        if not isinstance(raw.get(key, True), bool):
            raise SpecError(f"{key} must be true or false, not {raw[key]!r}", path=(key,))
    kind = kinds[0]
    cls = node_class(kind)
    if kind in rest:
        rest = {cls.primary: rest.pop(kind), **rest}
    return {"kind": kind, **rest, **{group: {} for group in cls.groups if group not in rest}}


def _is_setting(name: str, kinds: Iterable[str]) -> bool:
    """Return True for the name of a kind that is also a setting of another kind: `calls` is a setting of `program`."""
    return any(name in node_class(kind).Config.model_fields for kind in kinds if kind != name)


def node_class(kind: str) -> type[NodeKind]:
    """Return the class of a node kind. Raises PluginError for an unknown name."""
    cls = plugins().get("node_kinds", kind)
    if not (isinstance(cls, type) and issubclass(cls, NodeKind)):
        raise PluginError(f"node kind '{kind}' is not a subclass of workbench.NodeKind")
    return cls


def make_node(name: str, tree: Tree, base: Path, code: Code) -> NodeKind:
    """Make the node for a normal-form tree. Equal trees share one object. Raises pydantic's ValidationError.

    code: the state of the user code that it names.
    """
    # Not sorted: the order inside (nodes of a sub-workflow, states) may have a meaning.
    return _make_node(name, json.dumps(tree, ensure_ascii=False, default=str), base, code, collection())


@lru_cache(maxsize=4096)
def _make_node(name: str, text: str, base: Path, code: Code, collection: object) -> NodeKind:
    """Make a node, cached also by code: a node without its user code is another object than the one with it. Each place
    in a file passes its doors in each collection."""
    tree = json.loads(text)
    cls = node_class(tree["kind"])
    settings = {k: v for k, v in tree.items() if k != "kind" and k not in NODE_KEYS}
    return cls.make(name, cls.Config.model_validate(settings), base, code)


def forget_nodes() -> None:
    """Drop all cached nodes, since files that they have read (sub-workflows, tools, corpora) may have changed."""
    _make_node.cache_clear()


def _make_enabled(workflow: Workflow) -> dict[str, NodeKind]:
    """Make the enabled nodes from unchecked trees. Raises SpecError and PluginError."""
    trees = _node_trees(workflow)
    return _make_all(workflow, {name: tree for name, tree in trees.items() if tree.get("enabled", True)})


def _node_trees(workflow: Workflow) -> Tree:
    """Return the unchecked trees of all nodes. Raises SpecError if they are not mappings."""
    trees: object = workflow.tree.get("nodes")
    if not is_dict(trees):
        raise SpecError("the nodes must be a mapping", hint="Write each node under its name.", path=("nodes",))
    for name, tree in trees.items():
        if not is_dict(tree) or not isinstance(tree.get("kind"), str):
            raise SpecError(
                f"node '{name}' names no kind", hint="Write e.g. {kind: predict, ...}.", path=("nodes", name)
            )
    return trees


def _make_all(workflow: Workflow, trees: Tree) -> dict[str, NodeKind]:
    def make(name: str, tree: Tree) -> NodeKind:
        try:
            with errors_at("nodes", name):
                return make_node(name, tree, workflow.base, workflow.code)
        except ValidationError as error:
            raise spec_error(error, node_class(tree["kind"]).Config, ("nodes", name)) from None

    made = collect_errors(partial(make, name, tree) for name, tree in trees.items())
    return dict(zip(trees, made, strict=True))
