"""The end of rollouts that draw far more tokens than others, on which all else would wait (`schedule.straggler_cut`).

A conversation may grow to a multiple of what was usual in the step before: the median, over its rollouts, of the tokens
of the longest conversation after its first prompt. There its last answer ends, or its next call is refused. Such a
rollout is paid and counted, and nothing is learned from it: its group is compared without it (as DAPO masks answers
that were cut; arXiv 2503.14476, section 3.4). The limit follows from the tokens of a step alone and not from the clock,
so that a resumed training cuts what the first one did. What waits for a tool or a slow machine is not cut.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from workbench_training.rewards import Rollout
from workbench_training.rollouts.rollout_source import RolloutSource
from workbench_training.rollouts.token_rows import Row
from workbench_training.settings import TrainingSchedule
from workbench_training.state.training_state import State

#: How the message of a refused call begins.
CUT = "straggler_cut"


class StragglerCut:
    """The limits of a step, and what was cut in it. Without `schedule.straggler_cut` it cuts nothing.

    lengths: tokens of the longest conversation of each rollout, by policy.
    """

    def __init__(self, source: RolloutSource, schedule: TrainingSchedule, state: State):
        self.source, self.multiple = source, schedule.straggler_cut
        self.limits: dict[str, int] = {}
        if self.multiple is not None:
            self.limits = {policy: math.ceil(self.multiple * usual) for policy, usual in state.usual_length.items()}
            source.limit(self.limits)
        self.lengths: dict[str, list[int]] = defaultdict(list)
        self.count = 0

    def keep(self, groups: Sequence[list[Rollout]], version: int) -> list[list[Rollout]]:
        """The groups without the rollouts that were cut; a group of which none is left is dropped."""
        if self.multiple is None:
            return list(groups)
        kept = [[r for r in group if not self._is_cut(r, self.source.rows(r, version))] for group in groups]
        return [group for group in kept if group]

    def _is_cut(self, rollout: Rollout, rows: Iterable[Row]) -> bool:
        longest: dict[str, int] = {}
        cut = rollout.result.failure is not None and CUT in (rollout.result.message or "")
        for row in rows:
            tokens = len(row.token_ids)
            longest[row.policy] = max(tokens, longest.get(row.policy, 0))
            cut = cut or (row.truncated and tokens >= self.limits.get(row.policy, math.inf))
        for policy, tokens in longest.items():
            self.lengths[policy].append(tokens)
        self.count += cut
        return cut

    def medians(self) -> dict[str, float]:
        """The usual length of a rollout's longest conversation, by policy."""
        return {policy: float(statistics.median(lengths)) for policy, lengths in self.lengths.items()}
