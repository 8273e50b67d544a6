"""Micro-batches: the tokens of one pass, which follow the memory of the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import torch

from workbench.errors import PluginError
from workbench_training.settings import Learning

#: A pass of fewer tokens is not tried: what fails then is not its size.
MIN = 64
#: Larger passes are not faster, and leave less room to others on the device.
MAX = 1 << 17
#: Share of the free memory that a measured size may take: allocators need room, and the next rows may be padded more.
_FILLED = 0.85

Result = TypeVar("Result")


class MemoryMeter(Protocol):
    """The memory of a device, in bytes."""

    def room(self) -> int:
        """Bytes that this process may still allocate."""
        ...

    def restart(self) -> None:
        """Begin to measure the most that is allocated, from what is allocated now."""
        ...

    def most(self) -> int:
        """The most that was allocated since `restart`, beyond what was allocated then."""
        ...


class CudaMeter:
    """The memory of a GPU, as torch's allocator and the driver count it."""

    def __init__(self, device: torch.device):
        self.device, self._before = device, 0

    def room(self) -> int:
        unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return torch.cuda.mem_get_info(self.device)[0] + unused

    def restart(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)
        self._before = torch.cuda.memory_allocated(self.device)

    def most(self) -> int:
        return torch.cuda.max_memory_allocated(self.device) - self._before


class MicroTokens:
    """The tokens of a forward pass: `limit`.

    It starts as `learning.micro_tokens`. On a GPU, where that is not given, each update sets it to what the memory
    holds, as the largest micro-batch of the update before has measured it. Where a pass runs out of memory it is
    halved for good.
    """

    def __init__(self, learning: Learning, meter: MemoryMeter | None = None, *, fixed: bool = False, hint: str = ""):
        """fixed: the limit stays, and longer rows are whole: processes with shares of the weights make equal passes.
        hint: added to the error for a row that does not fit."""
        self.limit, self.fixed, self.hint = learning.micro_tokens, fixed, hint
        self.meter = None if fixed or "micro_tokens" in learning.model_fields_set else meter
        self._ceiling, self._running = MAX, 0
        self._measured = 0, 0.0  # of the largest micro-batch: tokens, and bytes of a token

    def takes(self, tokens: int) -> bool:
        """True if a pass may have so many tokens; else it must be split into passes of `limit`."""
        whole = tokens <= self.limit or self.fixed
        self._running = tokens if whole else self.limit
        return whole

    def resize(self, gradients: int) -> None:
        """Set the limit by what was measured. gradients: bytes that an update allocates besides."""
        tokens, each = self._measured
        if self.meter is not None and tokens:
            fits = int(_FILLED * (self.meter.room() - gradients) / each)
            self.limit = max(MIN, min(fits, 2 * self.limit, self._ceiling))
        self._measured = 0, 0.0

    @contextmanager
    def measured(self, tokens: int, gradients: int = 0) -> Iterator[None]:
        """Measure a pass over so many tokens. gradients: bytes that it allocates for them."""
        if self.meter is None:
            yield
            return
        self.meter.restart()
        yield
        if self._measured[0] < tokens <= self.limit:
            self._measured = tokens, max(1, self.meter.most() - gradients) / tokens

    def attempt(self, work: Callable[[], Result]) -> Result | None:
        """The result of the work; None if it ran out of memory, and may be tried again with the limit that is now
        smaller. Raises PluginError where less cannot be tried."""
        try:
            return work()
        except torch.OutOfMemoryError:
            half = min(self._running, self.limit) // 2
            if self.fixed:
                raise PluginError(
                    f"a pass of {self._running} tokens does not fit in the memory of the device. Write `learning: "
                    f"{{micro_tokens: {half}}}`."
                ) from None
            if half < MIN:
                raise PluginError(
                    f"a row does not fit in the memory of the device, not even {self._running} tokens at a time. "
                    f"{self.hint}"
                ) from None
            self.limit = self._ceiling = half
        if torch.cuda.is_available():  # here the tensors of the work are gone
            torch.cuda.empty_cache()
        return None


def split_rows(lengths: Sequence[int], chosen: Sequence[int], limit: int) -> list[list[int]]:
    """Micro-batches of rows of similar length, the longest first, of at most `limit` tokens with their padding. A
    longer row is alone."""
    parts: list[list[int]] = []
    for i in sorted(chosen, key=lambda i: (lengths[i], i), reverse=True):
        if parts and lengths[parts[-1][0]] * (len(parts[-1]) + 1) <= limit:
            parts[-1].append(i)
        else:
            parts.append([i])
    return parts
