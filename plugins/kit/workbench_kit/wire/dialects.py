"""The only table of dialects: the words that servers of language models use for the same things.

Sources, by what they name: platform.openai.com/docs (chat, errors), learn.microsoft.com (Azure OpenAI, content filter),
docs.anthropic.com (stop reasons, errors), ai.google.dev (FinishReason, troubleshooting), api-docs.deepseek.com,
docs.mistral.ai, docs.cohere.com (finish reasons), docs.aws.amazon.com (Converse), openrouter.ai/docs (errors),
docs.vllm.ai, github.com/ggml-org/llama.cpp (server), huggingface.co/docs (TGI), docs.x.ai (usage).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import FailureKind, LMError
from workbench.lm import split_page
from workbench_kit.wire.clients import kind_of_answer, kind_of_status

#: Words for the end of an answer, in lower case, by its meaning.
_FINISHES = {
    "stop": "stop end_turn eos eos_token stop_sequence complete done finished stop_token end finish",
    "length": "length max_tokens max_output_tokens model_length max_new_tokens max_completion_tokens token_limit "
    "model_context_window_exceeded context_length limit error_limit",
    "refusal": "content_filter content_filtered refusal safety recitation blocklist prohibited_content spii sensitive "
    "guardrail_intervened image_safety error_toxic moderation model_armor language blocked jailbreak "
    "image_prohibited_content image_recitation",
    "tool_calls": "tool_calls tool_call tool_use function_call",
    "broken": "error abort aborted cancelled canceled network_error insufficient_system_resource overloaded "
    "malformed_function_call malformed_model_output malformed_tool_use unexpected_tool_call too_many_tool_calls "
    "timeout",
}
_FINISH = {word: end for end, words in _FINISHES.items() for word in words.split()}
#: By kind, the codes and types of errors. They take precedence over the status, which gateways choose themselves.
_ERRORS = {
    FailureKind.AUTH: "insufficient_quota invalid_api_key authentication_error permission_denied unauthenticated "
    "unauthorized permission_error billing_not_active account_deactivated access_denied billing_hard_limit_reached "
    "payment_required key_invalid api_key_invalid expired_api_key accessdeniedexception unrecognizedclientexception "
    "insufficient_balance exceeded_current_quota_error budget_exceeded billing_error 1113 base_resp_1004 "
    "base_resp_1008 base_resp_2049",
    FailureKind.RATE_LIMIT: "rate_limit_exceeded rate_limit_error rate_limit rate_limited too_many_requests "
    "resource_exhausted throttling throttlingexception throttled toomanyrequestsexception 1302 1303 base_resp_1002 "
    "base_resp_1039 request_limit_exceeded",
    FailureKind.SERVER: "overloaded_error server_error internal_error internal_server_error api_error unavailable "
    "service_unavailable engine_overloaded bad_gateway model_loading model_not_ready modelnotreadyexception loading "
    "overloaded upstream_error provider_error server_overloaded capacity_exceeded unavailable_error "
    "serviceunavailableexception internalserverexception modelerrorexception engine_overloaded_error queue_exceeded "
    "temporarily_unavailable incomplete_generation base_resp_1000 base_resp_1013 base_resp_1033",
    FailureKind.TIMEOUT: "timeout deadline_exceeded request_timeout gateway_timeout modeltimeoutexception "
    "timeout_error base_resp_1001",
    FailureKind.TOO_LONG: "context_length_exceeded string_above_max_length prompt_too_long context_window_exceeded "
    "exceed_context_size_error request_too_large input_too_long max_prompt_tokens_exceeded tokens_limit_reached 1261",
    FailureKind.BROKEN: "tool_use_failed output_parse_failed",
    FailureKind.UNSUPPORTED: "not_supported_error",
    FailureKind.REFUSED: "content_filter content_policy_violation responsibleaipolicyviolation data_inspection_failed "
    "1301 base_resp_1026 base_resp_1027",
}
_KIND = {word: kind for kind, words in _ERRORS.items() for word in words.split()}
_TOO_LONG = re.compile(
    r"(?i)context[ _]?(?:length|window|size)|maximum context|exceeds? the (?:available )?context|too large for model|"
    r"too many (?:input )?tokens|max_model_len|(?:input|prompt) (?:is )?too (?:long|large)|input token count|"
    r"range of input length|max_total_tokens|(?:maximum|model) (?:prompt|token|model) (?:length|limit)|"
    r"maximum (?:number of )?(?:input )?tokens(?: allowed)?|(?:inputs?|prompt)`? (?:tokens?\b.{0,40}\bexceed|"
    r"tokens \+ `max_new_tokens`|must have less than \d+ tokens)"
)
_FLAGGED = re.compile(
    r"(?i)\b(?:input|prompt|request|content)\b.{0,40}\b(?:flagged|inappropriate|(?:high|considered) risk|moderated)\b"
)
_NO_MONEY = re.compile(
    r"(?i)account (?:is )?suspended|spending limit|insufficient (?:balance|credits?|quota|funds)|in arrears|"
    r"budget has been exceeded|credit balance is too low|exceeded your (?:monthly )?included credits"
)
_WRONG_KEY = re.compile(r"(?i)api[ _]key (?:not valid|(?:is )?invalid|expired)|(?:invalid|incorrect|missing) api.key")
#: The model, or its server as it was started, does not support tools or images.
_LACKS = re.compile(
    r"(?i)not support(?:ed)?\b.{0,20}\b(?:tools?|function call\w*|images?|vision|image input)\b|tools? param requires|"
    r"\b(?:tools?|tool (?:use|calling)|function calling|images?|image input)\b.{0,12}\bnot supported|"
    r"tool choice requires|no endpoints found that support (?:tool|image)"
)
#: A temporary fault stated only in words, as in an answer with status 200 and no code.
_TOO_MANY = re.compile(r"(?i)rate.?limit|too many (?:concurrent )?requests|throttl")
#: The same in an answer whose status blames the request, which may name such a setting.
_EXCEEDED = re.compile(
    r"(?i)rate.?limit\w*\W+(?:\w+\W+){0,3}(?:exceeded|reached)|too many (?:concurrent )?requests|was throttled"
)
_NEVER = re.compile(r"(?i)not found|invalid|must be|unsupported|does not exist")
_BUSY = re.compile(r"(?i)overloaded|too busy|internal (?:server )?error|unavailable|try again|timed? ?out")
#: A server behind this one is unavailable, whatever the status.
_DOWN = re.compile(
    r"(?i)(?:model|server)\b.{0,60}\b(?:is|being|still) (?:currently )?(?:loading|loaded|starting)|no healthy upstream|"
    r"upstream (?:connect|request time|prematurely|timed)|bad gateway|gateway time-?out|ECONNRE(?:SET|FUSED)"
)
#: Settings that a model may not support, and that may be omitted.
_OPTIONAL = (
    *("max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "logprobs", "seed"),
    *("parallel_tool_calls", "stream_options"),
)
_REFUSES = re.compile(
    r"(?i)unsupported|unrecogni[sz]ed|unknown|unexpected|not (?:supported|permitted|allowed|available)|"
    r"(?:does not|doesn't|do not|cannot) (?:support|accept|allow|use)|only the default|deprecated|"
    r"only \S+ is allowed|may only be set to|cannot both be|extra (?:inputs?|fields?)|invalid field"
)
#: A temperature of 0 is refused, e.g. because it is no sampling.
_ABOVE_ZERO = re.compile(r"(?i)temperature\b.{0,60}(?:strictly positive|(?:greater|larger|more) than 0|> ?0|\(0\.?0*,)")
#: The context and the tokens of the prompt, where both together are too many; the most tokens of an answer.
_ROOM = re.compile(
    r"(?is)(?:context length (?:is|of)|must be <=) (\d+)\b.*?\b(\d+) (?:in the messages|of text input|input tokens|"
    r"tokens (?:from|in) the (?:input|messages)|`inputs` tokens)"
)
_MAX_TOKENS = re.compile(
    r"(?i)at most (\d+) (?:completion|output) tokens|max_tokens: \d+ > (\d+)|maximum tokens\b.{0,40}\blimit of (\d+)|"
    r"max_(?:completion_|output_|new_)?tokens\b.{0,60}?(?:less than or equal to|lower than|"
    r"maximum(?: value)? (?:of|is)|cannot exceed|at most|<=|\[\d+,)[ `]*(\d+)"
)
_NO_SYSTEM = re.compile(
    r"(?i)system (?:role|message|prompt|instruction)s?\b.{0,40}\b(?:not|un)\s?(?:supported|allowed|permitted|enabled)|"
    r"(?:not|n't) support\b.{0,30}\bsystem (?:role|message|prompt|instruction)|developer instruction is not enabled|"
    r"role'? does not support 'system'|roles must alternate|only user and assistant roles"
)
#: Together expects the number of log-probabilities of each token, not a flag.
_HOW_MANY = re.compile(
    r"(?i)\blogprobs\b.{0,80}?\b(?:must be|should be|expected|wants?|needs?)\s(?:an?\s)?(?:valid\s)?"
    r"(?:integer|int|number)\b"
)
_NO_DEVELOPER = re.compile(r"(?i)\brole\b.{0,80}\bdeveloper\b|\bdeveloper\b.{0,40}\brole\b")
#: Fields of a message with the model's thoughts, and types of parts with them.
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
_THOUGHT_PARTS = frozenset(("reasoning", "thinking", "reasoning_text", "summary_text", "redacted_thinking", "thought"))
#: Characters of an error's message that are read: the time of some patterns grows with the square of them.
_LONGEST_MESSAGE = 4000
#: Fields that providers add to messages, as other providers name them when refusing them.
_ADDED = re.compile(
    r"\b(?:reasoning_content|reasoning_details|reasoning|extra_content|thinking_blocks|provider_specific_fields|"
    r"annotations)\b|\bproperty 'name'|"
    r"\bmessages\b[^a-z]{1,8}(?:(?:assistant|user)[^a-z]{1,4})?(?:refusal|audio|function_call)\b"
)


def read_finish(word: Any, text: str, calls: bool) -> str:
    """Read the end of an answer as `Response.finish`.

    Raises LMError("broken") for a truncated one, or one with neither text nor calls and an unknown end.
    """
    # Gemini's words are followed by a reason: "content_filter: PROHIBITED_CONTENT".
    end = _FINISH.get(str(word).lower().partition(":")[0]) if word is not None else None
    if end == "broken":
        raise LMError("broken", f"the server broke off the answer ({word})", status=200)
    if end == "refusal" or (end == "length" and not calls):
        return end
    if calls:
        return "tool_calls"
    if text.strip():
        return "stop"
    if word is not None and end is None:
        raise LMError("broken", f"no text, and the finish reason {str(word)[:60]!r}", status=200)
    return "empty"


def read_content(content: Any) -> tuple[str, str]:
    """Return (text, thoughts) of a message's content: a text, or parts by their types. Raise LMError("bad_body")."""
    if content is None or isinstance(content, str):
        return content or "", ""
    if not is_list(content):
        raise LMError("bad_body", "status 200 with content that is not text")
    said, thoughts = list[str](), list[str]()
    for part in content:
        if isinstance(part, str):
            said.append(part)
        elif is_dict(part):
            (thoughts if is_thought(part) else said).extend(_texts(part))
    return "".join(said), "\n".join(thoughts)


