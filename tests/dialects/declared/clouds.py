"""Clouds and routers that serve the models of others, in OpenAI's form."""

from __future__ import annotations

import json

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
    source,
)

UNSUPPORTED = "property '{field}' is unsupported"


def openrouter_error(refused: Refused) -> Json:
    return {"error": {"message": refused.message, "code": refused.status}, "user_id": "user_1"}


def together_error(refused: Refused) -> Json:
    kind = "invalid_request_error" if refused.status != 401 else "authentication_error"
    return {
        "id": "x",
        "error": {"message": refused.message, "type": kind, "param": refused.param, "code": refused.code},
    }


def fireworks_error(refused: Refused) -> Json:
    code = {401: "UNAUTHORIZED", 404: "NOT_FOUND"}.get(refused.status, "invalid_request_error")
    return {"error": {"object": "error", "type": code, "code": code, "message": refused.message}}


def bedrock_error(refused: Refused) -> Json:
    return {
        "error": {
            "code": "validation_error",
            "message": refused.message,
            "param": refused.param,
            "type": "invalid_request_error",
        }
    }


def cerebras_error(refused: Refused) -> Json:
    kind = "invalid_request_error" if refused.status != 401 else "authentication_error"
    return {
        "message": refused.message,
        "type": kind,
        "param": refused.param or "validation_error",
        "code": "wrong_api_format",
    }


def databricks_error(refused: Refused) -> Json:
    code = {401: "UNAUTHENTICATED", 404: "ENDPOINT_NOT_FOUND"}.get(refused.status, "BAD_REQUEST")
    return {"error_code": code, "message": refused.message}


def databricks_thoughts(text: str) -> Json:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text, "signature": "c2ln"}]}


def router_usage(count: Count) -> Json:
    usage = bare_usage(count)
    details = {"cached_tokens": count.cached, "cache_write_tokens": count.written}
    return {**usage, "prompt_tokens_details": details, "cost": 0.001}


def nim_error(refused: Refused) -> Json:
    """NIM's gateway has its own form for keys and paths; the server behind it is vLLM's."""
    if refused.status in (401, 403, 404):
        return {"status": refused.status, "title": "Unauthorized", "detail": refused.message}
    return {"object": "error", "message": refused.message, "type": "BadRequestError", "param": None, "code": 400}


def cerebras_usage(count: Count) -> Json:
    """Thoughts are not told apart."""
    details = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    return {**cached_usage(count), "completion_tokens_details": details}


def with_times(body: Json, said: Said) -> None:
    body["time_info"] = {"queue_time": 0.01, "prompt_time": 0.01, "completion_time": 0.1, "total_time": 0.12}


def in_lists(body: Json, said: Said) -> None:
    """Log-probabilities as in completions, and not as in chat completions."""
    if body["choices"][0].get("logprobs"):
        body["choices"][0]["logprobs"] = {"token_ids": [7], "tokens": ["x"], "token_logprobs": [-0.5]}
    body["prompt"] = []


def with_native_end(body: Json, said: Said) -> None:
    body["choices"][0]["native_finish_reason"] = "end_turn"


