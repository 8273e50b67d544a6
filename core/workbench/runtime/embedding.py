"""Embeddings of texts by a language model, paid, journalled and retried like other calls.

A request for embeddings is a call whose messages are the texts and whose answer holds the vectors, so that the ledger
handles budget, journal and concurrency. Within a run each request is made once.
"""

from __future__ import annotations

import asyncio
import base64
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from workbench.errors import LMError
from workbench.ledger import Settled
from workbench.lm import LM, Message, Request, Response, check_embeds

#: The most texts in one request.
BATCH = 64
Ask = Callable[[LM, Request], Awaitable[Settled]]
Vector = Sequence[float]
Call = tuple[tuple[Message, ...], Settled]


class Embeddings(LM):
    """Adapts a model that can embed to the ledger: messages are texts, the answer is their vectors."""

    def __init__(self, lm: LM):
        check_embeds(lm, lm.identity)
        self.lm: Any = lm  # both LM and CanEmbed
        self.identity, self.concurrency = f"{lm.identity} (vectors)", lm.concurrency
        self.reusable = bool(getattr(lm, "reusable", True))

    async def complete(self, request: Request) -> Response:
        texts = [str(m["content"]) for m in request.messages]
        vectors, tokens = await self.lm.embed(texts)
        if len(vectors) != len(texts) or len({len(v) for v in vectors}) != 1:
            raise LMError("bad_body", f"{len(texts)} texts, but {len(vectors)} vectors, or not all of one length")
        return Response(" ".join(map(_packed, vectors)), "stop", tokens, 0)

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return self.lm.price(prompt_tokens, 0)

    async def aclose(self) -> None:
        """Do nothing: the language model belongs to the pool."""


class Embedder:
    """Embeds texts with one model in a run. ask: sends a request through the ledger."""

    def __init__(self, lm: LM, ask: Ask):
        self.lm, self.ask = Embeddings(lm), ask
        self._known: dict[tuple[str, ...], asyncio.Future[tuple[list[Vector], Call]]] = {}

    async def __call__(self, texts: Sequence[str]) -> tuple[list[Vector], list[Call]]:
        """Embed texts. Returns one vector for each, and the calls made.

        A request holds the next BATCH texts in order and depends on nothing else. If it left out texts that another
        caller has sent, requests would depend on timing, and a resumed run would send others. If another caller has the
        same request in flight, it is awaited and counts as a cached call at full cost, so that the first caller looks
        no more expensive than the others. A failed request is forgotten and may be sent again.

        Raises LMError, and BudgetSpent.
        """
        found, calls = list[Vector](), list[Call]()
        for start in range(0, len(texts), BATCH):
            batch = tuple(texts[start : start + BATCH])
            flying = self._known.get(batch)
            first = flying is None
            if flying is None:
                flying = self._known[batch] = asyncio.get_running_loop().create_future()
                try:
                    made = await self._fetch(batch)
                except BaseException as error:
                    del self._known[batch]
                    flying.set_exception(error if isinstance(error, Exception) else LMError("provider", "interrupted"))
                    flying.exception()  # mark it as retrieved: perhaps nobody awaits it
                    raise
                flying.set_result(made)
            vectors, (messages, settled) = await asyncio.shield(flying)
            calls.append((messages, settled if first else replace(settled, cached=True)))
            found += vectors
        return found, calls

    async def _fetch(self, texts: Sequence[str]) -> tuple[list[Vector], Call]:
        messages: tuple[Message, ...] = tuple({"role": "user", "content": text} for text in texts)
        settled = await self.ask(self.lm, Request(messages, max_tokens=1))
        if settled.error is not None:
            raise settled.error
        assert settled.response is not None
        vectors = [_unpacked(part) for part in settled.response.text.split(" ")]
        assert len(vectors) == len(texts)
        return vectors, (messages, settled)


def _packed(vector: Vector) -> str:
    """Encode as base64 in single precision: exact for what models return, and short in the journal."""
    return base64.b64encode(array("f", vector).tobytes()).decode()


def _unpacked(text: str) -> Vector:
    return array("f", base64.b64decode(text))
