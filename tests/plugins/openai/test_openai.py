"""The OpenAI-compatible client against a server that fails in every way of the fault table."""

from __future__ import annotations

import asyncio
import base64
import email.utils
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from tests.helpers.lm_faults import ChatServer

from workbench.errors import LMError, SpecError
from workbench.lm import LM, Request, Response
from workbench_kit.lms import prices as table_prices
from workbench_kit.wire import is_reasoning
from workbench_openai import client, prices, wire

KEY = "sk-canary+0123456789/abc"
HELLO = Request(({"role": "user", "content": "hello there"},))


def settings(model: str = "openai/m", **values: Any) -> Any:
    defaults = {"api_base": None, "api_key_env": None, "timeout": 5.0, "concurrency": None, "price": None}
    return SimpleNamespace(model=model, **({"extra": {}, "omit": [], "rename": {}} | defaults | values))


async def _complete(lm: client.OpenAIChat, *requests: Request) -> list[Any]:
    try:
        return [await lm.complete(request) for request in requests]
    finally:
        await lm.aclose()


def ask(server: ChatServer, request: Request = HELLO, model: str = "m", **values: Any) -> Response:
    lm = client.openai(model, settings(f"openai/{model}", api_base=server.base, **values))
    return asyncio.run(_complete(lm, request))[0]


def fail(server: ChatServer, request: Request = HELLO, **values: Any) -> LMError:
    with pytest.raises(LMError) as caught:
        ask(server, request, **values)
    assert server.requests == 1, "one attempt a call"
    return caught.value


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_answers_and_is_an_lm():
    with ChatServer() as server:
        response = ask(server)
        assert response == Response("hello there", "stop", 11, 7, usd=0.0)
        body = server.bodies[0]
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello there"}],
        "max_tokens": 512,
        "temperature": 0.0,
    }
    assert isinstance(client.openai("m", settings(api_base=server.base)), LM)


@pytest.mark.fault("broken-bodies")
def test_every_fault_is_one_typed_error(subtests):
    for fault, kind in [
        ("429", "rate_limit"),
        ("500", "server"),
        ("503", "server"),
        ("529", "server"),
        ("400", "bad_request"),
        ("404", "blocked"),
        ("422", "bad_request"),
        ("401", "auth"),
        ("403", "auth"),
        ("402", "auth"),
        ("408", "timeout"),
        ("413", "too_long"),
        ("reset", "broken"),
        ("drop", "broken"),
        ("truncated", "bad_body"),
        ("html", "bad_body"),
        ("badutf8", "bad_body"),
        ("list", "bad_body"),
        ("nochoices", "bad_body"),
        ("empty", "bad_body"),
        ("error200", "bad_body"),
        ("gateway", "rate_limit"),
        ("deep", "bad_body"),
        ("huge", "bad_body"),
        ("hugechunked", "bad_body"),
        ("redirect", "blocked"),
    ]:
        with subtests.test(fault=fault):
            with ChatServer(fault) as server:
                error = fail(server)
            assert error.kind == kind and (("over 33554432" in str(error)) is fault.startswith("huge"))
            if fault.isdigit():
                assert error.status == int(fault) and f"status {fault}" in str(error) and "injected" in str(error)
            assert len(str(error)) < 500


@pytest.mark.parametrize(
    ("fault", "finish", "text"),
    [
        ("null", "empty", ""),
        ("blank", "empty", " \n"),
        ("length", "length", "cut sh"),
        ("refusal", "refusal", "I can't help with that."),
        ("filter", "refusal", ""),
        ("parts", "stop", "one two"),
        ("surrogate", "stop", "bad ? half"),
    ],
)
def test_typed_outcomes(fault, finish, text):
    with ChatServer(fault) as server:
        response = ask(server)
    assert (response.finish, response.text) == (finish, text)
    assert (response.prompt_tokens, response.completion_tokens, response.estimated) == (11, 7, False)


