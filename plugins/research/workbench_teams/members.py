"""Base of the teams: members that are one node in several roles, and answers as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from pydantic import Field, field_validator

from workbench.errors import NodeError
from workbench.runtime import Context
from workbench.workflow import NodeConfig, NodeKind
from workbench_kit.acting import child_node, instructed_tree, with_new_inputs
from workbench_kit.prompting import plain_adapter as plain

#: The input that holds the answers of other members.
OTHERS = "answers_of_others"
Answer = Mapping[str, Any]


class TeamConfig(NodeConfig):
    """Settings of all teams."""

    of: dict[str, Any] = Field(description="the node that each member runs: one with signature and instructions")
    members: dict[str, str] = Field(min_length=1, description="a member's name: its role, put before the instructions")

    @field_validator("members")
    @classmethod
    def _names(cls, value: dict[str, str]) -> dict[str, str]:
        if wrong := next((name for name in value if not name.isidentifier()), None):
            raise ValueError(f"'{wrong}' cannot name a member: use letters, digits and _")
        return value


class TeamNode(NodeKind):
    """Base of the teams: members are the node `of` with a role each, and again with the others' answers as an input."""

    config: Any

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.first  # report bad settings when the file is read  # noqa: B018
        self.later  # noqa: B018

    @cached_property
    def active(self) -> tuple[str, ...]:
        return tuple(self.config.members)

    @cached_property
    def of(self) -> NodeKind:
        return child_node("of", self.config.of, self.base, ("of",), self.code)

    @cached_property
    def first(self) -> dict[str, NodeKind]:
        """Members that answer on their own."""
        return {m: self._member(m, hearing=False) for m in self.active}

    @cached_property
    def later(self) -> dict[str, NodeKind]:
        """Members that have heard others, without demos, since these contain no answers of others."""
        return {m: self._member(m, hearing=True) for m in self.active}

    def _member(self, member: str, hearing: bool) -> NodeKind:
        tree, told = instructed_tree(self.config.of, self.of, "a team cannot give roles to")
        changed: dict[str, Any] = {**tree, "instructions": f"{self.config.members[member]}\n{told}".strip()}
        if hearing:
            changed = {k: v for k, v in changed.items() if k not in ("demos", "retrieve")}
            changed["signature"] = with_new_inputs(tree["signature"], (OTHERS,))
        return child_node("of", changed, self.base, ("of",), self.code)

    def children(self) -> Mapping[str, NodeKind]:
        return {"of": self.of}

    def diagram(self) -> Any:
        import networkx

        graph = networkx.DiGraph()
        for member in self.active:
            graph.add_node(member, label=member, shape="round")
        return graph

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.of.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.of.outputs

    async def answer(
        self, member: str, inputs: Mapping[str, Any], ctx: Context, replica: int, heard: Sequence[str] = ()
    ) -> Answer | None:
        """A member's answer; None if the member fails, which its own span records."""
        node, values = self.first[member], dict(inputs)
        if heard:
            node, values = self.later[member], {**inputs, OTHERS: "\n".join(f"- {text}" for text in heard)}
        try:
            # Under the address of the members' common node, so that optimizers find its calls.
            number = replica * len(self.active) + self.active.index(member)
            return await ctx.run_child(node, "of", {n: values[n] for n in node.inputs}, number, member)
        except NodeError as error:
            if error.kind.infrastructure:  # not the member's fault: the example is excluded
                raise
            return None

    def shown(self, answer: Answer) -> str:
        """An answer as the others see it."""
        if len(self.outputs) == 1:
            return plain.as_text(answer[self.outputs[0]])
        return "; ".join(f"{n}: {plain.as_text(answer[n])}" for n in self.outputs)

    def ballot(self, answer: Answer) -> str:
        """The vote: the last output, in a form in which equal values are equal texts."""
        return json.dumps(answer.get(self.outputs[-1]), sort_keys=True, default=str)


def no_answer_error() -> NodeError:
    return NodeError("members", "no member of the team gave an answer")
