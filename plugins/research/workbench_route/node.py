"""`route`: each input goes to the cheapest candidate that is predicted to answer it well enough.

Source: BEST-Route (Ding et al., arXiv 2506.22716): one prediction for each (model, number of samples), a proxy reward
that picks among the samples, a threshold as the dial between cost and quality. Departures, with reasons, are in the
README.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import Field

from workbench.base.concurrency import gather_all
from workbench.errors import NodeError, SpecError, suggest
from workbench.runtime import Context
from workbench.spec import lm_spec
from workbench.workflow import NodeConfig, NodeKind
from workbench_kit.acting import child_node
from workbench_kit.prompting import plain_adapter as plain
from workbench_route.outcomes import Candidate
from workbench_route.reward import pick_answer
from workbench_route.router import Router

_NAME = re.compile(r"[\w-]+")


class RouteConfig(NodeConfig):
    """Settings of a `route` node."""

    candidates: dict[str, dict[str, Any]] = Field(
        min_length=2, description="the nodes to choose from, by name. Fields that all of them write are the output"
    )
    reference: str | None = Field(
        None,
        description="the candidate that is taken where nothing is learned, and that others have to match (default: the "
        "last one)",
    )
    samples: dict[str, list[int]] = Field(
        default_factory=dict,
        description="by candidate, the allowed numbers of samples, e.g. {small: [1, 3]} (default: one); a learned "
        "reward picks among several",
    )
    on: list[str] = Field(
        default_factory=list, description="input fields that the decision reads (default: all of the candidates')"
    )
    embedder: str | dict[str, Any] | None = Field(
        None, description="a language model whose vector of the input the decision reads, too: a call for each input"
    )
    threshold: float | None = Field(
        None,
        ge=0,
        description="the trade-off between cost and quality, instead of the learned one. Rule `value`: what the "
        "reference's cost is worth in score, 0 for quality alone. Rule `match`: the least probability of matching the "
        "reference",
    )
    always: str | None = Field(None, description="this candidate for every input, whatever was learned")
    first_sample: int = Field(0, ge=0, le=63, description="for `always`: the number of the first sample")
    learned: str = Field("", description="what the optimizer `route` has learned, as JSON; empty: always the reference")


@dataclass(frozen=True)
class _Answer:
    """The answer of a candidate, or its failure."""

    given: Mapping[str, Any] | None
    error: NodeError | None = None


class Route(NodeKind):
    """Runs one of several candidates, chosen by the input before any is asked."""

    Config = RouteConfig
    primary = "candidates"
    learnable = {"threshold": "float"}
    config: RouteConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self._check_names()
        self._check_fields()
        if config.embedder is not None:
            lm_spec(config.embedder)
        self.router  # what was learned is checked when the file is read  # noqa: B018

    def _check_names(self) -> None:
        c, known = self.config, list(self.config.candidates)
        for name in known:
            if not _NAME.fullmatch(name):
                raise SpecError(
                    f"a candidate cannot be called '{name}'",
                    hint="Use letters, digits, _ and -.",
                    path=("candidates", name),
                )
        for key in ("reference", "always"):
            name = getattr(c, key)
            if name is not None and name not in known:
                raise SpecError(f"{key} names no candidate: '{name}'", hint=suggest(name, known), path=(key,))
        for name, counts in c.samples.items():
            if name not in known:
                raise SpecError(f"samples of no candidate: '{name}'", hint=suggest(name, known), path=("samples", name))
            if not counts or any(not 1 <= n <= 64 for n in counts):
                raise SpecError(
                    f"samples of '{name}' must be numbers from 1 to 64",
                    hint=f"Write e.g. samples: {{{name}: [1, 3]}}.",
                    path=("samples", name),
                )

    def _check_fields(self) -> None:
        if not self.outputs:
            shown = "; ".join(f"{name}: {', '.join(node.outputs)}" for name, node in self.nodes.items())
            raise SpecError(
                "the candidates of a route write no field in common", hint=f"They write {shown}.", path=("candidates",)
            )
        for field in self.config.on:
            if field in self.outputs:
                raise SpecError(
                    f"the decision cannot read '{field}', which the candidates write",
                    hint=f"It is made before any of them runs. They read {', '.join(self.read_fields)}.",
                    path=("on",),
                )

    @cached_property
    def nodes(self) -> dict[str, NodeKind]:
        """The candidates' nodes, by name."""
        return {
            name: child_node(f"candidates.{name}", raw, self.base, ("candidates", name), self.code)
            for name, raw in self.config.candidates.items()
        }

    @cached_property
    def candidates(self) -> list[Candidate]:
        """Return the candidates: each node with each number of samples."""
        samples = self.config.samples
        return [Candidate(name, n) for name in self.nodes for n in sorted(set(samples.get(name, [1])))]

    @property
    def reference(self) -> Candidate:
        """With the fewest samples that the file allows it."""
        name = self.config.reference or list(self.nodes)[-1]
        return next(candidate for candidate in self.candidates if candidate.model == name)

    @cached_property
    def router(self) -> Router | None:
        """Return the learned router; None if there is none. Raises SpecError if it does not belong to these
        candidates."""
        if not self.config.learned.strip():
            return None
        router = Router.parse(self.config.learned)
        known = [candidate.name for candidate in self.candidates]
        if router.candidates != known or router.reference != self.reference.name:
            learned_for = f"{', '.join(router.candidates)} with the reference {router.reference}"
            raise SpecError(
                f"this router was learned for {learned_for}, and the node has {', '.join(known)} with the reference "
                f"{self.reference.name}",
                hint="Run the optimizer `route` again, or leave `learned` out.",
                path=("learned",),
            )
        if bool(router.vector) != (self.config.embedder is not None):
            has, lacks = ("needs", "names none") if router.vector else ("was learned without", "names one")
            raise SpecError(f"this router {has} an embedder, and the node {lacks}", path=("embedder",))
        return router

    def children(self) -> Mapping[str, NodeKind]:
        return {node.name: node for node in self.nodes.values()}

    @cached_property
    def read_fields(self) -> tuple[str, ...]:
        """The input fields of all candidates."""
        return tuple(dict.fromkeys(name for node in self.nodes.values() for name in node.inputs))

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.read_fields, *self.config.on)))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The fields that all candidates write; the others, such as one candidate's steps, are left out."""
        first, *others = self.nodes.values()
        return tuple(name for name in first.outputs if all(name in other.outputs for other in others))

    @property
    def max_calls(self) -> int:
        name = self.config.always
        asked = [Candidate(name)] if name is not None else self.candidates if self.router else [self.reference]
        return max(c.samples * self.nodes[c.model].max_calls for c in asked) + (self.config.embedder is not None)

    def warnings(self) -> list[str]:
        if self.router is None and self.config.always is None:
            return [
                f"'{self.name}' has learned nothing yet: every input goes to its reference, {self.reference.name}. "
                "The optimizer `route` learns where else: name it under optimize:, and run `workbench optimize`."
            ]
        return []

    def text_of(self, inputs: Mapping[str, Any]) -> str:
        """Return the text that the decision reads."""
        return "\n".join(plain.as_text(inputs[name]) for name in self.config.on or self.read_fields)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        text = self.text_of(inputs)
        vector = await self._embed(text, ctx)
        candidate, first = self._decide(text, vector, ctx)
        node = self.nodes[candidate.model]
        given = {name: inputs[name] for name in node.inputs}
        numbers = range(first, first + candidate.samples)
        answers = await gather_all([self._ask(node, given, n, ctx) for n in numbers])
        if candidate.samples == 1:
            return self._taken(answers[0])
        reward = self.router.reward(candidate.model) if self.router is not None else None
        shown = [self.answer_text(answer.given) if answer.given is not None else None for answer in answers]
        picked = pick_answer(reward, text, shown)
        ctx.note(picked=picked)
        return self._taken(answers[picked])

    def _decide(self, text: str, vector: Sequence[float], ctx: Context) -> tuple[Candidate, int]:
        """The candidate, and the number of its first sample."""
        if self.config.always is not None:
            ctx.note(text=text, **({"vector": list(vector)} if vector else {}))
            return Candidate(self.config.always), self.config.first_sample
        if self.router is None:
            ctx.note(route=self.reference.name, learned=False)
            return self.reference, 0
        scores, costs = self.router.scores(text, vector), self.router.estimated_costs(text)
        chosen = self.candidates[self.router.choose(scores, costs, self.config.threshold)]
        ctx.note(
            route=chosen.name, scores=dict(zip(self.router.candidates, (round(s, 4) for s in scores), strict=True))
        )
        return chosen, 0

    async def _embed(self, text: str, ctx: Context) -> Sequence[float]:
        needed = self.config.always is not None or self.router is not None
        if self.config.embedder is None or not needed:
            return ()
        vector = (await ctx.embed([text], lm_spec(self.config.embedder)))[0]
        if self.router is not None and self.config.always is None and len(vector) != self.router.vector:
            raise NodeError(
                "data", f"vectors of length {self.router.vector} were learned, and this one has {len(vector)}"
            )
        return vector

    async def _ask(self, node: NodeKind, given: Mapping[str, Any], replica: int, ctx: Context) -> _Answer:
        """An answer, or how it failed, unless the fault says nothing about the candidate."""
        try:
            return _Answer(await ctx.run_child(node, node.name, given, replica=replica))
        except NodeError as error:
            if error.kind.infrastructure:
                raise
            return _Answer(None, error)

    def _taken(self, answer: _Answer) -> Mapping[str, Any]:
        if answer.given is None:
            assert answer.error is not None
            raise answer.error
        return {name: answer.given[name] for name in self.outputs}

    def answer_text(self, answer: Mapping[str, Any]) -> str:
        """An answer as the reward reads it."""
        return "\n".join(plain.as_text(answer[name]) for name in self.outputs)
