"""A worker's language models as its driver sees them: most are called by the worker, and paid here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from workbench.lm import LM, LMPool, Request, Response
from workbench.spec import LMSpec
from workbench_workers.messages import Came, ModelFacts

#: Seconds that the driver gives a call beyond its own timeout, for the way to the worker and back.
_WAY = 30.0


class SentThere(LM):
    """A language model as the ledger sees it, whose requests a worker sends.

    place: of the worker; it has a limit of its own on requests at once. send: tells it to send, and waits.
    """

    patience = _WAY

    def __init__(self, place: str, send: Callable[[], Awaitable[Came]]):
        self.response: Response | None = None
        self.seconds = 0.0  # that the last request took there
        self.place, self._send = place, send

    def for_model(self, lm: LM) -> SentThere:
        """Take the place of a model."""
        self._lm, self.identity, self.concurrency = lm, lm.identity, lm.concurrency
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lm, name)

    async def complete(self, request: Request) -> Response:
        came = await self._send()
        self.response, self.seconds = came.response, came.seconds
        if came.begun and request.pieces is not None:
            request.pieces.begun = True
        if came.error is not None:
            raise came.error
        assert came.response is not None
        return came.response

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return self._lm.price(prompt_tokens, completion_tokens)

    async def aclose(self) -> None:
        """Nothing to close: the language model belongs to the pool."""


def is_of_driver(pool: LMPool, spec: LMSpec) -> bool:
    """Return True for a language model that no other process can make: one whose weights are being trained here, or
    that was handed in as an object."""
    return type(pool) is not LMPool or bool(getattr(pool.get(spec), "bound", False))


def facts_of(lm: LM) -> ModelFacts:
    """Tell a worker of a model of the driver's."""
    apis = tuple(getattr(lm, "apis", ()))
    return ModelFacts(lm.identity, lm.concurrency, bool(getattr(lm, "reads_images", False)), apis)
