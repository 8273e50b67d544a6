"""Language models as core uses them: one Request in, one Response out, one attempt per call.

Providers (plugins) implement `LM`. They never retry, cache or count: the ledger does that for all of them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address, ip_address
from typing import Any, Protocol, cast, runtime_checkable
from urllib.parse import urlsplit

from workbench.errors import LMError, SpecError
from workbench.lm.native import Native
from workbench.lm.pieces import Pieces
from workbench.lm.thoughts import split_thoughts

#: Most characters of an answer, per allowed token and in addition. A longer answer would flood the journal.
TOKEN_CHARACTERS, SPARE_CHARACTERS = 16, 1 << 16
#: Larger token counts from a server are errors, and could exceed SQLite's integers.
MAX_TOKENS = 2**40
#: Highest usual cost of an image with hosted models, in tokens, for reservations. The server reports the actual cost.
IMAGE_TOKENS = 1500
_PAGE = re.compile(r"<(?:!doctype html|html|head|body|title)\b", re.IGNORECASE)
#: content: a text, or, with images, a list of parts in the chat-completions format.
Message = Mapping[str, Any]  # {"role": "system" | "user" | "assistant" | "tool", "content": str, ...}


@dataclass(frozen=True, slots=True)
class Request:
    """A chat completion.

    replica: index of a fresh sample. Requests that differ only in it are different draws, and each is journalled
    separately. It is never sent to the model, but providers with a seed derive theirs from it.
    native: the same request as its client wrote it, for a server of the same API (`LM.apis`). The other fields are then
    for the trace and for reservations. pieces: receives a streamed answer; not part of the request.
    """

    messages: tuple[Message, ...]
    temperature: float = 0.0
    max_tokens: int = 512
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    replica: int = 0
    tools: tuple[Mapping[str, Any], ...] = ()
    response_format: Mapping[str, Any] | None = None
    logprobs: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    native: Native | None = None
    pieces: Pieces | None = field(default=None, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields that differ from their defaults, in a fixed order, for `key` and the store."""
        out: dict[str, Any] = {"messages": [dict(m) for m in self.messages], "max_tokens": self.max_tokens}
        if self.temperature:
            out["temperature"] = self.temperature
        if self.top_p != 1.0:
            out["top_p"] = self.top_p
        if self.stop:
            out["stop"] = list(self.stop)
        if self.replica:
            out["replica"] = self.replica
        if self.tools:
            out["tools"] = [dict(t) for t in self.tools]
        if self.response_format is not None:
            out["response_format"] = dict(self.response_format)
        if self.logprobs:
            out["logprobs"] = True
        if self.extra:
            out["extra"] = dict(self.extra)
        if self.native is not None:
            out["native"] = self.native.as_dict()
        return out

    def key(self, identity: str) -> str:
        """Return the content key under which the answer is journalled. identity: the model and where it is served."""
        asked = self.as_dict() if self.native is None else [self.native.as_dict(), self.replica]
        body = _encode([identity, asked])
        # Escape a lone surrogate in the data rather than refuse it: it must not stop the run.
        return hashlib.sha256(body.encode("utf-8", "backslashreplace")).hexdigest()[:32]

    def converted(self) -> Request:
        """Return the same request for a model whose server does not speak the API of `native`. Raises NotCarried."""
        if self.native is None:
            return self
        return replace(self.native.converted(), replica=self.replica, pieces=self.pieces)


_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Response:
    """An answer.

    finish: `stop`, `length` (cut at max_tokens), `refusal`, `empty` (no text at all), `tool_calls`.
    thoughts: the model's thinking before `text`, if the provider returns it.
    cached, cache_write: of the prompt tokens, those read from the provider's cache and those written to it.
    native: the unchanged answer to a request with `native`: `raw`, its text, and `headers`.
    message: the message as the provider sent it, if it holds more than text and calls. Some providers refuse the next
    request of a conversation without their additions, e.g. a signature.
    usd: None if the price is unknown. stated: True if the biller states usd; computed_usd is then the cost by our
    prices.
    token_ids, logprobs: one per completion token, if the provider returns them; prompt_ids likewise. They turn a trace
    into a rollout for training: token_ids include the end token and tokens of a stop string that `text` leaves out, and
    logprobs are the model's own, before temperature and top_p.
    """

    text: str
    finish: str = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    prompt_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    estimated: bool = False  # token counts were estimated: the server gave none
    thoughts: str = ""
    message: Mapping[str, Any] | None = None
    cached: int = 0
    cache_write: int = 0
    native: Mapping[str, Any] | None = None
    stated: bool = False
    computed_usd: float | None = None

    def without_thoughts(self) -> Response:
        """Return the answer with the thoughts in its text separated. If no text is left and it was not cut, it is
        empty."""
        thoughts, said = split_thoughts(self.text)
        if said == self.text:
            return self
        finish = "empty" if self.finish == "stop" and not said.strip() else self.finish
        return replace(self, text=said, thoughts="\n\n".join(filter(None, (self.thoughts, thoughts))), finish=finish)

    def as_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {"text": self.text, "finish": self.finish}
        for name in ("tool_calls", "prompt_ids", "token_ids", "logprobs"):
            value = getattr(self, name)
            if value:
                out[name] = list(value)
        if self.estimated:
            out["estimated"] = True
        for name in ("thoughts", "message", "cached", "cache_write", "native", "stated"):
            if value := getattr(self, name):
                out[name] = value
        if self.computed_usd is not None:
            out["computed_usd"] = self.computed_usd
        return out


