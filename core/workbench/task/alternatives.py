"""Slots of a design space: nodes for which there are alternatives (`any_of`), and nodes that may be left out.

search:
  nodes.plan: optional
  nodes.answer: {any_of: {vote: {ensemble: {predict: "text -> label"}, samples: 5}}}
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from workbench.errors import PluginError, SpecError, errors_at
from workbench.spec import NODE_KEYS, DomainSpec
from workbench.workflow import Tree, Workflow, check_flow, disable_nodes, node_tree

#: What a slot may hold besides its alternatives: the node as it stands in the workflow, or nothing.
AS_WRITTEN, ABSENT = "as_written", "absent"


def contents(domain: DomainSpec) -> list[str]:
    """The names of what a slot may hold."""
    return [AS_WRITTEN, *(domain.any_of or {}), *([ABSENT] if domain.optional else [])]


def fill(workflow: Workflow, picks: Mapping[str, str], domains: Mapping[str, DomainSpec]) -> Tree:
    """The settings that put what was picked into each slot, as a patch's `set`. picks: address to name of a content.

    What a left-out node alone wrote is read no more (`workbench.workflow.without`). Raises SpecError for a combination
    that does not work.
    """
    changes: Tree = {}
    for address, name in picks.items():
        alternatives = domains[address].any_of or {}
        if name in alternatives:
            here = workflow.get(address)
            place = {k: v for k, v in here.items() if k in NODE_KEYS and k != "enabled"}
            changes[address] = {**place, **_tree(alternatives[name], (address, "any_of", name))}
    absent = [a.removeprefix("nodes.") for a, name in picks.items() if name == ABSENT]
    if absent:
        changes |= disable_nodes(workflow.patched(changes), absent)
    return changes


def _tree(raw: Mapping[str, Any], path: tuple[str | int, ...]) -> Tree:
    with errors_at("search", *path):
        return node_tree(raw)


def holders(address: str, slots: Iterable[str]) -> list[str]:
    """The slots in which the setting at an address stands."""
    return [slot for slot in slots if address.startswith(f"{slot}.")]


def accepts(workflow: Workflow, address: str, domain: DomainSpec) -> bool:
    """Whether a node takes part and has the setting at an address, with this domain's first value."""
    parts = address.split(".")
    if parts[0] == "nodes" and not workflow.nodes.get(parts[1], {}).get("enabled", True):
        return False
    try:
        workflow.patched({address: (domain.float_ or domain.int_ or domain.choice or [[]])[0]})
        return True
    except (KeyError, SpecError):
        return False


def variants(domains: Mapping[str, DomainSpec], workflow: Workflow) -> Iterator[tuple[str, Workflow]]:
    """The workflow with each choice made by itself, and the address that it is made at; numbers and demos left out.

    What stands in a slot is chosen in each content of the slot that has such a setting.
    """
    for address, domain in domains.items():
        inside = holders(address, (a for a, other in domains.items() if other.is_slot))
        starts = [workflow]
        for slot in inside:
            starts += [workflow.patched(fill(workflow, {slot: name}, domains)) for name in domains[slot].any_of or {}]
        changes = [fill(workflow, {address: name}, domains) for name in domain.any_of or {}]
        changes += [{address: value} for value in domain.choice or ()]
        for start, change in itertools.product(starts, changes):
            with suppress(KeyError, SpecError):  # of another content of the slot
                yield address, start.patched(change)


def check_slots(domains: Mapping[str, DomainSpec], workflow: Workflow, given: Collection[str] = ()) -> None:
    """Each content of each slot must fit into the workflow, and any two together. given: the fields of an example."""
    for address, domain in domains.items():
        if not domain.is_slot:
            continue
        where: tuple[str | int, ...] = ("search", address)
        inside = address.startswith("nodes.") and isinstance(workflow.get(address, None), dict)
        if not inside or (domain.optional and address.count(".") > 1):
            what = "a node of the graph" if domain.optional else "a node"
            known = ", ".join(f"nodes.{name}" for name in workflow.nodes)
            raise SpecError(f"'{address}' is not {what}", hint=f"Known: {known}.", path=where)
        for name in (n for n in contents(domain) if n != AS_WRITTEN):
            place = (*where, "any_of", name) if name != ABSENT else where
            try:
                check_flow(workflow.patched(fill(workflow, {address: name}, domains)), workflow, given)
            except SpecError as error:
                inner = error.path[len(place) :] if error.path[:1] == ("search",) else ()
                said = f"without '{address}': {error.message}" if name == ABSENT else f"{name}: {error.message}"
                raise SpecError(said, hint=error.hint, path=(*place, *inner)) from None
            except PluginError as error:
                raise SpecError(str(error), path=place) from None
    slots = [a for a, domain in domains.items() if domain.is_slot]
    for one, two in itertools.combinations(slots, 2):
        for picks in itertools.product(contents(domains[one]), contents(domains[two])):
            both = dict(zip((one, two), picks, strict=True))
            try:
                if AS_WRITTEN not in picks and _may_meet(domains, both):
                    check_flow(workflow.patched(fill(workflow, both, domains)), workflow, given)
            except (SpecError, KeyError) as error:
                said = error.message if isinstance(error, SpecError) else f"there is no {error}"
                hint = f"Write when: {{{one}: ...}} under {two}, so that it is searched only where they go together."
                message = f"{one}: {picks[0]} and {two}: {picks[1]} do not go together: {said}"
                raise SpecError(message, hint=hint, path=("search", two)) from None


def _may_meet(domains: Mapping[str, DomainSpec], picks: Mapping[str, str]) -> bool:
    return all(picks[a] == wanted for s in picks for a, wanted in domains[s].when.items() if a in picks)
