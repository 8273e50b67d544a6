"""The workflow that a file describes, with the functions that it takes from other files.

A reference is `FILE#nodes.NAME` (the functions of that node: the list of an `agent`, or the program of a `code` node),
or `FILE` alone (all its functions). It stands in place of functions, and is replaced by them when the file is loaded,
so a result file is complete. The `policy:` of the other file applies to its functions here, too, and is written to the
result file as inherited. A run cannot be resumed once a file that it refers to has changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from workbench.errors import PluginError, SpecError, collect_errors, errors_at, suggest
from workbench.lm import LM_KEYS, locate_weights
from workbench.plugins import plugins
from workbench.spec import Code, Inherited, PolicySpec, Spec, check_nodes, load_yaml_file, read_outside
from workbench.workflow import (
    Tree,
    Workflow,
    learnable_addresses,
    node_at,
    node_class,
    node_tree,
    setting_at,
    written_place,
)


@dataclass(frozen=True)
class Function:
    """A function in a workflow file: the address of its node, its parameters (a JSON Schema of an object), its test."""

    address: str
    name: str
    source: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    example: Mapping[str, Any] | None = None  # arguments, result
    timeout: float = 5.0
    policy: PolicySpec | None = None  # of its file, if that has one

    def as_tool(self) -> dict[str, Any]:
        """Return the function in the form used in the `functions` of an agent."""
        tool = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
            "source": self.source,
        }
        return {**tool, "example": dict(self.example)} if self.example else tool


def functions_of(workflow: Workflow) -> list[Function]:
    """Return all functions of a workflow's enabled nodes and the nodes inside them."""
    found: list[Function] = []
    for address, kind in learnable_addresses(workflow).items():
        node = address.rpartition(".")[0]
        if kind == "functions":
            for given in setting_at(workflow, address) or ():
                given = given if isinstance(given, Mapping) else given.model_dump()
                known = {k: given[k] for k in ("name", "source", "description", "parameters") if k in given}
                found.append(Function(node, **known, example=given.get("example")))
        elif kind == "code":
            found.append(_program(node, node_at(workflow, address)))
    return found


def _program(address: str, node: Any) -> Function:
    """Return the program of a `code` node. Its parameters are those of the node's signature."""
    from pydantic import TypeAdapter

    fields = node.signature.inputs
    schema = {f.name: {} if f.type is Any else TypeAdapter(f.type).json_schema() for f in fields}
    parameters = {"type": "object", "properties": schema, "required": [f.name for f in fields]}
    example = node.config.example.model_dump() if node.config.example is not None else None
    return Function(
        address, node.function, node.config.source, node.config.code, parameters, example, node.config.timeout
    )


def read_library(path: Path, loading: Sequence[Path] = ()) -> list[Function]:
    """Read the functions of a workflow file. Raises SpecError for an invalid file, or one that refers to itself.

    loading: the files that refer to this one, outermost first.
    """
    path = path.resolve()
    if path in loading:
        ring = " -> ".join(p.name for p in (*loading, path))
        raise SpecError(f"these files refer to each other: {ring}", hint="Write the functions out in one of them.")
    source = load_yaml_file(path)
    spec = check_nodes(source)
    inherited: list[Inherited] = []
    with source.locating():
        functions = functions_of(load_workflow(spec, path.parent, (*loading, path), inherited, "unread"))
    policy = spec.policy.inherit(inherited)
    return [replace(f, policy=policy) for f in functions] if policy.restricts else functions


def expand_references(raw: Any, base: Path, loading: Sequence[Path], inherited: list[Inherited]) -> Any:
    """Return a node as written, with references to functions replaced by the functions and its models' weights located,
    also in the nodes inside it.

    Args:
        raw: the node, or a part of it.
        base: the folder that references are relative to.
        loading: the files being read, outermost first; none of them may be referred to.
        inherited: the policies of the files referred to are appended here.

    Raises:
        SpecError: a reference leads nowhere; the path is inside the node.
    """
    if isinstance(raw, list):
        return [_expand_at(i, value, base, loading, inherited) for i, value in enumerate(raw)]
    if not isinstance(raw, Mapping):
        return raw
    lists = _function_settings(raw)
    return {key: _expand_at(key, value, base, loading, inherited, key in lists) for key, value in raw.items()}


def _expand_at(
    key: str | int,
    value: Any,
    base: Path,
    loading: Sequence[Path],
    inherited: list[Inherited],
    functions: bool = False,
) -> Any:
    if key in LM_KEYS:
        return locate_weights(value, base)
    with errors_at(key):
        return (_expand_functions if functions else expand_references)(value, base, loading, inherited)


