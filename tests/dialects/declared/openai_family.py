"""OpenAI, and those who serve its models: Azure and GitHub."""

from __future__ import annotations

from tests.dialects import rules, wording
from tests.dialects.dialect import (
    KEY_VARIABLE,
    READ_LATER,
    SPECIFICATION,
    Dialect,
    Json,
    Refused,
    Said,
    usage_with_writes,
)

UNKNOWN = "Unrecognized request argument supplied: {field}"
ONLY_DEFAULT = (
    "Unsupported value: '{name}' does not support {{value}} with this model. Only the default (1) value is supported."
)
SPEC = "https://github.com/openai/openai-openapi/blob/f85dbe2/openapi.yaml"
#: What a request to OpenAI may hold beside what all know.
FIELDS = (
    *("service_tier", "modalities", "verbosity", "store", "prediction", "audio", "web_search_options", "moderation"),
    *("functions", "function_call", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    "prompt_cache_options",
)
#: What models that think refuse: https://learn.microsoft.com/azure/ai-foundry/openai/how-to/reasoning, and the stops by
#: OpenAI's specification.
REASONING = (
    rules.renamed("max_tokens", "max_completion_tokens"),
    *(
        rules.only_default(name, 1, ONLY_DEFAULT.format(name=name), code="unsupported_value")
        for name in ("temperature", "top_p")
    ),
    rules.no_field(
        *("stop", "logprobs", "top_logprobs", "logit_bias", "presence_penalty", "frequency_penalty"),
        message="Unsupported parameter: '{field}' is not supported with this model.",
        code="unsupported_parameter",
    ),
)
#: Every answer of Azure's says what its filters made of it.
FILTER = {name: {"filtered": False, "severity": "safe"} for name in ("hate", "self_harm", "sexual", "violence")}


def azure_error(refused: Refused) -> Json:
    if refused.status == 401:
        message = "Access denied due to invalid subscription key or wrong API endpoint."
        return {"error": {"code": "401", "message": message}}
    return {"error": {"code": refused.code or "BadRequest", "message": refused.message, "param": refused.param}}


def with_filters(body: Json, said: Said) -> None:
    body["prompt_filter_results"] = [{"prompt_index": 0, "content_filter_results": FILTER}]
    body["choices"][0]["content_filter_results"] = FILTER


def with_refusal(body: Json, said: Said) -> None:
    """What OpenAI's message and choice always have. A refusal is one of the model, in a field of its own."""
    choice = body["choices"][0]
    refused = said.end == "refusal"
    choice.setdefault("logprobs", None)
    choice["message"] |= {"refusal": "I cannot help with that." if refused else None, "annotations": []}
    if refused:
        choice["finish_reason"], choice["message"]["content"] = "stop", None


AZURE_KEY = {"extra": {"headers": {"api-key": f"${KEY_VARIABLE}"}}}

DIALECTS = [
    Dialect(
        name="openai",
        title="OpenAI, chat completions",
        page=SPEC,
        read=SPECIFICATION,
        model="openai/gpt-4.1-mini",
        rules=(
            rules.only_fields(UNKNOWN, *FIELDS),
            rules.up_to("temperature", 2),
            rules.up_to("top_p", 1),
            rules.max_stops(4),
            rules.only_in_messages(
                "Additional properties are not allowed ('{field}' was unexpected) - '{place}'",
                *("audio", "function_call", "annotations"),
            ),
        ),
        usage=usage_with_writes,
        written=True,
        change=with_refusal,
        logprobs=True,
        speaks="refuses unknown fields, more than 4 stops, temperatures above 2",
    ),
    Dialect(
        name="openai-reasoning",
        title="OpenAI, models that think",
        page=SPEC,
        read=SPECIFICATION,
        model="openai/gpt-5-mini",
        rules=(rules.only_fields(UNKNOWN, *FIELDS), *REASONING),
        thoughts=wording.silent,
        usage=usage_with_writes,
        written=True,
        change=with_refusal,
        speaks="`max_completion_tokens`; refuses temperature, top_p, stop, penalties and logprobs; thoughts are only "
        "counted",
    ),
    Dialect(
        name="azure",
        title="Azure OpenAI, deployments",
        page="https://learn.microsoft.com/azure/ai-services/openai/reference",
        model="openai/gpt-4o",
        base="/openai/deployments/mine?api-version=2024-10-21",
        settings=AZURE_KEY,
        key_header="api-key",
        rules=(
            rules.wants_query("api-version"),
            rules.key_in("api-key"),
            rules.only_fields(UNKNOWN),
            rules.max_stops(4),
        ),
        error=azure_error,
        change=with_filters,
        logprobs=True,
        speaks="the query `api-version`, the key in the header `api-key`, results of its filters",
    ),
    Dialect(
        name="azure-reasoning",
        title="Azure OpenAI, a deployment that thinks, under any name",
        page="https://learn.microsoft.com/azure/ai-foundry/openai/how-to/reasoning",
        read=READ_LATER,
        model="openai/my-deployment",
        base="/openai/deployments/thinker?api-version=2025-04-01-preview",
        settings=AZURE_KEY,
        key_header="api-key",
        rules=(rules.wants_query("api-version"), rules.key_in("api-key"), rules.only_fields(UNKNOWN), *REASONING),
        thoughts=wording.silent,
        error=azure_error,
        change=with_filters,
        speaks="as a model that thinks, which its name does not tell: the first refusals are heeded",
    ),
    Dialect(
        name="azure-v1",
        title="Azure OpenAI, v1",
        page="https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle",
        read=READ_LATER,
        model="openai/gpt-4.1-nano",
        base="/openai/v1",
        settings=AZURE_KEY,
        key_header="api-key",
        rules=(rules.key_in("api-key"), rules.only_fields(UNKNOWN)),
        error=azure_error,
        change=with_filters,
        logprobs=True,
        speaks="no api-version; the key in the header `api-key`",
    ),
    Dialect(
        name="github-models",
        title="GitHub Models",
        page="https://docs.github.com/rest/models/inference",
        model="openai/openai/gpt-4.1",
        base="/inference",
        rules=(
            rules.only_fields("Unrecognized request argument supplied: {field}"),
            rules.up_to("temperature", 1, "Invalid 'temperature': must be between 0 and {most}."),
        ),
        error=azure_error,
        speaks="names of models with their publisher, temperatures up to 1",
    ),
]
