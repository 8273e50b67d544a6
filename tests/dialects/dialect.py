"""What a dialect is: where it is served, what it refuses, and how it says an answer, an error and a count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

#: The days on which pages were read.
READ, READ_LATER = "2026-11-26", "2026-11-27"
#: A specification or a source, by its version.
SPECIFICATION = f"specification, {READ_LATER}"
#: The variable that holds the key, and the key.
KEY_VARIABLE, KEY = "DIALECTS_API_KEY", "sk-dialects-0123456789"

Json = dict[str, Any]

#: The parts of the product that ask models, by name, as the table of the docs calls them.
CONSUMERS = {
    "predict": "`predict`",
    "agent-text": "`agent`",
    "agent-native": "`agent`, native tools",
    "agent-demos": "`agent`, native, demos",
    "states": "`states`",
    "judge": "judge",
    "proposer": "proposer",
    "rollouts": "rollouts of a teacher",
    "gateway-chat": "gateway, chat",
    "gateway-responses": "gateway, responses",
    "gateway-messages": "gateway, messages",
    "probabilities": "log-probabilities",
}


def source(version: str) -> str:
    """When a source was read, of a server or of its maker's client. version: a tag or a commit."""
    return f"source {version}, {READ_LATER}"


class Refused(Exception):
    """A request that the server refuses. param, code: of the error's body, where the dialect has them."""

    def __init__(self, message: str, status: int = 400, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.message, self.status, self.param, self.code = message, status, param, code


@dataclass(frozen=True)
class Asked:
    """A request as it came: its path behind the dialect's name, query, headers (names in lower case) and body.

    signed: what this dialect has sent with calls and wants back, by the call's id.
    """

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Json
    signed: Mapping[str, str]

    @property
    def messages(self) -> list[Json]:
        return self.body["messages"]


#: Raises Refused for what the server does not take.
Rule = Callable[[Asked], None]


@dataclass(frozen=True)
class Said:
    """What the planted model says. calls: (name, arguments) each. end: stop, length, tool_calls or refusal."""

    text: str
    calls: tuple[tuple[str, Json], ...] = ()
    thoughts: str = ""
    end: str = "stop"


@dataclass(frozen=True)
class Count:
    """Tokens of a call: `thoughts` are among `answer`, `cached` and `written` (to a cache) among `prompt`."""

    prompt: int = 50
    answer: int = 25
    thoughts: int = 20
    cached: int = 10
    written: int = 5


class Api(Protocol):
    """A form of requests and answers: chat completions, Anthropic's messages, OpenAI's responses, ..."""

    path: str

    def read(self, asked: Asked) -> Json:
        """The request as chat completions have it. Raises Refused for what the form itself does not take."""
        ...

    def write(self, dialect: Dialect, said: Said, asked: Asked, sign: Callable[[str, str], None]) -> Json:
        """The body of an answer. sign: keeps what has to come back with a call, by the call's id."""
        ...


def openai_error(refused: Refused) -> Any:
    """OpenAI's own form of an error, which most servers have."""
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(refused.status, "invalid_request_error")
    return {"error": {"message": refused.message, "type": kind, "param": refused.param, "code": refused.code}}


def openai_usage(count: Count) -> Json:
    return {
        "prompt_tokens": count.prompt,
        "completion_tokens": count.answer,
        "total_tokens": count.prompt + count.answer,
        "prompt_tokens_details": {"cached_tokens": count.cached},
        "completion_tokens_details": {"reasoning_tokens": count.thoughts},
    }


def usage_with_writes(count: Count) -> Json:
    """OpenAI's count since prompts that are written to its cache have a price of their own."""
    usage = openai_usage(count)
    return {**usage, "prompt_tokens_details": {"cached_tokens": count.cached, "cache_write_tokens": count.written}}


def cached_usage(count: Count) -> Json:
    """A count that tells cached tokens alone."""
    return {**bare_usage(count), "prompt_tokens_details": {"cached_tokens": count.cached}}


def bare_usage(count: Count) -> Json:
    """A count without details."""
    total = count.prompt + count.answer
    return {"prompt_tokens": count.prompt, "completion_tokens": count.answer, "total_tokens": total}


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One way in which a server speaks. Its documented errors are lines of `documented_errors.jsonl`.

    Args:
        name: of the path under which it is played.
        title: for the table of the docs.
        page: the public page that it is written from.
        read: the day on which that page was read, after the version if it is a source.
        model: as the workflow file names it.
        base: the path of `api_base`, with its query.
        api: the form of requests; None: chat completions.
        settings: what the file has to say of the `lm` beside model, api_base and api_key_env.
        hosted: whether it needs a key.
        key_header: where it wants the key, if not in Authorization; the file then sends it by `headers`.
        rules: what it refuses, in this order.
        thoughts: puts the model's thoughts into a message; None: the model does not think.
        ends: its words for `stop`, `length`, `tool_calls` and `refusal`, where they are not OpenAI's; "" where it has
            none.
        error: writes an error's body.
        usage: writes a count.
        cached: whether that count says how much came from a cache.
        written: whether it says how much was written to one.
        call_id: the id of a call by its number.
        change: a last change to an answer's body.
        no_tools: where it takes no tool definitions, words by which it says so.
        logprobs: whether it gives log-probabilities.
        speaks: what is special, for the table.
        refuses: for a consumer that cannot use it, the words by which the product says so.
        slow: whether what the product needs for it takes seconds to import.
    """

    name: str
    title: str
    page: str
    model: str
    read: str = READ
    base: str = "/v1"
    api: Api | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    hosted: bool = True
    key_header: str | None = None
    rules: Sequence[Rule] = ()
    thoughts: Callable[[Json, str], None] | None = None
    ends: Mapping[str, str] = field(default_factory=dict[str, str])
    error: Callable[[Refused], Any] = openai_error
    usage: Callable[[Count], Json] = openai_usage
    cached: bool = True
    written: bool = False
    call_id: Callable[[int], str] = "call_{:024d}".format
    change: Callable[[Json, Said], None] | None = None
    no_tools: str = ""
    logprobs: bool = False
    speaks: str = ""
    refuses: Mapping[str, str] = field(default_factory=dict[str, str])
    slow: bool = False

    @property
    def stated(self) -> Mapping[str, str]:
        """The refusals by consumer, with those of tools."""
        native = dict.fromkeys(("agent-native", "agent-demos"), self.no_tools) if self.no_tools else {}
        return {**native, **self.refuses}

    def lm(self, address: str) -> Json:
        """The `lm` of a workflow file for this dialect, played at an address."""
        path, _, query = self.base.partition("?")
        base = f"{address}/{self.name}{path}" + (f"?{query}" if query else "")
        key = {"api_key_env": KEY_VARIABLE} if self.hosted and not self.key_header else {}
        return {"model": self.model, "api_base": base, "attempts": 1, **key, **self.settings}