def is_thought(part: Mapping[str, Any]) -> bool:
    """Return True if a part of a message is a thought of the model. Gemini marks it next to its text."""
    return str(part.get("type")) in _THOUGHT_PARTS or part.get("thought") is True


def read_thoughts(message: Mapping[str, Any]) -> str:
    """Read the model's thoughts in a message, next to its content."""
    if message.keys().isdisjoint(_THOUGHTS):
        return ""
    said = [text for name in _THOUGHTS[:3] for text in _texts(message.get(name))]
    return "\n".join(dict.fromkeys(said or _texts(message.get(_THOUGHTS[3]))))  # vLLM sends them under two names


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a part, or in a list of parts."""
    if isinstance(value, str):
        yield value
    elif is_list(value):
        for one in value:
            yield from _texts(one)
    elif is_dict(value):
        for name in ("text", "thinking", "summary", "content"):
            if value.get(name):
                yield from _texts(value[name])
                return


class Usage(NamedTuple):
    """Tokens of a call; None if the server states no plausible count. cached, written: of the prompt, those read from a
    cache and those written to one. thoughts: of the completion."""

    prompt: int | None
    completion: int | None
    cached: int = 0
    written: int = 0
    thoughts: int = 0


def read_usage(usage: Any, spoke: bool, most: int) -> Usage:
    """Return the tokens of a call.

    Args:
        usage: as stated by the server.
        spoke: whether there is an answer; a count of zero is then invalid.
        most: larger counts are errors.
    """
    if not is_dict(usage):
        return Usage(None, None)
    told: dict[str, int] = {}
    parts: dict[str, dict[str, Any]] = {}
    for name, value in usage.items():
        if is_dict(value):
            parts[_plain_name(name)] = value
        elif (number := _count(value, most)) is not None:
            told[_plain_name(name)] = number
    of_prompt = parts.get("prompt_tokens_details") or parts.get("input_tokens_details") or {}
    of_answer = parts.get("completion_tokens_details") or parts.get("output_tokens_details") or {}
    prompt = told.get("prompt_tokens", told.get("input_tokens"))
    completion = told.get("completion_tokens", told.get("output_tokens"))
    read = told.get("cache_read_input_tokens", told.get("prompt_cache_hit_tokens", 0))
    written = told.get("cache_creation_input_tokens", told.get("cache_write_input_tokens"))
    written = (_count(of_prompt.get("cache_write_tokens"), most) if written is None else written) or 0
    total, thoughts = told.get("total_tokens"), _count(of_answer.get("reasoning_tokens"), most) or 0
    cached = _count(of_prompt.get("cached_tokens"), most)
    whole = cached is not None or (total is not None and total == (prompt or 0) + (completion or 0))
    if prompt is not None and "prompt_tokens" not in told and not told.keys().isdisjoint(_APART) and not whole:
        prompt += read + written
    if prompt is not None and completion is not None:  # thoughts are billed, if they are counted next to the answer
        if total is None and thoughts > completion:
            total = prompt + completion + thoughts
        completion = max(completion, (total or 0) - prompt)
    cached = min(read if cached is None else cached, prompt or 0)
    written = min(written, (prompt or 0) - cached)  # or a price could be below 0
    return Usage(prompt or None, completion if completion or not spoke else None, cached, written, thoughts)


@lru_cache(maxsize=256)
def _plain_name(name: str) -> str:
    """Return a name such as `inputTokens` in lower case with underscores."""
    return _CAMEL.sub(r"_\1", name).lower()


_CAMEL = re.compile(r"(?<=[a-z])([A-Z])")
#: Cache tokens that Anthropic and Bedrock count separately from those of the prompt.
_APART = ("cache_read_input_tokens", "cache_creation_input_tokens", "cache_write_input_tokens")


def _count(value: Any, most: int) -> int | None:
    """Return a count as a server may write it: 50, 50.0 or "50"; None for anything else, and beyond `most`."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value[:20])
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= most else None


