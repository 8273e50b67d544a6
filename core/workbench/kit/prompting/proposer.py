"""Helpers for optimizers with a proposer: ask it, show it results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.base.text import short
from workbench.errors import BudgetSpent, LMError
from workbench.kit.prompting.proposals import BEFORE, fold, read_prompt, why_unusable, wrap_in_tags
from workbench.lm import Response, is_blank, is_refusal
from workbench.study import Result, Study, score_of
from workbench.task import Example
from workbench.workflow import NodeKind, TextRole, Workflow, node_at, text_at, text_role

INSTRUCTION = TextRole()


@dataclass(frozen=True)
class Proposer:
    """The language model of a role.

    temperature, max_tokens: used unless the file's `roles` set them.
    """

    study: Study
    temperature: float = 0.8
    max_tokens: int = 500
    role: str = "proposer"

    async def ask(self, messages: Sequence[Mapping[str, str]], replica: int = 0) -> str | None:
        """Ask for an answer and return its text; None if it is empty or refused, or if the call fails for good.

        Raises BudgetSpent and errors of credentials, since later requests would fail, too.
        """
        response = await self._response(messages, replica)
        return response.text if response is not None else None

    async def prompt(
        self,
        messages: Sequence[Mapping[str, str]],
        workflow: Workflow,
        address: str,
        replica: int = 0,
        tried: Iterable[str] = (),
    ) -> str | None:
        """Ask for another prompt at an address and return it (see `read_prompt`), or None. A truncated answer, and one
        that cannot help (see `why_unusable`), is logged as an event."""
        response = await self._response(messages, replica)
        if response is None:
            return None
        if response.finish == "length" and "</prompt>" not in response.text:
            self.study.log(
                f"an answer of the {self.role} was cut: roles: {{{self.role}: {{max_tokens: ...}}}} gives it more room"
            )
            return None
        node, known, rows = node_at(workflow, address), [text_at(workflow, address), *tried], self.study.train
        reasons = list[str | None]()

        def refuse(text: str) -> str | None:
            reasons.append(why_unusable(text, node, known, messages, rows))
            return reasons[-1]

        found = read_prompt(response.text, refuse)
        if found is None and (why := next(filter(None, reasons), "")) and why != BEFORE:
            self.study.log(f"a prompt of the {self.role} is not tried: {why}")
        return found

    async def _response(self, messages: Sequence[Mapping[str, str]], replica: int) -> Response | None:
        given = self.study.evaluator.runtime.roles.get(self.role)
        settings = {
            name: own if (own := getattr(given, name, None)) is not None else getattr(self, name)
            for name in ("temperature", "max_tokens")
        }
        try:
            response = await self.study.lm(self.role)(messages, replica=replica, **settings)
        except BudgetSpent:
            raise
        except LMError as error:
            if error.kind == "auth":
                raise
            return None
        refused = response.finish == "refusal" or is_refusal(response.text)
        return None if refused or is_blank(response.text) else response


class Batches:
    """Shuffled training rows in batches. All rows are drawn before any is drawn again, up to whole batches."""

    def __init__(self, study: Study, size: int):
        self.study, self.size = study, min(size, len(study.train))
        self._rows: list[Example] = []

    def draw(self) -> list[Example]:
        if len(self._rows) < self.size:
            self._rows = self.study.rng.sample(list(self.study.train), len(self.study.train))
        batch, self._rows = self._rows[: self.size], self._rows[self.size :]
        return batch


def runs_left(study: Study) -> float:
    """The number of examples that the remaining calls pay for, at the mean number of calls per example so far."""
    seen = study.best_evaluation
    return study.remaining("calls") / max(1.0, seen.objectives["calls"] if seen else 1.0)


def finalists(study: Study) -> int:
    """The number of candidates to evaluate on val at the end of a search: 1 to 4, for a quarter of the calls left."""
    return int(min(4, max(1, runs_left(study) / 4 / max(1, len(study.val)))))


def room_for(study: Study, rows: int, proposals: int = 0) -> bool:
    """Return True if the remaining tokens and usd suffice for `rows` rows and `proposals` tokens of proposals.

    Assumes 1.5 times the mean cost of a row of val so far. An optimizer that evaluates its candidates on val only at
    the end reserves the budget with this. For calls, see `Study.affords`.
    """
    seen = study.best_evaluation
    if seen is None:
        return True
    size = rows + proposals / max(1.0, seen.objectives["tokens"])
    return all(study.remaining(w) >= 1.5 * size * seen.objectives[w] for w in ("tokens", "usd"))


def prompt_in_use(address: str, prompt: str, results: Sequence[Result]) -> str | None:
    """The path in traces of the node that holds a prompt, e.g. `vote.of`; None if no call contained the prompt.

    A judge that was not called, or an untaken case of a branch, can learn nothing from these results. The results must
    have traces.
    """
    spans = [span for r in results if r.trace for span in r.trace.spans if span.calls]
    place = address.removeprefix("nodes.")
    within = [span.node for span in spans if place.startswith(f"{span.node}.")]
    owner = max(within, key=len, default=place.rpartition(".")[0])
    # Adapters indent what follows the first line; a part that varies stands as {{1}} in a text of a foreign agent.
    parts = (part.strip() for part in re.split(r"\{\{\w+\}\}|\n", prompt))
    first = next(filter(None, parts), "")
    if not first:  # nothing to search for: use the node's own calls
        return owner if any(span.node == owner for span in spans) else None
    # For example, `improve` of a reflect node appears in calls of the node inside it.
    near = [span for span in spans if span.node == owner or span.node.startswith(f"{owner}.")]
    calls = [call for span in near for call in span.calls]
    texts = [str(m.get("content")) for call in calls for m in call.messages]
    # Descriptions of tools, and of the fields of an answer, are prompts, too.
    told = [str(part) for call in calls for part in (*call.tools, call.response_format or "")]
    whole = "{{" not in prompt.partition("\n")[0]
    held = any(_holds(text, first) if whole else first in text for text in texts)
    return owner if held or any(first in text for text in told) else None


def _holds(text: str, line: str) -> bool:
    """Return True if a text contains a line. A short one, e.g. `Answer.`, fits any sentence, so it must be a whole
    line."""
    return line in text if len(line) >= 30 else line in map(str.strip, text.splitlines())


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
    """The messages that ask for a better text at an address, such as the instruction of a node.

    Args:
        workflow: with the text in force.
        address: of the text.
        evidence: results, see `show_results`.
        advice: what to change.
        tried: earlier instructions with their scores.
    """
    node, prompt, role = node_at(workflow, address), text_at(workflow, address), text_role(workflow, address)
    parts = [
        f"You write {role.what}. Another language model {'follows' if role.instructs else 'reads'} it.",
        describe(node),
        show_in_place(prompt, role),
    ]
    if evidence:
        parts.append(f"How the step did with it:\n{evidence}")
    if advice:
        parts.append(f"Advice:\n{advice}")
    earlier = {fold(text): f"- score {score:.2f}: {text}" for text, score in tried}
    earlier.pop(fold(prompt), None)
    if earlier:
        parts.append("Tried before:\n" + "\n".join(earlier.values()))
    signature = getattr(node, "signature", None)
    closed = [field.name for field in signature.outputs if field.values] if signature else []
    wanted = (
        f"and say what each {' and '.join(closed)} stands for, above all where one is taken for another"
        if closed
        else "and without any of the examples' own words as answers"
    )
    if role.instructs:
        noun = "instruction" if role == INSTRUCTION else "text"
        parts.append(
            f"Write a better {noun}: general, clear, {wanted}. Keep what works. Answer with the {noun} alone, between "
            "<prompt> and </prompt>."
        )
    else:
        parts.append(
            f"Write a better text in its place, which is still {role.what}: about as long, and fit for the words "
            "around it. Answer with the text alone, between <prompt> and </prompt>."
        )
    return [{"role": "user", "content": "\n\n".join(parts)}]


def show_in_place(prompt: str, role: TextRole) -> str:
    """A text in tags, with the words around it in its message."""
    if not (role.before or role.behind):
        return f"The {'instruction' if role == INSTRUCTION else 'text'} now:\n{wrap_in_tags(prompt)}"
    around = [role.before, wrap_in_tags(prompt), role.behind]
    return "The text now, among the words around it in its message:\n" + "\n".join(filter(None, around))


def show_results(results: Sequence[Result], limit: int) -> str:
    """Examples with answers and scores in at most `limit` characters, worst first, since these are most informative;
    before them what is confused most often. Rows without a result are left out: they say nothing about the workflow."""
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
    """The pairs of a right and a wrong value that occur more than once, the most frequent first."""
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
    """The nodes of a workflow with their addresses and settings, one per line."""
    return "\n".join(f"- nodes.{name}: {short(tree, 600)}" for name, tree in workflow.nodes.items())
