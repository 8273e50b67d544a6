"""Base of the settings that papers add to `sft`, `dpo` and `grpo`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from workbench import Study, Workflow
    from workbench.spec import Pattern
    from workbench.task import Example
    from workbench_training.learner import Learner
    from workbench_training.model.policy import Policy
    from workbench_training.rewards import Rollout
    from workbench_training.rollouts.sft_data import ChatTokenizer, SFTExample
    from workbench_training.rollouts.study_rollouts import StudyRolloutSource
    from workbench_training.rollouts.token_rows import Row
    from workbench_training.settings import TrainingSchedule


class Recipe(BaseModel):
    """A paper's setting of one optimizer. Each method is called by that optimizer; by default it changes nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def check(self, optimizer: Any) -> None:
        """Raise ValueError for settings of the optimizer that do not go together with this one."""

    def ready(self, optimizer: Any, study: Study) -> None:
        """Raise SpecError, with a path below this setting, where the workflow or its roles do not fit."""

    def changes(self, workflow: Workflow, nodes: Collection[str]) -> dict[str, Any]:
        """Changes of the workflow beside the weights, for rollouts and for use. nodes: those that are trained."""
        return {}

    def drawn(self, workflow: Workflow, nodes: Collection[str]) -> dict[str, Any]:
        """Changes of the workflow for the rollouts of `sft`; by default those of `changes`."""
        return self.changes(workflow, nodes)

    @property
    def extra_calls(self) -> int:
        """Calls for each run besides the workflow's and those of rewards."""
        return 0

    def lessons(
        self,
        workflow: Workflow,
        group: Sequence[Rollout],
        nodes: Collection[str],
        threshold: float,
        errors: Pattern,
    ) -> Iterator[SFTExample] | None:
        """The chats that `sft` learns from a group of rollouts; None for its own choice."""
        return None

    def select(
        self, policy: Policy, tokens: ChatTokenizer, examples: Sequence[SFTExample], optimizer: Any
    ) -> tuple[list[int], str] | None:
        """The worked examples that `sft` learns from labels, as indices in the order of each pass, and a line for the
        log; None for all in any order."""
        return None

    async def choose(
        self, source: StudyRolloutSource, tasks: Sequence[Example], schedule: TrainingSchedule, round_: int
    ) -> list[list[Row]] | None:
        """The pairs that `dpo` learns from in a round; None for its own choice."""
        return None

    def mask_pairs(self, pairs: Sequence[Sequence[Row]], tokenizer: Any) -> list[list[Row]] | None:
        """The pairs of `dpo` with fewer tokens that count; None for all tokens."""
        return None

    def before_step(self, step: int, learners: Mapping[str, Learner]) -> None:
        """Called before each step of `grpo`."""