DIALECTS = [
    Dialect(
        name="groq",
        title="Groq",
        page="https://console.groq.com/docs/openai",
        model="openai/openai/gpt-oss-120b",
        base="/openai/v1",
        rules=(
            rules.no_field(
                "logprobs", "top_logprobs", "logit_bias", message="'{field}' is not supported by this model"
            ),
            rules.only_default("n", 1, "'n' : number must be at most 1"),
            rules.only_fields(UNSUPPORTED, "reasoning_format", "include_reasoning", "service_tier"),
            rules.only_in_messages(
                "'messages.{place}' : for 'role:assistant' the following must be satisfied[(\"{place}\" : "
                "property '{field}' is unsupported)]",
                "reasoning",
            ),
        ),
        thoughts=wording.field("reasoning"),
        call_id="fc_{:032d}".format,
        speaks="refuses logprobs, n above 1 and unknown fields of messages; a 413 that is a rate limit",
    ),
    Dialect(
        name="together",
        title="Together",
        page="https://github.com/togethercomputer/openapi/blob/090263a/openapi.yaml",
        read=SPECIFICATION,
        model="openai/deepseek-ai/DeepSeek-R1",
        rules=(
            rules.up_to("temperature", 1, "temperature must be between 0 and {most}"),
            rules.whole("logprobs", "Invalid type for 'logprobs': expected an integer"),
        ),
        thoughts=wording.field("reasoning"),
        ends={"stop": "eos"},
        error=together_error,
        usage=bare_usage,
        cached=False,
        change=in_lists,
        logprobs=True,
        speaks="thoughts beside the text, as `reasoning`; `eos` as the end; a number for logprobs, which come in lists",
    ),
    Dialect(
        name="fireworks",
        title="Fireworks",
        page="https://github.com/fw-ai-external/python-sdk/blob/v1.2.3/src/fireworks/types/chat/completion_create_params.py",
        read=source("v1.2.3"),
        model="openai/accounts/fireworks/models/glm-4p6",
        base="/inference/v1",
        rules=(
            rules.only_fields(
                "Extra inputs are not permitted, field: '{field}'",
                *("top_k", "min_p", "typical_p", "repetition_penalty", "mirostat_lr", "mirostat_target", "ignore_eos"),
                *("context_length_exceeded_behavior", "prompt_truncate_len", "echo", "echo_last", "raw_output"),
                *("functions", "function_call", "thinking", "reasoning_history", "prediction", "speculation"),
                *("return_token_ids", "perf_metrics_in_response", "safe_tokenization", "service_tier"),
                *("prompt_cache_key", "prompt_cache_isolation_key"),
            ),
            rules.only_in_messages(
                "Extra inputs are not permitted, field: '{place}.{field}'",
                "reasoning_content",
                without=("name", "refusal"),
            ),
            rules.max_stops(4),
        ),
        thoughts=wording.field("reasoning_content"),
        error=fireworks_error,
        usage=cached_usage,
        logprobs=True,
        speaks="refuses unknown fields, also of messages; thoughts beside the text",
    ),
    Dialect(
        name="openrouter",
        title="OpenRouter",
        page="https://openrouter.ai/docs/api/reference/errors-and-debugging",
        model="openai/anthropic/claude-sonnet-4.5:thinking",
        base="/api/v1",
        rules=(
            rules.signed_calls(
                lambda message, call: json.dumps(message.get("reasoning_details")),
                "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
            ),
        ),
        thoughts=wording.details,
        error=openrouter_error,
        usage=router_usage,
        written=True,
        change=with_native_end,
        speaks="errors in choices and in bodies with status 200; `reasoning_details` that have to come back with calls",
    ),
    Dialect(
        name="bedrock-openai",
        title="Amazon Bedrock, OpenAI's form",
        page="https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-openai.html",
        model="openai/openai.gpt-oss-120b-1:0",
        base="/openai/v1",
        rules=(
            rules.only_fields(
                "extraneous key [{field}] is not permitted", without=("logprobs", "top_logprobs", "n", "seed")
            ),
        ),
        thoughts=wording.within("<reasoning>", "</reasoning>"),
        error=bedrock_error,
        usage=bare_usage,
        cached=False,
        speaks="thoughts in the text, between `<reasoning>` marks; refuses unknown fields",
    ),
    Dialect(
        name="cerebras",
        title="Cerebras",
        page="https://github.com/Cerebras/cerebras-cloud-sdk-python/blob/bebb8d1/src/cerebras/cloud/sdk/types/chat/chat_completion.py",
        read=source("bebb8d1"),
        model="openai/gpt-oss-120b",
        rules=(
            rules.no_field(
                "frequency_penalty",
                "logit_bias",
                "presence_penalty",
                "service_tier",
                message="Property {field} is not supported",
            ),
            rules.up_to("temperature", 1.5, "temperature must be at most {most}"),
            rules.max_stops(4),
            rules.only_fields(
                "body.{field}: property '{field}' is unsupported",
                *("reasoning_format", "clear_thinking", "disable_reasoning", "prediction"),
                *("min_tokens", "min_completion_tokens"),
            ),
        ),
        thoughts=wording.field("reasoning"),
        error=cerebras_error,
        usage=cerebras_usage,
        change=with_times,
        logprobs=True,
        speaks="refuses penalties; errors without an object around them",
    ),
    Dialect(
        name="nvidia-nim",
        title="NVIDIA NIM",
        page="https://docs.nvidia.com/nim/large-language-models/latest/api-reference.html",
        model="openai/nvidia/llama-3.3-nemotron-super-49b-v1",
        rules=(
            rules.only_fields(
                "[{{'type': 'extra_forbidden', 'loc': ('body', '{field}'), 'msg': 'Extra inputs are not permitted'}}]",
                "top_k",
                "nvext",
            ),
            rules.system_first("The system prompt must be the first message in the conversation"),
        ),
        thoughts=wording.within("", "\n</think>\n\n"),
        error=nim_error,
        usage=bare_usage,
        cached=False,
        logprobs=True,
        speaks="thoughts in the text, whose beginning stood in the prompt; refuses unknown fields",
    ),
    Dialect(
        name="databricks",
        title="Databricks",
        page="https://docs.databricks.com/aws/machine-learning/foundation-model-apis/api-reference",
        model="openai/databricks-claude-sonnet-4",
        base="/serving-endpoints",
        settings={"extra": {"thinking": {"type": "enabled", "budget_tokens": 1024}}},
        rules=(
            rules.only_default(
                "temperature", 1, "BAD_REQUEST: `temperature` may only be set to 1 when thinking is enabled."
            ),
            rules.no_field("logprobs", message="BAD_REQUEST: parameter logprobs is not supported."),
            rules.typed_thoughts_with_calls(
                "reasoning",
                "messages.1.content.0.type: Expected `thinking`, but found `tool_use`. When `thinking` is enabled, "
                "a final `assistant` message must start with a thinking block.",
            ),
        ),
        thoughts=wording.parts(databricks_thoughts),
        error=databricks_error,
        usage=bare_usage,
        cached=False,
        call_id="toolu_bdrk_{:019d}".format,
        speaks="thoughts as parts of the content, which have to come back with calls; only temperature 1 with them",
    ),
    Dialect(
        name="huggingface-router",
        title="Hugging Face, router",
        page="https://huggingface.co/docs/inference-providers/tasks/chat-completion",
        read=READ_LATER,
        model="openai/Qwen/Qwen3-235B-A22B-Thinking-2507:novita",
        rules=(
            rules.up_to("temperature", 2, "temperature must be within 0 and {most}"),
            rules.max_stops(4),
        ),
        thoughts=wording.field("reasoning_content"),
        error=lambda refused: {"error": refused.message},
        usage=bare_usage,
        cached=False,
        logprobs=True,
        speaks="errors as a text; thoughts beside the text",
    ),
]