@pytest.mark.fault("rate-limits")
@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("2", 2, 2),
        ("0.5", 0.5, 0.5),
        ("3600", 3600, 3600),
        ("1e300", 86400, 86400),
        ("inf", 86400, 86400),
        ("in 300 s", 250, 301),
        (email.utils.formatdate(time.time() - 300, usegmt=True), 0, 0),
        ("soon", None, None),
        ("-5", None, None),
        ("nan", None, None),
        ("", None, None),
        (None, None, None),
    ],
    ids=["seconds", "parts", "hour", "huge", "inf", "date", "past", "words", "negative", "nan", "empty", "none"],
)
def test_retry_after(value, low, high):
    if value == "in 300 s":  # counted from here: other tests come first
        value = email.utils.formatdate(time.time() + 300, usegmt=True)
    with ChatServer("429", retry_after=value) as server:
        found = fail(server).retry_after
    assert found is None if low is None else found is not None and low <= found <= high


def test_an_empty_account_and_a_long_prompt_are_permanent():
    with ChatServer("429", code="insufficient_quota") as server:
        assert fail(server).kind == "auth"
    for text in ("This model's maximum context length is 8192", "it exceeds the available context size"):
        with ChatServer("400", message=text) as server:
            assert fail(server).kind == "too_long"
    with ChatServer("400", code="content_filter") as server:
        assert ask(server).finish == "refusal"


def test_missing_or_senseless_usage_is_estimated():
    with ChatServer("nousage") as server:
        response = ask(server)
    assert response.estimated and response.prompt_tokens > 0 and response.completion_tokens == 7
    with ChatServer("badusage") as server:
        assert ask(server).estimated


def test_tool_calls_are_kept_also_malformed_ones():
    with ChatServer("tools") as server:
        response = ask(server)
    assert response.finish == "tool_calls"
    assert response.tool_calls == ({"id": "c1", "name": "look", "arguments": {"x": 1}},)
    with ChatServer("badtools") as server:
        assert ask(server).tool_calls[0]["arguments"] == '{"x": '


def test_logprobs_only_where_asked():
    asked = Request(HELLO.messages, logprobs=True)
    with ChatServer("logprobs") as server:
        assert ask(server, asked).logprobs == (-0.5, -1.5)
        assert ask(server).logprobs is None
        assert [body.get("logprobs") for body in server.bodies] == [True, None]


def test_stops_beyond_four_are_applied_here():
    request = Request(({"role": "user", "content": "one two three"},), stop=("a1", "b2", "c3", "d4", "two"))
    with ChatServer() as server:
        assert ask(server, request).text == "one "
        assert server.bodies[0]["stop"] == ["a1", "b2", "c3", "d4"]


@pytest.mark.parametrize("model", ["o1", "o3-mini", "o4-mini-2025-04-16", "gpt-5", "gpt-5.1-mini", "x/gpt-5"])
def test_reasoning_models_take_no_sampling_settings(model):
    with ChatServer() as server:
        ask(server, Request(HELLO.messages, temperature=0.7, top_p=0.9, max_tokens=9, stop=("x",)), model)
        assert server.bodies[0].keys() == {"model", "messages", "max_completion_tokens"}


@pytest.mark.parametrize("model", ["gpt-4.1-mini", "gpt-4o", "gpt-5-chat-latest", "olmo-7b", "phi-4"])
def test_ordinary_models_do(model):
    assert not is_reasoning(model)


def test_extra_headers_and_seed(monkeypatch):
    monkeypatch.setenv("TENANT", "blue-secret")
    extra = {"seed": 5, "headers": {"X-Tenant": "$TENANT"}, "min_p": 0.1}
    with ChatServer() as server:
        ask(server, Request(HELLO.messages, replica=3, extra={"min_p": 0.2}), extra=extra)
        assert server.bodies[0]["seed"] == 8 and server.bodies[0]["min_p"] == 0.2
        assert server.headers[0]["X-Tenant"] == "blue-secret"
        lm = client.openai("m", settings(api_base=server.base, extra=extra))
    assert '"min_p": 0.1' in lm.identity and "blue-secret" not in lm.identity
    with pytest.raises(SpecError, match="'stream' cannot be set"):
        client.openai("m", settings(extra={"stream": True}))


