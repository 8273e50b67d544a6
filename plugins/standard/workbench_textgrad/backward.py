"""The backward pass: from the loss of the final output to a textual gradient for each node on the trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workbench import Example, Workflow
from workbench.study import Result
from workbench.workflow import NodeKind, learnable_addresses, make_node, node_at, text_at
from workbench_kit.prompting import Proposer, prompt_in_use, show_results
from workbench_textgrad import prompts
from workbench_textgrad.prompts import Gradient


@dataclass(frozen=True)
class Layer:
    """A top-level node with its own learnable parts and those of its inner nodes."""

    node: NodeKind
    prompts: Sequence[str]
    functions: Sequence[str]
    optional: bool

    @property
    def learns(self) -> bool:
        return bool(self.prompts or self.functions or self.optional)


def layers_of(workflow: Workflow, *, tools: bool = True) -> dict[str, Layer]:
    """Return the layers by name, the last to run first."""
    import networkx

    def inside(name: str, kind: str) -> list[str]:
        return [a for a in learnable_addresses(workflow, kind) if a.startswith(f"nodes.{name}.")]

    nodes = workflow.enabled_nodes
    order = networkx.lexicographical_topological_sort(workflow.graph, key=list(nodes).index)
    return {
        name: Layer(
            nodes[name],
            inside(name, "text"),
            [a for a in inside(name, "functions") if workflow.get(a, [])] if tools else [],
            bool(workflow.nodes[name].get("optional")) and len(nodes) > 1,
        )
        for name in reversed(list(order))
    }


def switched_off(workflow: Workflow) -> dict[str, NodeKind]:
    """Return the disabled optional nodes, by name."""
    return {
        name: make_node(name, tree, workflow.base, workflow.code)
        for name, tree in workflow.nodes.items()
        if tree.get("optional") and not tree.get("enabled", True)
    }


def seen_by(path: str, results: Sequence[Result], *, whole: bool) -> list[Result]:
    """Return a node's inputs and outputs, as results. Empty if the node is on no trace.

    path: as in spans, e.g. `vote.of`. whole: whether to include the example's own fields.
    """
    seen = []
    for result in results:
        if (trace := result.trace) is None:
            continue
        for span in (s for s in trace.spans if s.node == path):
            fields = {**span.inputs, **(result.example.fields if whole else {})}
            seen.append(
                replace(
                    result,
                    example=Example(result.example.id, fields),
                    prediction=dict(span.outputs),
                    failure="failed" if span.error else None,
                    message=span.error,
                    feedback=result.feedback if whole else None,
                    trace=replace(trace, spans=[span]),
                )
            )
    return seen


#: Maximum number of characters of examples in a prompt.
CHARS = 4000


@dataclass
class Backward:
    """A backward pass over failed results with traces.

    scored: names of outputs that the metric reads. spared: nodes known to be right; like tools, they pass the blame on.
    """

    workflow: Workflow
    failed: Sequence[Result]
    proposer: Proposer
    replica: int
    scored: frozenset[str] = frozenset()
    tools: bool = True
    spared: frozenset[str] = frozenset()
    layers: Mapping[str, Layer] = field(init=False)

    def __post_init__(self) -> None:
        self.layers = layers_of(self.workflow, tools=self.tools)

    async def loss(self) -> str:
        off = list(switched_off(self.workflow).values())
        nodes = [layer.node for layer in reversed(list(self.layers.values()))]
        request = prompts.loss(nodes, off, show_results(self.failed, CHARS))
        return await self.proposer.ask(request, self.replica) or ""

    def last(self, name: str) -> bool:
        """Return True if a node gives the final output: nothing reads it, or it writes the scored field last."""
        writers = {field: n for n, layer in reversed(list(self.layers.items())) for field in layer.node.outputs}
        return self.workflow.graph.out_degree(name) == 0 or any(writers.get(field) == name for field in self.scored)

    async def gradients(self, loss: str) -> dict[str, Gradient]:
        """Return gradients by node. An unblamed node gets no gradient and blames no other.

        A node that is the only one to learn is at fault without being asked. If the proposer finds no node at fault,
        the outputs are still wrong, so the last node is blamed.
        """
        import networkx

        learning = [layer for layer in self.layers.values() if layer.learns]
        asks = len(learning) > 1 or any(layer.optional for layer in learning)
        graph, found = self.workflow.graph, dict[str, Gradient]()
        for name, layer in self.layers.items():
            last = self.last(name)
            blame = [loss] if last and loss else []
            readers = (r for r in graph.successors(name) if r in found and found[r].inputs)
            blame += [f"{r}: {found[r].inputs}" for r in readers]
            above = any(self.layers[a].learns for a in networkx.ancestors(graph, name))
            seen = seen_by(name, self.failed, whole=last)
            blame += dict.fromkeys(f"It failed: {s.message}" for s in seen if s.failure)  # no node read its output
            if not blame or not seen:
                continue
            if layer.learns and name not in self.spared:
                found[name] = await self.gradient(layer, seen, blame, above) if asks else Gradient("\n".join(blame))
            else:  # a tool or a program: pass the blame on to its inputs
                found[name] = Gradient("", "\n".join(blame))
        if not any(gradient.step for gradient in found.values()):
            last = (n for n in found if n not in self.spared and (self.layers[n].prompts or self.layers[n].functions))
            found |= {name: Gradient(loss, found[name].inputs) for name in [*last][:1]}
        return found

    async def gradient(self, layer: Layer, seen: Sequence[Result], blame: Sequence[str], above: bool) -> Gradient:
        start = len(f"nodes.{layer.node.name}.")
        texts = {a[start:]: text_at(self.workflow, a) for a in layer.prompts}
        functions: list[Any] = [f for a in layer.functions for f in self.workflow.get(a)]
        request = prompts.gradient(
            layer.node,
            prompts.settings_of(texts, functions),
            show_results(seen, CHARS),
            blame,
            asks_inputs=above,
            optional=layer.optional,
        )
        text = await self.proposer.ask(request, self.replica)
        return prompts.read_gradient(text, asks_inputs=above) if text is not None else Gradient()

    def evidence(self, address: str, prompt: str = "") -> tuple[NodeKind, str] | None:
        """Return the node that holds a parameter, and its results as text; None if it took no part in the examples."""
        path = prompt_in_use(address, prompt, self.failed)
        if path is None:
            return None
        seen = seen_by(path, self.failed, whole=self.last(path.split(".")[0]))
        return node_at(self.workflow, address), show_results(seen, CHARS)
