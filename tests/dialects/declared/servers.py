"""Servers that people run themselves, in OpenAI's form."""

from __future__ import annotations

from tests.dialects import rules, wording
from tests.dialects.dialect import READ_LATER, Dialect, Json, Refused, Said, bare_usage, cached_usage, source

NO_AUTO = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'


ROOM = (
    "This model's maximum context length is {context} tokens. However, you requested {value} tokens (46 in the "
    "messages, the rest in the completion). Please reduce the length of the messages or completion."
)
ROOM_OF_TGI = (
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {context}. Given: 46 `inputs` tokens and "
    "{value} `max_new_tokens`"
)


def vllm_error(refused: Refused) -> Json:
    kind = {404: "NotFoundError", 401: "Unauthorized"}.get(refused.status, "BadRequestError")
    return {"error": {"message": refused.message, "type": kind, "param": refused.param, "code": refused.status}}


def llama_error(refused: Refused) -> Json:
    kind = {404: "not_found_error", 500: "server_error"}.get(refused.status, "invalid_request_error")
    return {"error": {"code": refused.status, "message": refused.message, "type": kind}}


def litellm_error(refused: Refused) -> Json:
    kind = {401: "authentication_error"}.get(refused.status, "invalid_request_error")
    message = f"litellm.UnsupportedParamsError: {refused.message}"
    return {"error": {"message": message, "type": kind, "param": None, "code": str(refused.status)}}


def ollama_error(refused: Refused) -> Json:
    kind = {400: "invalid_request_error", 404: "not_found_error"}.get(refused.status, "api_error")
    return {"error": {"message": refused.message, "type": kind, "param": None, "code": None}}


def tgi_error(refused: Refused) -> Json:
    kind, _, _ = refused.message.partition(" error: ")
    return {"error": refused.message, "error_type": "tool_error" if kind == "Tool" else "validation"}


def with_ids(body: Json, said: Said) -> None:
    """vLLM gives the tokens where a request says `return_token_ids`; it says null in what it has none of."""
    body["prompt_token_ids"], choice = [1, 2, 3], body["choices"][0]
    choice |= {"token_ids": [7], "stop_reason": None}
    choice["message"] |= {"refusal": None, "annotations": None, "audio": None, "function_call": None}
    body |= {"service_tier": None, "prompt_logprobs": None, "kv_transfer_params": None}


def with_timings(body: Json, said: Said) -> None:
    body["timings"] = {"cache_n": 10, "prompt_n": 40, "prompt_ms": 30.9, "predicted_n": 25, "predicted_ms": 10.5}


def with_stats(body: Json, said: Said) -> None:
    body |= {"stats": {}, "system_fingerprint": "qwen3"}


def calls_alone(body: Json, said: Said) -> None:
    """A message of TGI has a content or calls."""
    message = body["choices"][0]["message"]
    if message.get("tool_calls"):
        del message["content"]


def split_content(body: Json, said: Said) -> None:
    """A proxy's own fields beside the message's."""
    body["choices"][0]["message"]["provider_specific_fields"] = {"refusal": None}


