"""Prompts of the proposer, and parsers of its answers. Prompts show training examples only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.workflow import NodeKind, Workflow
from workbench_kit.prompting import describe, fold, outline, wrap_in_tags

_PART = re.compile(r"(?ims)^[^\w\n]*+(step|inputs):(.*?)(?=^[^\w\n]*+(?:step|inputs):|\Z)")
#: The text that the form asks for; and statements of no fault: at the beginning, or after a mark at the end.
_FORM = {"step": "what this step should do differently", "inputs": "what was wrong with what it got"}
_NONE = re.compile(r"(?i)\A\W{0,9}none\b(?:\W{0,9}\Z|\s{0,9}[.,:;(-])|[:;.(\n]\W{0,9}none\W{0,9}\Z")


def loss(nodes: Sequence[NodeKind], off: Sequence[NodeKind], evidence: str) -> list[dict[str, str]]:
    """Return a prompt that asks what is wrong with the final output. off: optional nodes that are switched off."""
    parts = [
        "A workflow of these steps failed on the examples below.\n" + "\n".join(describe(n) for n in nodes),
        f"Its final outputs:\n{evidence}",
        "Say in a few sentences what is wrong with the outputs, and what right ones would have been.",
    ]
    if off:
        parts.append(
            "These steps are switched off:\n" + "\n".join(describe(n) for n in off) + "\nIf one of them would have "
            "helped, end with a line `enable: NAME`."
        )
    return [{"role": "user", "content": "\n\n".join(parts)}]


def enabled_by(text: str, names: Sequence[str]) -> str | None:
    """Return the step that an answer asks to switch on, or None."""
    found = re.findall(r"^[^\w\n]*+enable:\W*([\w-]+)", text, re.MULTILINE | re.IGNORECASE)
    return next((name for name in reversed(found) if name in names), None)


def edit(workflow: Workflow, loss: str, edits: str, tried: Sequence[str]) -> list[dict[str, str]]:
    """Return a prompt that asks for one edit of the structure. edits: the choices. tried: outcomes of earlier edits."""
    parts = [
        "You improve the structure of a workflow of language model calls.",
        f"The workflow:\n{outline(workflow)}",
        f"What is wrong with its outputs:\n{loss}",
        edits,
    ]
    if tried:
        parts.append("Edits that were tried:\n" + "\n".join(f"- {line}" for line in tried))
    parts.append(
        "If another structure would mend that, and better instructions would not, answer with one line of JSON: "
        '{"edit": NAME, "node": ADDRESS, ...}. Else answer `none`.'
    )
    return [{"role": "user", "content": "\n\n".join(parts)}]


@dataclass(frozen=True)
class Gradient:
    """A gradient: what a step should do differently, and faults of its inputs. Empty if it is not at fault."""

    step: str = ""
    inputs: str = ""

    @property
    def removes(self) -> bool:
        return bool(re.match(r"\W*remove\b", self.step, re.IGNORECASE))


def gradient(
    node: NodeKind,
    settings: Mapping[str, str],
    evidence: str,
    blame: Sequence[str],
    *,
    asks_inputs: bool,
    optional: bool,
) -> list[dict[str, str]]:
    """Return a prompt that asks for a node's share in the loss. settings: its prompts and tools. blame: from the
    nodes that read its output."""
    parts = [
        "A workflow failed on some examples. Find out what one of its steps has to do with it.",
        describe(node),
        *(f"Its {name}:\n{text}" for name, text in settings.items()),
        f"What it got and gave there, with the score of the whole workflow:\n{evidence}",
        "What was wrong with its output, say those who read it:\n" + "\n".join(f"- {b}" for b in blame),
        "Answer in this form. `none` stands for no fault: a step that did its own part well needs no change.\n"
        f"step: {_FORM['step']}, or none",
    ]
    if asks_inputs:
        parts[-1] += f"\ninputs: {_FORM['inputs']}, or none"
    if optional:
        parts.append("The step may be left out. If all would be better without it, write `step: remove`.")
    return [{"role": "user", "content": "\n\n".join(parts)}]


def read_gradient(text: str, *, asks_inputs: bool) -> Gradient:
    """Parse a gradient. Small models forget the requested form: text without it counts for the step and for its inputs.
    Some models repeat the form itself, which is ignored."""
    found = {key.lower(): body for key, body in _PART.findall(text)}
    if not found:
        found = {"step": text, "inputs": text}
    parts = {
        key: body.strip()
        for key, body in found.items()
        if not _NONE.search(body) and not fold(body).startswith(fold(_FORM[key]))
    }
    return Gradient(parts.get("step", ""), parts.get("inputs", "") if asks_inputs else "")


def tools(node: NodeKind, functions: Sequence[Mapping[str, Any]], evidence: str, advice: str) -> list[dict[str, str]]:
    """Return a prompt that asks for better descriptions of an agent's functions."""
    listed = "\n".join(f"{f['name']}: {f.get('description', '')}" for f in functions)
    return [
        {
            "role": "user",
            "content": "\n\n".join(
                [
                    "An agent chooses its tools by their descriptions. Improve these where that would help.",
                    describe(node),
                    f"The tools:\n{listed}",
                    f"How it did:\n{evidence}",
                    f"Advice:\n{advice}",
                    "Answer with a line `NAME: description` for each tool that needs another description, or with "
                    "`none`.",
                ]
            ),
        }
    ]


def read_tools(text: str, functions: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Return new descriptions by position."""
    said = dict(re.findall(r"^[^\w\n]*+(\w++)[^\w\n]*:[ \t]*(.+)$", text, re.MULTILINE))
    return {
        i: said[f["name"]].strip()[:1000]
        for i, f in enumerate(functions)
        if said.get(f["name"], f.get("description", "")).strip() != f.get("description", "")
    }


def settings_of(prompts: Mapping[str, str], functions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the settings of a step for the writer of a gradient."""
    shown = {name: wrap_in_tags(text) for name, text in prompts.items()}
    if functions:
        shown["tools"] = "\n".join(f"- {f['name']}: {f.get('description', '')}" for f in functions)
    return shown
