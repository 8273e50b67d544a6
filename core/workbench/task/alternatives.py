"""Slots of a search space: nodes that have alternatives (`any_of`), and nodes that may be left out.

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

#: The options of a slot in addition to its alternatives: the node as the workflow has it, or nothing.
AS_WRITTEN, ABSENT = "as_written", "absent"


def list_options(domain: DomainSpec) -> list[str]:
    """List the names of a slot's options."""
    return [AS_WRITTEN, *(domain.any_of or {}), *([ABSENT] if domain.optional else [])]


def resolve_picks(workflow: Workflow, picks: Mapping[str, str], domains: Mapping[str, DomainSpec]) -> Tree:
    """Return the settings that put the picked option into each slot, as a patch's `set`.

    Fields that only a left-out node wrote are dropped from all readers (`disable_nodes`).

    Args:
        workflow: the one to patch.
        picks: the name of an option, by the address of its slot.
        domains: the search space.

    Raises:
        SpecError: the options do not work together.
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


def parent_slots(address: str, slots: Iterable[str]) -> list[str]:
    """Return the slots whose node holds the setting at an address, the outermost first."""
    return sorted((slot for slot in slots if address.startswith(f"{slot}.")), key=len)


def filled_around(address: str, domains: Mapping[str, DomainSpec], workflow: Workflow) -> Iterator[Workflow]:
    """Yield the workflow with each combination of options in the slots that hold an address, as written first."""
    inside = parent_slots(address, (a for a, domain in domains.items() if domain.is_slot))
    for names in itertools.product(*([AS_WRITTEN, *(domains[slot].any_of or {})] for slot in inside)):
        picks = {slot: name for slot, name in zip(inside, names, strict=True) if name != AS_WRITTEN}
        with suppress(KeyError, SpecError):  # the option of an outer slot has no such inner node
            yield workflow.patched(resolve_picks(workflow, picks, domains)) if picks else workflow


def is_applicable(workflow: Workflow, address: str, domain: DomainSpec) -> bool:
    """Return True if the node at an address takes part and accepts the domain's first value there."""
    parts = address.split(".")
    if parts[0] == "nodes" and not workflow.nodes.get(parts[1], {}).get("enabled", True):
        return False
    try:
        workflow.patched({address: (domain.float_ or domain.int_ or domain.choice or [[]])[0]})
        return True
    except (KeyError, SpecError):
        return False


def variants(domains: Mapping[str, DomainSpec], workflow: Workflow) -> Iterator[tuple[str, Workflow]]:
    """Yield (address, workflow) for each single choice. Numbers and demos are left out.

    A choice inside a slot is made in every option of the slot that has such a setting.
    """
    for address, domain in domains.items():
        starts = filled_around(address, domains, workflow)
        changes = [resolve_picks(workflow, {address: name}, domains) for name in domain.any_of or {}]
        changes += [{address: value} for value in domain.choice or ()]
        for start, change in itertools.product(starts, changes):
            with suppress(KeyError, SpecError):  # this option of the slot has no such setting
                yield address, start.patched(change)


def check_slots(domains: Mapping[str, DomainSpec], workflow: Workflow, given: Collection[str] = ()) -> None:
    """Check that each option of each slot fits the workflow, and also any two options of two slots.

    given: the fields of an example. Raises SpecError.
    """
    for address, domain in domains.items():
        if not domain.is_slot:
            continue
        where: tuple[str | int, ...] = ("search", address)
        inside = address.startswith("nodes.") and isinstance(workflow.get(address, None), dict)
        if not inside or (domain.optional and address.count(".") > 1):
            what = "a node of the graph" if domain.optional else "a node"
            known = ", ".join(f"nodes.{name}" for name in workflow.nodes)
            raise SpecError(f"'{address}' is not {what}", hint=f"Known: {known}.", path=where)
        for name in (n for n in list_options(domain) if n != AS_WRITTEN):
            place = (*where, "any_of", name) if name != ABSENT else where
            try:
                check_flow(workflow.patched(resolve_picks(workflow, {address: name}, domains)), workflow, given)
            except SpecError as error:
                inner = error.path[len(place) :] if error.path[:1] == ("search",) else ()
                said = f"without '{address}': {error.message}" if name == ABSENT else f"{name}: {error.message}"
                raise SpecError(said, hint=error.hint, path=(*place, *inner)) from None
            except PluginError as error:
                raise SpecError(str(error), path=place) from None
    slots = [a for a, domain in domains.items() if domain.is_slot]
    for one, two in itertools.combinations(slots, 2):
        for picks in itertools.product(list_options(domains[one]), list_options(domains[two])):
            both = dict(zip((one, two), picks, strict=True))
            try:
                if AS_WRITTEN not in picks and _may_meet(domains, both):
                    check_flow(workflow.patched(resolve_picks(workflow, both, domains)), workflow, given)
            except (SpecError, KeyError) as error:
                said = error.message if isinstance(error, SpecError) else f"there is no {error}"
                hint = f"Write when: {{{one}: ...}} under {two}, so that it is searched only where they go together."
                message = f"{one}: {picks[0]} and {two}: {picks[1]} do not go together: {said}"
                raise SpecError(message, hint=hint, path=("search", two)) from None


def _may_meet(domains: Mapping[str, DomainSpec], picks: Mapping[str, str]) -> bool:
    return all(picks[a] == wanted for s in picks for a, wanted in domains[s].when.items() if a in picks)