DIALECTS = [
    Dialect(
        name="vllm",
        title="vLLM, without parsers",
        page="https://docs.vllm.ai/en/latest/features/tool_calling/",
        model="hosted_vllm/Qwen/Qwen3-8B",
        hosted=False,
        rules=(
            rules.no_tools(NO_AUTO),
            rules.room(4096, ROOM),
            rules.within("temperature", lambda t: t >= 0, "temperature must be non-negative"),
        ),
        thoughts=wording.within("<think>\n", "\n</think>\n\n"),
        error=vllm_error,
        usage=bare_usage,
        cached=False,
        change=with_ids,
        logprobs=True,
        no_tools="--enable-auto-tool-choice",
        speaks="a context smaller than what thoughts may take; thoughts in the text; no tools unless it is started "
        "with a parser; gives tokens and log-probabilities",
    ),
    Dialect(
        name="vllm-parsers",
        title="vLLM, with parsers for thoughts and tools",
        page="https://docs.vllm.ai/en/latest/features/reasoning_outputs/",
        model="hosted_vllm/Qwen/Qwen3-8B",
        hosted=False,
        thoughts=wording.both(wording.field("reasoning"), wording.field("reasoning_content")),
        error=vllm_error,
        usage=bare_usage,
        cached=False,
        call_id="chatcmpl-tool-{:032x}".format,
        change=with_ids,
        logprobs=True,
        speaks="thoughts beside the text, in newer versions as `reasoning`; gives tokens and log-probabilities",
    ),
    Dialect(
        name="vllm-gpt-oss",
        title="vLLM, gpt-oss",
        page="https://docs.vllm.ai/projects/recipes/en/latest/OpenAI/GPT-OSS.html",
        read=READ_LATER,
        model="hosted_vllm/openai/gpt-oss-20b",
        hosted=False,
        rules=(rules.no_tools(NO_AUTO),),
        thoughts=wording.field("reasoning"),
        error=vllm_error,
        usage=bare_usage,
        cached=False,
        change=with_ids,
        logprobs=True,
        no_tools="--enable-auto-tool-choice",
        speaks="thoughts beside the text without any flag; tools want two flags",
    ),
    Dialect(
        name="vllm-gemma",
        title="vLLM, a template without the role system",
        page="https://docs.vllm.ai/en/latest/serving/openai_compatible_server/",
        read=READ_LATER,
        model="hosted_vllm/google/gemma-2-9b-it",
        hosted=False,
        rules=(
            rules.no_system("System role not supported"),
            rules.alternating("Conversation roles must alternate user/assistant/user/assistant/..."),
            rules.no_tools(NO_AUTO),
        ),
        error=vllm_error,
        usage=bare_usage,
        cached=False,
        change=with_ids,
        logprobs=True,
        no_tools="--enable-auto-tool-choice",
        speaks="refuses the role system: what it says stands in the user's message",
    ),
    Dialect(
        name="sglang",
        title="SGLang",
        page="https://docs.sglang.io/docs/advanced_features/separate_reasoning",
        model="local/Qwen/Qwen3-8B",
        hosted=False,
        thoughts=wording.field("reasoning_content"),
        ends={"refusal": ""},
        error=lambda refused: {"object": "error", "message": refused.message, "type": "Bad Request", "code": 400},
        usage=bare_usage,
        cached=False,
        logprobs=True,
        speaks="thoughts beside the text; errors without an object around them",
    ),
    Dialect(
        name="llama-cpp",
        title="llama.cpp, llama-server",
        page="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
        read=READ_LATER,
        model="local/qwen3-8b",
        hosted=False,
        thoughts=wording.field("reasoning_content"),
        error=llama_error,
        usage=cached_usage,
        call_id="{:032x}".format,
        change=with_timings,
        logprobs=True,
        speaks="thoughts beside the text, with its template engine (the default)",
    ),
    Dialect(
        name="llama-cpp-old",
        title="llama.cpp, started without --jinja",
        page="https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md",
        read=READ_LATER,
        model="local/qwen3-8b",
        hosted=False,
        rules=(rules.no_tools("tools param requires --jinja flag", status=500),),
        thoughts=wording.within("<think>\n", "\n</think>\n\n"),
        error=llama_error,
        usage=cached_usage,
        change=with_timings,
        no_tools="tools param requires --jinja flag",
        speaks="thoughts in the text; tools are refused with status 500",
    ),
    Dialect(
        name="llama-cpp-raw",
        title="llama.cpp, gpt-oss in its own tokens",
        page="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
        read=READ_LATER,
        model="local/gpt-oss-20b",
        settings={"extra": {"reasoning_format": "none"}},
        hosted=False,
        rules=(rules.no_tools("tools param requires --jinja flag", status=500),),
        thoughts=wording.harmony,
        error=llama_error,
        usage=cached_usage,
        change=with_timings,
        no_tools="tools param requires --jinja flag",
        speaks="channels of gpt-oss (harmony) in the text, with `reasoning_format: none` and without --jinja",
    ),
    Dialect(
        name="ollama",
        title="Ollama",
        page="https://docs.ollama.com/api/openai-compatibility",
        model="ollama/qwen3:8b",
        hosted=False,
        rules=(),
        thoughts=wording.field("reasoning"),
        error=ollama_error,
        usage=bare_usage,
        cached=False,
        logprobs=True,
        call_id="call_{:08x}".format,
        speaks="thoughts beside the text, as `reasoning`; unknown fields are ignored",
    ),
    Dialect(
        name="ollama-no-tools",
        title="Ollama, a model without tools",
        page="https://github.com/ollama/ollama/blob/v0.33.0-rc2/openai/openai.go",
        read=source("v0.33.0-rc2"),
        model="ollama/deepseek-r1:8b",
        hosted=False,
        rules=(rules.no_tools("registry.ollama.ai/library/deepseek-r1:8b does not support tools"),),
        thoughts=wording.field("reasoning"),
        error=ollama_error,
        usage=bare_usage,
        cached=False,
        no_tools="does not support tools",
        speaks="thoughts beside the text; tools are refused",
    ),
    Dialect(
        name="lm-studio",
        title="LM Studio",
        page="https://lmstudio.ai/docs/developer/openai-compat/chat-completions",
        read=READ_LATER,
        model="local/openai/gpt-oss-20b",
        hosted=False,
        thoughts=wording.field("reasoning"),
        error=lambda refused: {"error": refused.message},
        usage=bare_usage,
        cached=False,
        call_id="{:09d}".format,
        change=with_stats,
        speaks="thoughts beside the text, as `reasoning`; errors as a text",
    ),
    Dialect(
        name="tgi",
        title="Text Generation Inference",
        page="https://github.com/huggingface/text-generation-inference/blob/v3.3.7/router/src/lib.rs",
        read=source("v3.3.7"),
        model="local/tgi",
        hosted=False,
        rules=(
            rules.within(
                "temperature",
                lambda t: t >= 0,  # 0 is read as no sampling
                "Input validation error: `temperature` must be strictly positive",
                status=422,
            ),
            rules.within(
                "top_p", lambda p: 0 < p < 1, "Input validation error: `top_p` must be > 0.0 and < 1.0", status=422
            ),
            rules.room(4096, ROOM_OF_TGI, status=422),
            rules.max_stops(
                4,
                "Input validation error: `stop` supports up to {most} stop sequences. Given: {given}",
                status=422,
            ),
            rules.not_both("response_format", "tools", "Tool error: Grammar and tools are mutually exclusive", 422),
            rules.calls_without_content,
        ),
        thoughts=wording.within("<think>\n", "\n</think>\n\n"),
        ends={"tool_calls": "stop", "refusal": ""},
        error=tgi_error,
        usage=bare_usage,
        cached=False,
        call_id="{:d}".format,
        change=calls_alone,
        logprobs=True,
        speaks="messages with calls have no content, and `stop` as their end; errors as a text (422)",
    ),
    Dialect(
        name="litellm-proxy",
        title="LiteLLM, proxy",
        page="https://github.com/BerriAI/litellm",
        read=source("1.110.2"),
        model="openai/mine",
        rules=(
            rules.only_default(
                "temperature",
                1,
                "gpt-5 doesn't support temperature={value} while reasoning is active. Only temperature=1 is supported "
                "unless reasoning_effort resolves to 'none', either set explicitly on the request or declared as the "
                "model's default_reasoning_effort. To drop unsupported params set `litellm.drop_params = True`",
            ),
            rules.no_field(
                "stop",
                "logprobs",
                message="openai does not support parameters: ['{field}'], for model=gpt-5. To drop these, set "
                "`litellm.drop_params=True` or for proxy:\n\n`litellm_settings:\n drop_params: true`\n",
            ),
        ),
        thoughts=wording.field("reasoning_content"),
        error=litellm_error,
        change=split_content,
        speaks="errors of others in its own words; fields of its own in messages",
    ),
]
