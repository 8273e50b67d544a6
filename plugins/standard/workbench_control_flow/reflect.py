"""`reflect`: answer, criticise, improve, and keep the answer with the best verifier score.

Sources: RCI (Kim et al., arXiv 2303.17491: criticise and improve) and iterative agent decoding (arXiv 2504.01931: a
verifier scores, and the best answer is returned). Departure: it ends when the verifier is satisfied, which saves the
critic's call, and when the critic finds no fault, so that a right answer is not argued away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import Field, model_validator

from workbench.errors import FailureKind, LMError, NodeError, SpecError
from workbench.runtime import Context
from workbench.workflow import NodeConfig, NodeKind
from workbench_control_flow.answered import gather_answered
from workbench_kit.acting import child_node, instructed_tree, with_new_inputs
from workbench_kit.answers import read_score
from workbench_kit.prompting import plain_adapter as plain

_CRITIC = (
    "Review the answer to a task. Name each fault and what would mend it. If the answer is right, reply with the "
    "single word none."
)
_IMPROVE = "An earlier answer was criticised. Mend what the criticism is right about and keep the rest."
EXTRA = ("earlier_answer", "criticism")


class ReflectConfig(NodeConfig):
    """Settings of a `reflect` node."""

    of: dict[str, Any] = Field(description="the node that answers: one with signature and instructions, e.g. predict")
    rounds: int = Field(1, ge=0, le=32, description="rounds of criticising and improving; 0: best of samples")
    samples: int = Field(1, ge=1, le=64, description="number of answers sampled per round; several need a verifier")
    verifier: str | dict[str, Any] | None = Field(
        None,
        description="python:module.function or a node that gives `score` "
        "in [0, 1] and maybe `feedback`; none: the last answer counts",
    )
    critic: str = Field(_CRITIC, description="instructions of the critic; empty: the verifier's feedback alone")
    improve: str = Field(_IMPROVE, description="added to the node's instructions where it improves an answer")

    @model_validator(mode="after")
    def _sensible(self) -> ReflectConfig:
        if self.verifier is None and self.samples > 1:
            raise ValueError("samples > 1 need a verifier that picks the best")
        if self.verifier is None and not self.critic:
            raise ValueError("give a critic, a verifier, or both")
        return self


class Reflect(NodeKind):
    """Answers, has the answer criticised and improved, and keeps the one with the best verifier score."""

    Config = ReflectConfig
    primary = "of"
    learnable = {"rounds": "int", "samples": "int", "critic": "text", "improve": "text"}
    config: ReflectConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        known = {*self.node.inputs, *self.node.outputs}
        unknown = [i for i in (self.verifier.inputs if self.verifier else ()) if i not in known]
        if unknown:
            raise SpecError(
                f"the verifier reads '{unknown[0]}', which '{name}' neither reads nor gives",
                hint=f"It may read {', '.join(sorted(known))}.",
                path=("verifier",),
            )
        self.improver  # bad settings are told when the file is read  # noqa: B018

    @cached_property
    def node(self) -> NodeKind:
        return child_node("of", self.config.of, self.base, ("of",), self.code)

    @cached_property
    def improver(self) -> NodeKind:
        """Return the same node with two more inputs, an earlier answer and its criticism, which its demos do
        not have."""
        tree, told = instructed_tree(self.config.of, self.node, "reflect cannot improve answers of")
        changed = {
            "signature": with_new_inputs(tree["signature"], EXTRA),
            "instructions": f"{told}\n{self.config.improve}",
        }
        plainer = {k: v for k, v in tree.items() if k not in ("demos", "retrieve")}
        return child_node("of", {**plainer, **changed}, self.base, ("of",), self.code)

    @cached_property
    def verifier(self) -> NodeKind | None:
        raw = self.config.verifier
        if isinstance(raw, str):
            raw = {"tool": raw, "output": "score"}
        return child_node("verifier", raw, self.base, ("verifier",), self.code) if raw is not None else None

    def children(self) -> Mapping[str, NodeKind]:
        inside = {"of": self.node}
        if self.verifier is not None and isinstance(self.config.verifier, dict):
            inside["verifier"] = self.verifier
        return inside

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.node.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.node.outputs

    @property
    def max_calls(self) -> int:
        c = self.config
        checks = self.verifier.max_calls if self.verifier else 0
        answers = self.node.max_calls + c.rounds * self.improver.max_calls
        return c.samples * (answers + (1 + c.rounds) * checks) + c.rounds * bool(c.critic)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        best, score, feedback = await self._round(self.node, inputs, ctx, 0)
        scores, failed = [score], list[str]()
        for number in range(1, self.config.rounds + 1):
            if score is not None and score >= 1.0:
                break
            try:
                criticism = await self._criticism(inputs, best, score, feedback, ctx, number)
            except LMError as error:
                if error.kind.infrastructure:  # no evidence about the workflow: the example is to be left out
                    raise
                ctx.note(failed=[*ctx.span.notes.get("failed", []), f"critic {number}: {error}"])
                break
            if not criticism:
                break
            criticism = "\n".join([criticism, *(f"Tried, and no better: {shown}" for shown in failed)])
            more = {**inputs, "earlier_answer": self._shown(best), "criticism": criticism}
            try:
                answer, new, told = await self._round(self.improver, more, ctx, number)
            except NodeError as error:
                if error.kind.infrastructure:
                    raise
                # The existing answer is better than none.
                ctx.note(failed=[*ctx.span.notes.get("failed", []), f"round {number}: {error}"])
                continue
            scores.append(new)
            if score is None or new is None or new > score:  # without a verifier the last one counts
                best, score, feedback, failed = answer, new, told, []
            else:  # so that the next round is another one, also at temperature 0
                failed = list(dict.fromkeys([*failed, self._shown(answer)]))
        ctx.note(scores=scores)
        unverified = ctx.span.notes.get("unverified", [])
        if unverified and not ctx.span.notes.get("verified"):  # not one check of this example ran: that is no verifier
            raise NodeError("verifier", f"the verifier failed on every answer: {min(unverified)}")
        return best

    async def _round(
        self, node: NodeKind, inputs: Mapping[str, Any], ctx: Context, number: int
    ) -> tuple[Mapping[str, Any], float | None, str]:
        """Return the best of a round's answers, its score if there is a verifier, and the verifier's words."""
        first = number * self.config.samples
        jobs = (self._checked(node, inputs, ctx, first + k) for k in range(self.config.samples))
        return max(
            await gather_answered(jobs, fatal=[kind for kind in FailureKind if kind.infrastructure]),
            key=lambda a: a[1] or 0.0,
        )

    async def _checked(
        self, node: NodeKind, inputs: Mapping[str, Any], ctx: Context, replica: int
    ) -> tuple[Mapping[str, Any], float | None, str]:
        answer = await ctx.run_child(node, "of", {n: inputs[n] for n in node.inputs}, replica)
        if self.verifier is None:
            return answer, None, ""
        seen = {**inputs, **answer}
        try:
            found = await ctx.run_child(self.verifier, "verifier", {n: seen[n] for n in self.verifier.inputs}, replica)
        except NodeError as error:
            if error.kind.infrastructure:
                raise
            # E.g. code that fails on a malformed answer: that answer is worth nothing.
            ctx.note(unverified=[*ctx.span.notes.get("unverified", []), str(error)])
            return answer, 0.0, str(error)
        ctx.note(verified=True)
        return answer, *read_score(found)

    async def _criticism(
        self,
        inputs: Mapping[str, Any],
        answer: Mapping[str, Any],
        score: float | None,
        feedback: str,
        ctx: Context,
        number: int,
    ) -> str:
        """Ask the critic what to fix. Returns "" if it finds nothing. Raises LMError of the critic."""
        if not self.config.critic:
            return feedback or f"The score is {score:.2f}."
        task = "\n".join(f"{n}: {plain.as_text(inputs[n])}" for n in self.node.inputs)
        parts = [task, f"The answer:\n{self._shown(answer)}"]
        if score is not None:
            parts.append(f"A check gives it {score:.2f}. {feedback}".strip())
        messages = [
            {"role": "system", "content": self.config.critic},
            {"role": "user", "content": "\n\n".join(parts)},
        ]
        response = await ctx.complete(messages, lm=getattr(self.node, "lm", None), replica=number)
        said = response.text.strip() if response.finish != "refusal" else ""
        return "" if re.fullmatch(r"(?is)\W*none\b.{0,3}", said) else said or feedback

    def _shown(self, answer: Mapping[str, Any]) -> str:
        return plain.outputs_text(self.outputs, answer)
