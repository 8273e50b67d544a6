"""What the proposer is asked: one change of the structure, in the words that the edits understand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workbench.edits import Edit, Menu
from workbench.propose import short
from workbench.workflow import Workflow

_ANSWER = (
    'Propose one change. Answer with one line of JSON: {"edit": NAME, "node": ADDRESS, ...} for an edit, or '
    '{"pick": NAME, "value": VALUE} for a choice. Nothing that was tried before.'
)


def request(
    workflow: Workflow, score: float, edits: Mapping[str, type[Edit]], options: Mapping[str, Sequence[Any]],
    experience: Iterable[str], menu: Menu, evidence: str = "",
) -> list[dict[str, str]]:  # fmt: skip
    """experience: what came of earlier changes of this workflow. menu: what edits may bring in.
    evidence: results on training rows."""
    nodes = "\n".join(f"- nodes.{name}: {short(tree, 600)}" for name, tree in workflow.nodes.items())
    parts = [
        "You improve the structure of a workflow of language model calls.",
        f"The workflow (score {score:.3f} of 1):\n{nodes}",
    ]
    if edits:
        parts.append("Edits:\n" + "\n".join(f"- {name}: {_arguments(cls)}" for name, cls in edits.items()))
    for what, known in (("Language models", menu.lms), ("Tools", menu.tools), ("Verifiers", menu.verifiers)):
        if edits and known:
            parts.append(f"{what} that edits may bring in, no others: {', '.join(map(str, known))}")
    if options:
        parts.append("Choices:\n" + "\n".join(f"- {name}: {short(list(v), 300)}" for name, v in options.items()))
    if evidence:
        parts.append(f"How it did on some tasks:\n{evidence}")
    tried = "\n".join(f"- {line}" for line in experience)
    if tried:
        parts.append(f"Changes of this workflow that were tried:\n{tried}")
    return [{"role": "user", "content": "\n\n".join([*parts, _ANSWER])}]


def _arguments(cls: type[Edit]) -> str:
    told = (cls.__doc__ or "").strip().split("\n")[0]
    return f"{told} {', '.join(f'{n} ({f.description})' for n, f in cls.model_fields.items())}"


def objects_in(text: str) -> list[dict[str, Any]]:
    """All JSON objects in a text, whatever stands around them."""
    decoder, found, place = json.JSONDecoder(), list[dict[str, Any]](), 0
    while (place := text.find("{", place)) >= 0:
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            place += 1
            continue
        if isinstance(value, dict):
            found.append(value)
    return found
