"""Limits and deadlines of the gateway, and what becomes of requests whose agent or session is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from tests.helpers.gateway_sessions import CHAT_BODY, HELLO, ScriptedSession, opened, send, serve

from workbench.lm import Response
from workbench_external.gateway import Ask, Gateway, Refused, server, streaming

CHAT = "/v1/chat/completions"
STREAMED = {**CHAT_BODY, "stream": True}


async def raw(gateway: Gateway, head: str, body: bytes = b"", wait: bool = True) -> bytes:
    """What comes back for bytes as they are, until the server hangs up or waits."""
    host, port = gateway.address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{head}\r\nHost: {host}:{port}\r\n\r\n".encode() + body)
    found = b""
    try:
        async with asyncio.timeout(5):
            found = await reader.readuntil(b"\r\n\r\n")
            if wait:
                found += await reader.readuntil(b"\r\n\r\n")
    except (TimeoutError, asyncio.IncompleteReadError):
        pass
    writer.close()
    return found


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_has_at_most_so_many_bytes(monkeypatch: pytest.MonkeyPatch, declared: bool) -> None:
    monkeypatch.setattr(server, "MAX_BODY", 10_000)

    async def use(gateway: Gateway, secret: str) -> None:
        fits = json.dumps({**CHAT_BODY, "user": "x" * 9_000}).encode()
        assert (await send(gateway, f"/s/{secret}{CHAT}", fits))[0] == 200
        body = json.dumps({**CHAT_BODY, "user": "x" * 20_000}).encode()

        async def parts() -> Any:
            for start in range(0, len(body), 4000):
                yield body[start : start + 4000]

        async with aiohttp.ClientSession() as client:
            url = f"{gateway.address}/s/{secret}{CHAT}"
            async with client.post(url, data=body if declared else parts()) as answer:
                assert answer.status == 413 and "at most 10000 bytes" in await answer.text()
        head = f"POST /s/{secret}{CHAT} HTTP/1.1\r\nContent-Length: 20000"
        assert not declared or (await raw(gateway, head, wait=False)).startswith(b"HTTP/1.1 413 "), "before it is sent"

    session = ScriptedSession()
    serve(session, use)
    assert len(session.asked) == 1


def test_a_body_that_does_not_arrive_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_SECONDS", 0.1)

    async def use(gateway: Gateway, secret: str) -> bytes:
        head = f"POST /s/{secret}{CHAT} HTTP/1.1\r\nContent-Length: 100"
        return await raw(gateway, head, b'{"model', wait=False)

    assert serve(ScriptedSession(), use).startswith(b"HTTP/1.1 408 ")


def test_a_client_that_waits_for_leave_to_send_gets_it_only_with_the_secret() -> None:
    async def use(gateway: Gateway, secret: str) -> tuple[bytes, bytes]:
        rest = " HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2"
        return (
            await raw(gateway, f"POST /s/{secret}{CHAT}{rest}", wait=False),
            await raw(gateway, f"POST /s/{'x' * 40}{CHAT}{rest}", wait=False),
        )

    known, unknown = serve(ScriptedSession(), use)
    assert known.startswith(b"HTTP/1.1 100 ") and unknown.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b"\xff\xfe\xff", 400),
        (b'{"a": ' + b"[" * 100_000, 400),
        (b'{"model": ' + b"9" * 10_000 + b"}", 400),
    ],
)
def test_what_is_no_object_is_refused(body: bytes, status: int) -> None:
    for path in (CHAT, "/v1/responses", "/v1/messages", "/v1/embeddings"):
        found, told, _ = serve(ScriptedSession(), lambda g, s: send(g, f"/s/{s}{path}", body))  # noqa: B023
        assert found == status and told["error"]["message"]


@pytest.mark.parametrize(
    "head",
    [
        "NONSENSE /SECRET",
        "POST /SECRET HTTP/9",
        "GET /SECRET HTTP/1.1\r\nHost: a\r\nA : b",
        "GET /SECRET" + "x" * 9000,
        "GET /SECRET\0 HTTP/1.1\r\nHost: a",
        "GET /SECRET HTTP/1.1\nHost: a\n",
        "GET /a HTTP/1.1\r\nSECRET: a\0",
    ],
)
def test_what_is_no_http_is_refused_without_a_word_on_the_terminal_and_not_repeated(
    head: str, capfd: pytest.CaptureFixture[str]
) -> None:
    found = serve(ScriptedSession(), lambda gateway, _: raw(gateway, head, wait=False))
    assert found[:10] in (b"HTTP/1.1 4", b"HTTP/1.0 4", b"") and b"Traceback" not in found
    assert b"SECRET" not in found
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/messages/count_tokens"])
def test_stream_means_nothing_where_nothing_is_streamed(path: str) -> None:
    body = {**STREAMED, "input": "hi"}
    status, found, _ = serve(ScriptedSession(), lambda g, s: send(g, f"/s/{s}{path}", body))
    assert status == 200 and ("data" in found or found["input_tokens"] > 0)


def test_packed_bodies_are_refused() -> None:
    headers = {"Content-Encoding": "gzip"}
    status, _, _ = serve(ScriptedSession(), lambda g, s: send(g, f"/s/{s}{CHAT}", b"\x1f\x8b", headers))
    assert status == 415


@pytest.mark.parametrize(("number", "status"), [("1e308", 200), ("1e999", 400), ("-1e999", 400), ("NaN", 400)])
def test_a_number_that_no_json_can_hold_is_refused(number: str, status: int) -> None:
    """In a field that is passed on, it would stop the request on its way, or in the journal."""
    body = json.dumps({**CHAT_BODY, "logit_bias": {"5": 0}}).replace(": 0}", f": {number}}}").encode()
    assert serve(ScriptedSession(), lambda g, s: send(g, f"/s/{s}{CHAT}", body))[0] == status


def test_half_a_character_becomes_one_that_can_be_stored() -> None:
    session = ScriptedSession()
    body = b'{"model": "m", "messages": [{"role": "user", "content": "a\\ud83d b \\ud83d\\ude00"}]}'
    assert serve(session, lambda g, s: send(g, f"/s/{s}{CHAT}", body))[0] == 200
    assert session.asked[0].messages[0]["content"] == "a? b 😀"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", CHAT, 405), ("DELETE", "/v1/models", 405), ("POST", "/v1/audio/speech", 404), ("GET", "/v1/files", 404)],
)
def test_other_paths_and_methods_are_refused_in_the_form_of_the_api(method: str, path: str, status: int) -> None:
    found, body, headers = serve(ScriptedSession(), lambda g, s: send(g, f"/s/{s}{path}", method=method))
    assert found == status and set(body["error"]) == {"message", "type", "param", "code"}
    assert ("Allow" in headers) == (status == 405)


def test_the_path_says_which_api_is_asked_and_a_refusal_is_noted() -> None:
    """An agent that sends the headers of both APIs with each request (issue 34 point 3: refusals are told)."""
    noted: list[Exception] = []
    session = ScriptedSession()
    session.note_refusal = noted.append  # type: ignore[attr-defined]

    async def use(gateway: Gateway, secret: str) -> None:
        both = {"anthropic-version": "2023-06-01"}
        status, body, _ = await send(gateway, f"/s/{secret}{CHAT}", CHAT_BODY, both)
        assert status == 200 and body["object"] == "chat.completion"
        assert (await send(gateway, f"/s/{secret}/v1/models", headers=both))[1]["data"][0]["type"] == "model"
        assert (await send(gateway, f"/s/{secret}/v1/no/such", {}, both))[1]["type"] == "error" and len(noted) == 1
        assert (await send(gateway, f"/s/{secret}/v1/no/such"))[0] == 404 and len(noted) == 1, "a look is no request"

    serve(session, use)


def test_a_secret_has_so_many_requests_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_AT_ONCE", 2)

    async def use(gateway: Gateway, secret: str) -> None:
        found = await asyncio.gather(*(send(gateway, f"/s/{secret}{CHAT}", CHAT_BODY) for _ in range(3)))
        assert sorted(status for status, _, _ in found) == [200, 200, 429]
        assert [headers["retry-after"] for status, _, headers in found if status == 429] == ["1"]
        assert (await send(gateway, f"/s/{secret}{CHAT}", CHAT_BODY))[0] == 200

    serve(ScriptedSession(seconds=0.2), use)


@pytest.mark.parametrize("body", [CHAT_BODY, STREAMED])
def test_an_agent_that_hangs_up_cancels_its_request(body: Any) -> None:
    session = ScriptedSession(seconds=60)

    async def use(gateway: Gateway, secret: str) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await send(gateway, f"/s/{secret}{CHAT}", body)
        for _ in range(100):
            await asyncio.sleep(0.01)
            if session.cancelled:
                break

    serve(session, use)
    assert session.cancelled == 1


@pytest.mark.parametrize("pings", [False, True])
@pytest.mark.parametrize("body", [CHAT_BODY, STREAMED])
def test_a_session_that_is_dismissed_has_no_request_left(
    monkeypatch: pytest.MonkeyPatch, body: Any, pings: bool
) -> None:
    """Its calls are cancelled before `dismiss` returns, and its agent learns of it at once."""
    monkeypatch.setattr(streaming, "PING_SECONDS", 0.05 if pings else 15)
    session = ScriptedSession(seconds=60)

    async def use(gateway: Gateway, secret: str) -> None:
        asking = asyncio.ensure_future(send(gateway, f"/s/{secret}{CHAT}", body))
        await asyncio.sleep(0.3)
        await gateway.dismiss(secret)
        assert session.cancelled == 1
        async with asyncio.timeout(5):
            if pings and body is STREAMED:
                with pytest.raises(aiohttp.ClientError):
                    await asking
            else:
                status, _, headers = await asking
                assert (status, headers["x-should-retry"]) == (401, "false")

    serve(session, use)


def test_a_call_that_was_cancelled_elsewhere_is_answered() -> None:
    """The agent is there: without a status it would ask again and again."""

    class Cancelled(ScriptedSession):
        async def complete(self, ask: Ask) -> Sequence[Response]:
            raise asyncio.CancelledError

    async def use(gateway: Gateway, secret: str) -> None:
        status, _, headers = await send(gateway, f"/s/{secret}{CHAT}", CHAT_BODY)
        assert (status, headers["x-should-retry"]) == (401, "false")

    serve(Cancelled(), use)


def test_a_gateway_that_is_closed_has_no_request_left() -> None:
    session = ScriptedSession(seconds=3600)

    async def use(gateway: Gateway, secret: str) -> None:
        asking = asyncio.ensure_future(send(gateway, f"/s/{secret}{CHAT}", CHAT_BODY))
        await asyncio.sleep(0.3)
        await gateway.aclose()
        assert session.cancelled == 1
        await asyncio.wait({asking})

    serve(session, use)


def test_long_answers_are_preceded_by_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "PING_SECONDS", 0.05)

    async def use(gateway: Gateway, secret: str) -> None:
        async with aiohttp.ClientSession() as client:
            async with client.post(f"{gateway.address}/s/{secret}{CHAT}", json=STREAMED) as answer:
                assert answer.status == 200 and (await answer.content.readline()) == b": ping\n"
                assert (await answer.text()).endswith("data: [DONE]\n\n")
        variables = gateway.environment(secret, {})
        async with openai.AsyncOpenAI(base_url=variables["OPENAI_BASE_URL"], api_key=secret) as agent:
            async with agent.responses.stream(model="m", input="hi") as stream:
                assert (await stream.get_final_response()).output_text == HELLO.text
        async with anthropic.AsyncAnthropic(base_url=variables["ANTHROPIC_BASE_URL"], api_key=secret) as agent:
            messages: Any = CHAT_BODY["messages"]
            async with agent.messages.stream(model="m", max_tokens=9, messages=messages) as stream:
                assert await stream.get_final_text() == HELLO.text

    serve(ScriptedSession(seconds=0.3), use)


def test_a_late_error_ends_the_stream_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "PING_SECONDS", 0.05)

    async def use(gateway: Gateway, secret: str) -> None:
        variables = gateway.environment(secret, {})
        messages: Any = CHAT_BODY["messages"]
        async with openai.AsyncOpenAI(base_url=variables["OPENAI_BASE_URL"], api_key=secret) as agent:
            with pytest.raises(openai.APIError, match="No more"):
                async for _ in await agent.chat.completions.create(model="m", messages=messages, stream=True):
                    pass
            events = [e async for e in await agent.responses.create(model="m", input="hi", stream=True)]
            assert [(e.type, e.message) for e in events] == [("error", "No more.")]
        async with anthropic.AsyncAnthropic(base_url=variables["ANTHROPIC_BASE_URL"], api_key=secret) as agent:
            with pytest.raises(anthropic.APIStatusError, match="No more"):
                async with agent.messages.stream(model="m", max_tokens=9, messages=messages) as stream:
                    await stream.get_final_text()

    serve(ScriptedSession(Refused(429, "budget", "No more."), seconds=0.3), use)


@pytest.mark.slow
def test_five_hundred_streams_at_once() -> None:
    session = ScriptedSession(seconds=1.0)

    async def use(gateway: Gateway, secret: str) -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

            async def ask() -> str:
                async with client.post(f"{gateway.address}/s/{secret}{CHAT}", json=STREAMED) as answer:
                    return await answer.text()

            found = await asyncio.gather(*(ask() for _ in range(500)))
        assert all(text.endswith("data: [DONE]\n\n") and "Hello" in text for text in found)

    serve(session, use)
    assert len(session.asked) == 500


def test_a_session_that_gives_too_few_answers_is_at_fault() -> None:
    class Short(ScriptedSession):
        async def complete(self, ask: Any) -> list[Response]:
            return []

    with pytest.raises(ValueError, match="0 answers to a request for 1"):

        async def use(gateway: Gateway, secret: str) -> None:
            assert (await send(gateway, f"/s/{secret}{CHAT}", CHAT_BODY))[0] == 500

        serve(Short(), use)


def test_the_room_loads_no_http() -> None:
    import subprocess
    import sys

    code = "import sys, workbench_external.gateway; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.timeout(60)
def test_sessions_of_one_gateway_run_at_once() -> None:
    """Each answers when all ten were asked."""

    async def main() -> list[int]:
        all_asked = asyncio.Barrier(10)

        class Waiting(ScriptedSession):
            async def complete(self, ask: Ask) -> Sequence[Response]:
                await all_asked.wait()
                return await super().complete(ask)

        async with opened(Waiting()) as (gateway, secret):
            secrets = [secret, *(gateway.admit(Waiting()) for _ in range(9))]
            answers = await asyncio.gather(*(send(gateway, f"/s/{s}{CHAT}", CHAT_BODY) for s in secrets))
            return [status for status, *_ in answers]

    assert asyncio.run(main()) == [200] * 10
