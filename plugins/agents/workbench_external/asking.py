"""Sending of an agent's request: the model, its settings and ours, and its API."""

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

#: What the APIs take where a request names no temperature.
_USUAL_TEMPERATURE = 1.0
#: Seconds for a call at least, unless the model's settings name others: an agent has a deadline of its own.
LEAST_SECONDS = 600.0
#: A path with a method behind the name of a model (ai.google.dev/api/all-methods).
_OF_GOOGLE = re.compile(r"/?models/[^/:]+:[a-z][A-Za-z]+(?:\?|\Z)")
#: Names of models whose settings and calls are kept.
_MOST_MODELS = 256
#: In place of names that are not kept.
OTHERS = "(others)"
#: In `models`: the model that the agent names, with its provider before it where it names none.
AS_NAMED = "as-named"
#: Settings that hold for one model, and for one provider.
_OF_MODEL = ("price",)
_OF_PROVIDER = (*_OF_MODEL, "api_key_env", "extra", "omit", "rename")


@dataclass(frozen=True)
class Asking:
    """A request with its texts replaced.

    settings: those of `workbench.lm.Request`, ours and the agent's. changed: of these, what takes the place of the
    agent's own. offered: functions of ours among the tools. answers: how many calls it takes.
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
        """(messages, settings) of a call. messages: those of the request, perhaps with what was said behind them."""
        settings = dict(self.settings)
        if self.ask.native is None:
            return messages, settings
        tools, form = settings.get("tools", ()), settings.get("response_format")
        settings["native"] = as_it_is_sent(self.ask, messages, tools, form, self.changed, self._converted)
        # An answer that may call a function of ours is for us first, and several are no one stream.
        settings["pieces"] = Pieces() if self.offered or self.answers > 1 else self.ask.pieces
        settings.pop("extra", None)
        return without_places(messages), settings

    async def draw(self, answer: Callable[[int], Awaitable[Response]], first: int = 0) -> Sequence[Response]:
        """All answers, each by a call with its replica. first: the replica of the first one."""
        if self.answers == 1:  # which needs no task of its own
            return [await answer(first)]
        return await asyncio.gather(*(answer(first + n) for n in range(self.answers)))

    def _converted(self, ask: Ask) -> Request:
        """The request for a server of another API. ask: what can be carried there."""
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
    """The models of a node's requests, made once for each name: the pool finds an object faster than its settings.

    usual: the model where the node names none. change: makes of settings those that are used.
    """

    def __init__(self, config: ExternalConfig, usual: LMSpec, change: Callable[[LMSpec], LMSpec] = lambda spec: spec):
        self.config, self.usual, self._change = config, usual, change
        self._made: dict[tuple[str, str], LMSpec] = {}

    def get(self, named: str, patched: Any = None) -> LMSpec:
        """named: by the agent. patched: by a slot. Raises SpecError for a model that nobody serves."""
        key = named, repr(patched)
        if (found := self._made.get(key)) is None:
            if len(self._made) >= _MOST_MODELS:
                self._made.clear()
            found = self._made[key] = self._change(choose_model(self.config, named, patched, self.usual))
        return found


def choose(
    models: Models, ask: Ask, patched: Patched, runtime: Runtime, offered: Sequence[Mapping[str, Any]] = ()
) -> Asking:
    """The model of a request, and how it is asked. What our settings name wins over what the agent named.

    offered: functions of ours.
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
    """The model that answers. named: by the agent. patched: by a slot. Raises SpecError for one that nobody serves."""
    chosen = patched or config.models.get(named) or config.models.get("*") or config.lm
    if chosen == AS_NAMED:
        chosen = _as_named(config, named, usual) if named else None
    spec = lm_spec(chosen) if chosen else usual
    if "timeout" in spec.model_fields_set:
        return spec
    return spec.model_copy(update={"timeout": max(LEAST_SECONDS, spec.timeout)})


