"""A training on several processes, as started by `torchrun` or `accelerate launch`.

The first process owns the run: study, journal, rollouts, candidates, checkpoints. The others hold a copy of each
policy. They receive every step, compute their share of its rows, and apply the summed gradient, so that all copies stay
equal to the last bit; and they draw their share of what the rollouts of the first ask for (`drawing.py`). With
`learning.fsdp` they hold a share of the weights beside the copy that draws, and also help to gather and to load whole
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch.distributed as dist

from workbench.errors import PluginError
from workbench_training.learner import Learner, count_devices
from workbench_training.model.policy import Policy, Weights
from workbench_training.objective import Objective
from workbench_training.rollouts.token_rows import Row
from workbench_training.scale import orders
from workbench_training.scale.drawing import Drawer
from workbench_training.settings import Learning


def share(rank: int, size: int, command: Callable[[], int]) -> int:
    """Join the other processes. The first one runs the command and then releases the others, which serve it."""
    orders.join(rank, size)
    if rank:
        serve(rank)
        dist.destroy_process_group()
        return 0
    try:
        return command()
    finally:
        orders.release()


def serve(rank: int) -> None:
    """Execute the orders of the first process until `end`."""
    learners: dict[int, Learner] = {}
    drawers: dict[int, Drawer] = {}
    while True:
        what, args = orders.hear()
        if what == "draw":
            to, number, asked = args
            if to == rank:
                if number not in drawers:
                    drawers[number] = Drawer(learners[number].policy.generator)
                drawers[number].draw(asked)
            continue
        for drawer in drawers.values():
            drawer.finish()  # whatever follows may change its weights
        if what == "end":
            return
        if what == "make":
            number, beside, policy, objective, learning = args
            other = learners[beside].policy if beside is not None else None
            learners[number] = Learner(make_policy(learning, **policy, beside=other), objective, learning, shared=True)
        elif what == "drop":
            del learners[args[0]]
            if (drawer := drawers.pop(args[0], None)) is not None:
                drawer.close()
        else:
            number, *rest = args
            getattr(learners[number], what)(*rest)


class LeadingLearner(Learner):
    """The learner of the first process. It announces every change of its weights to the others in advance."""

    _count = 0
    announced = False  # what making a learner does, making the others' does, too

    def __init__(self, policy: Policy, objective: Objective, learning: Learning, beside: LeadingLearner | None = None):
        self.number = LeadingLearner._count
        LeadingLearner._count += 1
        shared = beside.number if beside is not None and beside.policy.model is policy.model else None
        orders.tell("make", self.number, shared, policy.made_with, objective, learning)
        super().__init__(policy, objective, learning, shared=True)
        self.announced, policy.number = True, self.number

    def _together(self, what: str, *args: Any) -> AbstractContextManager[None]:
        return orders.together(what, self.number, *args)

    def _if_sharded(self, what: str, *args: Any) -> AbstractContextManager[None]:
        return self._together(what, *args) if self.policy.sharded else nullcontext()

    def renew(self) -> None:
        if self.announced:
            orders.tell("renew", self.number)
        super().renew()

    def reset_reference(self) -> None:
        orders.tell("reset_reference", self.number)
        super().reset_reference()

    def go_back(self, weights: Weights) -> None:
        with self._together("go_back", self.policy.outline(weights)):
            self.policy.restore(weights)
            super().renew()

    def step(
        self,
        rows: Sequence[Row],
        advantages: Sequence[float],
        version: int,
        rate: float | None = None,
        done: int | None = None,
    ) -> dict[str, float]:
        with self._together("step", list(rows), list(advantages), version, rate, done):
            return super().step(rows, advantages, version, rate, done)

    def load(self, tensors: Mapping[str, Weights]) -> None:
        parts = ("weights", "optimizer", "reference")
        tensors = {part: tensors[part] for part in parts if part in tensors}
        with self._together("load", {part: self.policy.outline(weights) for part, weights in tensors.items()}):
            self.announced = False  # loading renews the optimizer, there as here
            super().load(tensors)
            self.announced = True

    def tensors(self) -> dict[str, Weights]:
        with self._if_sharded("tensors"):
            return super().tensors()

    def snapshot(self) -> Weights:
        with self._if_sharded("snapshot"):
            return super().snapshot()

    def save(self, parent: Path) -> Path:
        with self._if_sharded("save", parent):
            return super().save(parent)

    def close(self) -> None:
        self.policy.number = None
        if not orders.is_broken():
            orders.tell("drop", self.number)


def check_processes(learning: Learning) -> None:
    """Raise PluginError if the settings need other processes and there are none."""
    if learning.fsdp and count_devices() == 1:
        raise PluginError(
            "learning.fsdp shards the weights over several processes, but there is only one. Start the run by "
            "`torchrun --nproc-per-node 2 -m workbench optimize FILE` (resume likewise), or remove fsdp"
        )


def check_single_process() -> None:
    """Raise PluginError if there are other processes, for a training with a critic."""
    if count_devices() > 1:
        raise PluginError("a critic is trained in one process: start the run without torchrun")


def make_policy(learning: Learning, base: str, *, everywhere: bool = True, **how: Any) -> Policy:
    """A policy of the kind that the settings require. everywhere: all processes draw with it, and not only the first.
    Raises PluginError if that needs other processes."""
    check_processes(learning)
    how |= {"checkpointing": learning.checkpointing, "attention": learning.attention}
    if not learning.fsdp:
        return Policy(base, **how)
    from workbench_training.scale.fsdp import ShardedPolicy

    return ShardedPolicy(base, everywhere=everywhere, **how)


def learner_for(policy: Policy, objective: Objective, learning: Learning, others: Sequence[Learner] = ()) -> Learner:
    """A learner for this process only, or one that leads those of the other processes. Raises PluginError for a critic
    beside other processes."""
    if objective.critic is not None:
        from workbench_training.critic.learner import CriticLearner

        check_single_process()
        return CriticLearner(policy, objective, learning)
    if count_devices() == 1:
        return Learner(policy, objective, learning)
    beside = next((o for o in others if isinstance(o, LeadingLearner) and o.policy.model is policy.model), None)
    return LeadingLearner(policy, objective, learning, beside)
