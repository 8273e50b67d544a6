"""`ensemble`: run nodes several times and let a vote or a judge decide."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from pydantic import Field as Written
from pydantic import model_validator

from workbench.base.concurrency import gather_answered
from workbench.errors import NodeError
from workbench.kit.acting import child_node
from workbench.kit.answers import convert
from workbench.runtime import Context
from workbench.spec import NODE, one_or_each
from workbench.workflow import Field, NodeConfig, NodeKind

_JUDGE = "Answers to the same task follow. Reply with the number of the best answer and nothing else."


class EnsembleConfig(NodeConfig):
    """Settings of an `ensemble` node."""

    of: dict[str, Any] | list[dict[str, Any]] = Written(description="the node to sample, or several different nodes")
    samples: int = Written(3, ge=1, le=64, description="number of runs of each node, each with new samples")
    decide: Literal["vote", "judge"] = Written("vote", description="the most frequent answer, or the one a judge picks")
    field: str | None = Written(None, description="the output that is voted on (default: the last one)")
    judge: str = Written(_JUDGE, description="instructions of the judge; it is paid for under the role `judge`")

    @model_validator(mode="after")
    def _some(self) -> EnsembleConfig:
        if self.of == []:
            raise ValueError("an ensemble needs at least one node in 'of'")
        return self


class Ensemble(NodeKind):
    """Runs one or several nodes a number of times; a vote or a judge picks the answer."""

    Config = EnsembleConfig
    primary = "of"
    powers = {"of": one_or_each(NODE)}
    learnable = {"samples": "int", "decide": "choice", "judge": "text"}
    config: EnsembleConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.members  # bad settings are told when the file is read  # noqa: B018

    @cached_property
    def members(self) -> list[NodeKind]:
        if isinstance(self.config.of, dict):
            return [child_node("of", self.config.of, self.base, ("of",))]
        return [child_node(f"of.{i}", raw, self.base, ("of", i)) for i, raw in enumerate(self.config.of)]

    def children(self) -> Mapping[str, NodeKind]:
        return {node.name: node for node in self.members}

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for node in self.members for name in node.inputs))

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.members[0].outputs

    @property
    def max_calls(self) -> int:
        return sum(n.max_calls for n in self.members) * self.config.samples + (self.config.decide == "judge")

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        answers = await self._answers(inputs, ctx)
        if self.config.decide == "judge" and len(answers) > 1:
            return await self._judge(inputs, answers, ctx)
        field = self.config.field or self.outputs[-1]
        ballots = [json.dumps(a.get(field), sort_keys=True, default=str) for a in answers]
        counts = Counter(ballots)
        ctx.note(votes=dict(counts))
        return answers[ballots.index(max(ballots, key=lambda b: (counts[b], -ballots.index(b))))]

    async def _answers(self, inputs: Mapping[str, Any], ctx: Context) -> list[Mapping[str, Any]]:
        runs = [(node, k) for k in range(self.config.samples) for node in self.members]
        jobs = (ctx.run_child(n, n.name, {i: inputs[i] for i in n.inputs}, replica=k) for n, k in runs)
        return await gather_answered(jobs)

    async def _judge(
        self, inputs: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], ctx: Context
    ) -> Mapping[str, Any]:
        task = "\n".join(f"{name}: {value}" for name, value in inputs.items())
        listed = "\n".join(f"{i + 1}. {json.dumps(a, ensure_ascii=False, default=str)}" for i, a in enumerate(answers))
        messages = [
            {"role": "system", "content": self.config.judge},
            {"role": "user", "content": f"{task}\n\n{listed}"},
        ]
        response = await ctx.complete(messages, role="judge", max_tokens=16)
        try:
            best, _ = convert(Field("answer", values=tuple(range(1, len(answers) + 1))), response.text)
        except NodeError:
            ctx.note(judge_unreadable=response.text[:200])
            best = 1
        return answers[best - 1]
