"""The kinds of change that a workflow allows, with the options of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from workbench import Study, Workflow
from workbench.errors import SpecError
from workbench.workflow import learnable_addresses, node_at, setting_at, text_role
from workbench_kit.prompting import Proposer, draw_instruction
from workbench_kit.searching import Menu, apply_edit, edit_classes

#: Settings that no model was seen to gain from changing: without its allowed values, an answer is rarely one of them.
_LEFT = ("show_values",)
#: The setting for votes, and the number of answers to try.
VOTES, _ANSWERS = "samples", 3
#: The kind of the instructions, and the number of alternatives to try.
INSTRUCTIONS, _TEXTS = "instructions", 2
#: Edits with the same effect as a setting.
_AS_SETTINGS = ("ensemble", "reason")


@dataclass(frozen=True)
class Kind:
    """A kind of change, e.g. of the adapter.

    options: patches by name, the most promising first. alike: if one option is worse, skip the others.
    """

    name: str
    options: Mapping[str, Mapping[str, Any]]
    alike: bool = True


def find_settings(workflow: Workflow) -> list[Kind]:
    """Find a kind for each setting with few values, on all nodes that have it at once: reasoning, adapter, samples."""
    options: dict[str, dict[str, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    for address, what in learnable_addresses(workflow).items():
        name = address.rpartition(".")[2]
        for value in _others(workflow, address, name, what):
            with suppress(SpecError):  # invalid with the node's other settings, e.g. images with an adapter of DSPy
                workflow.patched({address: value})
                options[name][str(value)][address] = value
    return [Kind(name, found) for name, found in options.items()]


def _others(workflow: Workflow, address: str, name: str, what: str) -> Iterator[Any]:
    """Yield the other values of a setting."""
    now = setting_at(workflow, address)
    if name == VOTES and what == "int" and now == 1:
        yield _ANSWERS
    if what != "choice" or name in _LEFT:
        return
    if isinstance(now, bool):
        yield not now
        return
    fields = type(node_at(workflow, address).config).model_fields
    kind = next((f.annotation for n, f in fields.items() if name in (n, f.alias)), None)
    if get_origin(kind) is Literal:
        yield from (value for value in get_args(kind) if value != now)


async def write_instructions(study: Study) -> list[Kind]:
    """Write other instructions for steps that have one, with the file's proposer or else from templates."""
    options, workflow = dict[str, dict[str, Any]](), study.workflow
    addresses = [one for one in learnable_addresses(workflow, "text") if text_role(workflow, one).instructs]
    proposer = Proposer(study) if study.role_spec("proposer") is not None else None
    for number in range(_TEXTS):
        values = dict[str, Any]()
        for address in addresses:
            node = node_at(workflow, address)
            if proposer is not None:
                values |= await proposer.rewrite(workflow, address, number)
            elif getattr(node, "signature", None) is not None and not node.foreign:
                old = str(setting_at(workflow, address) or "")
                values[address] = draw_instruction(study.rng, old, ", ".join(node.inputs), ", ".join(node.outputs))
        if values and values not in options.values():
            options[f"text {number + 1}"] = values
    return [Kind(INSTRUCTIONS, options, alike=False)] if options else []


def find_structures(workflow: Workflow) -> dict[str, list[Workflow]]:
    """Apply each edit of structure and of tools to a workflow.

    Returns the changed workflows by the edit's name. The note of each patch names the edit.
    """
    found = dict[str, list[Workflow]]()
    for name, edit in edit_classes().items():
        for option in edit.options(workflow, Menu()) if name not in _AS_SETTINGS else ():
            with suppress(SpecError):
                found.setdefault(name, []).append(apply_edit(option, workflow))
    return found
