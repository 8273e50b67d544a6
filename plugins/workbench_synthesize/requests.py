"""Requests to the writer and the judge: kind of row, tools, and examples to show."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.store import dumps
from workbench_synthesize.apis import Api
from workbench_synthesize.chains import Links
from workbench_synthesize.failures import Failed
from workbench_synthesize.settings import Kind, Synthesis

_WRITE: dict[Kind, str] = {
    "simple": """\
You write training rows for a model that calls tools. Write {count} different requests that a user could make and that
one call of the tool `{tool}` answers, each with that call. Say in the request every value that the call needs, in
everyday words, without naming the tool. One JSON object a line and nothing else:
{{"question": "...", "name": "{tool}", "arguments": {{...}}}}""",
    "parallel": """\
You write training rows for a model that calls tools. Write {count} different requests that a user could make and that
two to {most} calls answer together, at least one of them of the tool `{tool}`, each with those calls. No call may need
what another one returns; a tool may be called several times with different arguments. Say in the request every value
that the calls need, in everyday words, without naming a tool. One JSON object a line and nothing else:
{{"question": "...", "calls": [{{"name": "{tool}", "arguments": {{...}}}}, {{"name": "...", "arguments": {{...}}}}]}}""",  # noqa: E501
    "chain": """\
You write training rows for a model that calls tools. Write {count} different requests that a user could make and that
two to {most} calls answer one after the other, each with those calls: first `{first}`, later `{second}`, which needs
what an earlier call returns. In place of such a value write a reference: {{"$ref": "1"}} is all that the first call
returned, {{"$ref": "1.items.0.id"}} a part of it. Never guess such a value, and do not say it in the request. Say every
other value in the request, in everyday words, without naming a tool. One JSON object a line and nothing else:
{{"question": "...", "calls": [{{"name": "{first}", "arguments": {{...}}}}, {{"name": "{second}", "arguments": {{...}}}}]}}""",  # noqa: E501
    "none": """\
You write training rows for a model that calls tools and must see where no tool helps. Write {count} different requests
that a user could make, near to what the tool `{tool}` does, and that none of the tools below can answer, neither alone
nor together. One JSON object a line and nothing else:
{{"question": "..."}}""",
}
_VERDICT = "Answer with one line: `verdict: yes` or `verdict: no`."
_JUDGE: dict[Kind, str] = {
    "simple": """\
A user asked a question, and a tool was called. Does this one call do what was asked, with no argument made up and none
wrong? """
    + _VERDICT,
    "parallel": """\
A user asked a question, and tools were called. Do these calls together do all that was asked and nothing else, with no
argument made up and none wrong? """
    + _VERDICT,
    "chain": """\
A user asked a question, and tools were called in this order; a value may come from what an earlier call returned. Do
these calls together do all that was asked and nothing else, with no argument made up and none wrong? """
    + _VERDICT,
    "none": """\
A user asked a question. Can it be answered by calling these tools, one or several of them? """
    + _VERDICT,
}
#: The judge's verdict on a row that is kept.
APPROVED: dict[Kind, str] = {"simple": "yes", "parallel": "yes", "chain": "yes", "none": "no"}

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Request:
    """A request for rows about `api`, with other tools shown. like: ids of the failed rows that it shows."""

    number: int
    kind: Kind
    api: Api
    shown: Sequence[Api]
    messages: Messages
    like: tuple[str, ...] = ()


class Requests:
    """Draws requests. They depend only on the seed and on the rows kept so far, so a replay draws the same."""

    def __init__(self, spec: Synthesis, apis: Sequence[Api], failed: Failed | None, links: Links):
        self.spec, self.apis, self.failed, self.links = spec, {a.name: a for a in apis}, failed, links
        self.rng = random.Random(f"synthesis {spec.seed}")
        self.kept_by: Counter[str] = Counter({a.name: 0 for a in apis})
        self.asked_by: Counter[str] = Counter({a.name: 0 for a in apis})
        self.asked_for: Counter[str] = Counter()
        self.count = 0

    def next(self) -> Request:
        kind, name = self._kind(), self._name()
        self.count += 1
        self.asked_by[name] += 1
        about = [name]
        if kind == "chain":
            about = list(dict.fromkeys(pair := self.links.pair(name, self.rng)))
            first, second = pair
        else:
            first = second = name
        others = [a for n, a in self.apis.items() if n not in about]
        beside = self.rng.sample(others, min(max(0, self.spec.shown - len(about)), len(others)))
        shown = [*(self.apis[n] for n in about), *beside]
        told = self.rng.sample(self.spec.questions, min(2, len(self.spec.questions)))
        text = "Tools:\n" + "\n".join(json.dumps(a.as_dict(), ensure_ascii=False) for a in shown)
        if kind == "chain":
            text += f"\n{self.links.told(first)}"
        if told:
            text += "\nQuestions of the kind that is wanted:\n" + "\n".join(f"- {q}" for q in told)
        like = self.failed.draw(self.rng, kind, name) if self.failed else []
        if like:
            text += "\nA model failed these, shown with what would have been right. Write others of their kind, a bit different:\n"  # noqa: E501
            text += "\n".join(f"- {row.told}" for row in like)
        system = _WRITE[kind].format(count=self.spec.each, tool=name, most=self.spec.most, first=first, second=second)
        messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        return Request(self.count, kind, self.apis[name], shown, messages, tuple(row.id for row in like))

    def _kind(self) -> Kind:
        """The kind furthest below its share of the requests."""
        shares = self.spec.kinds
        kind = min(shares, key=lambda k: (self.asked_for[k] + 1) / shares[k])
        self.asked_for[kind] += 1
        return kind

    def _name(self) -> str:
        """The tool with the fewest rows and requests; with failures, the one furthest below its share of requests.

        The number of rows would not suffice: a tool whose rows are always refused would take all requests.
        """

        def behind(name: str) -> float:
            if self.failed is None:
                return self.kept_by[name] / self.spec.each + self.asked_by[name]
            return (self.asked_by[name] + 1) / self.failed.weights[name]

        least = min(behind(name) for name in self.apis)
        return self.rng.choice([name for name in self.apis if behind(name) == least])


def build_judge_messages(
    kind: Kind,
    question: str,
    calls: Sequence[Mapping[str, Any]],
    results: Sequence[Any] | None,
    shown: Mapping[str, Api],
) -> Messages:
    """The messages that ask a judge about a row."""
    if kind == "none":
        text = "Tools:\n" + "\n".join(json.dumps(a.as_dict()) for a in shown.values()) + f"\nQuestion: {question}"
    elif kind == "simple":
        text = f"Tool: {json.dumps(shown[calls[0]['name']].as_dict())}\nQuestion: {question}\nCall: {dumps(calls[0])}"
        if results is not None:
            text += f"\nResult: {dumps(results[0])[:1000]}"
    else:
        names = dict.fromkeys(call["name"] for call in calls)
        text = "Tools:\n" + "\n".join(json.dumps(shown[name].as_dict()) for name in names) + f"\nQuestion: {question}"
        for number, call in enumerate(calls, 1):
            text += f"\nCall {number}: {dumps(call)}"
            if results is not None:
                text += f"\nResult {number}: {dumps(results[number - 1])[:1000]}"
    return [{"role": "system", "content": _JUDGE[kind]}, {"role": "user", "content": text}]
