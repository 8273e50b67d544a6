"""Laboratories that serve their own models, in OpenAI's form."""

from __future__ import annotations

import json
from typing import Any

from tests.dialects import rules, wording
from tests.dialects.dialect import (
    READ_LATER,
    SPECIFICATION,
    Count,
    Dialect,
    Json,
    Refused,
    Said,
    bare_usage,
    cached_usage,
)


def deepseek_usage(count: Count) -> Json:
    return {
        **bare_usage(count),
        "prompt_cache_hit_tokens": count.cached,
        "prompt_cache_miss_tokens": count.prompt - count.cached,
        "completion_tokens_details": {"reasoning_tokens": count.thoughts},
    }


def google_error(refused: Refused) -> Any:
    """A list with one error."""
    status = {401: "UNAUTHENTICATED", 404: "NOT_FOUND"}.get(refused.status, "INVALID_ARGUMENT")
    return [{"error": {"code": refused.status, "message": refused.message, "status": status}}]


def gemini_usage(count: Count) -> Json:
    """Thoughts are in the total alone."""
    seen = count.answer - count.thoughts
    return {
        "prompt_tokens": count.prompt,
        "completion_tokens": seen,
        "total_tokens": count.prompt + count.answer,
    }


def sign_for_gemini(body: Json, said: Said) -> None:
    for call in body["choices"][0]["message"].get("tool_calls") or ():
        call["extra_content"] = {"google": {"thought_signature": f"c2ln{call['id']}"}}


def anthropic_error(refused: Refused) -> Json:
    kind = {401: "authentication_error", 404: "not_found_error"}.get(refused.status, "invalid_request_error")
    return {"error": {"code": kind, "message": refused.message, "type": kind, "param": None}}


def mistral_error(refused: Refused) -> Json:
    """Faults of the form as FastAPI says them, by the specification; others by the error glossary."""
    if refused.status == 422:
        return {"detail": [{"type": "extra_forbidden", "loc": ["body", refused.param], "msg": refused.message}]}
    kind = {401: "authentication_error"}.get(refused.status, "invalid_request_error")
    return {"object": "error", "message": refused.message, "type": kind, "param": refused.param, "code": refused.code}


def wrapped_mistral_error(refused: Refused) -> Json:
    """Faults of the form as users report them."""
    error = mistral_error(refused)
    return error if "detail" not in error else {"object": "error", "message": error, "type": "invalid_request_error"}


def mistral_usage(count: Count) -> Json:
    return {**cached_usage(count), "num_cached_tokens": count.cached}


MISTRAL_RULES = (
    rules.only_fields(
        "Extra inputs are not permitted",
        *("prompt_mode", "random_seed", "safe_prompt", "guardrails", "prompt_cache_key", "prediction"),
        without=("logprobs", "top_logprobs", "seed", "logit_bias", "user", "max_completion_tokens", "stream_options"),
        status=422,
    ),
    rules.only_in_messages("Extra inputs are not permitted", "prefix", without=("refusal",), status=422),
    rules.ids_like(r"[a-zA-Z0-9]{9}", "Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."),
    rules.last_is(
        "user",
        "tool",
        message="Expected last role User or Tool (or Assistant with prefix True) for serving but got {role}",
    ),
    rules.up_to("temperature", 1.5, "Input should be less than or equal to {most}", status=422),
    rules.up_to("top_p", 1, "Input should be less than or equal to {most}", status=422),
    rules.one_of("reasoning_effort", "high", "none", message="Input should be 'high' or 'none'", status=422),
)


def mistral_thoughts(text: str) -> Json:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def moonshot_error(refused: Refused) -> Json:
    kind = {401: "invalid_authentication_error", 404: "resource_not_found_error"}
    return {"error": {"message": refused.message, "type": kind.get(refused.status, "invalid_request_error")}}


def glm_error(refused: Refused) -> Json:
    code = {401: "1002", 404: "1211"}.get(refused.status, refused.code or "1210")
    return {"error": {"code": code, "message": refused.message}}


def minimax_error(refused: Refused) -> Json:
    return {
        "type": "error",
        "error": {"type": "bad_request_error", "message": f"{refused.message} (2013)", "http_code": "400"},
    }


def perplexity_error(refused: Refused) -> Json:
    return {"error": {"message": refused.message, "type": "invalid_message", "code": refused.status}}


def with_sources(body: Json, said: Said) -> None:
    body |= {"citations": ["https://example.org"], "search_results": [{"title": "x", "url": "https://example.org"}]}


