"""Requests of agents in workbench's terms, the sessions that answer them, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from workbench.errors import BudgetSpent, FailureKind, Interrupted, LMError, NodeError, ServerDead
from workbench.lm import Message, Native, NotCarried, Pieces, Response
from workbench_external.gateway.view import View


@dataclass(frozen=True, slots=True)
class Ask:
    """An agent's request to a model.

    Equal requests give equal Asks, whatever their API: nothing in an Ask is random or comes from a clock.

    Args:
        model: as the agent named it.
        messages: in the form of chat completions, as in `workbench.lm.Request`; content is a text, or a list of parts
            if there is an image.
        tools: likewise, functions only.
        settings: the fields of `workbench.lm.Request` that were set: temperature, top_p, max_tokens, stop,
            response_format, logprobs, and extra (tool_choice, seed, ... in the form of chat completions).
        samples: number of answers.
        stream: whether the answer is sent as events.
        native: for a session that `passes`, the request as the agent wrote it. Then messages, tools and settings are
            what can be read of it without refusing anything, and `view` has the places of the texts in its body.
        read: converts such a body to an Ask in the form of chat completions. Raises Refused.
        pieces: receives the answer as it arrives.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 1
    stream: bool = False
    native: Native | None = None
    view: View | None = field(default=None, compare=False, repr=False)
    read: Callable[[Mapping[str, Any]], Ask] | None = field(default=None, compare=False, repr=False)
    pieces: Pieces | None = field(default=None, compare=False, repr=False)

    @property
    def content(self) -> Any:
        """Return the identity of the request, except for the model. Equal requests have equal ones."""
        if self.native is not None:
            return self.native.as_dict()
        return [self.messages, self.tools, self.settings, self.samples]


class Refused(Exception):
    """A request that gets no answer. The agent gets it in the form of its API.

    Args:
        status: of HTTP.
        kind: a FailureKind or another word, e.g. "budget", after which no client retries.
        message: for the agent's log: what was wrong, where, and what to send instead. Never about other rows.
        retry_after: seconds after which the agent may try again.
        headers: further ones of the response.
        field: the place of the error in the request, e.g. `messages[0].content`.
        passed: (status, headers, body) of the model's server, which the agent gets instead of all that.
        broke: the connection to that server broke. So the agent's breaks, too, after what was passed, and its client
            retries as it would without the gateway.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
        field: str | None = None,
        passed: tuple[int, dict[str, str], bytes] | None = None,
        broke: bool = False,
    ):
        self.passed, self.broke = passed, broke
        self.status, self.kind, self.message = status, str(kind), message
        self.retry_after, self.headers, self.field = retry_after, dict(headers or {}), field
        super().__init__(message)

    def all_headers(self) -> dict[str, str]:
        """Return the headers, with those that clients read before they retry."""
        found = dict(self.headers)
        if self.retry_after is not None:
            found["retry-after"] = f"{max(0.0, self.retry_after):g}"
        if self.kind in _FINAL:
            found["x-should-retry"] = "false"
        return found


#: A retry cannot help, though clients retry after such a status.
_FINAL = {"budget", "ended", "internal"}


class GatewaySession(Protocol):
    """The session behind a secret: a row of a run, or a client of a served workflow.

    A call is cancelled when the agent hangs up, and when the secret is dismissed. A session that takes requests
    unchanged (`Ask.native`) has `passes = True`, and may have `forward(method, path, body, headers, ask)` for other
    paths. It returns the server's answer (`workbench.lm.Forwarded`), or None if its server speaks another API. body:
    whole, or as it arrives. ask: the same request, if its texts may be replaced. `passes_path(method, path, has_body)`
    returns True for the paths to forward. `note_refusal(error)`, if present, is called for requests without an answer.
    """

    async def complete(self, ask: Ask) -> Sequence[Response]:
        """Return `ask.samples` answers, or one with `Response.native`, which holds them all. Raises Refused."""
        ...

    async def embed(self, texts: Sequence[str], model: str) -> tuple[Sequence[Sequence[float]], int]:
        """Return a vector for each text, and the number of tokens read. Raises Refused."""
        ...

    def models(self) -> Sequence[str]:
        """Return the names to list; others may be requested, too."""
        ...


def refusal_of(error: Exception) -> Refused:
    """Turn an error into a refusal for the agent. Answers from a server of the agent's own API pass. Other messages of
    servers and of Python stay here: they may name files, addresses and keys."""
    match error:
        case Refused():
            return error
        case BudgetSpent():
            return Refused(429, "budget", "The budget for this agent is spent. Do not try again.")
        case NotCarried():
            return Refused(error.status or 400, "unsupported", str(error), field=error.field)
        case LMError():
            refused = _of_kind(error.kind, error.retry_after, error.status)
            refused.passed, refused.broke = error.passed, error.hung_up
            return refused
        case NodeError():
            return _of_kind(error.kind, None)
        case Interrupted():
            return Refused(429, "ended", "The run was stopped. Do not try again.")
        case ServerDead():
            return Refused(503, FailureKind.SERVER, "The language model's server no longer answers.")
        case _:
            return Refused(500, "internal", "The gateway failed on this request. The log of its run says why.")


_TOLD = {
    FailureKind.RATE_LIMIT: (429, "The language model asks to wait."),
    FailureKind.TIMEOUT: (504, "The language model did not answer in time."),
    FailureKind.TOO_LONG: (400, "The prompt is too long for the model's context. Send fewer or shorter messages."),
    FailureKind.BAD_REQUEST: (400, "The language model's server refused the request as it was sent."),
    FailureKind.UNSUPPORTED: (400, "The language model lacks what the request asks for (images, tools or a format)."),
    FailureKind.REFUSED: (400, "The language model refused to answer."),
    FailureKind.AUTH: (401, "The key for the language model is missing, or its server refuses it."),
    FailureKind.POLICY: (403, "A rule of the policy forbids this request."),
}


def _of_kind(kind: FailureKind, retry_after: float | None, own: int | None = None) -> Refused:
    """Return the refusal for a kind. own: status of a server with another API, by which clients retry and fall back."""
    status, message = _TOLD.get(kind, (502, "The language model did not answer."))
    return Refused(own if own is not None and own >= 400 else status, kind, message, retry_after)