def _as_named(config: ExternalConfig, named: str, usual: LMSpec) -> dict[str, Any]:
    """The settings of the model that an agent names, behind the provider of the usual one unless it names another of
    the file's: which others are paid and told what the rows hold is for the file to say. Raises Refused.

    What is set for the server at an `api_base` holds for all of its models, whose names may begin like a provider's.
    Elsewhere a price is that of one model, and a key is that of one provider, which no other is sent.
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
    """The providers of the models that the file names for a node."""
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
    """The answer of the model's server on a path that asks no model; None where it speaks another API than the client.

    asking: the same request with its texts replaced, if they may be. Nothing is recorded. Raises LMError.
    """
    spec = asking.spec if asking else models.get("")
    if not runtime.speaks(spec, asking.ask.native.api if asking and asking.ask.native else _api_of(path, headers)):
        return None
    # Settings of ours hold for answers: a server that counts tokens has no fields for them.
    sent = body if asking is None else replace(asking, changed={}).request(asking.messages)[1]["native"].body
    lm: Any = runtime.pool.get(spec)
    return await lm.forward(method, path.lstrip("/"), sent, headers)


def _api_of(path: str, headers: Mapping[str, str]) -> str:
    """The API of a path that is read nowhere here: by what its vendor's client names, or else by the path."""
    if "anthropic-version" in headers:
        return "messages"
    if "x-goog-api-client" in headers or _OF_GOOGLE.match(path):
        return "gemini"
    return {"responses": "responses", "messages": "messages"}.get(path.strip("/").partition("/")[0], "chat")


class Named:
    """The models that agents named: how often each was asked, what that cost, and which models answered. Of more than
    `_MOST_MODELS`, those that were not asked for the longest time are counted together."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[str, Any]] = {}

    def count(self, name: str, response: Response, model: str) -> None:
        self._add(name, 1, response.usd or 0.0, model)

    def add(self, notes: Mapping[str, Any]) -> None:
        """Add what was noted of a row."""
        for name, one in notes.items():
            self._add(name, one["calls"], one["usd"], one["by"])

    def _add(self, name: str, calls: int, usd: float, by: str) -> None:
        found = self.by_name.pop(name, None) or {"calls": 0, "usd": 0.0}
        self.by_name[name] = {"calls": found["calls"] + calls, "usd": found["usd"] + usd, "by": by}
        if len(self.by_name) > _MOST_MODELS:
            oldest = next(one for one in self.by_name if one != OTHERS)
            gone = self.by_name.pop(oldest)
            self._add(OTHERS, gone["calls"], gone["usd"], gone["by"])

    def describe(self) -> str:
        """A line; empty where no model was named."""
        told = [
            f"{name}: {one['calls']} call{'s' * (one['calls'] != 1)}, ${one['usd']:.4f}, answered by {one['by']}"
            for name, one in sorted(self.by_name.items())
        ]
        return f"the agent named {len(told)} model{'s' * (len(told) != 1)}: {'; '.join(told)}" if told else ""


class Latest:
    """The texts that came last, by their digests."""

    def __init__(self, most: int):
        self._most, self._seen = most, dict[str, None]()

    def is_new(self, text: str) -> bool:
        """Return True for a text that is not among the last ones, and add it to them."""
        new = (key := digest(text)) not in self._seen
        self._seen.pop(key, None)
        self._seen[key] = None
        if len(self._seen) > self._most:
            del self._seen[next(iter(self._seen))]
        return new


class Refusals:
    """Requests of an agent that were refused, by the model's server or here: how many, and the last one's words."""

    def __init__(self) -> None:
        self.count, self.last = 0, ""

    def note(self, error: Exception) -> None:
        """error: as the agent is told of it; the model's own, if it was one, stands behind it."""
        error = error.__cause__ if isinstance(error.__cause__, LMError) else error
        if isinstance(error, LMError) and not isinstance(error, NotCarried):
            words = str(error)
        elif isinstance(error, NotCarried | Refused):
            words = f"status {error.status}: {error}"
        else:
            return
        self.count, self.last = self.count + 1, words

    def describe(self) -> str:
        """Part of a sentence; empty if nothing was refused."""
        return f"asked {self.count} time{'s' * (self.count != 1)} and was refused: {self.last}" if self.count else ""


#: Of the server's refusals, those of the request itself, whose words help the agent's log.
_OF_REQUEST = (FailureKind.BAD_REQUEST, FailureKind.UNSUPPORTED, FailureKind.TOO_LONG, FailureKind.REFUSED)


def in_its_words(error: LMError) -> Exception:
    """A refusal of the request for the agent: as it came, or from another API with the server's message, which has no
    key."""
    if isinstance(error, NotCarried) or error.passed is not None or error.kind not in _OF_REQUEST:
        return error
    told = refusal_of(error)
    return Refused(told.status, told.kind, f"{told.message} It said: {error}", told.retry_after)
