"""Runs the agents of a file on a few rows, to collect the texts that they send and find them in the source: `workbench
agent slots`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.base.concurrency import run_in_loop
from workbench.base.text import one_line
from workbench.lm import LMPool
from workbench.run import add_started_run
from workbench.runtime import Run
from workbench.store import Store, new_run_name
from workbench.study import Evaluator, observe_nodes
from workbench.task import Task
from workbench.workflow import ExampleRun, Patch, Workflow
from workbench_external.apply import find_text
from workbench_external.asking import Named
from workbench_external.config import Slot
from workbench_external.node import find_agents
from workbench_external.slots.cut import is_vendors


def observe_file(
    task: Task, file: Path, database: Path, rows: int, pool: LMPool | None = None
) -> tuple[Workflow, Sequence[ExampleRun], str]:
    """Return (the workflow with its slots, the runs, their cost). Calls are recorded, so that a search with `cache:
    true` need not pay for them. Raises SpecError and BudgetSpent."""

    async def main(store: Store) -> tuple[Workflow, Sequence[ExampleRun], str]:
        name = new_run_name()
        run_id = add_started_run(store, name, "slots", file, task, {"sets": [], "out": None})
        async with Run(store, run_id, name, task.spec, pool=pool, data_files=task.data_files) as run:
            evaluator = Evaluator(run.runtime, task.metric, task.spec.concurrency, source=task.source)
            workflow, runs = await observe_nodes(task, evaluator, rows)
            run.record.end("finished")
            return workflow, runs, f"{run.ledger.paid.calls} calls, ${run.ledger.paid.usd:.4f}"

    with Store(database) as store:
        return run_in_loop(main(store))


def describe_calls(runs: Sequence[ExampleRun]) -> list[str]:
    """Return lines on the models that the agents named, and on refusals in rows that succeeded."""
    nodes: dict[str, Named] = {}
    refused: list[str] = []
    for run in runs:
        for span in run.trace.spans:
            if "models" in span.notes:
                nodes.setdefault(span.node, Named()).add(span.notes["models"])
            if "refused" in span.notes and span.error is None:
                refused.append(f"row {run.trace.example}: '{span.node}' {span.notes['refused']}")
    return [f"'{node}': {named.describe()}" for node, named in nodes.items()] + refused


#: How to replace a text that `apply` does not write. A file does not pass the gateway.
_ELSEWHERE = {"file": "by hand"}


@dataclass(frozen=True)
class Shown:
    """A slot of an agent. where: `src/agent.py:12`, or the reason why only the gateway, or the user, can replace it."""

    node: str
    name: str
    slot: Slot
    where: str

    @property
    def address(self) -> str:
        return f"nodes.{self.node}.slots.{self.name}"


def list_slots(workflow: Workflow, before: Workflow | None = None) -> tuple[list[Shown], list[Shown]]:
    """Return the slots of a workflow, and those of a framework or vendor. before: the workflow as in its file; its
    slots are the user's choice."""
    found, vendors = list[Shown](), list[Shown]()
    chosen = {name for name, agent in find_agents(before or workflow).items() if not agent.observed}
    for node, agent in find_agents(workflow).items():
        slots = agent.config.slots or {}
        places = {
            name: find_text(slot.model_copy(update={"text": None}), agent.sources) for name, slot in slots.items()
        }
        kinds = {slots[name].in_ for name, place in places.items() if place.edits}
        for name, slot in slots.items():
            if places[name].edits:
                found.append(Shown(node, name, slot, places[name].where))
                continue
            shown = Shown(node, name, slot, f"{_ELSEWHERE.get(slot.in_, 'gateway only')}: {places[name].why}")
            theirs = (
                slot.in_ != "file" and node not in chosen and is_vendors(slot.in_, slot.match, kinds, agent.sources)
            )
            (vendors if theirs else found).append(shown)
    return found, vendors


def describe_place(slot: Slot) -> str:
    """Describe the place of a slot in the agent's requests."""
    words = {"system": "system message", "user": "user message", "turn": "example message"}
    if slot.in_ == "parameter":
        return f"parameter {one_line(slot.parameter)} of the tool {one_line(slot.name)}"
    if slot.in_ == "field":
        what = f"field {one_line(slot.parameter)}" if slot.parameter else "description"
        return f"{what} of the answer's schema {one_line(slot.name)}"
    return words.get(slot.in_) or f"{slot.in_} {one_line(slot.name)}"


def with_vendors(workflow: Workflow) -> Workflow:
    """Return the workflow with `vendor` set for the agents whose slots are to be found, so that they show all texts."""
    agents = [name for name, agent in find_agents(workflow).items() if agent.observed]
    return workflow.patched(Patch({f"nodes.{name}.vendor": True for name in agents})) if agents else workflow


def with_slots(before: Workflow, observed: Workflow, left_out: Sequence[Shown]) -> Workflow:
    """Return a workflow with the slots found in one from `with_vendors`, except some slots."""
    changed, gone = dict[str, object](), {(one.node, one.name) for one in left_out}
    shown = find_agents(observed)
    for node, agent in find_agents(before).items():
        if not agent.observed:
            continue
        slots = {n: s for n, s in (shown[node].config.slots or {}).items() if (node, n) not in gone}
        written = {n: s.model_dump(by_alias=True, exclude_defaults=True) for n, s in slots.items()}
        changed |= {f"nodes.{node}.slots": written, f"nodes.{node}.calls": shown[node].config.calls}
    return before.patched(Patch(changed)) if changed else before
