"""The translation of each request field from one API to another. Requests to a server of the same API pass unchanged.

Carried: sent to the model's server in the form of its API. Dropped: it changes no answer, only storage, reports or
cost. Refused: it would change the answer and cannot be carried; the agent gets status 400, the name and what to send
instead. A field that is not listed is refused, too. A field that is null, false or empty counts as absent.

Places are written as in JSON: `messages[].content[]` is each part of each message. For a list of texts (`include`),
these are the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from workbench.base.type_guards import is_dict, is_list
from workbench_external.gateway import fields as f


class FieldRule(NamedTuple):
    """The fields of the objects at one place, by name. refused: with what to send instead."""

    carried: str = ""
    dropped: str = ""
    refused: Mapping[str, str] = {}


_CACHE = "cache_control prompt_cache_breakpoint"
_KEPT = (
    "metadata user safety_identifier store service_tier prompt_cache_key prompt_cache_options prompt_cache_retention"
)
#: A model's earlier thoughts go back to its own provider, from data kept here, and to no other.
_THOUGHTS = (
    "reasoning_content reasoning reasoning_details thinking thinking_blocks extra_content provider_specific_fields"
)
_NOT_HERE = "Leave it out: only a server of the same API can be told."

CHAT = {
    "": FieldRule(
        "model messages n stream temperature top_p max_tokens max_completion_tokens stop response_format logprobs "
        "tools tool_choice parallel_tool_calls seed reasoning_effort frequency_penalty presence_penalty logit_bias "
        "verbosity modalities top_k min_p repetition_penalty min_tokens ignore_eos chat_template_kwargs "
        "structured_outputs guided_json guided_regex guided_choice guided_grammar thinking",
        f"{_KEPT} stream_options usage prediction",
        {
            "functions": "Send tools instead.",
            "function_call": "Send tool_choice instead.",
            "audio": "Ask for text.",
            "web_search_options": "Send a function of your own in tools.",
            "top_logprobs": "Send logprobs: true alone; only the tokens that were drawn are known.",
        },
    ),
    "messages[]": FieldRule(
        "role content name tool_calls tool_call_id refusal",
        f"{_THOUGHTS} annotations audio id {_CACHE}",
        {"function_call": "Send tool_calls instead."},
    ),
    "messages[].content[]": FieldRule("type text image_url refusal", _CACHE),
    "messages[].content[].image_url": FieldRule("url detail"),
    "messages[].tool_calls[]": FieldRule("id type function", "index extra_content provider_specific_fields"),
    "messages[].tool_calls[].function": FieldRule("name arguments", "thought_signature"),
    "tools[]": FieldRule("type function", _CACHE),
    "tools[].function": FieldRule("name description parameters strict"),
}
RESPONSES = {
    "": FieldRule(
        "model input instructions previous_response_id stream temperature top_p max_output_tokens text tools "
        "tool_choice parallel_tool_calls include reasoning",
        f"{_KEPT} stream_options max_tool_calls client_metadata",
        {
            "background": "Leave it out, and wait for the answer.",
            "conversation": "Send previous_response_id, or all items in input.",
            "prompt": "Send its text in instructions and input.",
            "top_logprobs": 'Send include: ["message.output_text.logprobs"]; only tokens that were drawn are known.',
            "truncation": "Leave it out, and shorten the input in the agent.",
        },
    ),
    "input[]": FieldRule(
        "type role content id name arguments call_id output",
        f"status phase summary encrypted_content {_CACHE}",
    ),
    "input[].content[]": FieldRule("type text refusal image_url detail", f"annotations logprobs {_CACHE}"),
    "input[].output[]": FieldRule("type text image_url detail", _CACHE),
    "include[]": FieldRule(
        "message.output_text.logprobs",
        "reasoning.encrypted_content",  # Codex always requests it; other APIs have none
        {"message.input_image.image_url": "Leave it out: the agent has sent the image."},
    ),
    "tools[]": FieldRule("type name description parameters strict"),
    "text": FieldRule("format verbosity"),
    "text.format": FieldRule("type name description schema strict"),
    "reasoning": FieldRule("effort summary generate_summary"),
}
MESSAGES = {
    "": FieldRule(
        "model messages system max_tokens stop_sequences stream temperature top_p top_k tools tool_choice "
        "output_config output_format",
        f"{_KEPT} {_CACHE} inference_geo speed user_profile_id workspace_id diagnostics billing_policy betas",
        {
            "mcp_servers": "Connect to them in the agent, and send their tools as functions.",
            "container": "Run code in the agent.",
            "thinking": "Leave it out, and set how the model reasons where it is set (reasoning_effort).",
        },
    ),
    "system[]": FieldRule("type text", f"citations {_CACHE}"),
    "messages[]": FieldRule("role content"),
    "messages[].content[]": FieldRule(
        "type text source id name input tool_use_id content is_error",
        f"citations caller toolset_name thinking signature data {_CACHE}",
    ),
    "messages[].content[].content[]": FieldRule("type text source", f"citations {_CACHE}"),
    "tools[]": FieldRule("type name description input_schema strict", f"eager_input_streaming {_CACHE}"),
    "output_config": FieldRule("format effort"),
}
TABLE: Mapping[str, Mapping[str, FieldRule]] = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}

#: When passed, reports on tokens and cache are part of the answer, and a server calls its own tools.
_OF_ANSWER = {"stream_options", "usage", "diagnostics", "max_tool_calls"}
#: By API, fields that change no answer, even when passed. Requests that differ only in them are equal.
INERT: Mapping[str, frozenset[str]] = {
    **{api: frozenset(rules[""].dropped.split()) - _OF_ANSWER for api, rules in TABLE.items()},
    "completions": frozenset(("user",)),
    "gemini": frozenset(),
}
_NOTHING = (None, False, [], {}, "")
#: Values of a field that count as absent.
_USUAL: Mapping[str, Any] = {"truncation": "disabled", "thinking": {"type": "disabled"}, "top_logprobs": 0}


def check_for_messages(settings: Mapping[str, Any]) -> None:
    """Raise Refused (400) for a setting of an Ask that changes an answer and has no field in Anthropic's Messages:
    clients drop or clamp it silently."""
    given = {**settings, **(settings.get("extra") or {})}
    for name in ("frequency_penalty", "presence_penalty", "logprobs"):
        if given.get(name) not in _NOTHING:
            raise f.bad(name, "cannot be carried to Anthropic's API", "Leave it out.")
    if (given.get("response_format") or {}).get("type") == "json_object":
        instead = "Send a json_schema, or leave it out and ask for JSON in words."
        raise f.bad("response_format.type", "cannot be carried to Anthropic's API", instead)
    if (given.get("temperature") or 0) > 1:
        raise f.bad("temperature", "is at most 1 in Anthropic's API", "Send a lower one.")


def check_fields(api: str, body: Mapping[str, Any]) -> None:
    """Raise Refused (400) for a field that matters and would be lost in another API. More specific errors are raised
    before."""
    for place, rule in TABLE[api].items():
        known = {*rule.carried.split(), *rule.dropped.split()}
        for where, found in _objects(body, place.split(".") if place else []):
            for name, value in found.items():
                if name in known or value in _NOTHING or (name in _USUAL and value == _USUAL[name]):
                    continue
                shown = name if name.replace(".", "").isidentifier() and len(name) < 60 else f.shown(name)
                at = f"{where}.{shown}" if where else shown
                raise f.bad(at, "cannot be carried to the model's API", rule.refused.get(name, _NOT_HERE))


def _objects(value: Any, steps: list[str], where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, object) for the objects at a place. A text in a list counts as an object with that name."""
    if not steps:
        if is_dict(value):
            yield where, value
        return
    name = steps[0].removesuffix("[]")
    inside = value.get(name) if is_dict(value) else None
    at = f"{where}.{name}" if where else name
    if steps[0] == name:
        yield from _objects(inside, steps[1:], at)
    elif is_list(inside):
        for n, one in enumerate(inside):
            yield from _objects({one: True} if isinstance(one, str) else one, steps[1:], f"{at}[{n}]")
