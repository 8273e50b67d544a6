"""The services for a node in an attacked run (`workbench.spec.AttackSpec`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.lm import Message, Response
from workbench.runtime import Begun, Context
from workbench.spec import AttackSpec, LMSpec
from workbench.study import Perturbation
from workbench.task import Example
from workbench.workflow import Workflow
from workbench_redteam.attacks import attacked_row, poisoned


@dataclass(frozen=True)
class UnderAttack(Perturbation):
    """A run into which an attacker writes."""

    attack: AttackSpec

    @property
    def context(self) -> type[Context]:
        return AttackedContext

    def change_workflow(self, workflow: Workflow) -> Workflow:
        return poisoned(workflow, self.attack)

    def change_row(self, workflow: Workflow, row: Example) -> Example:
        return attacked_row(workflow, row, self.attack)


class AttackedContext(Context):
    """A context into which an attacker writes: into results of tools, and into the model's first thought."""

    @property
    def attack(self) -> AttackSpec:
        assert isinstance(self.draw.variation, UnderAttack)
        return self.draw.variation.attack

    def received(self, tool: str, result: Any) -> Any:
        part = self.attack.tool_result
        if part is None or part.tool not in ("*", tool):
            return result
        self.note(attacked=True)
        return _inject(result, part.text, part.field)

    async def _ask(
        self,
        begun: Begun,
        spec: LMSpec,
        role: str,
        messages: Sequence[Message],
        replica: int,
        settings: Mapping[str, Any],
    ) -> Response:
        thought = self.attack.thought
        named = self.attack.node in (None, self.node.rpartition(".")[2])
        if thought is None or role != "task" or begun.number > 1 or not named:
            return await super()._ask(begun, spec, role, messages, replica, settings)
        self.note(attacked=True)
        asked = [*messages, {"role": "assistant", "content": thought}]
        response = await super()._ask(begun, spec, role, asked, replica, settings)
        repeated = response.text.lstrip().startswith(thought.strip())
        return response if repeated else replace(response, text=f"{thought}\n{response.text}")

    def _place_of_effect(self) -> list[Any]:
        # An attacked run has its own world: tool results of the run without the attack are not reused.
        return [*super()._place_of_effect(), self.attack.key]


def _inject(value: Any, text: str, field: str) -> Any:
    """Insert a text into a tool's result: after its text, in a field of it, or in the last item of a list."""
    if isinstance(value, str):
        return f"{value}\n{text}"
    if isinstance(value, list) and value:
        return [*value[:-1], _inject(value[-1], text, field)]
    if isinstance(value, Mapping):
        texts = [name for name, held in value.items() if isinstance(held, str)]
        name = field or next(iter(texts), "")
        if name in value:
            return {**value, name: _inject(value[name], text, "")}
    return f"{json.dumps(value, ensure_ascii=False, default=str)}\n{text}"