def _error_parts(body: Any) -> tuple[list[str], str]:
    """Return (codes and types, beginning of the message) of an error in a body: an object, a text, or a list
    with one."""
    codes, message = _found_parts(body)
    return codes, message[:_LONGEST_MESSAGE]


def _found_parts(body: Any) -> tuple[list[str], str]:
    if is_list(body) and body:
        return _found_parts(body[0])
    if not is_dict(body):
        return [], body if isinstance(body, str) else ""
    if is_dict(base := body.get("base_resp")):  # MiniMax
        return [f"base_resp_{base.get('status_code')}"], str(base.get("status_msg") or "")
    inner = body.get("error", body.get("detail", body))
    if is_list(inner):  # pydantic's faults, without the inputs that they echo
        inner = json.dumps([{k: v for k, v in one.items() if k != "input"} if is_dict(one) else one for one in inner])
    codes, message = _found_parts(inner) if inner is not body else ([], "")
    names = ("code", "type", "status", "__type", "error_type", "http_status_code")  # the last one: TGI, in streams
    codes += [str(body[name]) for name in names if body.get(name)]
    return codes, message or str(body.get("message") or "")


def kind_of_error(status: int | None, body: Any) -> FailureKind:
    """Classify an error: by its codes, then by its words, then by the status. status: None in a body with status 200.

    `refused`: a filter of the provider stopped the prompt. body: as JSON, or as text.
    """
    codes, message = _error_parts(body)
    message, page = split_page(message)
    found = _kind_of(status, codes, message)
    return kind_of_answer(status, page) if status and found == kind_of_status(status) else found