DIALECTS = [
    Dialect(
        name="anthropic-openai",
        title="Anthropic, OpenAI's form",
        page="https://platform.claude.com/docs/en/api/openai-sdk",
        model="openai/claude-sonnet-5",
        rules=(
            rules.no_empty_content("messages: text content blocks must be non-empty"),
            rules.last_is("user", "tool", message="This model does not support assistant message prefill."),
            rules.only_default("n", 1, "n: must be exactly 1"),
        ),
        error=anthropic_error,
        usage=bare_usage,
        cached=False,
        call_id="toolu_{:022d}".format,
        speaks="ignores logprobs; refuses empty texts, and answers that are begun for the model",
    ),
    Dialect(
        name="gemini-openai",
        title="Gemini, OpenAI's form",
        page="https://ai.google.dev/gemini-api/docs/openai",
        model="openai/gemini-3-pro",
        base="/v1beta/openai",
        rules=(
            rules.only_fields(
                'Invalid JSON payload received. Unknown name "{field}": Cannot find field.',
                "extra_body",
                without=(
                    "seed",
                    "user",
                    "logit_bias",
                    "logprobs",
                    "top_logprobs",
                    "frequency_penalty",
                    "presence_penalty",
                ),
            ),
            rules.signed_calls(
                lambda message, call: json.dumps(call.get("extra_content")),
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly. Additional data, function call `default_api:{name}`, position 2.",
            ),
        ),
        thoughts=wording.silent,
        ends={"refusal": "content_filter: SAFETY"},
        error=google_error,
        usage=gemini_usage,
        cached=False,
        call_id="function-call-{:d}".format,
        change=sign_for_gemini,
        speaks="signatures of calls that have to come back; thoughts in the total count alone; errors in a list",
    ),
    Dialect(
        name="deepseek",
        title="DeepSeek, without thinking",
        page="https://api-docs.deepseek.com/guides/thinking_mode",
        read=READ_LATER,
        model="openai/deepseek-v4-flash",
        settings={"extra": {"thinking": {"type": "disabled"}}},
        rules=(
            rules.up_to("temperature", 2, "Invalid temperature value, the valid range of temperature is [0, {most}]"),
        ),
        usage=deepseek_usage,
        call_id="call_00_{:018d}".format,
        logprobs=True,
        speaks="its own count of cached tokens; an answer that breaks off for want of resources",
    ),
    Dialect(
        name="deepseek-thinking",
        title="DeepSeek, thinking",
        page="https://api-docs.deepseek.com/guides/thinking_mode",
        read=READ_LATER,
        model="openai/deepseek-v4-pro",
        rules=(
            rules.thoughts_with_calls(
                "reasoning_content", "The `reasoning_content` in the thinking mode must be passed back to the API."
            ),
            rules.no_field("logprobs", "top_logprobs", message="{field} is not supported in thinking mode"),
        ),
        thoughts=wording.field("reasoning_content"),
        usage=deepseek_usage,
        call_id="call_00_{:018d}".format,
        speaks="thinks by default; thoughts beside the text, which have to come back with calls",
    ),
    Dialect(
        name="qwen-dashscope",
        title="Qwen3 at DashScope",
        page="https://help.aliyun.com/en/model-studio/deep-thinking",
        model="openai/qwen3-32b",
        base="/compatible-mode/v1",
        settings={"extra": {"enable_thinking": False}},
        rules=(
            rules.wants_true(
                "enable_thinking", False, "parameter.enable_thinking must be set to false for non-streaming calls"
            ),
            rules.within("temperature", lambda t: 0 <= t < 2, "Temperature should be in [0.0, 2.0), got {value}"),
            rules.within("top_p", lambda p: 0 < p <= 1, "Range of top_p should be (0.0, 1.0]"),
        ),
        speaks="thinking only in streams: write `extra: {enable_thinking: false}`",
    ),
    Dialect(
        name="mistral",
        title="Mistral",
        page="https://github.com/mistralai/platform-docs-public/blob/222f4ba9/openapi.yaml",
        read=SPECIFICATION,
        model="openai/mistral-large-latest",
        rules=MISTRAL_RULES,
        ends={"refusal": ""},
        error=mistral_error,
        usage=mistral_usage,
        call_id="c{:08d}".format,
        speaks="ids of nine letters and digits; refuses unknown fields (422), logprobs, and a last turn of the model",
    ),
    Dialect(
        name="mistral-thinking",
        title="Mistral, models that think",
        page="https://docs.mistral.ai/studio-api/conversations/reasoning",
        read=READ_LATER,
        model="openai/mistral-small-latest",
        settings={"extra": {"reasoning_effort": "high"}},
        rules=MISTRAL_RULES,
        thoughts=wording.parts(mistral_thoughts),
        ends={"length": "model_length", "refusal": ""},
        error=wrapped_mistral_error,
        usage=mistral_usage,
        call_id="m{:08d}".format,
        speaks="as Mistral, with thoughts as parts of the content",
    ),
    Dialect(
        name="cohere",
        title="Cohere, OpenAI's form",
        page="https://docs.cohere.com/docs/compatibility-api",
        model="openai/command-a-03-2025",
        base="/compatibility/v1",
        rules=(
            rules.no_field(
                "parallel_tool_calls",
                "logit_bias",
                "top_logprobs",
                "n",
                "user",
                message="invalid request: unsupported field '{field}'",
                status=422,
            ),
            rules.up_to("temperature", 1, "invalid request: temperature must be between 0 and {most} inclusive."),
        ),
        ends={"stop": "COMPLETE", "length": "MAX_TOKENS", "tool_calls": "TOOL_CALL", "refusal": "ERROR_TOXIC"},
        error=lambda refused: {"id": "x", "message": refused.message},
        usage=bare_usage,
        cached=False,
        logprobs=True,
        speaks="Cohere's own words for the end of an answer; temperatures up to 1; errors as a message alone",
    ),
    Dialect(
        name="xai",
        title="xAI",
        page="https://docs.x.ai/docs/guides/reasoning",
        model="openai/grok-4.20-reasoning",
        rules=(
            rules.no_field(
                "stop",
                "presence_penalty",
                "frequency_penalty",
                "reasoning_effort",
                message="Argument not supported on this model: {field}",
            ),
        ),
        thoughts=wording.silent,
        error=lambda refused: {"code": "Client specified an invalid argument", "error": refused.message},
        usage=gemini_usage,
        cached=False,
        speaks="refuses stops; thoughts are counted beside the answer; errors as a text",
    ),
    Dialect(
        name="moonshot",
        title="Moonshot, Kimi",
        page="https://platform.kimi.ai/docs/api/models-overview",
        model="openai/kimi-k2.6",
        rules=(
            rules.only_default("temperature", 1, "invalid temperature: only 1 is allowed for this model"),
            rules.only_default("top_p", 0.95, "invalid top_p: only 0.95 is allowed for this model"),
            rules.thoughts_with_calls(
                "reasoning_content",
                "thinking is enabled but reasoning_content is missing in assistant tool call message at index {index}",
            ),
            rules.no_empty_content("Invalid request: the message must not be empty"),
        ),
        thoughts=wording.field("reasoning_content"),
        error=moonshot_error,
        call_id="look:{:d}".format,
        speaks="only its own temperature; thoughts have to come back with calls",
    ),
    Dialect(
        name="glm",
        title="Zhipu, GLM",
        page="https://docs.z.ai/api-reference/llm/chat-completion",
        read=READ_LATER,
        model="openai/glm-4.6",
        base="/api/paas/v4",
        rules=(
            rules.up_to("temperature", 1, "API 调用参数有误，请检查文档。temperature 参数非法，取值范围 [0.0, {most}]"),
            rules.within(
                "top_p", lambda p: 0 < p <= 1, "API 调用参数有误，请检查文档。top_p 参数非法，取值范围 (0.0, 1.0]"
            ),
            rules.max_stops(1, "stop: at most {most} stop word is supported"),
            rules.has_user("messages 参数非法。请检查文档。"),
            rules.no_field("logprobs", "n", "logit_bias", message="Unknown parameter: {field}"),
        ),
        thoughts=wording.field("reasoning_content"),
        ends={"refusal": "sensitive"},
        error=glm_error,
        usage=cached_usage,
        speaks="its own path, numbers for errors, `sensitive` and `network_error` as ends, one stop",
    ),
    Dialect(
        name="minimax",
        title="MiniMax",
        page="https://platform.minimax.io/docs/api-reference/text-openai-api",
        model="openai/MiniMax-M2.1",
        rules=(
            rules.within("temperature", lambda t: 0 < t <= 1, "invalid params, temperature must be in (0.0, 1.0]"),
            rules.only_default("n", 1, "invalid params, n must be 1"),
            rules.thoughts_come_back("<think>", "invalid params, the thinking of an assistant message was changed"),
        ),
        thoughts=wording.within("<think>\n", "\n</think>\n\n"),
        error=minimax_error,
        usage=bare_usage,
        cached=False,
        call_id="call_function_{:012d}_1".format,
        speaks="thoughts in the text, which have to come back with calls; temperatures above 0; errors as `base_resp`",
    ),
    Dialect(
        name="perplexity",
        title="Perplexity",
        page="https://docs.perplexity.ai/docs/sonar/openai-compatibility",
        model="openai/sonar-reasoning-pro",
        base="",
        rules=(
            rules.no_tools("Tool calling is not supported for this model."),
            rules.only_roles("system", "user", "assistant", message="Invalid role '{role}'"),
            rules.system_first("System messages must come first."),
            rules.alternating(
                "After the (optional) system message(s), user and assistant roles should be alternating."
            ),
            rules.last_is("user", message="Last message must have role `user`."),
            rules.within("temperature", lambda t: 0 <= t < 2, "Temperature should be in [0, 2)"),
        ),
        thoughts=wording.within("<think>\n", "\n</think>\n\n"),
        error=perplexity_error,
        usage=bare_usage,
        cached=False,
        change=with_sources,
        no_tools="Tool calling is not supported",
        speaks="no tools; turns have to alternate; thoughts in the text; its path has no /v1",
    ),
]
