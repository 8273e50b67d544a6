"""Answers of Gemini's API as they are read and paid, and errors in its form."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from tests.helpers.gemini_asks import SIGNED, THOUGHT, USER, ask, closed, gemini
from tests.helpers.gemini_server import KEY, GeminiServer, Wrong, answer, check_content, gemini_server
from tests.helpers.passing import served

from workbench.errors import LMError
from workbench.lm import Native, Request, make_lm
from workbench.spec import lm_spec
from workbench_kit.wire import Usage, answered_call


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", KEY)


def test_thoughts_are_paid_as_the_answer_and_cached_tokens_at_their_rate() -> None:
    usage = {"promptTokenCount": 1000, "cachedContentTokenCount": 900, "candidatesTokenCount": 60}
    usage |= {"thoughtsTokenCount": 40, "totalTokenCount": 1100}
    price = {"input": 10, "output": 10, "cached": 1}
    for stream in (False, True):
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        with gemini_server() as server:
            pieces = [{**answer("a", end=None), "usageMetadata": {"promptTokenCount": 1000}}]
            pieces.append({**answer(), "usageMetadata": usage})
            server.answers = [pieces if stream else {**answer("a"), "usageMetadata": usage}]
            request = Request(native := (), native=Native("gemini", {"contents": USER}, method=method))
            lm = make_lm(lm_spec(gemini(server, price=price)))
            found = asyncio.run(closed(lm, request))
        assert (found.prompt_tokens, found.completion_tokens, found.cached) == (1000, 100, 900), native
        assert found.usd == pytest.approx((100 * 10 + 900 * 1 + 100 * 10) / 1e6) and found.text == "a"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (answer("a", "b"), ("ab", "stop", 0)),
        (answer(THOUGHT, "a", end="MAX_TOKENS"), ("a", "length", 0)),
        (answer(SIGNED, SIGNED), ("", "tool_calls", 2)),
        (answer(end="SAFETY"), ("", "refusal", 0)),
        (answer(end="MALFORMED_FUNCTION_CALL"), ("", "empty", 0)),
        ({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}}, ("", "refusal", 0)),
        ({"usageMetadata": {"promptTokenCount": 4}}, ("", "empty", 0)),
    ],
)
def test_an_answer_is_read_for_the_trace(given: Any, wanted: Any) -> None:
    with gemini_server() as server:
        server.answers = [given]
        request = Request((), native=Native("gemini", {"contents": USER}, method="generateContent"))
        found = asyncio.run(closed(make_lm(lm_spec(gemini(server))), request))
    assert (found.text, found.finish, len(found.tool_calls)) == wanted and json.loads(found.native["raw"]) == given
    assert found.thoughts == ("Hm." if "Hm." in str(given) else "")


def test_a_stream_that_ends_before_its_answer_is_broken() -> None:
    with gemini_server() as server:
        server.answers = [[answer("a", end=None)]]
        native = Native("gemini", {"contents": USER}, method="streamGenerateContent?alt=sse")
        with pytest.raises(LMError, match="ended before"):
            asyncio.run(closed(make_lm(lm_spec(gemini(server))), Request((), native=native)))


def test_sound_is_known_by_its_tokens_for_its_price() -> None:
    details = [{"modality": "TEXT", "tokenCount": 5}, {"modality": "AUDIO", "tokenCount": 2}]
    body = {"usageMetadata": {"promptTokensDetails": details, "candidatesTokensDetails": details[:1]}}
    assert answered_call(Usage(7, 3), 7, 3, Request(()), body).conditions == {"audio", "location usual"}


# Errors


@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent?alt=sse", "countTokens"])
@pytest.mark.parametrize(
    ("code", "word"), [(400, "INVALID_ARGUMENT"), (403, "PERMISSION_DENIED"), (404, "NOT_FOUND"), (503, "UNAVAILABLE")]
)
def test_an_error_of_google_passes_as_it_came(
    code: int, word: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body: dict[str, Any] = {"contents": USER}
    with gemini_server() as server:
        match code:
            case 400:
                body["nonsense"] = 1
            case 403:
                monkeypatch.setenv("GEMINI_API_KEY", "another")
            case 404:
                server.models = set()
            case _:
                server.down = Wrong("The model is overloaded.", code, word)
        status, said, _ = ask(gemini(server), body, method)
        assert (status, said) == (code, server.refused[-1]) and json.loads(said)["error"]["status"] == word
        assert len(server.asked) == 1


def test_a_key_of_nobody_is_refused_as_google_refuses_it() -> None:
    with gemini_server() as server:
        status, said, _ = ask(gemini(server), {"contents": USER}, headers={"x-goog-api-key": "k"}, told=[])
        assert status == 200, said  # the secret stands in the path

        async def main() -> Any:
            async with served(gemini(server)) as (gateway, _), aiohttp.ClientSession() as client:
                url = f"{gateway.address}/v1beta/models/m:generateContent?key=wrong"
                async with client.post(url, json={"contents": USER}) as found:
                    return found.status, await found.json()

        status, body = asyncio.run(main())
    assert (status, body["error"]["status"], body["error"]["code"]) == (401, "UNAUTHENTICATED", 401)


@pytest.mark.parametrize("name", ["openai/up", "anthropic/up"])
def test_a_model_of_another_api_is_refused_and_the_setting_named(name: str) -> None:
    with gemini_server() as server:
        status, said, _ = ask({**gemini(server, name), "api_base": f"{server.address}/v1"}, {"contents": USER})
        assert server.asked == []
    error = json.loads(said)["error"]
    assert (status, error["status"]) == (400, "INVALID_ARGUMENT") and "lm: gemini/" in error["message"]


def test_other_paths_pass_as_they_came_in_production() -> None:
    async def main(server: GeminiServer) -> list[int]:
        found: list[int] = []
        async with served(gemini(server)) as (gateway, secret):
            async with aiohttp.ClientSession(headers={"x-goog-api-key": secret}) as client:
                for method, path in (("POST", "models/e:embedContent"), ("GET", "models?pageSize=2"), ("GET", "files")):
                    url = f"{gateway.address}/v1beta/{path}"
                    # By its path, or else by what Google's client names.
                    more = {"json": {}} if method == "POST" else {"headers": {"x-goog-api-client": "google-genai-sdk"}}
                    async with client.request(method, url, **more) as answered:
                        found.append(answered.status)
        return found

    with gemini_server() as server:
        assert asyncio.run(main(server)) == [404, 404, 404]  # the stand-in has none of them
        paths = [path for path, _, _ in server.asked]
    assert paths == ["/v1beta/models/e:embedContent", "/v1beta/models?pageSize=2", "/v1beta/files"]


def test_a_stream_that_breaks_off_breaks_off_here_without_a_word() -> None:
    async def main(server: GeminiServer) -> bytes:
        async with served(gemini(server)) as (gateway, secret), aiohttp.ClientSession() as client:
            url = f"{gateway.address}/v1beta/models/m:streamGenerateContent?alt=sse"
            found = b""
            async with client.post(url, json={"contents": USER}, headers={"x-goog-api-key": secret}) as answered:
                with pytest.raises(aiohttp.ClientError):
                    async for part in answered.content.iter_any():
                        found += part
            return found

    with gemini_server() as server:
        server.answers, server.seconds = [[answer("a", end=None), None]], 0.1
        found = asyncio.run(main(server))
    (event,) = [line for line in found.decode().splitlines() if line]
    assert json.loads(event.removeprefix("data: ")) == answer("a", end=None)


def test_the_key_is_neither_sent_back_nor_the_secret_sent_on() -> None:
    async def main(server: GeminiServer, told: list[str]) -> tuple[str, str]:
        async with served(gemini(server), told=told) as (gateway, secret), aiohttp.ClientSession() as client:
            for path in ("generateContent?key=", "countTokens?x=1&key="):
                url = f"{gateway.address}/v1beta/models/m:{path}{secret}"
                async with client.post(url, json={"contents": USER}) as found:
                    told.append(await found.text())
            return secret, "".join(told)

    with gemini_server() as server:
        server.answers = [answer(f"Your key is {KEY}.")]
        secret, told = asyncio.run(main(server, []))
        assert len(server.asked) == 2 and "Your key is ***." in told
        assert KEY not in told and secret not in str(server.asked) and server.asked[1][0].endswith(":countTokens?x=1")


def test_the_stand_in_refuses_what_google_refuses() -> None:
    result = {"functionResponse": {"name": "look", "response": {}}}
    for body in (
        {"contents": USER, "generationConfig": {"max_tokens": 3}},
        {"contents": []},
        {"contents": [{"role": "assistant", "parts": [{"text": "a"}]}]},
        {"contents": [*USER, {"role": "model", "parts": [SIGNED]}]},
        {"contents": [*USER, {"role": "model", "parts": [SIGNED]}, {"parts": [result, result]}]},
        {"contents": USER, "tools": [{"functionDeclarations": [{"name": "a b"}]}]},
    ):
        with pytest.raises(Wrong):
            check_content(body)
    check_content({"contents": [*USER, {"role": "model", "parts": [SIGNED]}, {"parts": [result]}]})
