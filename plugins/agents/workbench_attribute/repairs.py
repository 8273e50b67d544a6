"""Replacements for a step without a model: the output of a passing run, or the labels of the row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from workbench.spec import LMSpec
from workbench.workflow import NodeKind, Signature, Workflow
from workbench_kit.credit import Repair, TraceStep

#: Identifies a step across runs: its node, its agent, and the number of earlier steps of both.
Place = tuple[str, str, int]


def places_of(steps: Sequence[TraceStep]) -> dict[Place, TraceStep]:
    """Return the steps of a run by their places. Positions in the workflow are ignored: another candidate may have more
    nodes."""
    seen, found = Counter[tuple[str, str]](), dict[Place, TraceStep]()
    for step in steps:
        found[step.node, step.agent, seen[step.node, step.agent]] = step
        seen[step.node, step.agent] += 1
    return found


def model_repairs(steps: Sequence[TraceStep], lm: LMSpec | None, draws: int) -> dict[int, list[Repair]]:
    """Return repairs by the index of a step: the answer of another model, or this many new samples of the same one."""
    options = [Repair(lm=lm)] if lm is not None else [Repair(draw=k) for k in range(1, draws + 1)]
    return {step.index: options for step in steps if step.response is not None}


def sibling_repairs(steps: Sequence[TraceStep], siblings: Sequence[Sequence[TraceStep]]) -> dict[int, list[Repair]]:
    """Return repairs by the index of a step: the outputs of passing runs in its place, if of one kind."""
    others = [places_of(one) for one in siblings]
    found: dict[int, list[Repair]] = {}
    for place, step in places_of(steps).items():
        there = [other[place] for other in others if place in other]
        same = [s for s in there if (s.response is None) == (step.response is None)]
        found[step.index] = [Repair(response=s.response) if s.response else Repair(outputs=s.outputs) for s in same]
    return found


def label_repairs(
    workflow: Workflow, steps: Sequence[TraceStep], fields: Mapping[str, Any]
) -> tuple[list[TraceStep], dict[int, list[Repair]]]:
    """Return the workflow's nodes as steps, in the order of the run, and repairs by their indexes: the row's outputs.

    A node that no other node reads is left out: its outputs are the answer, and inserting the right answer makes any
    row pass. A field that is not of the output's type is not a label.
    """
    found, repairs = list[TraceStep](), dict[int, list[Repair]]()
    for name in dict.fromkeys(step.top for step in steps):
        own = [step for step in steps if step.top == name]
        node = workflow.enabled_nodes[name]
        step = TraceStep(own[-1].index, name, own[-1].agent, (own[0].address[0][:1], 0), own[-1].text, outputs={})
        found.append(step)
        labels = _labels(node, fields)
        if labels is not None and workflow.graph.out_degree(name):
            repairs[step.index] = [Repair(outputs=labels)]
    return found, repairs


def _labels(node: NodeKind, fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the outputs of a node from the row, each of its type; None if one is missing."""
    signature = getattr(node, "signature", None)
    types = {f.name: f.type for f in signature.outputs} if isinstance(signature, Signature) else {}
    try:
        return {name: TypeAdapter(types.get(name, Any)).validate_python(fields[name]) for name in node.outputs}
    except (KeyError, ValidationError):
        return None
