"""What servers refuse: each rule is a small predicate that raises Refused in the words of its server."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any

from tests.dialects.dialect import KEY, Asked, Json, Refused, Rule

#: What every server of this form knows in a request.
COMMON = frozenset(
    "model messages max_tokens max_completion_tokens temperature top_p n stream stop tools tool_choice response_format "
    "seed user logprobs top_logprobs parallel_tool_calls presence_penalty frequency_penalty logit_bias "
    "reasoning_effort metadata stream_options".split()
)
#: What a message may hold, and what a call.
MESSAGE = frozenset("role content name tool_calls tool_call_id refusal".split())
CALL = frozenset("id type function index".split())


# The request as a whole


def key_in(header: str, prefix: str = "", status: int = 401, message: str = "Incorrect API key provided") -> Rule:
    def rule(asked: Asked) -> None:
        if asked.headers.get(header.lower()) != prefix + KEY:
            raise Refused(message, status, code="invalid_api_key")

    return rule


def wants_query(name: str) -> Rule:
    def rule(asked: Asked) -> None:
        if not asked.query.get(name):
            raise Refused("Resource not found", 404, code="404")

    return rule


def wants_header(name: str) -> Rule:
    def rule(asked: Asked) -> None:
        if not asked.headers.get(name):
            raise Refused(f"{name}: header is required")

    return rule


def only_fields(
    message: str, *more: str, without: Collection[str] = (), status: int = 400, code: str | None = None
) -> Rule:
    """Refuses fields that the server does not know. message: with {field}. more, without: beside and of COMMON."""
    known = (COMMON | {*more}) - {*without}

    def rule(asked: Asked) -> None:
        for name in asked.body:
            if name not in known:
                raise Refused(message.format(field=name), status, name, code)

    return rule


def no_field(*names: str, message: str, status: int = 400, code: str | None = None) -> Rule:
    """Refuses fields by name. message: with {field}."""

    def rule(asked: Asked) -> None:
        for name in names:
            if asked.body.get(name) is not None:
                raise Refused(message.format(field=name), status, name, code)

    return rule


def renamed(old: str, new: str) -> Rule:
    message = f"Unsupported parameter: '{old}' is not supported with this model. Use '{new}' instead."
    return no_field(old, message=message, code="unsupported_parameter")


def only_default(name: str, value: Any, message: str, status: int = 400, code: str | None = None) -> Rule:
    """Refuses any other value of a setting. message: with {value}."""

    def rule(asked: Asked) -> None:
        if asked.body.get(name, value) != value:
            raise Refused(message.format(value=asked.body[name]), status, name, code)

    return rule


def within(name: str, fits: Callable[[float], bool], message: str, status: int = 400, code: str | None = None) -> Rule:
    """Refuses a number outside a range. message: with {value}."""

    def rule(asked: Asked) -> None:
        value = asked.body.get(name)
        if value is not None and not fits(value):
            raise Refused(message.format(value=value), status, name, code)

    return rule


def up_to(
    name: str, most: float, message: str = "{value} is greater than the maximum of {most} - '{name}'", status: int = 400
) -> Rule:
    said = message.replace("{most}", f"{most:g}").replace("{name}", name)
    return within(name, lambda value: 0 <= value <= most, said, status)


def room(context: int, message: str, status: int = 400) -> Rule:
    """Refuses more tokens than a prompt of 46 leaves. message: with {context} and {value}."""

    def rule(asked: Asked) -> None:
        if (value := asked.body.get("max_tokens") or 0) > context - 46:
            raise Refused(message.format(context=context, value=value), status, "max_tokens")

    return rule


def max_stops(
    most: int, message: str = "Invalid 'stop': array too long. Expected at most {most}.", status: int = 400
) -> Rule:
    """message: with {most} and {given}."""

    def rule(asked: Asked) -> None:
        if (given := len(asked.body.get("stop") or ())) > most:
            raise Refused(message.format(most=most, given=given), status, "stop")

    return rule


def not_both(name: str, other: str, message: str, status: int = 400) -> Rule:
    def rule(asked: Asked) -> None:
        if asked.body.get(name) and asked.body.get(other):
            raise Refused(message, status, name)

    return rule


def whole(name: str, message: str) -> Rule:
    """Refuses what is no whole number; true and false are none."""

    def rule(asked: Asked) -> None:
        if (value := asked.body.get(name)) is not None and type(value) is not int:
            raise Refused(message, param=name)

    return rule


def one_of(name: str, *values: str, message: str, status: int = 400) -> Rule:
    """Refuses other words. message: with {value}."""

    def rule(asked: Asked) -> None:
        if (value := asked.body.get(name)) is not None and value not in values:
            raise Refused(message.format(value=value), status, name)

    return rule


def wants_true(name: str, value: Any, message: str) -> Rule:
    """Refuses a request that lacks a setting."""

    def rule(asked: Asked) -> None:
        if asked.body.get(name) != value:
            raise Refused(message, param=name)

    return rule


# Messages


def no_system(message: str) -> Rule:
    def rule(asked: Asked) -> None:
        if any(m["role"] in ("system", "developer") for m in asked.messages):
            raise Refused(message)

    return rule


def only_roles(*roles: str, message: str) -> Rule:
    """message: with {role}."""

    def rule(asked: Asked) -> None:
        for one in asked.messages:
            if one["role"] not in roles:
                raise Refused(message.format(role=one["role"]))

    return rule


def alternating(message: str) -> Rule:
    """Refuses two messages of one role in a row, behind those of the system."""

    def rule(asked: Asked) -> None:
        roles = [m["role"] for m in asked.messages if m["role"] != "system"]
        if roles[:1] != ["user"] or any(a == b for a, b in pairwise(roles)):
            raise Refused(message)

    return rule


def system_first(message: str) -> Rule:
    def rule(asked: Asked) -> None:
        if any(m["role"] == "system" for m in asked.messages[1:]):
            raise Refused(message)

    return rule


def has_user(message: str) -> Rule:
    def rule(asked: Asked) -> None:
        if not any(m["role"] == "user" for m in asked.messages):
            raise Refused(message)

    return rule


def last_is(*roles: str, message: str) -> Rule:
    """message: with {role}."""

    def rule(asked: Asked) -> None:
        if (role := asked.messages[-1]["role"]) not in roles:
            raise Refused(message.format(role=role))

    return rule


def no_empty_content(message: str) -> Rule:
    def rule(asked: Asked) -> None:
        if any(not m.get("content") and not m.get("tool_calls") for m in asked.messages):
            raise Refused(message)

    return rule


def calls_without_content(asked: Asked) -> None:
    """TGI does not refuse a text beside calls, but loses the calls: refused here, lest that passes in silence."""
    for index, one in enumerate(asked.messages):
        if one.get("tool_calls") and one.get("content") is not None:
            raise Refused(f"messages[{index}] is read without its calls", 422)


def only_in_messages(
    message: str, *more: str, without: Collection[str] = (), calls: Collection[str] = (), status: int = 400
) -> Rule:
    """Refuses fields of messages and calls that the server does not know. message: with {place} and {field}. more,
    without: beside and of MESSAGE."""

    def rule(asked: Asked) -> None:
        for number, one in enumerate(asked.messages):
            _check_known(message, f"messages.{number}", one, (MESSAGE | {*more}) - {*without}, status)
            for place, call in enumerate(one.get("tool_calls") or ()):
                _check_known(message, f"messages.{number}.tool_calls.{place}", call, CALL | {*calls}, status)

    return rule


def _check_known(message: str, place: str, value: Json, known: Collection[str], status: int) -> None:
    if unknown := sorted(value.keys() - known):
        raise Refused(message.format(place=place, field=unknown[0]), status, f"{place}.{unknown[0]}")


def no_typed_content(message: str) -> Rule:
    """Refuses content in parts."""

    def rule(asked: Asked) -> None:
        if any(isinstance(m.get("content"), list) for m in asked.messages):
            raise Refused(message)

    return rule


# Thoughts that have to come back, or must not


def thoughts_with_calls(name: str, message: str) -> Rule:
    """Refuses a turn with calls that lacks its thoughts. message: with {index}."""

    def rule(asked: Asked) -> None:
        for index, one in enumerate(asked.messages):
            if one["role"] == "assistant" and one.get("tool_calls") and one.get(name) is None:
                raise Refused(message.format(index=index))

    return rule


def thoughts_come_back(mark: str, message: str) -> Rule:
    """Refuses a turn with calls whose text lacks the thoughts that it began with."""

    def rule(asked: Asked) -> None:
        for one in asked.messages:
            if one.get("tool_calls") and mark not in str(one.get("content")):
                raise Refused(message)

    return rule


def typed_thoughts_with_calls(kind: str, message: str) -> Rule:
    """Refuses a turn with calls whose content lacks a part of thoughts."""

    def rule(asked: Asked) -> None:
        for one in asked.messages:
            parts = one.get("content") if isinstance(one.get("content"), list) else []
            if one.get("tool_calls") and not any(part.get("type") == kind for part in parts or ()):
                raise Refused(message)

    return rule


def signed_calls(read: Callable[[Json, Json], Any], message: str) -> Rule:
    """Refuses a call without the signature that was sent with it. read: finds it in (message, call). message: with
    {name}."""

    def rule(asked: Asked) -> None:
        for one in asked.messages:
            for call in one.get("tool_calls") or ():
                if read(one, call) != asked.signed.get(call["id"]):
                    raise Refused(message.format(name=call["function"]["name"]))

    return rule


# Tools


def ids_like(pattern: str, message: str) -> Rule:
    """Refuses ids of calls in another form. message: with {id}."""

    def rule(asked: Asked) -> None:
        for one in asked.messages:
            for number in [*(call["id"] for call in one.get("tool_calls") or ()), one.get("tool_call_id")]:
                if number is not None and not re.fullmatch(pattern, number):
                    raise Refused(message.format(id=number))

    return rule


def no_tools(message: str, status: int = 400) -> Rule:
    def rule(asked: Asked) -> None:
        if asked.body.get("tools"):
            raise Refused(message, status)

    return rule


def check_form(asked: Asked) -> None:
    """What no server takes that speaks chat completions: messages and tools out of form, results of no call."""
    if not asked.messages:
        raise Refused("Invalid 'messages': empty array. Expected an array with minimum length 1.", param="messages")
    open_calls = list[str]()
    for number, one in enumerate(asked.messages):
        place, role = f"messages[{number}]", one.get("role")
        if role not in ("system", "developer", "user", "assistant", "tool"):
            raise Refused(f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', ...", param=place)
        if open_calls and role != "tool":
            raise Refused("An assistant message with 'tool_calls' must be followed by tool messages.", param=place)
        if role == "tool":
            if one.get("tool_call_id") not in open_calls:
                raise Refused("messages with role 'tool' must be a response to a preceding 'tool_calls'.", param=place)
            open_calls.remove(one["tool_call_id"])
        if role != "assistant" and not isinstance(one.get("content"), str | list):
            raise Refused(f"Invalid value for 'content': expected a string, got {one.get('content')}.", param=place)
        for call in one.get("tool_calls") or ():
            if not isinstance(call.get("function", {}).get("arguments"), str) or not call.get("id"):
                raise Refused(f"Invalid type for '{place}.tool_calls': id and arguments are strings.", param=place)
            open_calls.append(call["id"])
    if open_calls:
        raise Refused("An assistant message with 'tool_calls' must be followed by tool messages.", param="messages")
    _check_tools(asked.body)


def _check_tools(body: Json) -> None:
    if body.get("tools") == []:
        raise Refused("Invalid 'tools': empty array.", param="tools")
    for tool in body.get("tools") or ():
        function = tool.get("function") or {}
        if tool.get("type") != "function" or not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", str(function.get("name"))):
            raise Refused("Invalid 'tools[0].function.name': string does not match pattern.", param="tools")
        parameters = function.get("parameters")
        if parameters is not None and (parameters.get("type") != "object" or "properties" not in parameters):
            raise Refused("Invalid schema for function: object schema missing properties.", param="tools")
    if "tool_choice" in body and not body.get("tools"):
        raise Refused("Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.")
    if body.get("stream"):
        raise Refused("this lab does not stream", param="stream")
