"""Learning a workflow's prompts by textual gradients.

Sources: symbolic learning (Zhou et al., arXiv 2406.18532: loss, gradients and optimizers in words; the roll-back rule
is that of its implementation) and agentic neural networks (arXiv 2506.09046: gradients layer by layer). Departures,
with reasons in the README: one loss per batch; structural edits only on request; val decides at the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pydantic import Field, field_validator

from workbench import BudgetSpent, Evaluation, Example, Optimizer, Patch, Study, Workflow
from workbench.errors import SpecError
from workbench.study import score_of
from workbench.workflow import learnable_addresses, text_at
from workbench_kit.answers import read_objects
from workbench_kit.credit import blame_nodes
from workbench_kit.prompting import Batches, Proposer, finalists, message_at, one_of_each_message, room_for
from workbench_kit.searching import Menu, apply_edit, catalogue, describe_edit, edit_classes, read_edit
from workbench_textgrad import prompts
from workbench_textgrad.backward import CHARS, Backward, layers_of, switched_off
from workbench_textgrad.prompts import Gradient

#: Number of a batch's worst failures that the loss is written from.
WRONG = 8
#: Score above which a batch is good, and number of consecutive good batches that ends the search.
ENOUGH, STREAK = 0.9, 3


class TextGrad(Optimizer):
    """Propagates a textual loss backwards through the graph, and rewrites the prompts of the blamed nodes.

    The role `proposer` writes loss, gradients and prompts. A step is undone if the new prompts score below the last
    batch and the old ones do better on the same batch.
    """

    steps: int = Field(20, ge=1, le=1000, description="batches at most")
    batch: int = Field(12, ge=1, le=256, description="training rows per step")
    patience: int = Field(5, ge=1, le=100, description="consecutive steps without a lasting change before it ends")
    tools: bool = Field(True, description="rewrite the descriptions of agents' `functions`, too")
    edits: list[str] = Field(
        default_factory=list,
        description="structural edits that the proposer may choose, e.g. insert, remove, refine; none: keep the graph",
    )
    temperature: float = Field(0.8, ge=0, le=2, description="of the proposer")
    guided: bool = Field(
        False, description="spend edits on the nodes that decide failures, found by repeating failed rows"
    )

    @field_validator("edits")
    @classmethod
    def _known(cls, value: list[str]) -> list[str]:
        try:
            edit_classes(value)
        except SpecError as error:
            raise ValueError(f"{error.message}. {error.hint or ''}".strip()) from None
        return value

    def reads_search(self) -> bool:
        return False

    async def optimize(self, study: Study) -> Workflow:
        if study.train and any(layer.learns for layer in layers_of(study.best).values()):
            descent = _Descent(self, study)
            with suppress(
                BudgetSpent
            ):  # the budget may be too small for a proposal, but not for the short answers on val
                await descent.go()
            await descent.decide()
        return study.best


class _Descent:
    def __init__(self, settings: TextGrad, study: Study):
        self.settings, self.study, self.start = settings, study, study.best
        self.proposer = Proposer(study, settings.temperature)
        self.current = study.best  # the latest solution, also when the budget ends the search
        self.kept: list[tuple[Workflow, float]] = []  # solutions that were not undone, with the scores of their batches
        self.batches = Batches(study, settings.batch)
        self.finalists = finalists(study)
        self.edited: list[str] = []  # outcomes of edits

    async def go(self) -> None:
        old, last = None, 0.0
        good = idle = 0
        for step in range(self.settings.steps):
            batch, current = self.batches.draw(), self.current
            if not self.affords(current, batch, 2):
                return
            now = await self.study.evaluate(current, batch, traces=True)
            if old is not None and now.score < last:
                before = await self.study.evaluate(old, batch, traces=True)
                if before.score > now.score:  # the batch is not just harder: undo the step
                    self.current = current = old
                    now = before
            idle = idle + 1 if old is None or current is old else 0
            good = good + 1 if now.score > ENOUGH else 0
            self.kept.append((current, now.score))
            if good >= STREAK or idle > self.settings.patience:
                return
            new = await self.stepped(current, now, step)
            old, last = (current if new != current else None), now.score
            self.current = new

    def affords(self, workflow: Workflow, batch: Sequence[Example], passes: int) -> bool:
        """Return True if the budget covers `passes` passes over a batch and then the finalists, proposals included."""
        texts = one_of_each_message(workflow, learnable_addresses(workflow, "text"))
        proposals = 1 + 2 * len(texts) + bool(self.settings.edits)
        rows = [*list(batch) * passes, *list(self.study.val) * self.finalists]
        tokens = proposals * (1000 + CHARS // 3)
        return self.study.affords(workflow, [*rows, *list(self.study.val[:1]) * proposals]) and room_for(
            self.study, len(rows), tokens
        )

    async def stepped(self, current: Workflow, now: Evaluation, step: int) -> Workflow:
        """Return the workflow after one backward pass and one update; the same one if no node is blamed."""
        failed = sorted((r for r in now.results if r.score is not None and r.score < 1), key=score_of)
        if not failed:
            return current
        settings = self.settings
        backward = Backward(
            current,
            failed[:WRONG],
            self.proposer,
            step,
            frozenset(self.study.targets),
            settings.tools,
            spared=await self.spared(current, now),
        )
        loss = await backward.loss()
        if not loss:
            return current
        gradients = await backward.gradients(loss)
        values: dict[str, Any] = {}
        for name, gradient in gradients.items():
            if gradient.step and not gradient.removes:
                for address in one_of_each_message(current, backward.layers[name].prompts):
                    values |= await self.rewritten(backward, address, gradient)
                for address in backward.layers[name].functions:
                    values |= await self.described(backward, address, gradient)
        base = await self.restructured(backward, loss, gradients, now)
        if settings.edits and base is current:
            base = await self.edited_by(loss, current, now, step)
        values = {a: text for a, text in values.items() if _there(a, base, current)}
        return base.patched(Patch(values, note=f"gradient step {step}")) if values else base

    async def spared(self, current: Workflow, now: Evaluation) -> frozenset[str]:
        """Return the nodes that decide no failure. They get no gradient of their own in this step."""
        if not self.settings.guided:
            return frozenset()
        blame = await blame_nodes(self.study, current, [r.example for r in now.results])
        learning = [name for name, layer in layers_of(current).items() if layer.learns]
        return frozenset(name for name in learning if blame.spares(name, learning, self.study.rng))

    async def rewritten(self, backward: Backward, address: str, gradient: Gradient) -> dict[str, str]:
        found = backward.evidence(address, text_at(backward.workflow, address))
        if found is None:
            return {}
        tried = {message_at(w, address): score for w, score in self.kept[-4:]}
        return await self.proposer.rewrite(
            backward.workflow,
            address,
            backward.replica,
            evidence=found[1],
            advice=gradient.step,
            tried=tried.items(),
            made=tried,
        )

    async def described(self, backward: Backward, address: str, gradient: Gradient) -> dict[str, str]:
        found = backward.evidence(address)
        if found is None:
            return {}
        functions = backward.workflow.get(address)
        text = await self.proposer.ask(prompts.tools(found[0], functions, found[1], gradient.step), backward.replica)
        return {f"{address}.{i}.description": d for i, d in prompts.read_tools(text or "", functions).items()}

    async def restructured(
        self, backward: Backward, loss: str, gradients: dict[str, Gradient], now: Evaluation
    ) -> Workflow:
        """Return the workflow with at most one optional node switched, if the same batch scores better.

        A node is also switched off if the score does not change.
        """
        current = backward.workflow
        switch = {n: False for n, g in gradients.items() if g.removes and backward.layers[n].optional}
        on = prompts.enabled_by(loss, list(switched_off(current)))
        switch = {on: True} if on else dict(list(switch.items())[:1])
        rows = [r.example for r in now.results]
        for name, enabled in switch.items():
            try:
                word = "on" if enabled else "off"
                candidate = current.patched(Patch({f"nodes.{name}.enabled": enabled}, note=f"{name} switched {word}"))
            except SpecError:
                continue  # the graph is invalid without it
            if not self.affords(candidate, rows, 1):
                continue
            score = (await self.study.evaluate(candidate, rows)).score
            if score > now.score or (score == now.score and not enabled):
                return candidate
        return current

    async def edited_by(self, loss: str, current: Workflow, now: Evaluation, step: int) -> Workflow:
        """Return the workflow with one structural edit by the proposer, if the same batch scores better."""
        names, rows = self.settings.edits, [r.example for r in now.results]
        if not self.affords(current, rows, 1):
            return current
        request = prompts.edit(current, loss, catalogue(names, Menu()), self.edited[-10:])
        answer = await self.proposer.ask(request, step) or ""
        value = next(read_objects(answer), None)
        if value is None:
            if not re.fullmatch(r"\W*none\W*", answer.strip(), re.IGNORECASE):
                self.study.log(f"no edit could be read in: {answer.strip()[:100]!r}")
            return current
        try:
            edit = read_edit(value, current, Menu(), names)
            candidate = apply_edit(edit, current, self.start)
        except SpecError as error:
            self.came_of_edit(f"refused: {error.message}")
            return current
        if not self.affords(candidate, rows, 1):
            return current
        score = (await self.study.evaluate(candidate, rows)).score
        self.came_of_edit(f"{describe_edit(edit)}: {now.score:.2f} -> {score:.2f} on a batch")
        return candidate if score > now.score else current

    def came_of_edit(self, outcome: str) -> None:
        self.edited.append(outcome[:200])
        self.study.log(f"edit {outcome[:200]}")

    async def decide(self) -> None:
        """Evaluate the latest solution and those with the best batches on all of val, which decides."""
        best = [w for w, _ in sorted(self.kept[::-1], key=lambda k: -k[1])]
        ranked = [w for w in dict.fromkeys([self.current, *best]) if w != self.start]
        for workflow in ranked[: self.finalists]:
            if not self.study.affords(workflow):
                return
            await self.study.evaluate(workflow, race=True)


def _there(address: str, base: Workflow, before: Workflow) -> bool:
    """Return True if a prompt is still at its address: an edit may have moved or removed it."""
    known = before.get(address, None)
    return base.get(address, None) == known and (known is not None or address in learnable_addresses(base, "text"))
