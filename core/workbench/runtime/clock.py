"""The time that a node takes, without the time that its calls wait in our own queue."""

from __future__ import annotations

import time


class NodeClock:
    """Measures a run of a node from its creation on. The calls inside it, at any depth, are added as they end."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._waits: list[tuple[float, float]] = []
        self._longest = 0.0  # longest call without its waiting

    def add_call(self, begun: float, queued: float) -> None:
        """Add a call that ends now. begun: by `time.perf_counter`; queued: seconds of waiting, as recorded.

        The time of waiting is not recorded, so it is taken to be at the start of the call, as for a slot. For an answer
        from the journal it is limited to the time that passed now.
        """
        now = time.perf_counter()
        waited = min(queued, now - begun)
        self._longest = max(self._longest, now - begun - waited)
        if waited > 0:
            self._waits.append((begun, begun + waited))

    def read(self) -> tuple[float, float]:
        """Return (seconds, queued): the time until now without the time in which calls waited, but at least the longest
        call; and the rest. Overlapping waits count once."""
        whole, waited, end = time.perf_counter() - self._begun, 0.0, float("-inf")
        for start, stop in sorted(self._waits):
            waited += max(0.0, stop - max(start, end))
            end = max(end, stop)
        seconds = min(whole, max(whole - waited, self._longest))
        return seconds, whole - seconds
