"""Settings of an `astar` node."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.kit.acting import ENV, TOOLS
from workbench.workflow import NodeConfig


class Plan(BaseModel):
    """A plan that was good for a task."""

    model_config = ConfigDict(extra="forbid")

    task: str = Field("", description="the inputs of the task that it solved")
    tools: list[str] = Field(min_length=1, description="names of the tools, in their order")


class AStarConfig(NodeConfig):
    """Settings of an `astar` node."""

    signature: str = Field(description='inputs and one output, e.g. "question -> answer": what the last call gives')
    tools: list[str] = Field(min_length=1, description=TOOLS)
    env: dict[str, str] = ENV
    arguments: dict[str, str] = Field(
        default_factory=dict, description="tool argument: input field; filled in, and hidden from the model"
    )
    finish: list[str] = Field(default_factory=list, description="names of tools whose call ends a plan")
    instructions: str = Field("", description="what to do, in words")
    plans: list[Plan] = Field(default_factory=list, description="the memory: plans that were good")
    nearest: int = Field(8, ge=1, le=1000, description="plans that count: those of the most similar tasks")
    samples: int = Field(5, ge=1, le=200, description="number of answers sampled for the next call")
    branching: int = Field(4, ge=1, le=64, description="different next calls kept, the most frequent ones")
    nodes: int = Field(12, ge=1, le=1000, description="maximum number of partial plans to expand")
    depth: int = Field(8, ge=1, le=50, description="maximum number of calls in a plan")
    alpha: float = Field(
        0.5, ge=0, le=1, description="weight of memory against the model's self-consistency in the cost of a step"
    )
    beta: float = Field(0.5, ge=0, le=1, description="weight of memory against imagination in the remaining cost")
    imagine: bool = Field(True, description="request a whole plan once, to estimate the remaining cost")
    heuristic: bool = Field(True, description="false: no estimate of the remaining cost (Dijkstra's algorithm)")
    temperature: float = Field(1.0, ge=0, le=2, description="temperature of the next calls; at 0 one answer is sampled")
    max_tokens: int = Field(128, ge=1, description="maximum tokens per answer")
    lm: str | dict[str, Any] | None = Field(None, description="another language model for this node")

    @property
    def drawn(self) -> int:
        return 1 if self.temperature == 0 else self.samples

    @property
    def imagines(self) -> bool:
        return self.imagine and self.heuristic

    @property
    def max_calls(self) -> int:
        return self.nodes * self.drawn + self.imagines
