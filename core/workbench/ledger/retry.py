"""The decision to retry a failed attempt, and the pause before it.

A rate limit says nothing about the call, so it uses up none of its attempts. All calls to a model wait it out together
(`AdaptiveLimiter`). A call gives up only if it alone is refused again and again while others are answered.
"""

from __future__ import annotations

import random

from workbench.errors import FailureKind, LMError
from workbench.lm import Pieces
from workbench.spec import LMSpec

#: The longest pause in seconds, whatever the server asks for.
LONGEST_PAUSE = 120.0

#: So many rate limits of one call, while others are answered, end it.
MOST_RATE_LIMITS = 20

#: So many pauses in a row without an answer of the model in between stop the run. Doubled from half a second up to
#: LONGEST_PAUSE, they take about ten minutes.
MOST_PAUSES = 12


class Attempts:
    """The failed attempts of one call: with `attempts: 1` nothing is tried again.

    pieces: on the way to a client that waits. Nothing is tried again once it has a part of the answer, or when its own
    deadline must have passed: it asks again if it wants to. A failure that passes to a client as it came is its own to
    retry, as it would be without us, unless the settings name `attempts`; but for a rate limit, which our calls at once
    bring about.
    """

    def __init__(self, spec: LMSpec, pieces: Pieces | None = None):
        self.limit, self.failed, self.rate_limits = spec.attempts, 0, 0
        self._pieces, self._tells = pieces, "attempts" not in spec.model_fields_set

    def again(self, error: LMError) -> bool:
        """Count a failure. True if the call is to be tried again."""
        if self._pieces is not None and (self._pieces.source.begun or error.kind == FailureKind.TIMEOUT):
            self.failed += 1
            return False
        if error.kind == FailureKind.RATE_LIMIT:
            self.rate_limits += 1
            return self.limit > 1 and self.rate_limits < MOST_RATE_LIMITS
        self.failed += 1
        if self._tells and error.passed is not None:
            return False
        return error.retryable and self.failed < self.limit


def pause_before(attempt: int, asked: float | None, jitter: random.Random) -> float:
    """Seconds before an attempt, with jitter: they double, are at least what the server asks for, and have a bound.

    attempt: failures so far, of the call or, after a rate limit, of the model, from 1. asked: Retry-After in seconds.
    """
    wait = 0.25 * 2 ** min(attempt, 20)
    if asked is not None and asked > wait:
        wait = asked
    return min(wait, LONGEST_PAUSE) * jitter.uniform(1.0, 1.25)
