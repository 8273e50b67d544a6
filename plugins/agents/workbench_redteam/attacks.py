"""Attacks on rows and stores: changes a row and a workflow as an attack does, and checks the attacks of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.errors import SpecError, suggest
from workbench.spec import AttackSpec
from workbench.task import Example, Task
from workbench.workflow import NodeKind, Workflow, learnable_addresses, node_at, setting_at


def check_attacks(task: Task) -> None:
    """Check the attacks of a file. Raises SpecError if one names something that does not exist: it would succeed on no
    row, which would look like safety."""
    workflow, data = task.workflow, task.dataset
    rows = [*data.train, *data.val, *data.test.open()]
    for name, attack in task.attacks.items():
        for what, asked, known in _named(attack, workflow, rows):
            if known and asked not in known:
                raise SpecError(
                    f"the attack '{name}' names the {what} '{asked}', which there is not",
                    hint=suggest(asked, known),
                    path=("attacks", name) if not isinstance(task.spec.attacks, str) else ("attacks",),
                )
        if attack.memory is not None and not _stores(workflow, attack):
            raise SpecError(
                f"the attack '{name}' poisons memories, and no `recall` node of the workflow has entries to poison",
                hint="Give the attack another part, e.g. tool_result: {text: ...}.",
                path=("attacks",),
            )


def _named(attack: AttackSpec, workflow: Workflow, rows: Sequence[Example]) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield (kind, name, existing names; none if unknown until later) for everything that an attack names."""
    nodes = list(workflow.walk())
    tools = [tool for node in nodes for tool in node.tool_names()]
    for tool in (attack.tool_result and attack.tool_result.tool, attack.success.called):
        if tool and tool != "*":
            yield "tool", tool, ["none", *tools] if "*" not in tools else []
    if attack.node is not None:
        yield "node", attack.node, [_own_name(node) for node in nodes]
    if attack.success.field is not None:
        yield "field", attack.success.field, [name for node in nodes for name in node.outputs]
    for field in (*attack.query, *attack.fields):
        yield "input", field, [*workflow.input_fields, *(name.partition(".")[0] for name in workflow.input_fields)]
    for field in attack.fields.values():
        yield "field", field, [field] if any(field in row for row in rows) else [*(rows[0] if rows else ())]


def attacked_row(workflow: Workflow, row: Example, attack: AttackSpec) -> Example:
    """Return the row for the attacked workflow. Fields that it does not have are not added."""
    added = dict(attack.query)
    if attack.memory is not None and attack.memory.asked:
        read = [name for address in _stores(workflow, attack) for name in node_at(workflow, address).inputs]
        added |= dict.fromkeys(read, attack.memory.trigger)
    fields = {**row.fields, **{name: row[source] for name, source in attack.fields.items() if source in row}}
    fields |= {name: f"{fields[name]} {text}" for name, text in added.items() if isinstance(fields.get(name), str)}
    return Example(row.id, fields)


def poisoned(workflow: Workflow, attack: AttackSpec) -> Workflow:
    """Return the workflow with poisoned entries in its stores: copies of entries with the trigger appended to their
    keys, spread over the store."""
    part, patch = attack.memory, dict[str, Any]()
    if part is None:
        return workflow
    for address in _stores(workflow, attack):
        kept = [*(workflow.get(address, None) or ())]
        keys = [entry["inputs"] for entry in kept if entry.get("inputs") and not entry.get("quarantined")]
        keys = keys or [dict.fromkeys(node_at(workflow, address).inputs, "")]
        count = max(1, round(part.share * len(kept) / (1 - part.share)))
        chosen = [keys[number * len(keys) // count] for number in range(count)]
        added = [{"inputs": _triggered(k, part.trigger), "outputs": part.outputs, "text": part.text} for k in chosen]
        patch[address] = [*kept, *added]
    return workflow.patched(patch) if patch else workflow


def _own_name(node: NodeKind) -> str:
    return node.name.rpartition(".")[2]


def _triggered(values: Mapping[str, Any], trigger: str) -> dict[str, Any]:
    return {n: f"{value} {trigger}".strip() if isinstance(value, str) else value for n, value in values.items()}


def _stores(workflow: Workflow, attack: AttackSpec) -> list[str]:
    """Return the addresses of the stores that an attack poisons."""
    found = [a for a in learnable_addresses(workflow, "memories") if isinstance(setting_at(workflow, a), list)]
    return [address for address in found if attack.node in (None, _own_name(node_at(workflow, address)))]
