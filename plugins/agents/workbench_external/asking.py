"""Sends a request of an agent: chooses the model and its API, and merges the agent's settings with ours."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.base.hashing import digest
from workbench.errors import FailureKind, LMError
from workbench.lm import Message, NotCarried, Pieces, Request, Response
from workbench.runtime import Runtime, make_request
from workbench.spec import LMSpec, lm_spec
from workbench_external.gateway import Ask, Refused, as_it_is_sent, check_for_messages, refusal_of, without_places
from workbench_kit.wire import Forwarded

if TYPE_CHECKING:
    from workbench_external.config import ExternalConfig
    from workbench_external.slots.patches import Patched

#: Default temperature of the APIs.
_USUAL_TEMPERATURE = 1.0
#: Minimum timeout of a call in seconds, unless the model sets one: an agent has a deadline of its own.
MIN_SECONDS = 600.0
#: A path that ends in a model's name and a method (ai.google.dev/api/all-methods).
_OF_GOOGLE = re.compile(r"/?models/[^/:]+:[a-z][A-Za-z]+(?:\?|\Z)")
#: The most model names for which settings and calls are kept.
_MAX_MODELS = 256
#: Counts the names that are no longer kept.
OTHERS = "(others)"
#: In `models`: the model that the agent names, prefixed with our provider if it names none.
AS_NAMED = "as-named"
#: Settings that hold for one model only, and for one provider only.
_OF_MODEL = ("price",)
_OF_PROVIDER = (*_OF_MODEL, "api_key_env", "extra", "omit", "rename")


@dataclass(frozen=True)
class Asking:
    """A request with its texts replaced.

    settings: those of `workbench.lm.Request`, ours merged with the agent's. changed: the ones that override the agent's
    own. offered: our functions among the tools. answers: the number of answers to draw.
    of_anthropic: its server takes Anthropic's Messages and no other API.
    """

    config: ExternalConfig
    ask: Ask
    patched: Patched
    spec: LMSpec
    settings: Mapping[str, Any]
    changed: Mapping[str, Any]
    offered: Sequence[Mapping[str, Any]]
    answers: int
    of_anthropic: bool = False

    @property
    def messages(self) -> Sequence[Message]:
        return self.patched.messages

    def request(self, messages: Sequence[Message]) -> tuple[Sequence[Message], dict[str, Any]]:
        """Return (messages, settings) of a call. messages: those of the request, perhaps with later turns appended."""
        settings = dict(self.settings)
        if self.ask.native is None:
            return messages, settings
        tools, form = settings.get("tools", ()), settings.get("response_format")
        settings["native"] = as_it_is_sent(self.ask, messages, tools, form, self.changed, self._converted)
        # An answer that may call a function of ours is handled here first, and several answers are not one stream.
        settings["pieces"] = Pieces() if self.offered or self.answers > 1 else self.ask.pieces
        settings.pop("extra", None)
        return without_places(messages), settings

    async def draw(self, answer: Callable[[int], Awaitable[Response]], first: int = 0) -> Sequence[Response]:
        """Draw all answers, one call per replica. first: the replica of the first one."""
        if self.answers == 1:  # needs no task of its own
            return [await answer(first)]
        return await asyncio.gather(*(answer(first + n) for n in range(self.answers)))

    def _converted(self, ask: Ask) -> Request:
        """Return the request for a server of another API. ask: the part of the request that this API supports."""
        settings = dict(ask.settings)
        if self.of_anthropic:
            check_for_messages(settings)
        if settings.get("temperature") is None:
            settings["temperature"] = _USUAL_TEMPERATURE if self.spec.temperature is None else self.spec.temperature
        if settings.get("max_tokens") is None:
            settings["max_tokens"] = self.spec.max_tokens or self.config.max_tokens
        if ask.tools:
            settings["tools"] = tuple(ask.tools)
        return make_request(self.spec, ask.messages, 0, settings)


class Models:
    """The models of a node's requests, made once per name, because the pool finds an object faster than its settings.

    usual: the model if the node names none. change: returns the settings to use for a model's settings.
    """

    def __init__(self, config: ExternalConfig, usual: LMSpec, change: Callable[[LMSpec], LMSpec] = lambda spec: spec):
        self.config, self.usual, self._change = config, usual, change
        self._made: dict[tuple[str, str], LMSpec] = {}

    def get(self, named: str, patched: Any = None) -> LMSpec:
        """Return the model for a request. named: by the agent. patched: by a slot. Raises SpecError if unknown."""
        key = named, repr(patched)
        if (found := self._made.get(key)) is None:
            if len(self._made) >= _MAX_MODELS:
                self._made.clear()
            found = self._made[key] = self._change(choose_model(self.config, named, patched, self.usual))
        return found


def choose(
    models: Models, ask: Ask, patched: Patched, runtime: Runtime, offered: Sequence[Mapping[str, Any]] = ()
) -> Asking:
    """Choose the model and the settings of a request. Our settings win over those of the agent.

    offered: our functions.
    """
    config, spec = models.config, models.get(ask.model, patched.lm)
    settings = dict(ask.settings)
    changed: dict[str, Any] = {}
    ours = config.temperature if patched.temperature is None else patched.temperature
    if ours is None and settings.get("temperature") is None:
        ours = spec.temperature
    if ours is not None:
        settings["temperature"] = changed["temperature"] = ours
    settings.setdefault("temperature", _USUAL_TEMPERATURE)
    most = patched.max_tokens
    if most is None and settings.get("max_tokens") is None:
        most = spec.max_tokens or (config.max_tokens if "max_tokens" in config.model_fields_set else None)
    if most is not None:
        settings["max_tokens"] = changed["max_tokens"] = most
    settings.setdefault("max_tokens", config.max_tokens)
    if tools := (*patched.tools, *offered):
        settings["tools"] = tools
    if patched.response_format is not None:
        settings["response_format"] = patched.response_format
    answers = ask.samples
    if ask.native is not None and runtime.speaks(spec, ask.native.api):
        answers = 1
    elif ask.native is not None and ask.samples > 1:
        changed["n"] = None
    of_anthropic = runtime.speaks(spec, "messages") and not runtime.speaks(spec, "chat")
    return Asking(config, ask, patched, spec, settings, changed, offered, answers, of_anthropic)


def choose_model(config: ExternalConfig, named: str, patched: Any, usual: LMSpec) -> LMSpec:
    """Return the model that answers. named: by the agent. patched: by a slot. Raises SpecError if nobody serves it."""
    chosen = patched or config.models.get(named) or config.models.get("*") or config.lm
    if chosen == AS_NAMED:
        chosen = _as_named(config, named, usual) if named else None
    spec = lm_spec(chosen) if chosen else usual
    if "timeout" in spec.model_fields_set:
        return spec
    return spec.model_copy(update={"timeout": max(MIN_SECONDS, spec.timeout)})


def _as_named(config: ExternalConfig, named: str, usual: LMSpec) -> dict[str, Any]:
    """Return the settings of the model that an agent names. It gets the usual model's provider, unless its name begins
    with another provider of the file: only the file decides who else is paid and sees the rows. Raises Refused.

    Settings for the server at an `api_base` hold for all of its models, whose names may begin like a provider's.
    Otherwise, a price holds for one model, and a key is sent to its own provider only.
    """
    from workbench.lm import lm_prefixes

    settings = usual.model_dump(exclude_unset=True)
    provider, mark, _ = usual.model.partition("/")
    behind = f"{provider}/{named}" if mark else named
    if usual.api_base:
        return {**settings, "model": behind}
    own = named.partition("/")[0]
    if own not in lm_prefixes():
        own, named = provider, behind
    elif own not in (known := _providers(config, provider)):
        told = f"The model {named[:80]} is of another provider than those of the workflow file ({', '.join(known)})."
        hint = "Name one of these, or have the file name that one under models."
        raise Refused(404, "model_not_found", f"{told} {hint}", field="model")
    left_out = _OF_MODEL if own == provider else _OF_PROVIDER
    settings = {name: value for name, value in settings.items() if name not in left_out or named == usual.model}
    return {**settings, "model": named}


def _providers(config: ExternalConfig, usual: str) -> list[str]:
    """Return the providers of the models that the file names for a node."""
    named = [config.lm, *config.models.values(), *(slot.lm for slot in (config.slots or {}).values())]
    models = [lm_spec(one).model for one in named if one is not None and one != AS_NAMED]
    return [*dict.fromkeys((usual, *(model.partition("/")[0] for model in models)))]


async def forward(
    runtime: Runtime,
    models: Models,
    method: str,
    path: str,
    body: Any,
    headers: Mapping[str, str],
    asking: Asking | None,
) -> Forwarded | None:
    """Return the server's answer on a path that calls no model; None if it speaks another API than the client.

    asking: the same request with its texts replaced, if they may be. Nothing is recorded. Raises LMError.
    """
    spec = asking.spec if asking else models.get("")
    if not runtime.speaks(spec, asking.ask.native.api if asking and asking.ask.native else _api_of(path, headers)):
        return None
    # Our settings apply to answers: a server that counts tokens has no fields for them.
    sent = body if asking is None else replace(asking, changed={}).request(asking.messages)[1]["native"].body
    lm: Any = runtime.pool.get(spec)
    return await lm.forward(method, path.lstrip("/"), sent, headers)


def _api_of(path: str, headers: Mapping[str, str]) -> str:
    """Guess the API of an unknown path from the client's headers, or else from the path."""
    if "anthropic-version" in headers:
        return "messages"
    if "x-goog-api-client" in headers or _OF_GOOGLE.match(path):
        return "gemini"
    return {"responses": "responses", "messages": "messages"}.get(path.strip("/").partition("/")[0], "chat")


