"""A server's answer on a path that asks no model, on its way to a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Forwarded:
    """An answer that comes piece by piece, with no bound on its length.

    Args:
        status: of HTTP.
        headers: (name, value) of each, as often as it came; none that concern the connection.
        chunks: the body. Raises LMError where the server breaks it off.
        close: ends the request. To be called in any case.
        url: that was asked.
        base: of the paths of the server, which a client that follows a redirect asks elsewhere.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    chunks: AsyncIterator[bytes]
    close: Callable[[], None]
    url: str
    base: str
