"""The decision to retry a failed attempt, and the pause before it.

A rate limit is no evidence about the call, so it uses up none of its attempts. All calls to a model wait for its end
together (`AdaptiveLimiter`). A call gives up only if it alone is refused repeatedly while others are answered.
"""

from __future__ import annotations

import random

from workbench.errors import FailureKind, LMError
from workbench.lm import Pieces
from workbench.spec import LMSpec

#: The longest pause in seconds, even if the server asks for more.
LONGEST_PAUSE = 120.0

#: The number of rate limits that ends a call while others are answered.
MAX_RATE_LIMITS = 20

#: The number of pauses in a row, without an answer of the model in between, that stops the run. Doubled from half a
#: second up to LONGEST_PAUSE, they take about ten minutes.
MAX_PAUSES = 12


class Attempts:
    """The failed attempts of one call. With `attempts: 1` nothing is retried.

    pieces: the answer's parts on their way to a waiting client. Nothing is retried once the client has a part, or after
    a timeout, when its own deadline must have passed: it can ask again. A failure that is passed on unchanged is the
    client's to retry, as it would be without us, unless the settings name `attempts`. Rate limits are an exception,
    because our concurrent calls cause them.
    """

    def __init__(self, spec: LMSpec, pieces: Pieces | None = None):
        self.limit, self.failed, self.rate_limits = spec.attempts, 0, 0
        self._pieces, self._tells = pieces, "attempts" not in spec.model_fields_set

    def again(self, error: LMError) -> bool:
        """Count a failure. Return True if the call should be retried."""
        if self._pieces is not None and (self._pieces.source.begun or error.kind == FailureKind.TIMEOUT):
            self.failed += 1
            return False
        if error.kind == FailureKind.RATE_LIMIT:
            self.rate_limits += 1
            return self.limit > 1 and self.rate_limits < MAX_RATE_LIMITS
        self.failed += 1
        if self._tells and error.passed is not None:
            return False
        return error.kind.retryable and self.failed < self.limit


def pause_before(attempt: int, asked: float | None, jitter: random.Random) -> float:
    """Return the seconds before an attempt: doubled each time, at least what the server asks for, bounded, with jitter.

    attempt: failures so far, of the call or, after a rate limit, of the model, from 1. asked: Retry-After in seconds.
    """
    wait = 0.25 * 2 ** min(attempt, 20)
    if asked is not None and asked > wait:
        wait = asked
    return min(wait, LONGEST_PAUSE) * jitter.uniform(1.0, 1.25)
