"""`ensemble`: run nodes several times and let a vote or a judge decide.

Votes with weights are the internal contest of ContestTrade (arXiv 2508.00554): members are ranked by past performance,
and only the answers of the best count. Departure: the weights are settings of the workflow, which the optimizer `team`
learns on training rows, because a contest that learned during the test would read its labels.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field as Written, model_validator

from workbench.errors import NodeError
from workbench.runtime import Context
from workbench.workflow import Field, NodeConfig, NodeKind
from workbench_control_flow.answered import gather_answered
from workbench_kit.acting import child_node
from workbench_kit.answers import convert

_JUDGE = "Answers to the same task follow. Reply with the number of the best answer and nothing else."


class EnsembleConfig(NodeConfig):
    """Settings of an `ensemble` node."""

    of: dict[str, Any] | list[dict[str, Any]] = Written(description="the node to sample, or several different nodes")
    samples: int = Written(3, ge=1, le=64, description="number of runs of each node, each with new samples")
    decide: Literal["vote", "judge"] = Written("vote", description="the most frequent answer, or the one a judge picks")
    field: str | None = Written(None, description="the output that is voted on (default: the last one)")
    judge: str = Written(_JUDGE, description="instructions of the judge; it is paid for under the role `judge`")
    weights: list[Annotated[float, Written(ge=0, allow_inf_nan=False)]] = Written(
        default_factory=list,
        exclude_if=lambda weights: not weights,
        description="what a vote of each node of a list counts; 0: the node is not run. Default: 1 each",
    )

    @model_validator(mode="after")
    def _some(self) -> EnsembleConfig:
        if self.of == []:
            raise ValueError("an ensemble needs at least one node in 'of'")
        if self.weights and (isinstance(self.of, dict) or len(self.weights) != len(self.of)):
            listed = "no list" if isinstance(self.of, dict) else f"{len(self.of)} nodes"
            raise ValueError(
                f"'weights' has {len(self.weights)} numbers and 'of' {listed}: write a number for each node"
            )
        if self.weights and not any(self.weights):
            raise ValueError("all weights are 0, and so no node is run: give one at least more")
        return self


class Ensemble(NodeKind):
    """Runs one or several nodes a number of times; a vote or a judge picks the answer."""

    Config = EnsembleConfig
    primary = "of"
    learnable = {"samples": "int", "decide": "choice", "judge": "text", "weights": "weights"}
    config: EnsembleConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.members  # bad settings are told when the file is read  # noqa: B018

    @cached_property
    def members(self) -> list[NodeKind]:
        if isinstance(self.config.of, dict):
            return [child_node("of", self.config.of, self.base, ("of",), self.code)]
        return [child_node(f"of.{i}", raw, self.base, ("of", i), self.code) for i, raw in enumerate(self.config.of)]

    @property
    def weights(self) -> dict[str, float]:
        """Return the nodes that are run, with the weights of their votes."""
        each = self.config.weights or [1] * len(self.members)
        return {node.name: weight for node, weight in zip(self.members, each, strict=True) if weight}

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
        calls = sum(node.max_calls for node in self.members if node.name in self.weights)
        return calls * self.config.samples + (self.config.decide == "judge")

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        weights, runs = self.weights, await self._answers(inputs, ctx)
        answers, field = [answer for _, answer in runs], self.config.field or self.outputs[-1]
        ballots = [json.dumps(a.get(field), sort_keys=True, default=str) for a in answers]
        counts, said = defaultdict[str, float](int), defaultdict[str, list[str]](list)
        for (member, _), ballot in zip(runs, ballots, strict=True):
            counts[ballot] += weights[member]
            said[member].append(ballot)
        if len(self.members) > 1:
            ctx.note(answers=dict(said))
        if self.config.decide == "judge" and len(answers) > 1:
            return await self._judge(inputs, answers, ctx)
        ctx.note(votes=dict(counts))
        return answers[ballots.index(max(ballots, key=lambda b: (round(counts[b], 9), -ballots.index(b))))]

    async def _answers(self, inputs: Mapping[str, Any], ctx: Context) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the answers, each after the name of the node that gave it."""

        async def ask(node: NodeKind, replica: int) -> tuple[str, Mapping[str, Any]]:
            return node.name, await ctx.run_child(node, node.name, {i: inputs[i] for i in node.inputs}, replica=replica)

        run = [node for node in self.members if node.name in self.weights]
        return await gather_answered(ask(node, k) for k in range(self.config.samples) for node in run)

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
