"""Providers' own forms, which the product speaks through the provider `litellm`."""

from __future__ import annotations

from tests.dialects import rules
from tests.dialects.dialect import KEY_VARIABLE, Dialect, Json, Refused, source
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
        page="https://github.com/anthropics/anthropic-sdk-python/blob/v0.121.0/src/anthropic/types/message_create_params.py",
        read=source("v0.121.0"),
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
                *("system", "stop_sequences", "top_k", "thinking", "service_tier", "output_config", "cache_control"),
                *("container", "inference_geo"),
                without=rules.COMMON
                - {*"model messages max_tokens temperature top_p stream tools tool_choice".split()}
                - {"metadata"},
            ),
        ),
        error=anthropic_error,
        written=True,
        speaks="its own form, the headers `anthropic-version` and `x-api-key`, temperatures up to 1",
        slow=True,
    ),
    Dialect(
        name="gemini",
        title="Gemini, generateContent",
        page="https://github.com/googleapis/python-genai/blob/v2.19.0/google/genai/types.py",
        read=source("v2.19.0"),
        model="gemini/gemini-2.5-flash",
        base="/v1beta",
        api=GenerateContent(),
        settings=KEY,
        key_header="x-goog-api-key",
        rules=(
            rules.key_in("x-goog-api-key", status=400, message="API key not valid. Please pass a valid API key."),
            rules.only_fields(
                'Invalid JSON payload received. Unknown name "{field}": Cannot find field.',
                *("contents", "systemInstruction", "generationConfig", "toolConfig", "safetySettings", "cachedContent"),
                without=rules.COMMON - {"tools"},
            ),
        ),
        ends={"refusal": ""},  # the provider makes an error of an answer that has no parts
        error=google_error,
        speaks="its own form and path, the key in the header `x-goog-api-key`",
        slow=True,
    ),
    Dialect(
        name="bedrock-converse",
        title="Amazon Bedrock, Converse, through LiteLLM",
        page="https://github.com/boto/botocore/blob/1.44.8/botocore/data/bedrock-runtime/2023-09-30/service-2.json",
        read=source("1.44.8"),
        model="bedrock/converse/anthropic.claude-3-5-sonnet-20241022-v2:0",
        base="",
        api=Converse(),
        settings={"extra": {"engine": "litellm"}},
        rules=(
            rules.only_fields(
                "The model returned the following errors: {field}: Extra inputs are not permitted",
                *("system", "inferenceConfig", "toolConfig", "additionalModelRequestFields", "guardrailConfig"),
                *("promptVariables", "additionalModelResponseFieldPaths", "requestMetadata", "performanceConfig"),
                *("serviceTier", "outputConfig"),
                without=rules.COMMON - {"messages"},
            ),
        ),
        error=lambda refused: {"message": refused.message},
        written=True,
        speaks="its own form, with a Bedrock API key; roles have to alternate; blank texts are refused",
        slow=True,
    ),
]
