"""Prompts of the proposer: for one change of the structure, in the words that the edits understand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workbench.base.text import short
from workbench.workflow import Workflow
from workbench_kit.prompting import outline
from workbench_kit.searching import Menu, catalogue

_ANSWER = (
    'Propose one change. Answer with one line of JSON: {"edit": NAME, "node": ADDRESS, ...} for an edit, or '
    '{"pick": NAME, "value": VALUE} for a choice. Nothing that was tried before.'
)


def request(
    workflow: Workflow,
    score: float,
    edits: Sequence[str],
    options: Mapping[str, Sequence[Any]],
    experience: Iterable[str],
    menu: Menu,
    evidence: str = "",
) -> list[dict[str, str]]:
    """Return a prompt for one change.

    experience: outcomes of earlier changes of this workflow. menu: values that edits may use. evidence: results on
    training rows.
    """
    parts = [
        "You improve the structure of a workflow of language model calls.",
        f"The workflow (score {score:.3f} of 1):\n{outline(workflow)}",
    ]
    if edits:
        parts.append(catalogue(edits, menu))
    if options:
        parts.append("Choices:\n" + "\n".join(f"- {name}: {short(list(v), 300)}" for name, v in options.items()))
    if evidence:
        parts.append(f"How it did on some tasks:\n{evidence}")
    tried = "\n".join(f"- {line}" for line in experience)
    if tried:
        parts.append(f"Changes of this workflow that were tried:\n{tried}")
    return [{"role": "user", "content": "\n\n".join([*parts, _ANSWER])}]
