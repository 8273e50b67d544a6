"""Errors of a model's server reach the agent's client as they would without a gateway: with its own default retries.

Errors are those of platform.openai.com/docs/guides/error-codes, docs.claude.com/en/api/errors,
learn.microsoft.com/azure/ai-services/openai (content filter) and of proxies in between.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import Mapping
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from aiohttp import web
from multidict import CIMultiDict
from tests.helpers.passing import APIS, TOOL, USER, model, served, with_gateway
from tests.helpers.upstream import USUAL, Upstream, chat_answer, upstream
from yarl import URL

from workbench_external.gateway import streaming

HEADERS = {"retry-after-ms": "5", "x-request-id": "req_9", "x-ratelimit-remaining-tokens": "0", "x-own": "kept"}
FILTERED = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {"filtered": True}}}


def said(message: str, kind: str = "invalid_request_error", code: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"message": message, "type": kind, "param": None, "code": code, **more}}


ERRORS: list[tuple[int, dict[str, Any] | str]] = [
    (400, said("Unknown parameter: 'frob'.", code="unknown_parameter", param="frob")),
    (400, said("Unsupported parameter: 'temperature' is not supported with this model.", param="temperature")),
    (400, said("The response was filtered.", code="content_filter", param="prompt", innererror=FILTERED)),
    (400, said("This model's maximum context length is 10 tokens.", code="context_length_exceeded")),
    (400, {"detail": "no"}),
    (401, said("Incorrect API key provided.", "authentication_error", "invalid_api_key")),
    (402, said("Your credit balance is too low.", "billing_error")),
    (403, said("Country, region, or territory not supported.", "permission_error")),
    (404, said("The model 'up' does not exist.", "not_found_error", "model_not_found")),
    (404, said("Conversation with id 'conv_1' not found.", "not_found_error")),
    (408, said("Request timeout.", "timeout_error")),
    (409, said("Conflict.", "conflict_error")),
    (413, said("Request exceeds the maximum size.", "request_too_large")),
    (422, {"detail": [{"loc": ["body", "n"], "msg": "too many", "type": "value_error"}]}),
    (429, said("Rate limit reached.", "rate_limit_error", "rate_limit_exceeded")),
    (429, said("You exceeded your current quota.", "insufficient_quota", "insufficient_quota")),
    (500, said("The server had an error.", "server_error")),
    (502, "<html><body>Bad Gateway</body></html>"),
    (503, said("The engine is overloaded.", "service_unavailable_error")),
    (504, said("Gateway timeout.", "timeout_error")),
    (529, said("Overloaded", "overloaded_error")),
]


def failing(status: int, body: Any) -> Any:
    async def answer(request: web.Request) -> web.Response:
        text, kind = (body, "text/html") if isinstance(body, str) else (json.dumps(body, indent=1), "application/json")
        return web.Response(text=text, status=status, content_type=kind, headers=HEADERS)

    return answer


async def ask(api: str, base: str, key: str, stream: bool) -> Any:
    """What a stock client makes of it, with its usual retries."""
    if api == "messages":
        async with anthropic.AsyncAnthropic(base_url=base.removesuffix("/v1"), api_key=key) as client:
            return await client.messages.create(model="up", max_tokens=9, messages=USER, stream=stream)  # type: ignore[call-overload]
    async with openai.AsyncOpenAI(base_url=base, api_key=key) as client:
        if api == "responses":
            return await client.responses.create(model="up", input="hi", temperature=0.5, stream=stream)
        if api == "completions":
            return await client.completions.create(model="up", prompt="hi", stream=stream)
        return await client.chat.completions.create(model="up", messages=USER, temperature=0.5, stream=stream)  # type: ignore[call-overload]


async def see(server: Upstream, path: str, error: tuple[int, Any], *asked: Any) -> dict[str, Any]:
    """What an agent sees of an error, and how often the server was asked."""
    before = len(server.asked)
    server.answers[path] = [failing(*error)] * 9
    try:
        await ask(*asked)
    except (openai.APIStatusError, anthropic.APIStatusError) as raised:
        headers = {name: raised.response.headers.get(name) for name in (*HEADERS, "content-type")}
        own = {"type": type(raised).__name__, "status": raised.status_code, "body": raised.body, "text": str(raised)}
        return {**own, "raw": raised.response.content, "headers": headers, "asked": len(server.asked) - before}
    raise AssertionError("it was answered")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ["chat", "responses", "messages", "completions"])
def test_clients_see_what_they_see_without_a_gateway(api: str, stream: bool, subtests: pytest.Subtests) -> None:
    path = "chat/completions" if api == "chat" else api
    name = "anthropic/up" if api == "messages" else "openai/up"

    async def main() -> None:
        with upstream() as server:
            async with served(model(name, server.address)) as (gateway, secret):
                for error in ERRORS:
                    direct = await see(server, path, error, api, f"{server.address}/v1", "k", stream)
                    through = await see(server, path, error, api, f"{gateway.address}/v1", secret, stream)
                    with subtests.test(f"{error[0]} {str(error[1])[:60]}"):
                        assert through == direct and through["status"] == error[0]

    asyncio.run(main())


def test_an_error_with_status_200_and_one_that_echoes_the_key_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-very-secret-key-of-the-user"
    monkeypatch.setitem(os.environ, "MY_KEY", key)

    async def echo(request: web.Request) -> web.Response:
        return web.json_response(said(f"Incorrect key {key}."), status=401, headers={"x-key": f"Bearer {key}"})

    async def use(client: aiohttp.ClientSession, base: str) -> list[Any]:
        found: list[Any] = []
        for _ in range(2):
            async with client.post(f"{base}/chat/completions", json={"model": "up", "messages": USER}) as answer:
                found.append((answer.status, await answer.json(), answer.headers.get("x-key")))
        return found

    with upstream() as server:
        server.answers["chat/completions"] = [(200, {"error": {"message": "no credit", "code": 402}}), echo]
        whole, echoed = with_gateway(model("openai/up", server.address, api_key_env="MY_KEY"), use)
    assert whole == (200, {"error": {"message": "no credit", "code": 402}}, None)
    assert echoed == (401, said("Incorrect key ***."), "Bearer ***")


def test_a_redirect_leads_no_client_past_the_gateway() -> None:
    async def moved(request: web.Request) -> web.Response:
        return web.Response(status=308, headers={"Location": "http://127.0.0.1:9/v1/chat/completions"})

    async def use(client: aiohttp.ClientSession, base: str) -> tuple[int, str | None]:
        async with client.post(f"{base}/chat/completions", json={"model": "up", "messages": USER}) as answer:
            return answer.status, answer.headers.get("Location")

    told: list[str] = []
    with upstream() as server:
        server.answers["chat/completions"] = [moved]
        assert with_gateway(model("openai/up", server.address), use, told=told) == (502, None)
    assert "127.0.0.1:9" in told[0]


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_an_error_that_comes_late_ends_the_stream_in_the_servers_words(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "PING_SECONDS", 0.05)
    late = said("Overloaded, come back later.", "overloaded_error")

    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(0.3)
        return web.json_response(late, status=529)

    async def use(client: aiohttp.ClientSession, base: str) -> bytes:
        body = {"model": "up", "messages": USER, "max_tokens": 9, "stream": True}
        async with client.post(f"{base}/{path}", json=body) as found:
            assert found.status == 200
            return await found.read()

    path, name = APIS[api]
    with upstream() as server:
        server.answers[path] = [answer]
        *pings, event = with_gateway(model(name, server.address), use).decode().strip().split("\n\n")
    assert pings and {*pings} == {": ping"}
    assert json.loads(event.partition("data: ")[2]) == late


@pytest.mark.parametrize(
    ("named", "given", "sent", "status"),
    [
        ("other", {"temperature": 0.5}, {}, 200),  # it cannot know that the model that answers takes none
        ("up", {"temperature": 0.5}, {}, 400),
        ("up", {}, {"temperature": 0.2}, 200),  # of our settings
    ],
)
def test_what_the_agents_own_model_refuses_is_left_out_if_it_is_not_the_agents(
    named: str, given: Mapping[str, Any], sent: Mapping[str, Any], status: int
) -> None:
    refused = said("Unsupported parameter: 'temperature' is not supported with this model.", param="temperature")

    async def answer(request: web.Request) -> web.Response:
        takes = "temperature" not in await request.json()
        return web.json_response(chat_answer() if takes else refused, status=200 if takes else 400)

    async def use(client: aiohttp.ClientSession, base: str) -> int:
        async with client.post(f"{base}/chat/completions", json={"model": named, "messages": USER, **given}) as answer:
            return answer.status

    with upstream() as server:
        server.answers["chat/completions"] = [answer] * 2
        assert with_gateway(model("openai/up", server.address, **sent), use) == status
        assert len(server.asked) == 1 + (status == 200)


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ("404 page not found", True),
        ({"detail": "Not Found"}, True),
        ({"error": {"message": "litellm.UnsupportedParamsError: Not Found", "code": "404"}}, True),
        ({"type": "error", "error": {"type": "bad_request_error", "message": "Not Found (2013)"}}, True),
        ({"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}, True),
        ({"error": {"message": "Invalid URL (POST /v1/responses)", "type": "invalid_request_error"}}, True),
        ({"error": "Unexpected endpoint or method. (POST /v1/responses)"}, True),
        ({"error": {"message": "The model `up` does not exist or you do not have access to it."}}, False),
        ({"error": {"message": "Conversation with id 'conv_1' not found."}}, False),
    ],
)
def test_a_server_that_lacks_an_api_is_told_from_one_that_lacks_what_is_named(body: Any, missing: bool) -> None:
    async def use(client: aiohttp.ClientSession, base: str) -> int:
        async with client.post(f"{base}/responses", json={"model": "up", "input": "hi"}) as answer:
            return answer.status

    with upstream() as server:
        server.answers["responses"] = [failing(404, body)]
        assert with_gateway(model("openai/up", server.address), use) == (200 if missing else 404)
        assert len(server.asked) == 1 + missing


# Other paths


ASKED: list[tuple[str, str, Mapping[str, Any]]] = [
    ("GET", "models", {}),
    ("GET", "models/up", {}),
    ("POST", "embeddings", {"json": {"model": "e", "input": [[1, 2]], "dimensions": 8}}),
    ("POST", "images/generations", {"json": {"prompt": "a cat"}}),
    ("POST", "audio/speech", {"json": {"input": "hi", "voice": "alloy"}}),
    ("POST", "audio/transcriptions", {"data": {"file": io.BytesIO(b"RIFF\x00\xff"), "model": "whisper-1"}}),
    ("POST", "files", {"data": {"file": io.BytesIO(b"{}"), "purpose": "batch"}}),
    ("DELETE", "files/file-1", {}),
    ("POST", "vector_stores/vs_1/search", {"json": {"query": "x"}}),
    ("POST", "conversations", {"json": {"items": []}}),
    ("PATCH", "conversations/conv_1", {"json": {"metadata": {"a": "b"}}}),
    ("POST", "rerank", {"json": {"query": "x", "documents": ["a"]}}),
    ("POST", "moderations", {"json": {"input": "x"}}),
    ("GET", "responses/resp_9/input_items?limit=2", {}),
    ("POST", "fine_tuning/jobs", {"json": {"model": "up"}}),
    ("GET", "models/org%2Fname", {}),
    ("GET", "files/a%2Fb%3Fc/content?after=x%26y%3Dz%2B1&flag", {}),
    ("GET", "search", {"json": {"query": "x"}}),
]


@pytest.mark.parametrize(("method", "path", "sent"), ASKED, ids=[f"{method} {path}" for method, path, _ in ASKED])
def test_every_path_passes_where_nothing_has_a_budget(method: str, path: str, sent: Mapping[str, Any]) -> None:
    got: list[tuple[str, str, bytes, Mapping[str, str]]] = []

    async def handle(request: web.Request) -> web.Response:
        got.append((request.method, str(request.rel_url), await request.read(), request.headers))
        own = CIMultiDict([("x-own", "1"), ("x-own", "2")])
        return web.Response(body=b"\x00\xffanswer", status=201, content_type="audio/mpeg", headers=own)

    async def use(client: aiohttp.ClientSession, base: str) -> tuple[int, bytes, str, list[str]]:
        headers = {"x-custom": "Bearer of mine", "OpenAI-Organization": "org-1"}
        async with client.request(method, f"{base}/{path}", headers=headers, **sent) as answer:
            return answer.status, await answer.read(), answer.content_type, answer.headers.getall("x-own")

    with upstream() as server:
        server.instead = handle
        found = with_gateway(model("openai/up", server.address), use)
    assert found == (201, b"\x00\xffanswer", "audio/mpeg", ["1", "2"])
    ((asked, url, body, headers),) = got
    assert (asked, url) == (method, f"/v1/{path}") and headers["x-custom"] == "Bearer of mine"
    assert headers["OpenAI-Organization"] == "org-1" and "workbench" not in headers.get("Authorization", "")
    if "json" in sent:
        assert json.loads(body) == sent["json"] and headers["Content-Type"] == "application/json"
    elif "data" in sent:
        assert headers["Content-Type"].startswith("multipart/form-data; boundary=") and len(body) > 100


@pytest.mark.parametrize(
    "path", ["models/..%2F..%2Fadmin", "models/%2E%2E%2F%2E%2E%2Fadmin", "responses/%2e%2e", "files/..%2F..%2Fadmin"]
)
def test_security_no_path_leaves_the_base_of_the_servers_address(path: str) -> None:
    """The key is for what lies behind it; also where a path of our own takes a name with slashes."""

    async def use(client: aiohttp.ClientSession, base: str) -> int:
        async with client.get(URL(f"{base}/{path}", encoded=True)) as answer:
            return answer.status

    with upstream() as server:
        assert with_gateway(model("openai/up", server.address), use) == 404 and not server.asked


def test_custom_headers_of_a_request_pass_and_keys_do_not() -> None:
    async def use(client: aiohttp.ClientSession, base: str) -> None:
        headers = {"Helicone-Auth": "Bearer h", "traceparent": "00-1"}
        body = {"model": "up", "messages": USER, "tools": [{"type": "function", "function": {"name": TOOL["name"]}}]}
        async with client.post(f"{base}/chat/completions", json=body, headers=headers) as answer:
            assert answer.status == 200

    with upstream() as server:
        with_gateway(model("openai/up", server.address), use)
        ((_, _, headers),) = server.asked
    assert headers["helicone-auth"] == "Bearer h" and headers["traceparent"] == "00-1"
    assert "Authorization" not in headers


@pytest.mark.parametrize(("theirs", "ours"), [(401, 401), (404, 200), (503, 503)])
def test_models_that_the_server_does_not_know_are_listed_and_its_errors_pass(theirs: int, ours: int) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response(said("no"), status=theirs)

    async def use(client: aiohttp.ClientSession, base: str) -> list[int]:
        found = []
        for path in ("models", "models/up"):
            async with client.get(f"{base}/{path}") as answer:
                found.append(answer.status)
        return found

    with upstream() as server:
        server.instead = refuse
        assert with_gateway(model("openai/up", server.address), use) == [ours, ours]


def test_a_version_of_the_api_in_the_settings_takes_the_place_of_ours() -> None:
    seen = list[list[str]]()

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.getall("anthropic-version"))
        return web.json_response(USUAL["messages"])

    async def use(client: aiohttp.ClientSession, base: str) -> int:
        body = {"model": "up", "max_tokens": 9, "messages": USER}
        async with client.post(f"{base}/messages", json=body) as found:
            return found.status

    with upstream() as server:
        server.instead = answer
        for extra in ({}, {"extra": {"headers": {"Anthropic-Version": "2099-01-01"}}}):
            assert with_gateway(model("anthropic/up", server.address, **extra), use) == 200
    assert seen == [["2023-06-01"], ["2099-01-01"]]
