"""A group like vLLM's NCCL one, over gloo: what stands for it in tests, on both ends, where no GPU is."""

from __future__ import annotations

from datetime import timedelta

import torch
from torch.distributed import BroadcastOptions, ProcessGroupGloo, TCPStore


class GlooGroup:
    """One member. The first one listens; all wait for one another."""

    def __init__(self, address: str, port: int, members: int, rank: int, timeout: float = 30.0):
        patience = timedelta(seconds=timeout)
        store = TCPStore(address, port, members, rank == 0, patience, use_libuv=False)
        self._store = store
        self._group = ProcessGroupGloo(store, rank, members, patience)
        self.sent = 0

    def broadcast(self, tensor: torch.Tensor) -> None:
        """From the first member into the tensors of the others."""
        options = BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        self._group.broadcast([tensor], options).wait()
        self.sent += 1

    def close(self) -> None:
        self._group.shutdown()


def join_over_gloo(address: str, port: int, members: int, device: torch.device) -> GlooGroup:
    """As `join_with_vllm` does."""
    return GlooGroup(address, port, members, 0)
