"""Edits of a workflow's structure: small typed changes that plugins contribute and optimizers choose from.

An edit makes a patch, which can be shown, recorded and undone (`Patch.inverse`). It is checked before any call is paid:
an invalid one raises SpecError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workbench.errors import SpecError, suggest
from workbench.plugins import plugins
from workbench.workflow import NodeKind, Patch, Tree, Workflow, check_flow, node_tree


@dataclass(frozen=True)
class Menu:
    """The parts that edits may introduce: names of language models, addresses of tools, verifiers of answers."""

    lms: Sequence[str] = ()
    tools: Sequence[str] = ()
    verifiers: Sequence[str | Mapping[str, Any]] = ()


class Edit(BaseModel):
    """Base of all edits. Its fields are the arguments, each with a description.

    node is the address of a node, possibly inside another one: `nodes.answer`, `nodes.vote.of`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    node: str = Field(description="address of the node, e.g. nodes.answer")

    @classmethod
    def options(cls, workflow: Workflow, menu: Menu) -> Iterable[Edit]:
        """Yield the applications to this workflow that are worth trying, in a fixed order. The caller drops invalid
        ones."""
        raise NotImplementedError

    def brings(self) -> Menu:
        """Return the models, tools and verifiers that the edit would introduce."""
        return Menu()

    def changed(self, workflow: Workflow) -> Patch | Workflow:
        """Return the patch, or the changed workflow. Raise SpecError and KeyError if it does not apply."""
        raise NotImplementedError


def edit_classes(names: Sequence[str] | None = None) -> dict[str, type[Edit]]:
    """Return the registered edits by name, all or only `names`. Raise SpecError for an unknown one."""
    known = plugins().names("edits")
    for name in names or ():
        if name not in known:
            raise SpecError(f"there is no edit '{name}'", hint=suggest(name, known))
    return {name: plugins().get("edits", name) for name in (known if names is None else names)}


def edit_options(workflow: Workflow, menu: Menu, names: Sequence[str] | None = None) -> list[Edit]:
    """List all valid edits of a workflow."""
    return [edit for cls in edit_classes(names).values() for edit in cls.options(workflow, menu)]


def apply_edit(edit: Edit, workflow: Workflow, start: Workflow | None = None) -> Workflow:
    """Return the edited workflow, with the edit as its patch.

    start: the workflow whose flow of fields it must keep (`check_flow`); default: the workflow itself. Raises SpecError
    for an edit that does not apply or breaks the flow.
    """
    try:
        changed = edit.changed(workflow)
    except KeyError as error:
        raise SpecError(
            f"there is no node {error}", hint=f"Known: {', '.join(a for a, _ in places(workflow))}."
        ) from None
    if isinstance(changed, Workflow):
        changed = Patch.between(workflow, changed)
    made = workflow.patched(Patch(changed.set, changed.unset, changed.note or describe_edit(edit)))
    check_flow(made, start or workflow)
    return made


def describe_edit(edit: Edit) -> str:
    """Describe the edit in one line without defaults, e.g. `refine nodes.answer rounds=2`."""
    given = edit.model_dump(exclude_defaults=True)
    name = next((n for n, cls in edit_classes().items() if cls is type(edit)), type(edit).__name__.lower())
    return " ".join([name, str(given.pop("node", "")), *(f"{k}={v}" for k, v in given.items())]).strip()


def read_edit(value: Any, workflow: Workflow, menu: Menu, names: Sequence[str] | None = None) -> Edit:
    """Read an edit that a language model wrote: {"edit": NAME, "node": ..., ...}. Raises SpecError, worded for it.

    It may introduce only what is on the menu or in the workflow. Nothing is loaded: loading a tool runs its module.
    """
    classes = edit_classes(names)
    name = value.get("edit") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in classes:
        raise SpecError("no known edit is named", hint=f'Write e.g. {{"edit": "{next(iter(classes), "")}", ...}}.')
    try:
        edit = classes[name].model_validate({k: v for k, v in value.items() if k != "edit"})
    except ValidationError as error:
        first = error.errors()[0]
        raise SpecError(f"{name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    brought, there = edit.brings(), _used(workflow)
    for what in ("lms", "tools", "verifiers"):
        known = [*getattr(menu, what), *getattr(there, what)]
        for asked in getattr(brought, what):
            if asked not in known:
                raise SpecError(
                    f"{name}: {str(asked)[:100]} is not among the {what} that may be brought in",
                    hint=f"Known: {', '.join(map(str, known)) or 'none'}.",
                )
    return edit


def catalogue(names: Sequence[str] | None, menu: Menu) -> str:
    """Return the part of a prompt that lists the available edits, for an answer that `read_edit` parses."""
    lines = ["Edits:"]
    for name, cls in edit_classes(names).items():
        told = (cls.__doc__ or "").strip().split("\n")[0]
        lines.append(f"- {name}: {told} {', '.join(f'{n} ({f.description})' for n, f in cls.model_fields.items())}")
    for what, known in (("Language models", menu.lms), ("Tools", menu.tools), ("Verifiers", menu.verifiers)):
        if known:
            lines.append(f"\n{what} that edits may bring in, no others: {', '.join(map(str, known))}")
    return "\n".join(lines)


def _used(workflow: Workflow) -> Menu:
    """Return the models, tools and verifiers that the enabled nodes already use."""
    configs = [node.config for node in workflow.walk()]
    found = {
        key: [v for c in configs if (v := getattr(c, key, None)) is not None] for key in ("lm", "tool", "verifier")
    }
    tools = [tool for c in configs if isinstance(listed := getattr(c, "tools", None), list) for tool in listed]
    lms = [lm for lm in (workflow.get("lm.model", None), *found["lm"]) if isinstance(lm, str)]
    return Menu(lms, [*tools, *found["tool"]], found["verifier"])


def places(workflow: Workflow) -> Iterator[tuple[str, NodeKind]]:
    """Yield (address, node) of the enabled nodes and of the nodes inside them."""

    def inside(address: str, node: NodeKind) -> Iterator[tuple[str, NodeKind]]:
        yield address, node
        for name, child in node.children().items():
            if isinstance(workflow.get(f"{address}.{name}", None), dict):
                yield from inside(f"{address}.{name}", child)

    for name, node in workflow.enabled_nodes.items():
        yield from inside(f"nodes.{name}", node)


def tree_at(workflow: Workflow, address: str) -> Tree:
    """Return the tree of the node at an address, in normal form. Raise KeyError if there is none."""
    raw = workflow.get(address)
    if not address.startswith("nodes.") or not isinstance(raw, dict):
        raise KeyError(address)
    try:
        return node_tree(raw)
    except SpecError:
        raise KeyError(address) from None
