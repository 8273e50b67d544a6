"""Helpers for optimizers with a proposer: ask it, choose the texts that it rewrites, and estimate the cost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from workbench.errors import BudgetSpent, LMError
from workbench.lm import Response, is_blank, is_refusal
from workbench.study import Result, Study
from workbench.task import Example
from workbench.workflow import Workflow, learnable_addresses, node_at, text_at, text_role
from workbench_kit.prompting.proposals import BEFORE, fold, keep_whole, read_parts, read_prompt, why_unusable
from workbench_kit.prompting.requests import rewrite_request

#: Characters.
MAX_PURPOSE = 1000


@dataclass(frozen=True)
class Proposer:
    """The language model of a role. Each request states the file's purpose before its last paragraph.

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

    async def rewrite(
        self,
        workflow: Workflow,
        address: str,
        replica: int = 0,
        *,
        evidence: str = "",
        advice: str = "",
        tried: Iterable[tuple[str, float]] = (),
        made: Iterable[str] = (),
    ) -> dict[str, str]:
        """Ask for a better text at an address, and return it by its address. Empty if there is none to try.

        For a part of a message, the result may have its other parts, or lack it. evidence, advice, tried: see
        `rewrite_request`. made: texts that would bring nothing new.
        """
        request = rewrite_request(workflow, address, evidence=evidence, advice=advice, tried=tried)
        known = list(made)
        parts = text_role(workflow, address).parts
        if not parts:
            text = await self.prompt(request, workflow, address, replica, known)
            return {} if text is None else {address: text}
        places, text, reasons = [*parts], await self._whole(request, replica), list[str | None]()

        def judge(body: str, one: str = address) -> str | None:
            return self._judge(body, workflow, one, request, (), reasons)

        found = read_parts(text or "", len(places), places.index(address), judge)
        values = {places[place]: body for place, body in found.items()}
        values = {one: body for one, body in values.items() if fold(body) != fold(parts[one])}
        if values and {fold(body) for body in values.values()} <= {fold(text) for text in known}:
            return {}
        # One part of a message alone is no proposal: all of it is tried, or nothing.
        if values and not any(judge(body, one) for one, body in values.items()):
            return values
        self._tell(reasons)
        return {}

    async def prompt(
        self,
        messages: Sequence[Mapping[str, str]],
        workflow: Workflow,
        address: str,
        replica: int = 0,
        tried: Iterable[str] = (),
    ) -> str | None:
        """Ask for another prompt at an address and return it (see `read_prompt`), or None.

        A truncated answer, and one that cannot help (see `why_unusable`), is logged as an event.
        """
        text, tried = await self._whole(messages, replica), list(tried)
        reasons = list[str | None]()
        found = read_prompt(text or "", lambda body: self._judge(body, workflow, address, messages, tried, reasons))
        if found is None:
            self._tell(reasons)
        return found

    async def _whole(self, messages: Sequence[Mapping[str, str]], replica: int) -> str | None:
        """Return the text of an answer, or the complete part of a truncated one; None without an answer."""
        response = await self._response(messages, replica)
        if response is None or response.finish != "length":
            return None if response is None else response.text
        whole = keep_whole(response.text)
        if not whole:
            self.study.log(
                f"an answer of the {self.role} was cut: roles: {{{self.role}: {{max_tokens: ...}}}} gives it more room"
            )
        return whole or None

    def _judge(
        self,
        text: str,
        workflow: Workflow,
        address: str,
        messages: Sequence[Mapping[str, str]],
        tried: Iterable[str],
        reasons: list[str | None],
    ) -> str | None:
        """Return why a text cannot help at an address, or None, and add it to the reasons."""
        known = [text_at(workflow, address), *tried]
        reasons.append(why_unusable(text, node_at(workflow, address), known, messages, self.study.train))
        return reasons[-1]

    def _tell(self, reasons: Iterable[str | None]) -> None:
        """Log why nothing of an answer is tried, unless that is the most frequent reason."""
        if why := next((why for why in reasons if why and why != BEFORE), None):
            self.study.log(f"a prompt of the {self.role} is not tried: {why}")

    async def _response(self, messages: Sequence[Mapping[str, str]], replica: int) -> Response | None:
        given = self.study.evaluator.runtime.roles.get(self.role)
        settings = {
            name: own if (own := getattr(given, name, None)) is not None else getattr(self, name)
            for name in ("temperature", "max_tokens")
        }
        if purpose := self.study.description.strip()[:MAX_PURPOSE]:
            shown, gap, asked = str(messages[0]["content"]).rpartition("\n\n")
            content = f"{shown}{gap}What the workflow is for: {purpose}\n\n{asked}"
            messages = [{**messages[0], "content": content}, *messages[1:]]
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


def order_texts(workflow: Workflow, results: Sequence[Result]) -> list[str]:
    """Return the addresses of texts that optimizers may change, one per message, the most often failing first. Others
    follow in the order of the nodes. The results must have traces."""
    failed = [r for r in results if r.score is not None and r.score < 1]

    def failures(address: str) -> int:
        return sum(prompt_in_use(address, text_at(workflow, address), [r]) is not None for r in failed)

    texts = one_of_each_message(workflow, learnable_addresses(workflow, "text"))
    return sorted(texts, key=failures, reverse=True)


def one_of_each_message(workflow: Workflow, addresses: Iterable[str]) -> list[str]:
    """Return the addresses, only the first of each message: one proposal may change the whole message."""
    found, seen = list[str](), set[str]()
    for address in addresses:
        if address not in seen:
            found.append(address)
        seen |= {address, *text_role(workflow, address).parts}
    return found


def runs_left(study: Study) -> float:
    """Return the number of examples that the remaining calls pay for, at the mean number of calls per example
    so far."""
    seen = study.best_evaluation
    return study.remaining("calls") / max(1.0, seen.objectives["calls"] if seen else 1.0)


def finalists(study: Study) -> int:
    """Return the number of candidates to evaluate on val at the end: 1 to 4, for a quarter of the remaining calls."""
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
    """Return the path in traces of the node with a prompt, e.g. `vote.of`; None if no call contained the prompt.

    A judge that was not called, or an untaken case of a branch, can learn nothing from these results. The results must
    have traces.
    """
    spans = [span for r in results if r.trace for span in r.trace.spans if span.calls]
    place = address.removeprefix("nodes.")
    within = [span.node for span in spans if place.startswith(f"{span.node}.")]
    owner = max(within, key=len, default=place.rpartition(".")[0])
    # Adapters indent later lines. In a text of a foreign agent, a varying part is written {{1}}.
    parts = (part.strip() for part in re.split(r"\{\{\w+\}\}|\n", prompt))
    first = next(filter(None, parts), "")
    if not first:  # nothing to search for: use the node's own calls
        return owner if any(span.node == owner for span in spans) else None
    # For example, `improve` of a reflect node appears in calls of the node inside it.
    near = [span for span in spans if span.node == owner or span.node.startswith(f"{owner}.")]
    calls = [call for span in near for call in span.calls]
    texts = [str(m.get("content")) for call in calls for m in call.messages]
    # Descriptions of tools, and of output fields, are prompts, too.
    told = [str(part) for call in calls for part in (*call.tools, call.response_format or "")]
    whole = "{{" not in prompt.partition("\n")[0]
    held = any(_holds(text, first) if whole else first in text for text in texts)
    return owner if held or any(first in text for text in told) else None


def _holds(text: str, line: str) -> bool:
    """Return True if a text contains a line. A short line, e.g. `Answer.`, fits any sentence, so it must be a whole
    line."""
    return line in text if len(line) >= 30 else line in map(str.strip, text.splitlines())
