"""The attributes of spans, without content.

Names are those of the GenAI conventions as of opentelemetry-semantic-conventions 0.66b2 (v0.1.0 of the conventions' own
repository renames `gen_ai.workflow.name` to `gen_ai.agent.name`, so a workflow has both) and of OpenInference
(https://arize-ai.github.io/openinference/spec/semantic_conventions.html). Ours begin with `workbench.`.
"""

from __future__ import annotations

from typing import Any

from workbench.ledger import CallInfo
from workbench.workflow import CallRecord, EffectRecord, Span
from workbench_otel.content import finish_reason

KIND = "openinference.span.kind"
#: The conventions' names of providers, by the first part of a model's name.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}


def model_attributes(model: str) -> dict[str, Any]:
    """Return provider and name of a model such as `openai/gpt-4.1-mini`."""
    prefix, slash, name = model.partition("/")
    provider = _PROVIDERS.get(prefix, prefix) if slash else "workbench"
    return {
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": name or model,
        "llm.provider": provider,
        "llm.system": provider,
        "llm.model_name": name or model,
    }


def usage_attributes(prompt: int, completion: int, usd: float) -> dict[str, Any]:
    return {
        "gen_ai.usage.input_tokens": prompt,
        "gen_ai.usage.output_tokens": completion,
        "llm.token_count.prompt": prompt,
        "llm.token_count.completion": completion,
        "llm.token_count.total": prompt + completion,
        "llm.cost.total": usd,
        "workbench.usd": usd,
    }


def call_attributes(call: CallRecord, paid: CallInfo | None) -> dict[str, Any]:
    """Return the attributes of an answered call in a row. paid: by this process; other usage is not repeated."""
    response, embeds = call.response, call.number == 0
    found = {
        "gen_ai.operation.name": "embeddings" if embeds else "chat",
        KIND: "EMBEDDING" if embeds else "LLM",
        **model_attributes(call.lm),
        "workbench.role": call.role,
        "workbench.call": call.key,
        "workbench.replayed": paid is None,
    }
    if not embeds:
        found["gen_ai.response.finish_reasons"] = [finish_reason(response.finish)]
    if paid is not None:
        found |= usage_attributes(response.prompt_tokens, response.completion_tokens, call.usd)
        found |= {"workbench.attempts": paid.attempts, "workbench.queued_seconds": round(call.queued, 4)}
    return found


def settled_attributes(call: CallInfo) -> dict[str, Any]:
    """Return the attributes of a call without a trace: a proposer's or a judge's, or one without an answer."""
    found = {
        "gen_ai.operation.name": "chat",
        KIND: "LLM",
        **model_attributes(call.lm.partition("@")[0]),  # without the address of the server
        "workbench.role": call.role,
        "workbench.call": call.key,
        "workbench.replayed": call.cached,
    }
    if not call.cached:
        found |= usage_attributes(call.prompt_tokens, call.completion_tokens, call.usd)
        found |= {"workbench.attempts": call.attempts, "workbench.queued_seconds": round(call.queued, 4)}
    return found


def node_attributes(span: Span) -> dict[str, Any]:
    found: dict[str, Any] = {"workbench.node": span.node, "workbench.node.kind": span.kind, KIND: "CHAIN"}
    if span.agent:
        found |= {KIND: "AGENT", "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": span.agent}
        found |= {"agent.name": span.agent}
    return found


def tool_name(effect: EffectRecord) -> str | None:
    """Return the name of the tool that an effect calls; None for other effects, e.g. a step of an environment."""
    content = effect.content
    if effect.kind == "tool" and isinstance(content, list) and content:
        source = str(content[0])
        return source.rpartition("#" if "#" in source else ":")[2].rpartition(".")[2] or source
    if effect.kind == "code" and isinstance(content, list) and len(content) > 1:
        return str(content[1])
    return None


def tool_attributes(effect: EffectRecord, name: str) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        KIND: "TOOL",
        "tool.name": name,
        "workbench.replayed": effect.replayed,
    }
