"""One training on several processes, as started by `torchrun` or `accelerate launch`.

The first process owns the run: study, journal, rollouts, candidates, checkpoints. The others hold a copy of each policy
and compute only gradients: they receive every step, compute their share of its rows, and apply the summed gradient, so
that all copies stay equal to the last bit. They sample nothing, so more processes speed up updates, not rollouts. With
`learning.fsdp` they hold a share of the weights instead of a copy, and also help to gather and to load whole ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from workbench.errors import PluginError
from workbench_training.learner import Learner, count_devices
from workbench_training.model.policy import Policy, Weights
from workbench_training.objective import Objective
from workbench_training.rollouts.token_rows import Row
from workbench_training.settings import Learning

#: A process waits for the next step as long as rollouts take; a dead peer is noticed immediately by its connection.
PATIENCE = timedelta(hours=24)


def share(rank: int, size: int, command: Callable[[], int]) -> int:
    """Join the other processes. The first one runs the command and then releases the others, which serve it."""
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=size, timeout=PATIENCE)
    if rank:
        serve()
        dist.destroy_process_group()
        return 0
    try:
        return command()
    finally:
        if not LeadingLearner.busy:
            _tell("end")
            dist.destroy_process_group()


def _tell(what: str, *args: Any) -> None:
    dist.broadcast_object_list([(what, args)], src=0, device=torch.device("cpu"))


def serve() -> None:
    """Execute the orders of the first process until `end`."""
    learners: dict[int, Learner] = {}
    while True:
        heard: list[Any] = [None]
        dist.broadcast_object_list(heard, src=0, device=torch.device("cpu"))
        what, args = heard[0]
        if what == "end":
            return
        if what == "make":
            number, beside, policy, objective, learning = args
            other = learners[beside].policy if beside is not None else None
            learners[number] = Learner(make_policy(learning, **policy, beside=other), objective, learning, shared=True)
        elif what == "drop":
            del learners[args[0]]
        else:
            number, *rest = args
            getattr(learners[number], what)(*rest)


class LeadingLearner(Learner):
    """The learner of the first process. It announces every change of its weights to the others in advance."""

    _count = 0
    told = False  # what making a learner does, making the others' does, too
    #: Within what all processes do together. Where that raises, the others wait in it for what does not come, and only
    #: hear us die.
    busy = False

    def __init__(self, policy: Policy, objective: Objective, learning: Learning, beside: LeadingLearner | None = None):
        self.number = LeadingLearner._count
        LeadingLearner._count += 1
        shared = beside.number if beside is not None and beside.policy.model is policy.model else None
        _tell("make", self.number, shared, policy.made_with, objective, learning)
        super().__init__(policy, objective, learning, shared=True)
        self.told = True

    @contextmanager
    def _together(self, what: str, *args: Any) -> Iterator[None]:
        _tell(what, self.number, *args)
        LeadingLearner.busy = True
        yield
        LeadingLearner.busy = False

    def _if_sharded(self, what: str, *args: Any) -> AbstractContextManager[None]:
        return self._together(what, *args) if self.policy.sharded else nullcontext()

    def renew(self) -> None:
        if self.told:
            _tell("renew", self.number)
        super().renew()

    def reset_reference(self) -> None:
        _tell("reset_reference", self.number)
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
            self.told = False  # loading renews the optimizer, there as here
            super().load(tensors)
            self.told = True

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
        if not LeadingLearner.busy:
            _tell("drop", self.number)


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


def make_policy(learning: Learning, base: str, **how: Any) -> Policy:
    """A policy of the kind that the settings require. Raises PluginError if that needs other processes."""
    check_processes(learning)
    how |= {"checkpointing": learning.checkpointing, "attention": learning.attention}
    if not learning.fsdp:
        return Policy(base, **how)
    from workbench_training.scale.fsdp import ShardedPolicy

    return ShardedPolicy(base, **how)


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
