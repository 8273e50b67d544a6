"""Runs of a workflow on one example."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from workbench.errors import NodeError
from workbench.lm import Pieces
from workbench.runtime.context import Context
from workbench.runtime.draw import FIRST_DRAW, Draw
from workbench.runtime.row import RowScope
from workbench.runtime.runtime import Runtime
from workbench.task import Example
from workbench.workflow import ExampleRun, NodeKind, Schedule, Trace, Workflow


class Program:
    """A workflow prepared to run: nodes, order, and the LM of each. The first run loads its user code."""

    def __init__(self, workflow: Workflow, runtime: Runtime):
        # Also for its hash, part of the keys of effects: a tool's inputs are known only from its code.
        self.workflow, self.runtime = workflow.with_code("loaded"), runtime

    @cached_property
    def nodes(self) -> Mapping[str, NodeKind]:
        return self.workflow.enabled_nodes

    @cached_property
    def schedule(self) -> Schedule:
        return Schedule(self.nodes, self.workflow.nodes, self.workflow.graph)

    @cached_property
    def max_calls(self) -> int:
        return self.workflow.max_calls

    @cached_property
    def positions(self) -> dict[str, int]:
        """Return each node's position in an order in which they can run. Ties are broken by the order of the file."""
        return {name: position for position, name in enumerate(self.schedule.order)}

    @cached_property
    def streaming_node(self) -> str:
        """Return the name of the node whose model writes the only output; empty if it has to be read first."""
        fields = self.workflow.output_fields
        writers = [name for name, node in self.nodes.items() if {*node.outputs} & {*fields}]
        return writers[0] if len(fields) == len(writers) == 1 and self.nodes[writers[0]].streams else ""

    async def run(self, example: Example, draw: Draw = FIRST_DRAW, pieces: Pieces | None = None) -> ExampleRun:
        """Run all nodes, independent ones concurrently. A failing node ends the example as a failure.

        pieces: receives the answer of `streaming_node` as its model writes it.
        """
        if (elsewhere := self.runtime.elsewhere) is not None:
            return await elsewhere.run(self.workflow, example, draw)
        trace, begun, row = (
            Trace(example.id),
            time.perf_counter(),
            RowScope(pieces, self.streaming_node if pieces else ""),
        )
        written: dict[str, Mapping[str, Any]] = {}
        kind = Context if draw.variation is None else draw.variation.context

        async def step(name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
            context = kind(self, example.id, trace, name, draw.at(self.positions[name]), row=row)
            return await context.run_node(self.nodes[name], inputs)

        failure = message = None
        try:
            await self.schedule.run(step, example, written)
        except NodeError as error:
            failure, message = error.kind, f"node '{error.node}': {error}" if error.node else str(error)
        finally:
            await row.aclose()
        trace.spans.sort(key=lambda span: span.order)
        return ExampleRun(self.schedule.merged(written), trace, failure, message, time.perf_counter() - begun)
