"""A request in the words of the API that its client speaks, and its answer as it came: both pass as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import LMError

#: The APIs, and the path of each behind the base URL of a server.
API_PATHS: Mapping[str, str] = {
    "chat": "chat/completions",
    "responses": "responses",
    "messages": "messages",
    "completions": "completions",
}


#: What a server says that does not have a path.
NO_SUCH_PATH = (404, 405, 501)
#: The field with the most tokens of an answer, by API: the first that is there, else the first.
_LIMITS = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "responses": ("max_output_tokens",),
    "messages": ("max_tokens",),
    "completions": ("max_tokens",),
}
#: Fields of a body with servers that the provider is to reach, and those of such a server in which keys stand
#: (platform.openai.com/docs/api-reference/responses, tools; docs.claude.com/en/docs/agents-and-tools/mcp-connector).
_WITH_KEYS = ("tools", "mcp_servers")
_KEYS = ("authorization", "authorization_token", "headers", "domain_secrets")
#: In a tool, what describes its parameters: names there are the tool's own.
_SCHEMAS = ("parameters", "input_schema", "function", "custom")


class NotCarried(LMError):
    """A request of one API has what the model's own API cannot express. field: its place in the request."""

    def __init__(self, message: str, field: str | None, status: int = 400):
        self.field = field
        super().__init__("bad_request", message, status=status)


@dataclass(frozen=True, slots=True)
class Native:
    """A request as its client wrote it: a model whose server speaks this API is sent it as it is.

    api: of `API_PATHS`. body: with the client's name of the model, which the server is not told. headers: of the
    client, those that change an answer; sent: the others. inert: fields that change none, so that they are no part of
    the key. ours: fields whose value is not the client's.
    convert: makes of a body the same request in the form of chat completions, and raises NotCarried where something
    of it would be lost. restored: gives fields of a body with what a provider added to earlier turns put back, where
    the client dropped it; None if there is nothing. Both are given the body as it is now: its texts may be replaced.
    """

    api: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    inert: frozenset[str] = frozenset()
    sent: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)
    ours: frozenset[str] = field(default=frozenset(), compare=False)
    convert: Callable[[Mapping[str, Any]], Any] | None = field(default=None, compare=False)
    restored: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] = field(default=lambda body: None, compare=False)

    @property
    def streams(self) -> bool:
        return self.body.get("stream") is True

    @property
    def most_tokens(self) -> int | None:
        """The most tokens of all answers that it asks for; None if it names no number."""
        return most_tokens(self.api, self.body)

    def as_dict(self) -> dict[str, Any]:
        """Return what an answer depends on, for the key's hash and the store. API keys are left out: they do not change
        answers."""
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


def most_tokens(api: str, body: Mapping[str, Any]) -> int | None:
    """The most tokens of all answers that a body asks for; None if it names no number."""
    limits = [body[name] for name in _LIMITS[api] if type(body.get(name)) is int]
    number = body["n"] if type(body.get("n")) is int else 1
    return max(1, limits[0]) * max(1, number) if limits else None


def limit_name(api: str, body: Mapping[str, Any]) -> str:
    """The field of a body in which the most tokens of an answer stand, or would."""
    return next((name for name in _LIMITS[api] if name in body), _LIMITS[api][-1])


def _without_keys(value: Any) -> Any:
    if is_dict(value):
        return {
            name: "***" if name in _KEYS and part else part if name in _SCHEMAS else _without_keys(part)
            for name, part in value.items()
        }
    return [*map(_without_keys, value)] if is_list(value) else value