def _kind_of(status: int | None, codes: Sequence[str], message: str) -> FailureKind:
    words = [re.sub(r"[\s-]+", "_", code.rpartition("#")[2].strip()).lower() for code in codes]
    known = next((_KIND[word] for word in words if word in _KIND), None)
    numbers = [int(word) for word in words if re.fullmatch("[45][0-9][0-9]", word)]
    status = numbers[0] if status is None and numbers else status
    if known in (None, FailureKind.SERVER) and status not in (401, 403, 429) and _LACKS.search(message):
        return FailureKind.UNSUPPORTED  # Ollama and llama.cpp report it as their own fault
    if known is not None:
        return known
    if status != 429 and _TOO_LONG.search(message):
        return FailureKind.TOO_LONG
    if _NO_MONEY.search(message) or (status in (None, 400) and _WRONG_KEY.search(message)):
        return FailureKind.AUTH
    if status in (None, 400, 403, 422) and _FLAGGED.search(message):
        return FailureKind.REFUSED
    too_many = _TOO_MANY if status is None or status >= 500 else _EXCEEDED
    if status not in (401, 403, 404, 413) and too_many.search(message):
        return FailureKind.RATE_LIMIT
    if _DOWN.search(message) or (status is None and _BUSY.search(message) and not _NEVER.search(message)):
        return FailureKind.SERVER
    return kind_of_status(status) if status is not None else FailureKind.BAD_BODY


