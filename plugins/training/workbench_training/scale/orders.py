"""Orders of the first process of a training to the others, and their answers.

Orders are broadcasts: each process hears all of them, in one order. Answers have a group of their own, so that they may
come while a process waits for its next order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from workbench.errors import ServerDead

#: A process waits for the next order as long as rollouts and evaluations take; a dead peer is noticed immediately by
#: its connection.
PATIENCE = timedelta(hours=24)
_CPU = torch.device("cpu")
#: In what the backends of torch.distributed say of a lost connection, which has no class of its own.
_LOST = ("gloo/transport", "ncclRemoteError", "Connection reset", "Broken pipe")


class ProcessDied(ServerDead):
    """A process of the training no longer answers; the run can be resumed."""


class _Line:
    """The connection of the processes. broken: they wait for what does not come, and only hear us end."""

    def __init__(self) -> None:
        self.telling, self.answering = threading.Lock(), threading.Lock()
        self.answers: Any = None  # a group of torch.distributed
        self.broken = False


_line = _Line()


def join(rank: int, size: int) -> None:
    """Connect this process with the others."""
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=size, timeout=PATIENCE)
    _line.broken = False
    _line.answers = dist.new_group(backend="gloo", timeout=PATIENCE)


def release() -> None:
    """In the first process: let the others end, unless they cannot hear it."""
    if not _line.broken:
        tell("end")
        dist.destroy_process_group()


def is_broken() -> bool:
    """True if the others no longer listen."""
    return _line.broken


def tell(what: str, *args: Any) -> None:
    """Give an order, from any thread. Raises ProcessDied."""
    with _line.telling, _naming_the_dead():
        dist.broadcast_object_list([(what, args)], src=0, device=_CPU)


def hear() -> tuple[str, Any]:
    """Wait for the next order: its name and arguments."""
    heard: list[Any] = [None]
    dist.broadcast_object_list(heard, src=0, device=_CPU)
    return heard[0]


@contextmanager
def together(what: str, *args: Any) -> Iterator[None]:
    """Give an order, and do with the others what it says. Raises ProcessDied."""
    tell(what, *args)
    was, _line.broken = _line.broken, True
    with _naming_the_dead():
        yield
    _line.broken = was


def answer(*found: Any) -> None:
    """Send the first process an answer, from any thread."""
    with _line.answering:
        dist.send_object_list([found], dst=0, group=_line.answers, device=_CPU)


def receive(rank: int) -> tuple[Any, ...]:
    """In the first process: wait for an answer of another one. Raises ProcessDied."""
    heard: list[Any] = [None]
    with _naming_the_dead(f"process {rank}"):
        dist.recv_object_list(heard, src=rank, group=_line.answers, device=_CPU)
    return heard[0]


@contextmanager
def _naming_the_dead(who: str = "another process") -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not any(text in str(error) for text in _LOST):
            raise
        _line.broken = True
        raise ProcessDied(
            f"{who} of this training no longer answers. `workbench resume`, started as this run was, goes on from the "
            f"journal and the last checkpoint ({str(error).splitlines()[0][:200]})"
        ) from error
