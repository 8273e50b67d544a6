"""Settings of a `tree_search` node."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from workbench.spec import PREFIX
from workbench.workflow import NodeConfig

#: Answers of the judging model that are averaged. Koh et al. take 20, which would be most of the calls.
JUDGEMENTS = 3

Order = Literal["greedy", "best_first", "bfs", "dfs", "beam", "mcts"]


class TreeSearchConfig(NodeConfig):
    """Settings of a `tree_search` node."""

    environment: str = Field(description="a registered environment, or python:file.py:Class")
    task: dict[str, str] = Field(default_factory=dict, description="field of the environment's task: input field")
    settings: dict[str, Any] = Field(default_factory=dict, description="settings of the environment")
    show: list[str] = Field(default_factory=list, description="input fields shown to the model")
    instructions: str = Field("", description="what to do, in words")
    order: Order = Field("best_first", description="choice of the next state; greedy does not look ahead")
    max_steps: int = Field(
        5,
        ge=1,
        le=200,
        description="maximum number of searches, each followed by the best actions it found; for greedy: of actions",
    )
    branching: int = Field(3, ge=1, le=32, description="different actions kept in a state, the most frequent ones")
    samples: int | None = Field(
        None, ge=1, le=200, description="number of answers sampled in a state; default: 2 * branching"
    )
    depth: int = Field(4, ge=1, le=50, description="actions that a search looks ahead")
    evaluations: int = Field(8, ge=1, le=1000, description="maximum number of states per search")
    width: int = Field(2, ge=1, le=100, description="beam: number of states kept per level")
    value: str = Field("lm", description="what judges a state: lm, learned, or python:file.py:function")
    weights: dict[str, float] = Field(default_factory=dict, description="learned: weights of words, see fit_value")
    chars: int = Field(1500, ge=20, description="characters of an observation that the model sees")
    history: int = Field(4, ge=0, le=100, description="earlier observations that the model sees, with their actions")
    temperature: float = Field(
        1.0, ge=0, le=2, description="temperature of actions and judgements; at 0 one answer is sampled"
    )
    max_tokens: int = Field(64, ge=1, description="maximum tokens per answer")
    lm: str | dict[str, Any] | None = Field(None, description="another language model for this node")

    @field_validator("value")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in ("lm", "learned") and not value.startswith(PREFIX):
            raise ValueError(f"'{value}' judges nothing; write lm, learned, or python:file.py:function")
        return value

    @property
    def drawn(self) -> int:
        """Answers that are asked for in one state: at temperature 0 all are the same."""
        return 1 if self.temperature == 0 else self.samples or 2 * self.branching

    @property
    def judged(self) -> int:
        """Calls that judging one state takes."""
        return 0 if self.value != "lm" else 1 if self.temperature == 0 else JUDGEMENTS

    @property
    def max_calls(self) -> int:
        """The most calls of a run. A search expands the state it begins in, and at most each that it looked at."""
        if self.order == "greedy":
            return self.max_steps * self.drawn
        inner = sum(self.branching**i for i in range(1, self.depth))
        looked_at = min(self.evaluations, inner + self.branching**self.depth)
        return self.max_steps * ((1 + min(looked_at, inner)) * self.drawn + looked_at * self.judged)
