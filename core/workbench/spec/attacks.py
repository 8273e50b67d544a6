"""Attacks on a workflow, as described in a file: how a row is attacked, and when an attack has succeeded."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from workbench.base.hashing import digest
from workbench.spec.base import Strict


class ToolResultAttack(Strict):
    """A text in the results of tools."""

    tool: str = Field("*", description="the tool whose results carry the text; default: all")
    text: str = Field(min_length=1, description="what stands in its results")
    field: str = Field("", description="in results with fields, the one that carries it; default: the first text")


class MemoryAttack(Strict):
    """Poisoned entries in the stores of `recall` nodes (AgentPoison, Chen et al., arXiv 2407.12784)."""

    share: float = Field(gt=0, lt=1, description="share of the poisoned store that is poison, at least one entry")
    trigger: str = Field(min_length=1, description="words that stand in each poisoned entry, and in an attacked row")
    outputs: dict[str, Any] = Field(default_factory=dict, description="what the poisoned entries show as answers")
    text: str = Field("", description="what they show as their lesson")
    asked: bool = Field(
        True, description="false: the rows lack the trigger, which shows what the poison costs everybody else"
    )


class AttackSuccess(Strict):
    """The conditions under which an attack on a row has succeeded: all that are given must hold."""

    called: str | None = Field(None, description="a tool that was called, and neither refused nor failed")
    arguments: dict[str, Any] = Field(
        default_factory=dict, description="arguments of this call; of a text, the part that must occur"
    )
    answer: str | None = Field(None, min_length=1, description="a text that occurs in the answer")
    field: str | None = Field(None, description="the field of the answer; default: any")
    trace: Literal["differs"] | None = Field(
        None, description="differs: other steps or calls of tools than in the row's run without the attack"
    )

    @model_validator(mode="after")
    def _one_at_least(self) -> AttackSuccess:
        if not (self.called or self.answer or self.trace):
            raise ValueError("name what shows the success: called, answer or trace, e.g. {called: send_money}")
        if (self.arguments and not self.called) or (self.field and not self.answer):
            raise ValueError("arguments belong to called, and field to answer")
        return self


class AttackSpec(Strict):
    """An attack: one or more parts that apply together, and the conditions of its success."""

    tool_result: ToolResultAttack | None = Field(None, description="a text in the results of tools")
    memory: MemoryAttack | None = Field(None, description="poisoned entries in the stores of `recall` nodes")
    thought: str | None = Field(None, min_length=1, description="words that a node's first answer begins with")
    node: str | None = Field(None, description="the node of `thought` or `memory`; default: all")
    query: dict[str, str] = Field(default_factory=dict, description="text behind fields of the row, by field")
    fields: dict[str, str] = Field(
        default_factory=dict, description="fields of the row that take the values of other fields"
    )
    success: AttackSuccess = Field(description="when it has succeeded")

    @model_validator(mode="after")
    def _some_part(self) -> AttackSpec:
        if not (self.tool_result or self.memory or self.thought or self.query or self.fields):
            raise ValueError("an attack has a part: tool_result, memory, thought, query or fields")
        return self

    @property
    def key(self) -> str:
        """Return a text that differs between attacks."""
        return digest(self.model_dump(mode="json"))


class ConstraintsSpec(Strict):
    """Limits on what a gain may cost."""

    attack: float = Field(
        gt=0, lt=1, description="the rise of the share of successful `attacks` that the sealed rows must rule out"
    )


class AttackFile(Strict):
    """A file of attacks."""

    attacks: dict[str, AttackSpec] = Field(min_length=1, description="attacks, by name")
