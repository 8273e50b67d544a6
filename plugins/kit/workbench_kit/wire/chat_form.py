"""The body of a chat completion, in the form that an endpoint accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.lm import Message, Request, content_text
from workbench_kit.wire.clients import is_reasoning
from workbench_kit.wire.dialects import allowed_tokens, refused_setting
from workbench_kit.wire.turns import plain_message

#: Maximum number of forms tried for one request, in case a server refuses each of them.
MAX_FORMS = 8
#: Items that may be omitted within messages.
_OF_MESSAGES = ("additions", "developer", "system")
MAX_STOPS = 4  # the API's maximum; further stops are applied to the text of an answer
_MIN_TEMPERATURE = 0.01  # if 0 is refused: practically no sampling


@dataclass(frozen=True)
class Form:
    """Differences of an endpoint from the API.

    omit: settings that are not sent; `system` for the role of that name, which then stands in the user's message,
    `developer` for that role, which is then `system`, and `additions` for what another provider added to messages.
    rename: other names of settings. min_temperature: in place of 0. max_tokens: of an answer. counts_logprobs:
    whether log-probabilities are asked for by their number.
    """

    omit: frozenset[str] = frozenset()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    min_temperature: float = 0.0
    max_tokens: int | None = None
    counts_logprobs: bool = False

    @staticmethod
    def of(model: str, settings: Any) -> Form:
        """Return the form of an endpoint by its model's name and the settings of an LM."""
        if not is_reasoning(model):
            return Form(frozenset(settings.omit), dict(settings.rename))
        omit = {"temperature", "top_p", "stop", "logprobs", *settings.omit}
        return Form(frozenset(omit), {"max_tokens": "max_completion_tokens", **settings.rename})

    def heed(self, status: int, body: Any, request: Request) -> tuple[Form, bool]:
        """Return (the form that avoids a refusal, whether it is for this request only); itself if nothing can be
        changed."""
        limit = allowed_tokens(status, body)
        if limit is not None and 0 < limit[0] < self.tokens(request):
            return replace(self, max_tokens=limit[0]), limit[1]
        refused = refused_setting(status, body)
        return (self if refused is None else self.without(refused)), False

    def tokens(self, request: Request) -> int:
        """Return the maximum number of tokens to request for an answer."""
        return request.max_tokens if self.max_tokens is None else min(request.max_tokens, self.max_tokens)

    def without(self, setting: str) -> Form:
        """Return the form for an endpoint that refused a setting (see `refused_setting`); itself if there is none."""
        if setting == "temperature 0":
            return replace(self, min_temperature=_MIN_TEMPERATURE)
        if setting == "logprobs true" and not self.counts_logprobs:
            return replace(self, counts_logprobs=True)
        setting = setting.removesuffix(" true")
        other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}.get(setting)
        if other is not None and other not in self.rename.values() and setting not in self.rename:
            return replace(self, rename={**self.rename, "max_tokens": other})
        return replace(self, omit=self.omit | {"max_tokens" if other else setting})

    def shape(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a client's body in the form that the endpoint accepts: unchanged, but for refused settings."""
        names, omit = self.rename, self.omit
        if "max_tokens" in names:  # under either of its names
            names = {**names, "max_completion_tokens": names["max_tokens"]}
        if "max_tokens" in omit:
            omit |= {"max_completion_tokens"}
        found = {names.get(name, name): value for name, value in body.items() if name not in omit}
        if self.min_temperature and body.get("temperature") == 0:
            found["temperature"] = self.min_temperature
        if found.get("logprobs") is True and self.counts_logprobs:
            found["logprobs"] = 1
        for name in ("max_tokens", "max_completion_tokens"):
            if self.max_tokens is not None and isinstance(found.get(name), int):
                found[name] = min(found[name], self.max_tokens)
        messages = found.get("messages")
        if self.omit.isdisjoint(_OF_MESSAGES) or not is_list(messages) or not all(map(is_dict, messages)):
            return found  # of another API, or of an unknown form
        if "additions" in self.omit:
            messages = [*map(plain_message, messages)]
        if "developer" in self.omit:
            messages = [*map(_with_common_role, messages)]
        if "system" in self.omit:
            messages = _without_system(messages)
        return {**found, "messages": messages}


def make_body(model: str, request: Request, extra: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """Return a chat completion's request. extra: the provider's settings, overridden by the request's own extra."""
    messages = map(plain_message, request.messages) if "additions" in form.omit else request.messages
    body: dict[str, Any] = {"model": model, "messages": [*map(_in_common_form, messages)], **extra, **request.extra}
    if "system" in form.omit:
        body["messages"] = _without_system(body["messages"])
    temperature = max(request.temperature, form.min_temperature)
    settings: dict[str, Any] = {"max_tokens": form.tokens(request), "temperature": temperature}
    if request.top_p != 1.0:
        settings["top_p"] = request.top_p
    # A right answer may begin with a line break: such a stop is only for engines that see the first word.
    if stops := [stop for stop in request.stop if stop.strip()]:
        settings["stop"] = stops[:MAX_STOPS]
    if request.logprobs:
        settings["logprobs"] = 1 if form.counts_logprobs else True
    body |= {form.rename.get(name, name): value for name, value in settings.items() if name not in form.omit}
    if request.tools:
        body["tools"] = [dict(tool) for tool in request.tools]
    if request.response_format is not None:
        body["response_format"] = dict(request.response_format)
    if request.replica and isinstance(body.get("seed"), int):
        body["seed"] += request.replica  # so that replicas differ
    return {name: value for name, value in body.items() if name not in form.omit}


def _in_common_form(message: Message) -> Message:
    """Replace an empty text next to calls by null: TGI ignores calls next to an empty one."""
    if message.get("content") == "" and message.get("tool_calls"):
        return {**message, "content": None}
    return _with_common_role(message)


def _with_common_role(message: Message) -> Message:
    """Replace the role `developer` by `system`: OpenAI accepts both with all its models, other servers only
    `system`."""
    return {**message, "role": "system"} if message.get("role") == "developer" else message


def _without_system(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages with the system text at the beginning of the first user message."""
    said = "\n\n".join(content_text(m.get("content")) for m in messages if m.get("role") in ("system", "developer"))
    rest = [dict(m) for m in messages if m.get("role") not in ("system", "developer")]
    first = next((m for m in rest if m.get("role") == "user"), None)
    if not said:
        return rest
    if first is None:
        return [{"role": "user", "content": said}, *rest]
    content = first.get("content")
    first["content"] = (
        [{"type": "text", "text": said}, *content] if isinstance(content, list) else f"{said}\n\n{content}"
    )
    return rest
