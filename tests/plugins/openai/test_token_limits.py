"""Tokens for thoughts on top of those for an answer may be more than a model, or a small context, has room for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from workbench.errors import LMError
from workbench.lm import Request
from workbench_kit.wire import MAX_FORMS, allowed_tokens
from workbench_openai import client

ASK = Request(({"role": "user", "content": "hello"},))
CONTEXT = "maximum context length is 4096 tokens"
WORDS = {
    "vLLM": f"This model's {CONTEXT}. However, you requested 8750 tokens (46 in the messages, 8704 in the completion).",
    "vLLM, newer": f"'max_tokens' is too large: 8704. This model's {CONTEXT} and your request has 46 input tokens.",
    "SGLang": f"Requested token count exceeds the model's {CONTEXT}. You requested a total of 8750 tokens: 46 tokens "
    "from the input messages and 8704 tokens for the completion.",
    "TGI": "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 46 `inputs` tokens and 8704 `max_new_tokens`",
    "OpenRouter": f"This endpoint's {CONTEXT}. However, you requested about 8750 tokens (46 of text input, ...).",
    "OpenAI": "max_tokens is too large: 8704. This model supports at most 4096 completion tokens, you provided 8704.",
    "Anthropic": "max_tokens: 8704 > 4096, which is the maximum allowed number of output tokens for claude-3-haiku",
    "DeepSeek": "Invalid max_tokens value, the valid range of max_tokens is [1, 4096]",
    "Groq": "`max_tokens` must be less than or equal to `4096`, the maximum value for `max_tokens` is less than ...",
    "Bedrock": "The maximum tokens you requested exceeds the model limit of 4096. Try again with a lower value.",
}


@pytest.mark.parametrize("server", WORDS)
def test_a_limit_of_tokens_is_read_in_the_words_of_its_server(server: str) -> None:
    found = allowed_tokens(400, {"error": {"message": WORDS[server]}})
    assert found == ((4050, True) if "46" in WORDS[server] else (4096, False))


@pytest.mark.parametrize(
    ("status", "words"), [(400, "no such thing as 4096"), (429, WORDS["OpenAI"]), (400, "max_tokens must be positive")]
)
def test_other_errors_are_no_limit(status: int, words: str) -> None:
    assert allowed_tokens(status, {"error": {"message": words}}) is None


def asked(most: int, words: str, calls: int = 2, seen: list[int] | None = None) -> Sequence[int]:
    """The tokens that are asked for, call by call, at a server that refuses more than `most`."""
    seen = list[int]() if seen is None else seen

    async def answer(request: web.Request) -> web.Response:
        seen.append((await request.json())["max_tokens"])
        if seen[-1] > most:
            told = words.format(seen[-1], less=seen[-1] - 1)
            return web.json_response({"error": {"message": told}}, status=400)
        return web.json_response({"choices": [{"finish_reason": "stop", "message": {"content": "hi"}}]})

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        async with TestServer(app) as server:
            given = {"api_key_env": None, "concurrency": None, "price": None, "extra": {}, "omit": [], "rename": {}}
            given |= {"model": "openai/m", "api_base": f"http://127.0.0.1:{server.port}/v1"}
            lm = client.openai("m", SimpleNamespace(**given))
            try:
                for _ in range(calls):
                    assert (await lm.complete(ASK)).text == "hi"
            finally:
                await lm.aclose()

    asyncio.run(main())
    return seen


def test_the_limit_of_a_model_is_heeded_and_remembered() -> None:
    words = "max_tokens is too large: {}. This model supports at most 100 completion tokens"
    assert asked(100, words) == [512, 100, 100]


def test_the_room_that_a_prompt_leaves_is_heeded_for_that_prompt() -> None:
    words = "maximum context length is 400 tokens. However, you requested {} tokens (46 in the messages, ...)"
    assert asked(354, words) == [512, 354, 512, 354]


@pytest.mark.parametrize("prompt", [400, 900])
def test_a_prompt_that_leaves_no_room_is_too_long(prompt: int) -> None:
    words = f"maximum context length is 400 tokens. However, you requested 9000 tokens ({prompt} in the messages, ...)"
    with pytest.raises(LMError) as caught:
        asked(0, words)
    assert caught.value.kind == "too_long"


@pytest.mark.parametrize(
    ("words", "requests"),
    [("max_tokens: {} > {less}, which is the maximum", MAX_FORMS), ("the system role is not supported", 1)],
    ids=["less and less", "a setting that is not in the request"],
)
def test_a_server_that_refuses_every_form_is_not_asked_without_end(words: str, requests: int) -> None:
    seen = list[int]()
    with pytest.raises(LMError) as caught:
        asked(0, words, seen=seen)
    assert caught.value.kind == "bad_request" and len(seen) == requests