def _function_settings(raw: Mapping[str, Any]) -> set[str]:
    """Return the settings of a node that hold functions; empty if the mapping is no node."""
    kinds = [raw["kind"]] if "kind" in raw else [k for k in raw if k in plugins().names("node_kinds")]
    if len(kinds) != 1 or kinds[0] not in plugins().names("node_kinds"):
        return set()
    return {name for name, what in node_class(kinds[0]).learnable.items() if what == "functions"}


def _expand_functions(value: Any, base: Path, loading: Sequence[Path], inherited: list[Inherited]) -> Any:
    if isinstance(value, str):
        return _read_reference(value, base, loading, inherited)
    if not isinstance(value, list):
        return value
    found: list[Any] = []
    for i, item in enumerate(value):
        with errors_at(i):
            found += _read_reference(item, base, loading, inherited) if isinstance(item, str) else [item]
    return found


def _read_reference(
    reference: str, base: Path, loading: Sequence[Path], inherited: list[Inherited]
) -> list[dict[str, Any]]:
    """Return the functions that a reference names, in the form of an agent's tools."""
    file, mark, address = reference.partition("#")
    hint = "Write FILE#nodes.NAME, relative to this file, for the functions of a node of another workflow file."
    if not file or (mark and not address):
        raise SpecError(f"'{reference}' names no functions", hint=hint)
    read_outside(file, base)
    try:
        functions = read_library(base / file, loading)
    except SpecError as error:
        place = f" ({_place(error)})" if error.file else ""
        raise SpecError(f"'{reference}': {error.message}{place}", hint=error.hint) from None
    places = list(dict.fromkeys(f.address for f in functions))
    chosen = [f for f in functions if not mark or f.address == address]
    if not chosen:
        raise SpecError(
            f"'{reference}': {f'no functions at {address}' if mark else 'this file has no functions'}",
            hint=suggest(address, places) if places else hint,
        )
    if chosen[0].policy is not None:  # all functions of a file share it
        inherited.append(Inherited(tools=[f.name for f in chosen], policy=chosen[0].policy))
    return [f.as_tool() for f in chosen]


def _place(error: SpecError) -> str:
    return ":".join(str(part) for part in (error.file, error.line, error.column) if part is not None)


def load_workflow(
    spec: Spec,
    base: Path,
    loading: Sequence[Path] = (),
    inherited: list[Inherited] | None = None,
    code: Code = "loaded",
) -> Workflow:
    """Load the workflow that a file describes.

    Args:
        spec: the file as typed values.
        base: the folder that paths in the file are relative to.
        loading: the files that refer to this one for its functions, outermost first.
        inherited: the policies of the files that this one refers to are appended here.
        code: the state of its nodes' user code.

    Raises:
        SpecError: with the path of the error; `Source.locating` adds line and column.
    """
    inherited = [] if inherited is None else inherited

    def tree(name: str, raw: Any) -> Tree:
        with errors_at("nodes", name):
            if not name.isidentifier():
                raise SpecError(f"'{name}' cannot name a node", hint="Use letters, digits and _.")
            try:
                return node_tree(add_types(expand_references(raw, base, loading, inherited), spec.types))
            except PluginError as error:
                raise SpecError(str(error)) from error

    trees = collect_errors(partial(tree, name, raw) for name, raw in spec.nodes.items())
    nodes = dict(zip(spec.nodes, trees, strict=True))
    workflow = Workflow({"name": spec.name, "nodes": nodes}, base, code=code)
    try:
        workflow.check()
    except SpecError as error:
        for one in (error, *error.more):
            one.path = tuple(written_place({"nodes": spec.nodes}, one.path))
        raise
    return workflow


def add_types(raw: Any, types: Mapping[str, str]) -> Any:
    """Return a node as written, with the file's types that its signature names, also in the nodes inside it."""
    if not types:
        return raw
    if isinstance(raw, list):
        return [add_types(value, types) for value in raw]
    if not isinstance(raw, Mapping):
        return raw
    found = {key: add_types(value, types) for key, value in raw.items()}
    kinds = [raw["kind"]] if "kind" in raw else [k for k in raw if k in plugins().names("node_kinds")]
    if len(kinds) == 1 and kinds[0] in plugins().names("node_kinds"):
        signature = str(raw.get("signature", raw.get(kinds[0], "")))
        used = {name: address for name, address in types.items() if re.search(rf"\b{re.escape(name)}\b", signature)}
        if used and "types" in node_class(kinds[0]).Config.model_fields:
            found["types"] = {**used, **(raw.get("types") or {})}
    return found
