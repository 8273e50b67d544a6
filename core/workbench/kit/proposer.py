"""What optimizers with a proposer share: asking it, showing it results, reading its answer.

A prompt in a message stands between <prompt> and </prompt>, in what is asked and in what is answered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.errors import BudgetSpent, LMError
from workbench.lm import Response
from workbench.study import Result, Study
from workbench.task import Example
from workbench.text import short
from workbench.workflow import NodeKind, Workflow

#: An instruction longer than this is no instruction.
MAX_PROMPT = 6000


@dataclass(frozen=True)
class Proposer:
    """The language model of a role: it answers, or returns None if the call fails for good.

    temperature, max_tokens: where the file's `roles` say nothing of these.
    """

    study: Study
    temperature: float = 0.8
    max_tokens: int = 500
    role: str = "proposer"

    async def ask(self, messages: Sequence[Mapping[str, str]], replica: int = 0) -> str | None:
        """The text of an answer; None for an empty or refused one and after a failure.

        Lets BudgetSpent and wrong credentials pass: no other request would fare better.
        """
        response = await self._response(messages, replica)
        return response.text if response is not None else None

    async def prompt(self, messages: Sequence[Mapping[str, str]], replica: int = 0) -> str | None:
        """The prompt in an answer, see `read_prompt`; None, which the run is told, if the answer was cut before its
        end."""
        response = await self._response(messages, replica)
        if response is None:
            return None
        if response.finish == "length" and "</prompt>" not in response.text:
            self.study.log(
                f"an answer of the {self.role} was cut: roles: {{{self.role}: {{max_tokens: ...}}}} gives it more room"
            )
            return None
        return read_prompt(response.text)

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
        return response if response.text.strip() and response.finish != "refusal" else None


class Batches:
    """Training rows in batches, shuffled; no row comes again before all others did, up to whole batches."""

    def __init__(self, study: Study, size: int):
        self.study, self.size = study, min(size, len(study.train))
        self._rows: list[Example] = []

    def draw(self) -> list[Example]:
        if len(self._rows) < self.size:
            self._rows = self.study.rng.sample(list(self.study.train), len(self.study.train))
        batch, self._rows = self._rows[: self.size], self._rows[self.size :]
        return batch


def runs_left(study: Study) -> float:
    """How many examples the remaining calls pay for, at the average of calls per example so far."""
    seen = study.best_evaluation
    return study.remaining("calls") / max(1.0, seen.objectives["calls"] if seen else 1.0)


def finalists(study: Study) -> int:
    """How many candidates to try on val at the end of a search: 1 to 4, paid by a quarter of the remaining calls."""
    return int(min(4, max(1, runs_left(study) / 4 / max(1, len(study.val)))))


def room_for(study: Study, rows: int, proposals: int = 0) -> bool:
    """Whether tokens and usd last for so many rows and for proposals of so many tokens.

    It asks for 1.5 times what a row of val took so far, and for usd the price of its tokens. An optimizer
    that leaves its candidates' turn on val to the end keeps room with this. Of calls `Study.affords` tells.
    """
    seen = study.best_evaluation
    if seen is None:
        return True
    size = rows + proposals / max(1.0, seen.objectives["tokens"])
    return all(study.remaining(w) >= 1.5 * size * seen.objectives[w] for w in ("tokens", "usd"))


def wrap_in_tags(prompt: str) -> str:
    return f"<prompt>\n{prompt}\n</prompt>"


def read_prompt(text: str) -> str | None:
    """What stands between the last <prompt> and </prompt>; None if it is empty or too long to be an instruction.

    Small models forget the marks: a short answer without any is taken as it is, less fences and quotes. Whether it is
    any good, the evaluation says.
    """
    found = re.findall(r"<prompt>(.*?)(?:</prompt>|\Z)", text, re.DOTALL)
    body = found[-1] if found else re.sub(r"</?prompt>|```\w*", "", text)
    body = body.strip().strip('"').strip()
    return body if 0 < len(body) <= (MAX_PROMPT if found else 1200) else None


def prompt_in_use(address: str, prompt: str, results: Sequence[Result]) -> str | None:
    """The path in traces of the node that holds a prompt, e.g. `vote.of`; None if no model was shown it.

    A judge that was not asked, or the case of a branch that was not taken, has nothing to learn from these results.
    They must have traces.
    """
    owner = address.removeprefix("nodes.").rpartition(".")[0]
    spans = [span for r in results if r.trace for span in r.trace.spans if span.calls]
    first = next(iter(prompt.strip().splitlines()), "").strip()  # adapters indent what follows
    if not first:  # nothing to look for: the node's own calls must do
        return owner if any(span.node == owner for span in spans) else None
    # `improve` of a reflect node, for one, is shown in calls of the node inside it.
    near = [span for span in spans if span.node == owner or span.node.startswith(f"{owner}.")]
    texts = (str(m.get("content")) for span in near for call in span.calls for m in call.messages)
    return owner if any(_holds(text, first) for text in texts) else None


def _holds(text: str, line: str) -> bool:
    """A short line, e.g. `Answer.`, may stand within any sentence: it counts only as a line of its own."""
    return line in text if len(line) >= 30 else line in map(str.strip, text.splitlines())


def describe(node: NodeKind) -> str:
    """A node's inputs and outputs, for a proposer's prompt."""
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
    node: NodeKind,
    prompt: str,
    *,
    evidence: str = "",
    advice: str = "",
    tried: Iterable[tuple[str, float]] = (),
) -> list[dict[str, str]]:
    """Asks for a better instruction of a node.

    evidence: results, see `show_results`. advice: what to change. tried: earlier instructions with their scores.
    """
    parts = [
        "You write the instruction of one step of a workflow. Another language model follows it.",
        describe(node),
        f"The instruction now:\n{wrap_in_tags(prompt)}",
    ]
    if evidence:
        parts.append(f"How the step did with it:\n{evidence}")
    if advice:
        parts.append(f"Advice:\n{advice}")
    earlier = "\n".join(f"- score {score:.2f}: {text}" for text, score in tried)
    if earlier:
        parts.append(f"Tried before:\n{earlier}")
    parts.append(
        "Write a better instruction: general, clear, and without any of the examples' own words as answers. Keep what "
        "works. Answer with the instruction alone, between <prompt> and </prompt>."
    )
    return [{"role": "user", "content": "\n\n".join(parts)}]


def show_results(results: Sequence[Result], limit: int) -> str:
    """Examples with answers and scores in at most `limit` characters, the worst first: they say most."""
    ordered = sorted(results, key=lambda r: r.score or 0.0)
    share = min(600, max(200, limit // max(1, len(ordered))))
    lines: list[str] = []
    size = 0
    for result in ordered:
        line = _line(result, share)
        if size + len(line) + 1 > limit:
            break
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines)


def _line(result: Result, share: int) -> str:
    line = f"- score {result.score or 0.0:.2f}; task: {short(dict(result.example.fields), share // 2)}; "
    line += f"answer: {short(dict(result.prediction), share // 4)}"
    if result.failure or result.feedback:
        line += f"; {result.failure or ''} {result.message or result.feedback or ''}"[: share // 4]
    for span in result.trace.spans if result.trace else ():
        for call in span.notes.get("tools", []):
            line += f"; called {call['name']}({short(call['arguments'], 60)}): {call['result'][:60]}"
    return line[:share]


def outline(workflow: Workflow) -> str:
    """The nodes of a workflow with their addresses and settings, a line each."""
    return "\n".join(f"- nodes.{name}: {short(tree, 600)}" for name, tree in workflow.nodes.items())


def read_objects(text: str) -> Iterator[dict[str, Any]]:
    """The outermost JSON objects in a text, whatever surrounds them."""
    decoder, place = json.JSONDecoder(parse_constant=_no_number), text.find("{")
    while place != -1:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):  # ValueError: also a number of thousands of digits
            end = place + 1
        else:
            yield value
        place = text.find("{", end)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
