"""Merge optimized workflows: prompts by a language model, lists by union, everything else from the better one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from workbench import Patch, Workflow
from workbench.base.hashing import canonical
from workbench.workflow import learnable_addresses, node_at, text_role
from workbench_kit.prompting import Proposer, describe, wrap_in_tags

Scored = tuple[float, Workflow]


async def merge_workflows(proposer: Proposer, base: Workflow, group: Sequence[Scored], replica: int) -> Workflow | None:
    """Return a workflow with everything that a group learned since `base`; None if the proposer fails.

    group: (score, workflow), the best first. The proposer merges prompts that differ. Demos, functions and other lists
    of rows are united; of two rows with the same name, the better workflow's is kept. Other settings are the best
    workflow's.
    """
    kinds = learnable_addresses(base)
    best = group[0][1]
    changes: dict[str, Any] = {}
    for address, kind in kinds.items():
        values = [(score, w.get(address, None)) for score, w in group]
        changed = [(s, v) for s, v in values if v != base.get(address, None) and v is not None]
        if len({json.dumps(v, sort_keys=True) for _, v in changed}) < 2:
            if changed:
                changes[address] = changed[0][1]
        elif kind == "text":
            text = await proposer.prompt(_merge_request(base, address, changed), base, address, replica)
            if text is None:
                return None
            changes[address] = text
        elif all(isinstance(v, list) for _, v in changed):
            changes[address] = unite_rows([v for _, v in changed], kind)
        else:
            changes[address] = changed[0][1]
    return best.patched(Patch(changes, note=f"merged from {len(group)}"))


def unite_rows(lists: Sequence[Sequence[Any]], kind: str) -> list[Any]:
    """Return the rows of all lists, each once, the first list's first.

    Functions with the same name count as one, as do memories with the same content. The first list's function is kept,
    and of memories the quarantined one, if any.
    """
    found: dict[str, Any] = {}
    for row in (row for rows in lists for row in rows):
        identity: Any = row
        if kind == "functions":
            identity = row.get("name")
        elif kind == "memories":
            identity = [row.get("inputs"), row.get("outputs"), row.get("text")]
        key = canonical(identity)
        if key not in found or (kind == "memories" and row.get("quarantined")):
            found[key] = row
    return list(found.values())


def _merge_request(base: Workflow, address: str, changed: Sequence[tuple[float, Any]]) -> list[dict[str, str]]:
    shown = "\n\n".join(f"Score {score:.2f}:\n{wrap_in_tags(text)}" for score, text in changed)
    text = (
        f"Here is {text_role(base, address).what}, improved on different parts of the data, each by itself. "
        f"Another language model follows it.\n\n{describe(node_at(base, address))}\n\n{shown}\n\n"
        "Merge them into one text that holds for all parts. Keep every rule that any of them has; where two "
        "contradict each other, keep the one of the better score or say when each holds. Do not repeat. Answer with "
        "the text alone, between <prompt> and </prompt>."
    )
    return [{"role": "user", "content": text}]
