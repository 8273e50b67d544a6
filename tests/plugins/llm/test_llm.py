"""The bridge to `llm`, with models registered in its own plugin manager."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.lm_faults import ChatServer

from workbench.errors import LMError, SpecError
from workbench.lm import LM, Request
from workbench_llm.provider import LLMModel, llm_model

llm = pytest.importorskip("llm")
#: The model that is slow answers when it is set.
ANSWERS = threading.Event()
HELLO = Request(({"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello there"}))


class Status(Exception):
    def __init__(self, status: int, body: object = None):
        self.status_code, self.body = status, body
        super().__init__(f"status {status}")


class Options(llm.Options):
    temperature: float | None = None
    max_output_tokens: int | None = None


def _answer(prompt: Any, response: Any) -> str:
    options = prompt.options
    text = f"{prompt.system}|{prompt.prompt}|{options.temperature}|{options.max_output_tokens}"
    if prompt.prompt == "boom":
        raise Status(429)
    if prompt.prompt == "nokey":
        raise llm.NeedsKeyException("No key found")
    if prompt.prompt == "slow":
        ANSWERS.wait(60)
    if prompt.prompt == "long":
        raise Status(400, {"error": {"code": "context_length_exceeded", "message": "too long"}})
    if prompt.prompt.startswith("end "):
        response.response_json = {"finish_reason": prompt.prompt.removeprefix("end ")}
        return "" if prompt.prompt == "end SAFETY" else "<think>a label: b</think>\n\ntechnical label: x"
    if prompt.prompt == "cut":
        response.response_json = {"finish_reason": "length"}
    if prompt.prompt == "usage":
        response.set_usage(input=5, output=3)
    if not prompt.prompt:
        return "/".join(str(part.text) for message in prompt.messages for part in message.parts)
    return "" if prompt.prompt == "nothing" else text


class Sync(llm.Model):
    model_id = "test-sync"
    Options = Options

    def execute(self, prompt, stream, response, conversation):
        yield _answer(prompt, response)


class Async(llm.AsyncModel):
    model_id = "test-async"
    Options = Options

    async def execute(self, prompt, stream, response, conversation) -> AsyncGenerator[str, None]:
        yield _answer(prompt, response)


class Plugin:
    @llm.hookimpl
    def register_models(self, register):
        register(Sync())
        register(SimpleNamespace(model_id="test-async"), Async())


@pytest.fixture(autouse=True)
def _plugin(monkeypatch, tmp_path):
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    llm.get_models()  # loads the installed plugins before ours
    plugin = Plugin()
    llm.plugins.pm.register(plugin)
    yield
    llm.plugins.pm.unregister(plugin)


def settings(**values: Any) -> Any:
    defaults = {"api_key_env": None, "concurrency": None, "price": None}
    return SimpleNamespace(**({"extra": {}} | defaults | values))


def ask(name: str, text: str = "hello there", request: Request | None = None, **values: Any):
    request = request or Request((HELLO.messages[0], {"role": "user", "content": text}))
    return asyncio.run(llm_model(name, settings(**values)).complete(request))


@pytest.mark.parametrize("name", ["test-sync", "test-async"])
def test_answers(name):
    response = ask(name)
    assert response.text == "Be kind.|hello there|0.0|512"
    assert response.finish == "stop" and response.estimated and response.usd is None
    assert (ask(name, "cut").finish, ask(name, "nothing").finish) == ("length", "empty")
    response = ask(name, "usage", price={"input": 1e6, "output": 1e6})
    assert (response.prompt_tokens, response.completion_tokens, response.usd) == (5, 3, 8.0)
    assert isinstance(llm_model(name, settings()), LM)


@pytest.mark.parametrize("name", ["test-sync", "test-async"])
def test_conversations_and_stops(name):
    roles = {"a": "user", "b": "assistant", "c": "user"}
    turns = [{"role": role, "content": text} for text, role in roles.items()]
    assert ask(name, request=Request((HELLO.messages[0], *turns))).text == "Be kind./a/b/c"
    assert ask(name, request=Request(HELLO.messages, stop=("there",))).text == "Be kind.|hello "


@pytest.mark.parametrize(
    ("word", "finish"),
    [("MAX_TOKENS", "length"), ("model_length", "length"), ("SAFETY", "refusal"), ("end_turn", "stop")],
)
def test_r1_words_for_the_end_of_an_answer(word: str, finish: str) -> None:
    assert ask("test-sync", f"end {word}").finish == finish


def test_a2_stops_cut_what_is_said_and_neither_thoughts_nor_the_first_line() -> None:
    asked = Request(({"role": "user", "content": "end stop"},), stop=("\n", " label:"))
    assert ask("test-sync", request=asked).text == "<think>a label: b</think>\n\ntechnical"


@pytest.mark.parametrize("name", ["test-sync", "test-async"])
@pytest.mark.parametrize(
    ("text", "kind"), [("boom", "rate_limit"), ("nokey", "auth"), ("long", "too_long"), ("end abort", "broken")]
)
def test_errors_are_typed(name, text, kind):
    with pytest.raises(LMError) as caught:
        ask(name, text)
    assert caught.value.kind == kind


def test_unsupported_and_unknown():
    with pytest.raises(LMError, match="tools"):
        ask("test-sync", request=Request(HELLO.messages, tools=({"type": "function"},)))
    with pytest.raises(LMError, match="NO_KEY") as caught:
        ask("test-sync", api_key_env="NO_KEY")
    assert caught.value.kind == "auth"
    with pytest.raises(SpecError, match="test-sync"):
        llm_model("test-synk", settings())


@pytest.mark.timeout(30)
def test_a_slow_model_can_be_cancelled():
    """Its thread goes on for a minute if nobody ends it, and the call does not wait for it."""

    async def run() -> None:
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    slow = Request(({"role": "user", "content": "slow"},))
                    await llm_model("test-sync", settings()).complete(slow)
        finally:
            ANSWERS.set()

    asyncio.run(run())


@pytest.mark.parametrize("asynchronous", [False, True], ids=["in a thread", "awaited"])
def test_a_body_without_an_end_is_read_to_its_bound(asynchronous: bool) -> None:
    """With the models that `llm` itself brings, whose client is on httpx."""
    from llm.default_plugins import openai_models

    kind = openai_models.AsyncChat if asynchronous else openai_models.Chat
    with ChatServer("endless") as server:
        model = kind("local", api_base=server.base, key="none")
        model.needs_key = None
        settings = SimpleNamespace(model="llm:local", extra={}, concurrency=None, price=None, api_key_env=None)
        with pytest.raises(LMError, match="a body over 33554432 bytes") as caught:
            asyncio.run(LLMModel(model, asynchronous, settings).complete(HELLO))
    assert caught.value.kind == "bad_body"
    assert server.sent < 48 * server.requests << 20, "its client may try again"