@pytest.mark.fault("leaked-keys")
def test_key_is_sent_and_never_shown(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    echoed = f"{KEY} sk-canary%2B0123456789%2Fabc {base64.b64encode(KEY.encode()).decode()}" * 2
    with ChatServer("401", message=echoed) as server:
        error = fail(server, api_key_env="MY_KEY")
        assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
        lm = client.openai("m", settings(api_base=server.base.replace("//", "//user:pass-word@")))
    for text in (str(error), repr(error), repr(error.__cause__), lm.identity):
        assert "canary" not in text and base64.b64encode(KEY.encode()).decode()[:12] not in text
        assert "pass-word" not in text
    assert "***" in str(error) and str(error).endswith("(the key in the variable MY_KEY was sent)")


@pytest.mark.fault("leaked-keys")
def test_a_key_is_not_shown_when_its_variable_has_changed_since(monkeypatch):
    async def ask_twice(lm: client.OpenAIChat) -> str:
        for _ in range(2):
            with pytest.raises(LMError) as caught:
                await lm.complete(HELLO)
            monkeypatch.delenv("MY_KEY", raising=False)
        await lm.aclose()
        return str(caught.value)

    monkeypatch.setenv("MY_KEY", KEY)
    with ChatServer("401", message=KEY) as server:
        told = asyncio.run(ask_twice(client.openai("m", settings(api_base=server.base, api_key_env="MY_KEY"))))
        assert server.headers[1]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in told and told.endswith("(the key in the variable MY_KEY was sent)")


def test_a_missing_key_is_named_before_anything_is_sent():
    with pytest.raises(LMError, match="OPENAI_API_KEY") as caught:
        asyncio.run(_complete(client.openai("m", settings()), HELLO))
    assert caught.value.kind == "auth"
    with ChatServer() as server, pytest.raises(LMError, match="NO_SUCH_KEY"):
        ask(server, api_key_env="NO_SUCH_KEY")
    assert server.requests == 0


def test_the_default_key_goes_to_no_address_from_a_workflow_file(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for address in ("https://models.example.org/v1", "http://api.openai.com/v1", "https://api.openai.com:8443/v1"):
        assert client.openai("m", settings(api_base=address))._server.key() is None, address
    monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example.org/v1")
    assert client.openai("m", settings())._server.key() == KEY


def test_hanging_servers_can_be_cancelled():
    async def run(server: ChatServer) -> None:
        lm = client.openai("m", settings(api_base=server.base))
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await lm.complete(HELLO)
        server.kind = "ok"
        assert (await lm.complete(HELLO)).text == "hello there", "the pool has room again"
        await lm.aclose()

    for fault in ("stall", "slowloris"):
        with ChatServer(fault) as server:
            asyncio.run(run(server))


def test_refused_connection():
    lm = client.openai("m", settings(api_base="http://127.0.0.1:9/v1"))
    with pytest.raises(LMError) as caught:
        asyncio.run(_complete(lm, HELLO))
    assert caught.value.kind == "no_server"
    assert str(caught.value) == "no server at 127.0.0.1:9 (Connection refused). Start it, or correct `api_base`."


def test_keep_alive_and_several_event_loops():
    with ChatServer(latency=0.02) as server:
        lm = client.openai("m", settings(api_base=server.base, concurrency=3))

        async def run() -> None:
            await asyncio.gather(*[lm.complete(HELLO) for _ in range(12)])
            await lm.aclose()

        asyncio.run(run())
        asyncio.run(run())
        assert server.requests == 24


def test_strange_requests_are_sent_or_refused():
    with ChatServer() as server:
        assert ask(server, Request(({"role": "user", "content": "half \ud800"},))).text == "half ?"
    with ChatServer() as server, pytest.raises(LMError) as caught:
        ask(server, Request(({"role": "user", "content": "x", "bad": object()},)))
    assert caught.value.kind == "bad_request" and server.requests == 0


@pytest.mark.parametrize("base", ["localhost:8000", "ftp://x/v1", "", "http://"])
def test_bad_addresses(base):
    with pytest.raises(SpecError):
        client.OpenAIChat("m", settings(api_base=base), base)


def test_addresses(monkeypatch):
    def url(factory, **values):
        return str(factory("m", settings(**values))._url)

    assert url(client.openai) == "https://api.openai.com/v1/chat/completions"
    assert url(client.openai, api_base="http://h:1/") == "http://h:1/v1/chat/completions"
    assert url(client.ollama) == "http://127.0.0.1:11434/v1/chat/completions"
    assert url(client.hosted_vllm) == "http://127.0.0.1:8000/v1/chat/completions"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gw/openai")
    assert url(client.openai) == "http://gw/openai/chat/completions"


def test_prices():
    def price(model="m", **values):
        return client.openai(model, settings(**values)).price(1_000_000, 1_000_000)

    assert price(price={"input": 1.0, "output": 2.0}) == pytest.approx(3.0)
    assert price(price=SimpleNamespace(input=1.0, output=2.0), api_base="http://127.0.0.1/v1") == 3.0
    assert price(api_base="http://127.0.0.1:1/v1") == 0.0
    assert price(api_base="http://models.example.org/v1") is None
    assert price("gpt-4.1-mini") == pytest.approx(2.0)
    assert price("no-such-model") is None


def test_prices_are_read_without_importing_litellm():
    code = (
        "import sys; from workbench_openai.prices import usd_per_token; assert usd_per_token('gpt-4o');"
        "assert 'litellm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert prices.usd_per_token("no-such-model") is None


@pytest.mark.parametrize("tables", [table_prices.TABLES[1:], (("no_such_package", "x"), table_prices.TABLES[1])])
def test_without_litellm_prices_are_those_of_dspy(tables, monkeypatch):
    known = prices.usd_per_token("gpt-4.1-mini")
    table_prices.read_table.cache_clear()
    monkeypatch.setattr(table_prices, "TABLES", tables)
    assert prices.usd_per_token("gpt-4.1-mini") == known != None  # noqa: E711
    table_prices.read_table.cache_clear()


def test_settings_of_the_request_are_refused_among_extra():
    with pytest.raises(SpecError, match="'max_tokens' cannot be set") as caught:
        client.openai("m", settings(extra={"max_tokens": 3}))
    assert "under lm" in (caught.value.hint or "")


def test_a_connection_that_was_never_made_is_no_timeout_that_may_be_billed(monkeypatch):
    async def never(self, *asked):
        raise aiohttp.ConnectionTimeoutError("Connection timeout to host")

    monkeypatch.setattr(client.Server, "_post", never)
    lm = client.openai("m", settings(api_base="http://127.0.0.1:9/v1"))
    with pytest.raises(LMError) as caught:
        asyncio.run(_complete(lm, HELLO))
    assert caught.value.kind == "connection"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_no_log_probabilities_and_no_vectors(number: str) -> None:
    body = f'{{"choices": [{{"message": {{"content": "x"}}, "logprobs": {{"content": [{{"logprob": {number}}}]}}}}]}}'
    request = Request(({"role": "user", "content": "x"},), logprobs=True)
    assert wire.parse_body(body.encode(), request, lambda *tokens: None).logprobs is None
    with pytest.raises(LMError, match="not finite"):
        wire.parse_vectors(f'{{"data": [{{"index": 0, "embedding": [1, {number}]}}]}}'.encode(), 1)
