"""A request in the form of its client's API, and its unchanged answer: both pass through as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import LMError

#: The path of each API behind the base URL of a server. Gemini's continues with `/NAME:METHOD`.
API_PATHS: Mapping[str, str] = {
    "chat": "chat/completions",
    "responses": "responses",
    "messages": "messages",
    "completions": "completions",
    "gemini": "models",
}

#: The field that limits an answer's tokens, by API: the first that is present, else the last.
_LIMITS = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "responses": ("max_output_tokens",),
    "messages": ("max_tokens",),
    "completions": ("max_tokens",),
    "gemini": ("max_output_tokens", "maxOutputTokens"),
}
_SAMPLES = {"gemini": ("candidate_count", "candidateCount")}
#: The field of a body with its settings, if that is not the body itself. Google's servers accept both spellings of each
#: name (protobuf.dev/programming-guides/json).
_SETTINGS = {"gemini": ("generation_config", "generationConfig")}
#: Fields of a body that list servers for the provider to contact, and fields of such a server that hold keys
#: (platform.openai.com/docs/api-reference/responses, tools; docs.claude.com/en/docs/agents-and-tools/mcp-connector).
_WITH_KEYS = ("tools", "mcp_servers")
_KEYS = ("authorization", "authorization_token", "headers", "domain_secrets")
#: Fields of a tool that describe its parameters. Names inside are the tool's own.
_SCHEMAS = ("parameters", "input_schema", "function", "custom", "parametersJsonSchema", "parameters_json_schema")


class NotCarried(LMError):
    """A request has a part that the model's own API cannot express. field: its path in the request."""

    def __init__(self, message: str, field: str | None, status: int = 400):
        self.field = field
        super().__init__("bad_request", message, status=status)


@dataclass(frozen=True, slots=True)
class Native:
    """A request as its client wrote it. A model whose server speaks this API receives it unchanged.

    api: one of `API_PATHS`. body: with the client's name of the model, which is not sent. headers: the client's headers
    that change an answer; sent: the others. inert: fields that change no answer, so they are not part of the key. ours:
    fields whose value is not the client's. method: for an API whose path names the model, the part after that name.
    convert: converts a body to the form of chat completions, and raises NotCarried if that would lose something.
    restored: returns the fields of a body with a provider's additions to earlier turns, where the client dropped them;
    None if there are none. Both get the current body, whose texts may have been replaced.
    """

    api: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    inert: frozenset[str] = frozenset()
    sent: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)
    ours: frozenset[str] = field(default=frozenset(), compare=False)
    convert: Callable[[Mapping[str, Any]], Any] | None = field(default=None, compare=False)
    restored: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] = field(default=lambda body: None, compare=False)
    method: str = ""

    @property
    def streams(self) -> bool:
        return self.body.get("stream") is True or self.method.startswith("stream")

    @property
    def max_tokens(self) -> int | None:
        """Return the most tokens of all requested answers together; None if the request names no number."""
        return max_tokens(self.api, self.body)

    def as_dict(self) -> dict[str, Any]:
        """Return the parts that an answer depends on, for the key's hash and the store. API keys are left out: they do
        not change answers."""
        body = {
            name: _without_keys(value) if name in _WITH_KEYS else value
            for name, value in self.body.items()
            if name not in self.inert and name != "model"
        }
        more = {"method": self.method, "headers": dict(self.headers)}
        return {"api": self.api, "body": body, **{name: value for name, value in more.items() if value}}

    def with_setting(self, name: str, value: Any) -> Native:
        """Return the request with another `temperature`, `max_tokens` or `n`, in the form of its API; None removes
        it."""
        holder = _name_in(_SETTINGS[self.api], self.body) if self.api in _SETTINGS else None
        inside = dict(_settings(self.api, self.body))
        names = {"max_tokens": _LIMITS[self.api], "n": _SAMPLES.get(self.api, ("n",))}.get(name, (name,))
        if value is not None:
            inside[_name_in(names, inside)] = value
        elif _name_in(names, inside) in inside:
            del inside[_name_in(names, inside)]
        else:
            return self
        return replace(self, body=inside if holder is None else {**self.body, holder: inside})

    def converted(self) -> Any:
        """Return the `Request` in the form of chat completions. Raises NotCarried."""
        if self.convert is None:
            raise NotCarried(f"The model's server does not speak the API of this request ({self.api}).", None)
        return self.convert(self.body)


def max_tokens(api: str, body: Mapping[str, Any]) -> int | None:
    """Return the most tokens of all answers that a body requests together; None if it names no number."""
    settings = _settings(api, body)
    limits = [settings[name] for name in _LIMITS[api] if type(settings.get(name)) is int]
    number = settings.get(_name_in(_SAMPLES.get(api, ("n",)), settings))
    return max(1, limits[0]) * max(1, number if type(number) is int else 1) if limits else None


def _settings(api: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a body that holds its settings."""
    if api not in _SETTINGS:
        return body
    found = body.get(_name_in(_SETTINGS[api], body))
    return found if is_dict(found) else {}


def _name_in(names: Sequence[str], body: Mapping[str, Any]) -> str:
    """Return the first name that a body has, else the last."""
    return next((name for name in names if name in body), names[-1])


def _without_keys(value: Any) -> Any:
    if is_dict(value):
        return {
            name: "***" if name in _KEYS and part else part if name in _SCHEMAS else _without_keys(part)
            for name, part in value.items()
        }
    return [*map(_without_keys, value)] if is_list(value) else value
