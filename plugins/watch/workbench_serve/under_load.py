"""Chooses the configuration for a request: the first, cheapest one, until requests have to wait.

A request may take as long as the targets allow, including its wait. So a request that has waited has less time left,
and is answered by the cheapest configuration that is fast enough for the rest.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from workbench.spec import ConfigurationSpec, TargetsSpec

#: Times are from this many recent requests and seconds. With fewer than FEW requests, the file's figures are used.
WINDOW, SECONDS, FEW = 200, 60.0, 40


class Configurations:
    """Chooses among the configurations of a file, cheapest first."""

    def __init__(
        self,
        targets: TargetsSpec,
        figures: Sequence[ConfigurationSpec],
        slots: int,
        clock: Callable[[], float] = time.monotonic,
    ):
        """
        Args:
            targets: of these, `latency` and `p95_latency`.
            figures: of each configuration on val.
            slots: requests that run at once.
            clock: seconds.
        """
        self.targets, self.figures, self.slots, self._clock = targets, figures, slots, clock
        self._times = [deque[tuple[float, float]](maxlen=WINDOW) for _ in figures]

    def choose(self, waited: float, waiting: int) -> int:
        """Return the index of the configuration for a request.

        It is the cheapest that ends in time, by its mean and its 95th percentile, both after the wait of this request
        and after that of the last request in the queue, if all before it used the same one. If there is none, the
        fastest.

        Args:
            waited: seconds that the request has waited.
            waiting: number of requests behind it.
        """
        slower = self._slowdown()
        usual = [self._usual(place, slower) for place in range(len(self.figures))]
        for place, (mean, slow) in enumerate(usual):
            wait = max(waited, waiting * mean / self.slots)
            if wait + mean <= (self.targets.latency or math.inf) and wait + slow <= (
                self.targets.p95_latency or math.inf
            ):
                return place
        return min(range(len(usual)), key=lambda place: usual[place])

    def record(self, place: int, seconds: float) -> None:
        """Record the time of a request without its wait."""
        self._times[place].append((self._clock(), seconds))

    def record_cut(self, place: int, seconds: float) -> None:
        """Record that a request was cancelled after this many seconds. It counts as at least the usual time."""
        self.record(place, max(seconds, self._usual(place, self._slowdown())[0]))

    def _recent(self, place: int) -> list[float]:
        since = self._clock() - SECONDS
        return [seconds for at, seconds in self._times[place] if at >= since]

    def _usual(self, place: int, slower: float) -> tuple[float, float]:
        """Return (mean, 95th percentile) of the seconds of a request now."""
        recent, figures = sorted(self._recent(place)), self.figures[place]
        if len(recent) < FEW:
            return figures.latency * slower, figures.p95_latency * slower
        return math.fsum(recent) / len(recent), recent[math.ceil(0.95 * len(recent)) - 1]

    def _slowdown(self) -> float:
        """Return how many times slower requests are now than on val, by the configurations that ran lately. Servers
        that are slow for one are slow for the others, too."""
        ratios: list[float] = []
        for place, figures in enumerate(self.figures):
            if len(recent := self._recent(place)) >= FEW:
                ratios.append(math.fsum(recent) / len(recent) / figures.latency)
        return math.fsum(ratios) / len(ratios) if ratios else 1.0
