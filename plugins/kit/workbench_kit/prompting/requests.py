"""Requests to a proposer: the text in its place, results, and earlier attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from workbench.base.text import short
from workbench.study import Result, score_of
from workbench.workflow import NodeKind, TextRole, Workflow, node_at, text_at, text_role
from workbench_kit.prompting.proposals import fold, wrap_in_tags

INSTRUCTION = TextRole()


def describe(node: NodeKind) -> str:
    """Describe a node's inputs and outputs, for a proposer's prompt."""
    signature = getattr(node, "signature", None)
    gives = (
        ", ".join(
            f"{f.name} (one of {', '.join(map(str, f.allowed))})" if f.closed else f.name for f in signature.outputs
        )
        if signature
        else ", ".join(node.outputs)
    )
    return f"The step '{node.name}' reads {', '.join(node.inputs) or 'nothing'} and gives {gives}."


def rewrite_request(
    workflow: Workflow,
    address: str,
    *,
    evidence: str = "",
    advice: str = "",
    tried: Iterable[tuple[str, float]] = (),
) -> list[dict[str, str]]:
    """Return the messages that ask for a better text at an address, such as a node's instruction.

    For a part of a message, they also ask for the other parts (see `read_parts`).

    Args:
        workflow: with the current text.
        address: of the text.
        evidence: results, see `show_results`.
        advice: what to change.
        tried: earlier texts with their scores; for a part, the whole messages (`message_at`).
    """
    node, role = node_at(workflow, address), text_role(workflow, address)
    parts = [
        f"You write {role.what}. Another language model {'follows' if role.instructs else 'reads'} it.",
        describe(node),
        show_in_place(workflow, address),
    ]
    if evidence:
        parts.append(f"How the step did with it:\n{evidence}")
    if advice:
        parts.append(f"Advice:\n{advice}")
    earlier = {fold(text): f"- score {score:.2f}: {text}" for text, score in tried}
    earlier.pop(fold(message_at(workflow, address)), None)
    if earlier:
        parts.append("Tried before:\n" + "\n".join(earlier.values()))
    parts.append(_ask_for(node, role, [*role.parts].index(address) + 1 if role.parts else 0))
    return [{"role": "user", "content": "\n\n".join(parts)}]


def _ask_for(node: NodeKind, role: TextRole, part: int) -> str:
    """Return the last paragraph of a request: the task and the form of the answer. part: its number, if there are
    several."""
    if part:
        return (
            f"Write a better part {part}, and other parts where they must change with it; each is about as long, and "
            f"fits the words around it. Answer with the new parts alone, each between its tags, e.g. <part {part}> and "
            f"</part {part}>."
        )
    if not role.instructs:
        return (
            f"Write a better text in its place, which is still {role.what}: about as long, and fit for the words "
            "around it. Answer with the text alone, between <prompt> and </prompt>."
        )
    signature = getattr(node, "signature", None)
    closed = [field.name for field in signature.outputs if field.values] if signature else []
    wanted = (
        f"and say what each {' and '.join(closed)} stands for, above all where one is taken for another"
        if closed
        else "and without any of the examples' own words as answers"
    )
    noun = "instruction" if role == INSTRUCTION else "text"
    return (
        f"Write a better {noun}: general, clear, {wanted}. Keep what works. Answer with the {noun} alone, between "
        "<prompt> and </prompt>."
    )


def message_at(workflow: Workflow, address: str) -> str:
    """Return the text at an address, or the whole message of a part: the text that a proposal may change."""
    parts = text_role(workflow, address).parts
    return "\n".join(parts.values()) if parts else text_at(workflow, address)


def show_in_place(workflow: Workflow, address: str) -> str:
    """Return the text at an address in tags; for a part of a message, all its parts, numbered."""
    role, prompt = text_role(workflow, address), text_at(workflow, address)
    if not role.parts:
        return f"The {'instruction' if role == INSTRUCTION else 'text'} now:\n{wrap_in_tags(prompt)}"
    shown = [f"<part {n}>\n{text}\n</part {n}>" for n, text in enumerate(role.parts.values(), 1)]
    return "The parts of the message now:\n" + "\n".join(shown)


def show_results(results: Sequence[Result], limit: int) -> str:
    """Format examples with answers and scores in at most `limit` characters, worst first: they are the most
    informative.

    The most frequent confusions come before them. Rows without a result are left out: they are no evidence about the
    workflow.
    """
    ordered = sorted((r for r in results if r.score is not None), key=score_of)
    share = min(600, max(200, limit // max(1, len(ordered))))
    lines = _confusions(ordered, limit // 4)
    size = sum(len(line) + 1 for line in lines)
    for result in ordered:
        line = _line(result, share)
        if size + len(line) + 1 > limit:
            break
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines)


def _confusions(results: Sequence[Result], limit: int) -> list[str]:
    """Return the pairs of a right and a wrong value that occur more than once, the most frequent first."""
    pairs = Counter(
        (name, str(right), str(said))
        for r in results
        if score_of(r) < 1
        for name, said in r.prediction.items()
        if _is_label(right := r.example.get(name)) and _is_label(said) and right != said
    )
    found = [
        f"- {name}: {n} times {right} was taken for {said}" for (name, right, said), n in pairs.most_common(8) if n > 1
    ]
    return found if sum(len(line) + 1 for line in found) <= limit else []


def _is_label(value: Any) -> bool:
    return isinstance(value, str | int) and 0 < len(str(value)) <= 60


def _line(result: Result, share: int) -> str:
    line = f"- score {score_of(result):.2f}; task: {short(dict(result.example.fields), share // 2)}; "
    line += f"answer: {short(dict(result.prediction), share // 4)}"
    if result.failure or result.feedback:
        line += f"; {result.failure or ''} {result.message or result.feedback or ''}"[: share // 4]
    for span in result.trace.spans if result.trace else ():
        for call in span.notes.get("tools", []):
            line += f"; called {call['name']}({short(call['arguments'], 60)}): {call['result'][:60]}"
    return line[:share]


def outline(workflow: Workflow) -> str:
    """Return the nodes of a workflow with their addresses and settings, one per line."""
    return "\n".join(f"- nodes.{name}: {short(tree, 600)}" for name, tree in workflow.nodes.items())
