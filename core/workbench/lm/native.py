"""A request in the words of the API that its client speaks, and its answer as it came: both pass as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import LMError
from workbench.type_guards import is_dict, is_list

#: The APIs, and the path of each behind the base URL of a server.
API_PATHS: Mapping[str, str] = {
    "chat": "chat/completions",
    "responses": "responses",
    "messages": "messages",
    "completions": "completions",
}


#: Fields of a body with servers that the provider is to reach, and those of such a server in which keys stand
#: (platform.openai.com/docs/api-reference/responses, tools; docs.claude.com/en/docs/agents-and-tools/mcp-connector).
_WITH_KEYS = ("tools", "mcp_servers")
_KEYS = ("authorization", "authorization_token", "headers", "domain_secrets")
#: In a tool, what describes its parameters: names there are the tool's own.
_SCHEMAS = ("parameters", "input_schema", "function", "custom")


class NotCarried(LMError):
    """A request of one API holds what the model's own API cannot be told. field: its place in the request."""

    def __init__(self, message: str, field: str | None, status: int = 400):
        self.field = field
        super().__init__("bad_request", message, status=status)


@dataclass(frozen=True, slots=True)
class Native:
    """A request as its client wrote it: a model whose server speaks this API is sent it as it is.

    api: of `API_PATHS`. body: with the client's name of the model, which the server is not told. headers: of the
    client, those that change an answer. inert: fields that change none, so that they are no part of the key.
    convert: makes of a body the same request in the form of chat completions, and raises NotCarried where something
    of it would be lost. restored: gives fields of a body with what a provider added to earlier turns put back, where
    the client dropped it; None if there is nothing. Both are given the body as it is now: its texts may be replaced.
    """

    api: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    inert: frozenset[str] = frozenset()
    convert: Callable[[Mapping[str, Any]], Any] | None = field(default=None, compare=False)
    restored: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] = field(default=lambda body: None, compare=False)

    @property
    def streams(self) -> bool:
        return self.body.get("stream") is True

    def as_dict(self) -> dict[str, Any]:
        """What an answer depends on: what the key hashes and the store keeps. No keys: they open, and ask nothing."""
        body = {
            name: _without_keys(value) if name in _WITH_KEYS else value
            for name, value in self.body.items()
            if name not in self.inert and name != "model"
        }
        return {"api": self.api, "body": body, **({"headers": dict(self.headers)} if self.headers else {})}

    def converted(self) -> Any:
        """The `Request` in the form of chat completions. Raises NotCarried."""
        if self.convert is None:
            raise NotCarried(f"The model's server does not speak the API of this request ({self.api}).", None)
        return self.convert(self.body)


def _without_keys(value: Any) -> Any:
    if is_dict(value):
        return {
            name: "***" if name in _KEYS and part else part if name in _SCHEMAS else _without_keys(part)
            for name, part in value.items()
        }
    return [*map(_without_keys, value)] if is_list(value) else value


class Pieces:
    """The pieces of an answer on their way to a client: the call that asks for it adds, the client's connection reads.

    begun: the server has begun to answer, so that the request cannot be sent again. whole: it ended the stream itself.
    """

    def __init__(self) -> None:
        self.headers: Mapping[str, str] = {}
        self.begun = self.whole = False
        self._parts: list[bytes] = []
        self._source, self._followers = self, list[Pieces]()
        self._news = asyncio.Event()

    def begin(self, headers: Mapping[str, str]) -> None:
        """Tell the headers of the answer, before its first piece."""
        self.headers, self.begun = headers, True
        self.wake()

    def add(self, part: bytes) -> None:
        self._parts.append(part)
        self.wake()

    def end(self) -> None:
        self.whole = True

    def follow(self, other: Pieces) -> None:
        """Read what another one gets: a client that hung up has sent the same request again."""
        self._source = other._source
        self._source._followers.append(self)
        self.wake()

    @property
    def source(self) -> Pieces:
        """The one that the call adds to."""
        return self._source

    def after(self, place: int) -> tuple[bytes, int]:
        """(what came after the first `place` pieces, how many there are now)."""
        parts = self._source._parts
        return b"".join(parts[place:]), len(parts)

    async def wait(self) -> None:
        """Wait until something has changed, or somebody calls `wake`."""
        await self._news.wait()
        self._news.clear()

    def wake(self) -> None:
        for one in (self, *self._followers):
            one._news.set()