class Named:
    """The models that agents named: the calls and the cost of each, and the models that answered. Beyond
    `_MAX_MODELS`, the names that were not used for the longest time are counted together."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[str, Any]] = {}

    def count(self, name: str, response: Response, model: str) -> None:
        self._add(name, 1, response.usd or 0.0, model)

    def add(self, notes: Mapping[str, Any]) -> None:
        """Add the notes of a row."""
        for name, one in notes.items():
            self._add(name, one["calls"], one["usd"], one["by"])

    def _add(self, name: str, calls: int, usd: float, by: str) -> None:
        found = self.by_name.pop(name, None) or {"calls": 0, "usd": 0.0}
        self.by_name[name] = {"calls": found["calls"] + calls, "usd": found["usd"] + usd, "by": by}
        if len(self.by_name) > _MAX_MODELS:
            oldest = next(one for one in self.by_name if one != OTHERS)
            gone = self.by_name.pop(oldest)
            self._add(OTHERS, gone["calls"], gone["usd"], gone["by"])

    def describe(self) -> str:
        """Return a line for the log; empty if no model was named."""
        told = [
            f"{name}: {one['calls']} call{'s' * (one['calls'] != 1)}, ${one['usd']:.4f}, answered by {one['by']}"
            for name, one in sorted(self.by_name.items())
        ]
        return f"the agent named {len(told)} model{'s' * (len(told) != 1)}: {'; '.join(told)}" if told else ""


class Latest:
    """The most recent texts, by their digests."""

    def __init__(self, most: int):
        self._most, self._seen = most, dict[str, None]()

    def is_new(self, text: str) -> bool:
        """Return True if a text is not among the most recent ones, and add it."""
        new = (key := digest(text)) not in self._seen
        self._seen.pop(key, None)
        self._seen[key] = None
        if len(self._seen) > self._most:
            del self._seen[next(iter(self._seen))]
        return new


class Refusals:
    """Requests of an agent that the model's server or the gateway refused: their number, and the last message."""

    def __init__(self) -> None:
        self.count, self.last = 0, ""

    def note(self, error: Exception) -> None:
        """Count a refusal. error: as sent to the agent; the model's own error, if any, is its cause."""
        error = error.__cause__ if isinstance(error.__cause__, LMError) else error
        if isinstance(error, LMError) and not isinstance(error, NotCarried):
            words = str(error)
        elif isinstance(error, NotCarried | Refused):
            words = f"status {error.status}: {error}"
        else:
            return
        self.count, self.last = self.count + 1, words

    def describe(self) -> str:
        """Return part of a sentence; empty if nothing was refused."""
        return f"asked {self.count} time{'s' * (self.count != 1)} and was refused: {self.last}" if self.count else ""


#: Refusals that are about the request itself, whose message is useful in the agent's log.
_OF_REQUEST = (FailureKind.BAD_REQUEST, FailureKind.UNSUPPORTED, FailureKind.TOO_LONG, FailureKind.REFUSED)


def in_its_words(error: LMError) -> Exception:
    """Return a refusal of the request for the agent: as received, or, from another API, with the server's message,
    which contains no key."""
    if isinstance(error, NotCarried) or error.passed is not None or error.kind not in _OF_REQUEST:
        return error
    told = refusal_of(error)
    return Refused(told.status, told.kind, f"{told.message} It said: {error}", told.retry_after)
