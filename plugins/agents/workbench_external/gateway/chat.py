"""OpenAI's Chat Completions, Embeddings and Models: body -> Ask, Refused -> error; no I/O. `chat_events` writes
answers.

For models whose server does not speak this API. Source: OpenAI's API reference. `table` has the translation of each
field; further departures:

- Refused: audio, files, custom tools, allowed_tools.
- Text parts of one message are joined to one text, with a line each.
- Thoughts are given as `reasoning_content`, as in DeepSeek and vLLM. Data that a provider added to a turn with calls
  goes back to it with the agent's next request, whether the agent sends it or not.
- logprobs name tokens by their number, `token_id:N`, as vLLM does, because their texts are unknown. Without the numbers
  there are no logprobs.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from workbench.lm import Message
from workbench_external.gateway import fields as f
from workbench_external.gateway.asks import Ask, Refused
from workbench_external.gateway.table import check_fields

#: Fields that are sent to the model's server unchanged; those after the first line are from vLLM and similar servers.
PASSED = (
    *("parallel_tool_calls", "seed", "reasoning_effort", "frequency_penalty", "presence_penalty", "logit_bias"),
    *("verbosity", "top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "chat_template_kwargs"),
    *("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "thinking"),
)
_ROLES = ("system", "developer", "user", "assistant", "tool")


def read_chat(body: Mapping[str, Any]) -> Ask:
    """Read a request. Raises Refused (400)."""
    model = f.as_name(body.get("model"), "model", "Send the name of a model.")
    modalities = body.get("modalities")
    if isinstance(modalities, list) and "audio" in modalities:
        raise f.bad("modalities", "cannot hold audio", 'Send ["text"].')
    listed = f.as_list(body.get("messages"), "messages", 'Send [{"role": "user", "content": "..."}].')
    if not listed:
        raise f.bad("messages", "must not be empty", 'Send [{"role": "user", "content": "..."}].')
    ask = Ask(
        model,
        tuple(_message(message, f"messages[{n}]") for n, message in enumerate(listed)),
        _tools(body.get("tools")),
        _settings(body),
        1 if body.get("n") is None else f.as_whole(body["n"], "n", 1, f.MAX_SAMPLES),
        body.get("stream") is not None and f.as_flag(body["stream"], "stream"),
    )
    check_fields("chat", body)
    return ask


def _message(value: Any, place: str) -> Message:
    message = f.as_dict(value, place, 'Send {"role": "user", "content": "..."}.')
    role = f.as_one_of(message.get("role"), f"{place}.role", _ROLES)
    found: dict[str, Any] = {"role": role, "content": _content(message, role, f"{place}.content")}
    if message.get("name") is not None and role != "tool":
        found["name"] = f.as_text(message["name"], f"{place}.name", "Send the name of who speaks.")
    if role == "tool":
        found["tool_call_id"] = f.as_text(
            message.get("tool_call_id"), f"{place}.tool_call_id", "Send the id of the call that this is the result of."
        )
    if role == "assistant":
        calls = f.as_list(message.get("tool_calls") or [], f"{place}.tool_calls", "Send a list of calls, or nothing.")
        if calls:
            found["tool_calls"] = [_call(call, f"{place}.tool_calls[{n}]") for n, call in enumerate(calls)]
    return found


def _content(message: Mapping[str, Any], role: str, place: str) -> str | list[dict[str, Any]] | None:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None and role == "assistant":
        refusal = message.get("refusal")
        return refusal if isinstance(refusal, str) else None  # null is not an empty text, which some servers refuse
    parts = f.as_list(content, place, "Send a text, or a list of parts.")
    return f.as_content([_part(part, f"{place}[{n}]") for n, part in enumerate(parts)])


def _part(value: Any, place: str) -> dict[str, Any]:
    part = f.as_dict(value, place, 'Send {"type": "text", "text": "..."}.')
    kind = f.as_one_of(part.get("type"), f"{place}.type", ("text", "image_url", "refusal"))
    if kind == "image_url":
        image = part.get("image_url")
        image = {"url": image} if isinstance(image, str) else f.as_dict(image, f"{place}.image_url", "Send url in it.")
        return f.image_part(image.get("url"), f"{place}.image_url.url", image.get("detail"))
    return f.text_part(f.as_text(part.get(kind), f"{place}.{kind}", "Send the text of this part."))


def _call(value: Any, place: str) -> dict[str, Any]:
    call = f.as_dict(value, place, "Send the call as the model's answer had it.")
    if call.get("type") is not None:
        f.as_one_of(call["type"], f"{place}.type", ("function",))
    function = f.as_dict(call.get("function"), f"{place}.function", "Send its name and arguments.")
    name = f.as_name(function.get("name"), f"{place}.function.name", "Send the name of the function.")
    written = f.as_text(function.get("arguments", ""), f"{place}.function.arguments", "Send JSON in a text.")
    number = f.as_text(call.get("id"), f"{place}.id", "Send the id of the call.")
    return {"id": number, "type": "function", "function": {"name": name, "arguments": written}}


def _tools(value: Any) -> tuple[Mapping[str, Any], ...]:
    found: list[Mapping[str, Any]] = []
    for n, one in enumerate(f.as_list(value or [], "tools", "Send a list of functions.")):
        tool = f.as_dict(one, f"tools[{n}]", 'Send {"type": "function", "function": {...}}.')
        f.as_one_of(tool.get("type"), f"tools[{n}].type", ("function",))
        found.append(f.read_function(tool.get("function"), f"tools[{n}].function"))
    return tuple(found)


def _settings(body: Mapping[str, Any]) -> dict[str, Any]:
    found = f.read_sampling(body)
    for name in ("max_tokens", "max_completion_tokens"):  # the latter is the newer name
        if body.get(name) is not None:
            found["max_tokens"] = f.as_whole(body[name], name, 1)
    if body.get("stop"):
        found["stop"] = f.read_stops(body["stop"], "stop")
    if (form := _format(body.get("response_format"))) is not None:
        found["response_format"] = form
    if body.get("logprobs") is not None and f.as_flag(body["logprobs"], "logprobs"):
        found["logprobs"] = True
    extra = {name: body[name] for name in PASSED if body.get(name) is not None}
    if body.get("tool_choice") is not None:
        extra["tool_choice"] = _choice(body["tool_choice"])
    if "seed" in extra:
        f.as_whole(extra["seed"], "seed", -(2**63), 2**63 - 1)
    return {**found, "extra": extra} if extra else found


def _format(value: Any) -> Mapping[str, Any] | None:
    if value is None:
        return None
    form = f.as_dict(value, "response_format", 'Send {"type": "json_object"}.')
    kind = f.as_one_of(form.get("type"), "response_format.type", ("text", "json_object", "json_schema"))
    if kind == "text":
        return None
    if kind == "json_schema":
        schema = f.as_dict(form.get("json_schema"), "response_format.json_schema", "Send its name and schema.")
        f.as_name(schema.get("name"), "response_format.json_schema.name", "Send a name for the schema.")
    return form


def _choice(value: Any) -> str | dict[str, Any]:
    if not isinstance(value, dict):
        return f.as_one_of(value, "tool_choice", ("none", "auto", "required"))
    f.as_one_of(value.get("type"), "tool_choice.type", ("function",))
    function = f.as_dict(value.get("function"), "tool_choice.function", "Send the name of a function in it.")
    return f.choose_function(f.as_name(function.get("name"), "tool_choice.function.name", "Send a function's name."))


def refuse_completion(body: Mapping[str, Any]) -> NoReturn:
    """Raise Refused (404): a text to complete is not a chat."""
    raise Refused(404, "not_found", "The model's server has no such API. Send the text to chat/completions.")


def read_embeddings(body: Mapping[str, Any]) -> tuple[list[str], str]:
    """Return (texts, model) of a request for embeddings. Raises Refused (400)."""
    model = f.as_name(body.get("model"), "model", "Send the name of a model.")
    f.refuse_set(body, {"dimensions": "Leave it out; vectors are as long as the model makes them."})
    if body.get("encoding_format") is not None:
        f.as_one_of(body["encoding_format"], "encoding_format", ("float", "base64"))
    given = body.get("input")
    texts = f.as_list([given] if isinstance(given, str) else given, "input", "Send a text, or a list of texts.")
    if not texts:
        raise f.bad("input", "must not be empty", "Send a text, or a list of texts.")
    instead = "Send texts; numbers of tokens are not read (LangChain: check_embedding_ctx_length=False)."
    return [f.as_text(text, f"input[{n}]", instead) for n, text in enumerate(texts)], model


def write_embeddings(
    body: Mapping[str, Any], vectors: Sequence[Sequence[float]], tokens: int, model: str
) -> dict[str, Any]:
    """Return the body of an answer. Vectors are in base64 (little-endian, 32 bits a number) if requested."""
    packed = body.get("encoding_format") == "base64"
    data = [
        {"object": "embedding", "index": n, "embedding": _packed(vector) if packed else [float(x) for x in vector]}
        for n, vector in enumerate(vectors)
    ]
    return {
        "object": "list",
        "data": data,
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _packed(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")


def write_models(names: Sequence[str]) -> dict[str, Any]:
    """Return the list of models."""
    return {"object": "list", "data": [write_model(name) for name in names]}


def write_model(name: str) -> dict[str, Any]:
    """Return an entry of the list of models."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "workbench"}


#: (type, code) of OpenAI's errors by kind, and by status.
_KINDS = {
    "budget": ("insufficient_quota", "insufficient_quota"),
    "too_long": ("invalid_request_error", "context_length_exceeded"),
    "refused": ("invalid_request_error", "content_filter"),
    "rate_limit": ("rate_limit_error", "rate_limit_exceeded"),
}
_STATUSES = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("permission_error", "forbidden"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}


def write_error(refused: Refused) -> dict[str, Any]:
    """Return the body of an error."""
    usual = ("invalid_request_error" if refused.status < 500 else "server_error", refused.kind)
    kind, code = _KINDS.get(refused.kind) or _STATUSES.get(refused.status) or usual
    return {"error": {"message": refused.message, "type": kind, "param": refused.field, "code": code}}
