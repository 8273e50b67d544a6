"""The source of a trainer's rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from workbench.task import Example
from workbench_training.rewards import Rollout
from workbench_training.rollouts.token_rows import RolloutRows, Row
from workbench_training.settings import TrainingSchedule


def gather_rows(source: RolloutSource, rollout: Rollout, version: int) -> RolloutRows:
    """The rows of a rollout with its reward and its score."""
    return RolloutRows(tuple(source.rows(rollout, version)), rollout.reward, rollout.score)


class RolloutSource(Protocol):
    """The source of rollouts and the receiver of candidates.

    has_candidates: whether the weights are evaluated at all.
    """

    has_candidates: bool = True

    async def rollouts(self, tasks: Sequence[Example], schedule: TrainingSchedule, step: int) -> list[list[Rollout]]:
        """The scored rollouts of each task for a step, drawn by the weights that the engines hold for it."""
        ...

    def rows(self, rollout: Rollout, version: int) -> list[Row]:
        """The rows of a rollout. version: of the weights that drew it, which is that of the rows."""
        ...

    def limit(self, tokens: Mapping[str, int]) -> None:
        """The most tokens that a conversation may have after its first prompt from now on, by policy."""

    def affords(self, schedule: TrainingSchedule, step: int) -> bool:
        """True if the budget allows another step, and a candidate after it."""
        ...

    async def submit(self, folders: Mapping[str, Path], step: int, *, current: bool) -> float | None:
        """Evaluate the weights of all policies as one candidate. current: the policies have these weights now. Returns
        its score on val; None if the budget does not suffice."""
        ...

    # A source without a store of its own remembers nothing, and proceeds from any checkpoint.

    @property
    def remembers(self) -> bool:
        """True if `recall` finds what was submitted, and only the best candidates are ever asked for."""
        return False

    async def recall(self, folders: Path | Mapping[str, Path], step: int) -> float | None:
        """Make a candidate that an earlier process evaluated known again. Its score; None if that is not stored."""
        return None

    def pass_over(self, schedule: TrainingSchedule, step: int) -> None:
        """Note a step whose rollouts a checkpoint already contains."""

    def position(self) -> dict[str, Any]:
        """Where the source stands, as JSON values for a checkpoint."""
        return {}

    def restore(self, position: Mapping[str, Any]) -> None:
        """Proceed from a stored position. Raises StoreError for a damaged one."""
