"""`dylan`: members answer in rounds and see each other's answers; a ranker removes the weaker ones; each member's
importance is recorded.

Source: DyLAN (Liu et al., arXiv 2310.02170). Departures: members keep their order and are known by name, where the
original compares shuffled positions with the survivors' numbers; without `rate` an answer credits the earlier answers
equal to it, which takes no call; and an unreadable ranker keeps the members whose answers have most votes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from workbench.base.concurrency import gather_all
from workbench.errors import LMError
from workbench.runtime import Context
from workbench_teams.members import Answer, TeamConfig, TeamNode, no_answer_error

_RANK = (
    "Answers to the same task follow. Reply with the numbers of the {keep} best ones, the best first, and nothing else."
)
_RATE = "Answers to the same task follow. Rate each from 1 (useless) to 5 (right): one number for each, in their order."


class DylanConfig(TeamConfig):
    """Settings of a `dylan` node."""

    rounds: int = Field(3, ge=1, le=10, description="maximum number of rounds")
    keep: int = Field(2, ge=1, le=64, description="members left after the second round, if there are more than three")
    consensus: float = Field(2 / 3, gt=0, le=1, description="it ends when more than this share gives one answer")
    rate: bool = Field(
        False, description="members rate what they heard, in a call of their own; else equal answers count"
    )


class Dylan(TeamNode):
    """Members answer in rounds, see each other's answers, and are ranked; the most frequent answer counts (DyLAN)."""

    Config = DylanConfig
    primary = "of"
    learnable = {"rounds": "int", "keep": "int", "members": "members"}
    config: DylanConfig

    @property
    def max_calls(self) -> int:
        n, rounds = len(self.active), self.config.rounds
        calls = sum(node.max_calls for node in self.first.values())
        calls += (rounds - 1) * sum(node.max_calls + self.config.rate for node in self.later.values())
        return calls + (n > 3 and rounds > 2)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        layers: list[dict[str, Answer]] = []
        weights: list[
            dict[str, dict[str, float]]
        ] = []  # of the layers after the first: member -> earlier member -> share
        active = list(self.active)
        for number in range(self.config.rounds):
            if number == 2 and len(active) > 3:
                active = await self._ranked(inputs, layers[-1], ctx)
            heard = [self.shown(a) for a in layers[-1].values()] if layers else []
            jobs = (self.answer(m, inputs, ctx, number, heard) for m in active)
            layer = {m: a for m, a in zip(active, await gather_all(jobs), strict=True) if a is not None}
            if not layer:
                if not layers:
                    raise no_answer_error()
                break
            if layers:
                rated = await gather_all(self._shares(m, a, layers[-1], inputs, ctx, number) for m, a in layer.items())
                weights.append(dict(zip(layer, rated, strict=True)))
            layers.append(layer)
            votes = Counter(self.ballot(a) for a in layer.values())
            if votes.most_common(1)[0][1] > math.floor(self.config.consensus * len(active)):
                break
        last = layers[-1]
        ballots = {m: self.ballot(a) for m, a in last.items()}
        counts = Counter(ballots.values())
        final = max(ballots.values(), key=lambda b: (counts[b], -list(ballots.values()).index(b)))
        ctx.note(
            rounds=len(layers),
            importance=compute_importance(layers, weights, {m for m, b in ballots.items() if b == final}),
        )
        return next(a for m, a in last.items() if ballots[m] == final)

    async def _ranked(self, inputs: Mapping[str, Any], layer: Mapping[str, Answer], ctx: Context) -> list[str]:
        """Rank the answers and return the members that stay."""
        names, keep = list(layer), min(self.config.keep, len(layer))
        said = await self._asked(_RANK.format(keep=keep), inputs, [self.shown(a) for a in layer.values()], ctx, 32)
        chosen = list(dict.fromkeys(int(n) - 1 for n in re.findall(r"\d+", said)))
        chosen = [i for i in chosen if 0 <= i < len(names)][:keep]
        if len(chosen) < keep:
            ctx.note(unreadable=said[:200])
            votes = Counter(self.ballot(a) for a in layer.values())
            chosen += sorted(
                (i for i in range(len(names)) if i not in chosen),
                key=lambda i: (-votes[self.ballot(layer[names[i]])], i),
            )
        return [names[i] for i in sorted(chosen[:keep])]

    async def _shares(
        self,
        member: str,
        answer: Answer,
        before: Mapping[str, Answer],
        inputs: Mapping[str, Any],
        ctx: Context,
        number: int,
    ) -> dict[str, float]:
        """The shares of a member's credit that go to each earlier answer; they add up to 1."""
        if self.config.rate:
            own = f"{self.config.members[member]}\n{_RATE}\nYour own answer is: {self.shown(answer)}"
            said = await self._asked(own, inputs, [self.shown(a) for a in before.values()], ctx, 64, "task", number)
            found = [min(5, max(1, int(n))) for n in re.findall(r"\b\d+\b", said)]
            rated = dict(zip(before, found, strict=True)) if len(found) == len(before) else dict.fromkeys(before, 1)
        else:
            mine = self.ballot(answer)
            rated = {m: float(self.ballot(a) == mine) for m, a in before.items()}
        total = math.fsum(rated.values())
        return {m: r / total if total else 1 / len(rated) for m, r in rated.items()}

    async def _asked(
        self,
        instructions: str,
        inputs: Mapping[str, Any],
        answers: Sequence[str],
        ctx: Context,
        max_tokens: int,
        role: str = "judge",
        replica: int = 0,
    ) -> str:
        task = "\n".join(f"{n}: {inputs[n]}" for n in self.inputs)
        listed = "\n".join(f"{i + 1}. {text}" for i, text in enumerate(answers))
        messages = [{"role": "system", "content": instructions}, {"role": "user", "content": f"{task}\n\n{listed}"}]
        try:
            response = await ctx.complete(messages, role=role, max_tokens=max_tokens, replica=replica)
        except LMError as error:
            if error.kind.infrastructure:  # not the workflow's fault: the example is excluded
                raise
            return ""
        return response.text


def compute_importance(
    layers: Sequence[Mapping[str, Any]], weights: Sequence[Mapping[str, Mapping[str, float]]], right: set[str]
) -> dict[str, float]:
    """Each member's importance: the mean of its credit over layers, each of which adds up to 1 (DyLAN, section 3.3).

    layers: the members that answered in each round. weights: for each round after the first, member -> earlier member
    -> share of its credit. right: the members with the final answer in the last round, who share its credit equally.
    """
    credit = {m: 1 / len(right) if m in right else 0.0 for m in layers[-1]}
    total = dict(credit)
    for layer, owed in zip(reversed(layers[:-1]), reversed(weights), strict=True):
        credit = {m: math.fsum(owed[later].get(m, 0.0) * c for later, c in credit.items()) for m in layer}
        for m, c in credit.items():
            total[m] = total.get(m, 0.0) + c
    return {m: round(c / len(layers), 6) for m, c in total.items()}