def refused_setting(status: int, body: Any) -> str | None:
    """Return the setting that a server refuses in general, or None for another error.

    Special values: `system` and `developer` for the roles, `temperature 0` and `logprobs true` for that value alone,
    `additions` for fields that another provider added to messages.
    """
    if status not in (400, 422):
        return None
    codes, message = _error_parts(body)
    if _NO_SYSTEM.search(message):
        return "system"
    if _NO_DEVELOPER.search(message):
        return "developer"
    if _ABOVE_ZERO.search(message):
        return "temperature 0"
    if _HOW_MANY.search(message):
        return "logprobs true"
    error = body.get("error") if is_dict(body) else None
    named = error.get("param") if is_dict(error) else None
    if not _REFUSES.search(" ".join((*codes, message)).replace("_", " ")) and not _REFUSES.search(message):
        return None
    if named in _OPTIONAL:
        return named
    if "both" in message and "top_p" in message:  # Claude takes one of temperature and top_p
        return "top_p"
    if quoted := re.search(rf"\b(?:{'|'.join(_OPTIONAL)})\b", message):
        return quoted[0]
    return "additions" if _ADDED.search(f"{named} {message}") else None


def allowed_tokens(status: int, body: Any) -> tuple[int, bool] | None:
    """Return (the maximum tokens of an answer, whether that is for this prompt only) from a refusal, or None. Tokens
    for thoughts are added to those for an answer, which may exceed the limit of a model or of a small context."""
    if status not in (400, 413, 422):
        return None
    message = _error_parts(body)[1]
    if room := _ROOM.search(message):
        return int(room[1]) - int(room[2]), True
    if most := _MAX_TOKENS.search(message):
        return next(int(found) for found in most.groups() if found), False
    return None
