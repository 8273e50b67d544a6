"""The steps of a run, in order: contributions of each node and each model call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from workbench.lm import Response
from workbench.workflow import Span, Trace
from workbench_kit.credit.repair import Address


@dataclass(frozen=True)
class TraceStep:
    """A model call, or the outputs of a node without calls.

    Attributes:
        index: its position in the run, from 0.
        node: the path of the node, e.g. `solve` or `vote.of`.
        agent: its name among several in one node, or the name of the node.
        address: the place for its repair.
        text: its answer, or its outputs as JSON.
        response, outputs: one of the two.
    """

    index: int
    node: str
    agent: str
    address: Address
    text: str
    response: Response | None = None
    outputs: Mapping[str, Any] | None = None

    @property
    def top(self) -> str:
        """Return the workflow's node that it belongs to."""
        return self.node.partition(".")[0]


def steps_of(trace: Trace) -> list[TraceStep]:
    """List the steps of a run, by nodes and, inside a node, by the start of its calls and inner nodes.

    Concurrent nodes are listed one after the other, so the order is the same in a rerun. Empty if the run was not
    recorded in this process: stored traces have no addresses.
    """
    begun = {span.order: span.at for span in trace.spans}
    inner = {span.order[:-2] for span in trace.spans if len(span.order) > 1}
    found: list[tuple[tuple[int, ...], TraceStep]] = []
    for span in trace.spans:
        agent = span.agent or span.node
        around = [begun.get(span.order[:end], 0) for end in range(3, len(span.order) + 1, 2)]
        place = (*span.order[:1], *around)
        for call in span.calls:
            if call.number and call.response is not None:
                step = TraceStep(0, span.node, agent, (span.order, call.number), call.response.text, call.response)
                found.append(((*place, call.at), step))
        if not span.calls and span.order not in inner:
            step = TraceStep(0, span.node, agent, (span.order, 0), _shown(span), outputs=span.outputs)
            found.append((place, step))
    found.sort(key=lambda pair: pair[0])
    return [replace(step, index=i) for i, (_, step) in enumerate(found)]


def _shown(span: Span) -> str:
    return span.error or json.dumps(dict(span.outputs), ensure_ascii=False, default=str)
