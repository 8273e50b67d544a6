"""Providers' own forms, which the product speaks through the provider `litellm`."""

from __future__ import annotations

from tests.dialects import rules
from tests.dialects.dialect import KEY_VARIABLE, NOT_SEEN, Dialect, Json, Refused
from tests.dialects.native_apis import Converse, GenerateContent, Messages


def anthropic_error(refused: Refused) -> Json:
    kind = {401: "authentication_error", 404: "not_found_error"}.get(refused.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": refused.message}, "request_id": "req_1"}


def google_error(refused: Refused) -> Json:
    status = {401: "UNAUTHENTICATED", 404: "NOT_FOUND"}.get(refused.status, "INVALID_ARGUMENT")
    return {"error": {"code": refused.status, "message": refused.message, "status": status}}


KEY = {"api_key_env": KEY_VARIABLE}

DIALECTS = [
    Dialect(
        name="anthropic",
        title="Anthropic, messages",
        page="https://docs.claude.com/en/api/messages",
        read=NOT_SEEN,
        model="anthropic/claude-sonnet-4-5",
        api=Messages(),
        settings=KEY,
        key_header="x-api-key",
        rules=(
            rules.wants_header("anthropic-version"),
            rules.key_in("x-api-key", message="invalid x-api-key"),
            rules.up_to("temperature", 1, "temperature: range: 0..{most}"),
            rules.only_fields(
                "{field}: Extra inputs are not permitted",
                *("system", "stop_sequences", "top_k", "thinking", "service_tier"),
                without=("stop", "n", "logprobs", "top_logprobs", "seed", "response_format", "max_completion_tokens"),
            ),
        ),
        error=anthropic_error,
        cached=False,
        speaks="its own form, the headers `anthropic-version` and `x-api-key`, temperatures up to 1",
        slow=True,
    ),
    Dialect(
        name="gemini",
        title="Gemini, generateContent",
        page="https://ai.google.dev/api/generate-content",
        read=NOT_SEEN,
        model="gemini/gemini-2.5-flash",
        base="/v1beta",
        api=GenerateContent(),
        settings=KEY,
        key_header="x-goog-api-key",
        rules=(
            rules.key_in("x-goog-api-key", status=400, message="API key not valid. Please pass a valid API key."),
            rules.only_fields(
                'Invalid JSON payload received. Unknown name "{field}": Cannot find field.',
                *("contents", "systemInstruction", "generationConfig", "toolConfig", "safetySettings"),
                without=("messages", "model", "temperature", "max_tokens", "stop", "logprobs"),
            ),
        ),
        ends={"refusal": ""},  # the provider makes an error of an answer that has no parts
        error=google_error,
        cached=False,
        speaks="its own form and path, the key in the header `x-goog-api-key`",
        slow=True,
    ),
    Dialect(
        name="bedrock-converse",
        title="Amazon Bedrock, Converse, through LiteLLM",
        page="https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html",
        read=NOT_SEEN,
        model="bedrock/converse/anthropic.claude-3-5-sonnet-20241022-v2:0",
        base="",
        api=Converse(),
        settings={"extra": {"engine": "litellm"}},
        rules=(
            rules.only_fields(
                "The model returned the following errors: {field}: Extra inputs are not permitted",
                *("system", "inferenceConfig", "toolConfig", "additionalModelRequestFields"),
                without=("model", "temperature", "max_tokens", "stop", "tools", "logprobs"),
            ),
        ),
        error=lambda refused: {"message": refused.message},
        cached=False,
        speaks="its own form, with a Bedrock API key; roles have to alternate; blank texts are refused",
        slow=True,
    ),
]
