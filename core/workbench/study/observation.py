"""Observation of nodes before a search, for settings that are known only at run time: the prompts of a foreign agent
become settings of its node."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.errors import errors_at
from workbench.study.evaluate import Evaluator
from workbench.task import Example, Task
from workbench.workflow import ExampleRun, NodeKind, Patch, Span, Workflow

#: Number of rows to run.
ROWS = 4


async def observe_nodes(task: Task, evaluator: Evaluator, rows: int = ROWS) -> tuple[Workflow, Sequence[ExampleRun]]:
    """Return the workflow with the settings that its nodes revealed, and the runs. Its behavior does not change.

    Raises SpecError if the runs show that a search cannot help, and BudgetSpent.
    """
    workflow = task.workflow
    watched = {address: node for address, node in _nodes(workflow) if node.observed}
    if not watched:
        return workflow, ()
    program, examples = evaluator.program(workflow), _first(task, rows)
    runs: list[ExampleRun] = await evaluator.gather(len(examples), lambda i: program.run(examples[i]))
    found: dict[str, object] = {}
    for address, node in watched.items():
        place = address.removeprefix("nodes.")
        spans: list[list[Span]] = [[span for span in run.trace.spans if span.node == place] for run in runs]
        with errors_at(*address.split(".")):
            shown = node.observe(spans)
        found |= {f"{address}.{name}": value for name, value in (shown or {}).items()}
    return workflow.patched(Patch(found, note="what the nodes show when they run")) if found else workflow, runs


def _first(task: Task, rows: int) -> list[Example]:
    return [*(task.dataset.train or task.dataset.val)][:rows]


def _nodes(workflow: Workflow) -> list[tuple[str, NodeKind]]:
    """List (address, node) of all enabled nodes, including those inside others."""
    found: list[tuple[str, NodeKind]] = []

    def walk(address: str, node: NodeKind) -> None:
        found.append((address, node))
        for name, child in node.children().items():
            walk(f"{address}.{name}", child)

    for name, node in workflow.enabled_nodes.items():
        walk(f"nodes.{name}", node)
    return found