@runtime_checkable
class LM(Protocol):
    """A language model, provided by a plugin.

    identity: what the answer depends on besides the request: model, address, revision. No secrets, because it is
    stored.
    concurrency: the most requests in flight at first. The ledger lowers it on 429.

    Optional attributes and methods:
    - `reads_images`: True if it takes images. Without it no image is sent.
    - `listening()`: raises LMError if its server is on this machine and nothing listens there. Called before a run.
    - `ready()`: raises LMError if nothing can be sent from here, e.g. because a key is missing. Called before a run
      pays for anything, and before each call, which then does not count.
    - `key_variable`: the environment variable with the key that it needs, or None.
    - `assumed_free`: True if its price is assumed to be 0 only because its server is on this machine. With a ceiling on
      dollars, the user is warned that it does not hold such calls.
    - `recall(request, response)`: for an LM that remembers its answers. Called with answers from the journal, so that a
      resumed run continues as the first one did.
    - `reusable`: False if `identity` does not determine the weights, as for a policy in training. Other runs then reuse
      none of its answers.
    - `bound`: True if no other process can make the same model from its settings. Workers call it through their driver.
    - `max_usd(request, prompt_tokens)`: worst-case US dollars of a request, None if unknown. An LM with it knows the
      price of each answer, so an answer without `usd` has an unknown price.
    """

    identity: str
    concurrency: int

    async def complete(self, request: Request) -> Response:
        """Send the request once. Raise LMError on failure; never retry, never sleep for a rate limit."""
        ...

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return the US dollars for a number of tokens of a usual call; 0.0 for a local model; None if unknown."""
        ...

    async def aclose(self) -> None: ...


@runtime_checkable
class HasWeights(Protocol):
    """An LM whose weights this machine can read, in the Hugging Face format, so that optimizers may train them.

    weights: the folder, or a hub id. with_weights(folder): the changes to its `LMSpec` that make it run other weights.
    """

    weights: str

    def with_weights(self, folder: str) -> Mapping[str, Any]: ...


@runtime_checkable
class CanEmbed(Protocol):
    """An LM that can also embed texts. embed: returns one vector per text, all of one length, and the number of tokens
    read. Raises LMError like `complete`."""

    async def embed(self, texts: Sequence[str]) -> tuple[Sequence[Sequence[float]], int]: ...


def estimate_tokens(messages: tuple[Message, ...]) -> int:
    """Return a high estimate for reservations: a token for each three bytes (a Chinese character), four per message,
    and IMAGE_TOKENS per image."""
    return sum(
        len(f"{_texts(m)}{m.get('tool_calls') or ''}".encode("utf-8", "surrogatepass")) // 3
        + 4
        + IMAGE_TOKENS * count_images(m)
        for m in messages
    )


def _texts(message: Message) -> str:
    content: Any = message.get("content") or ""
    return "".join(str(part.get("text", "")) for part in content) if isinstance(content, list) else f"{content}"


def call_id(turn: int, place: int) -> str:
    """Make an id for a call without one: nine letters and digits, since some servers accept no other form. turn: the
    number of messages before the answer, which separates its calls from those of other turns. place: position of the
    call."""
    return f"call{turn % 1000:03d}{place % 100:02d}"


def count_images(message: Message) -> int:
    """Count the images of a message."""
    content = message.get("content")
    return sum(part.get("type") == "image_url" for part in content) if isinstance(content, list) else 0


def content_text(content: Any) -> str:
    """Return the content of a message for people, with the kind and size of images."""
    if not isinstance(content, list):
        return "" if content is None else str(content)
    shown: list[str] = []
    for part in cast(list[dict[str, Any]], content):
        url = str((part.get("image_url") or {}).get("url", ""))
        if part.get("type") != "image_url":
            shown.append(str(part.get("text", "")))
        elif url.startswith("data:"):
            shown.append(f"[{url[5:].partition(';')[0]}, {len(url) * 3 // 4000} kB]")
        else:
            shown.append(f"[image {url}]")
    return "\n".join(shown)


def prompt_text(request: Request) -> str:
    """Return all texts of a request's messages."""
    return "".join(content_text(message.get("content")) for message in request.messages)


def check_embeds(lm: LM, name: str) -> None:
    """Raise SpecError for a language model that cannot embed texts."""
    if not isinstance(lm, CanEmbed):
        raise SpecError(
            f"{name} cannot embed texts",
            hint="Name a model behind openai/, local/, ollama/, hosted_vllm/, hf: or litellm/ as embedder.",
        )


def check_length(response: Response, request: Request) -> None:
    """Raise LMError("bad_body") for an answer far longer than the tokens that the request allows. A request that passes
    unchanged may name no number; `MAX_BODY` then bounds its answer."""
    tokens = request.max_tokens if request.native is None else request.native.max_tokens
    if tokens is None:
        return
    most = TOKEN_CHARACTERS * tokens + SPARE_CHARACTERS
    length = len(response.text) + len(response.thoughts)
    length += sum(len(str(call.get("arguments", ""))) for call in response.tool_calls)
    if response.message is not None:  # which repeats all of that, and has signatures
        length = max(length, len(str(response.message)) // 3)
    if length > most:
        raise LMError("bad_body", f"an answer of {length} characters to a request for {tokens} tokens")


def is_loopback(base: str | None) -> bool:
    """Return True if the server at an address such as http://127.0.0.1:8000/v1 is on this machine.

    Only localhost and numeric addresses count: a host name may begin with `127.` and resolve to any address.
    """
    try:
        host = "" if "\\" in (base or "") else urlsplit(base or "").hostname or ""  # clients differ on a backslash
        if host == "localhost":
            return True
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def split_page(text: str) -> tuple[str, str]:
    """Split a text into the words of an error and the web page after them: a page is from something in between, since
    APIs of models answer in JSON."""
    found = _PAGE.search(text)
    return (text, "") if found is None else (text[: found.start()], text[found.start() :])
