"""A server's answer on a path that asks no model, to be passed to a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Forwarded:
    """An answer that arrives piece by piece, with unlimited length.

    Args:
        status: of HTTP.
        headers: (name, value) of each, with repetitions; none that concern the connection.
        chunks: the body. Raises LMError if the server breaks it off.
        close: ends the request. To be called in any case.
        url: the requested address.
        base: of the server's paths. A client that follows a redirect leaves it.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    chunks: AsyncIterator[bytes]
    close: Callable[[], None]
    url: str
    base: str
