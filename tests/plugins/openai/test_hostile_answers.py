"""Answers of a server that means harm: each is an answer, or one typed error, and none is a bug of the client."""

from __future__ import annotations

import asyncio
import json
import math
import time
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.helpers.lm_faults import ChatServer, answer
from tests.plugins.openai.test_openai import ask, fail, settings

from workbench.errors import LMError
from workbench.lm import MAX_TOKENS, Request
from workbench_kit.wire import Form, parse_price
from workbench_openai import client, wire

REQUEST = Request(({"role": "user", "content": "x"},), logprobs=True, stop=("END",))


def parse(body: Any) -> Any:
    """The Response, or the kind of LMError."""
    raw = body if isinstance(body, str) else json.dumps(body)
    try:
        return wire.parse_body(raw.encode("utf-8", "surrogatepass"), REQUEST, lambda *tokens: None)
    except LMError as error:
        assert len(str(error)) < 500
        return str(error.kind)


def usage(prompt: str, completion: str = "1") -> str:
    told = f'{{"prompt_tokens": {prompt}, "completion_tokens": {completion}}}'
    return f'{{"choices": [{{"message": {{"content": "x"}}}}], "usage": {told}}}'


@pytest.mark.parametrize(
    "told",
    [
        "-5",
        "NaN",
        "Infinity",
        "1e400",
        "1" + "0" * 400,
        "true",
        '"-7"',
        '"7 tokens"',
        "[7]",
        "{}",
        "1.5",
        str(MAX_TOKENS + 1),
    ],
)
def test_usage_that_nobody_can_have_had_is_estimated(told: str) -> None:
    for body in (usage(told), usage("1", told), usage(told, told)):
        found = parse(body)
        assert found.estimated and 0 < found.prompt_tokens < 100 and 0 < found.completion_tokens < 100


@pytest.mark.parametrize(("cached", "written"), [(-(10**12), 0), (100, 100), (60, 60), (10**12, 5), (0, -5)])
def test_tokens_of_a_cache_make_no_price_that_nobody_can_owe(cached: int, written: int) -> None:
    told = {
        "prompt_tokens": 100,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": cached},
        "cache_creation_input_tokens": written,
    }
    rates = parse_price({"input": 1e6, "output": 0, "cached": 0.1, "cache_write": 0})
    assert rates is not None
    found = wire.parse_body(json.dumps({**answer("x"), "usage": told}).encode(), REQUEST, rates.of)
    assert found.usd is not None and 0 <= found.usd <= 100
    assert found.cached >= 0 <= found.cache_write and found.cached + found.cache_write <= 100


def test_a_number_of_too_many_digits_is_a_broken_body() -> None:
    assert parse(usage("1" + "0" * 5000)) == "bad_body"


@pytest.mark.parametrize(
    "calls",
    [5, "abc", {"a": 1}, True, [None], [{}], [5], [[]], [{"function": "x"}], [{"function": {"name": 5}}]],
    ids=repr,
)
def test_tool_calls_of_another_form_are_a_broken_body(calls: Any) -> None:
    assert parse(answer(None, message={"tool_calls": calls})) == "bad_body"


@pytest.mark.parametrize("number", ["-1" + "0" * 400, "1e400", "5.0", "0.5", '"x"', "null", "[]"])
def test_what_is_no_logarithm_of_a_probability_is_none(number: str) -> None:
    body = '{"choices": [{"message": {"content": "x"}, "logprobs": {"content": [{"logprob": HERE}]}}]}'
    assert parse(body.replace("HERE", number)).logprobs is None
    assert parse(body.replace("HERE", "-0.5")).logprobs == (-0.5,)


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e400", "NaN", "null", '"x"', "[]"])
def test_a_vector_of_other_things_than_numbers_is_a_broken_body(number: str) -> None:
    with pytest.raises(LMError) as caught:
        wire.parse_vectors(f'{{"data": [{{"index": 0, "embedding": [0.5, {number}]}}]}}'.encode(), 1)
    assert caught.value.kind == "bad_body"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["stop", "length"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "choices message content finish_reason tool_calls function name arguments refusal logprobs logprob "
                "usage prompt_tokens completion_tokens error code text id index prompt_token_ids token_ids".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(values, values, values)
def test_no_body_is_a_bug(choice: Any, message: Any, whole: Any) -> None:
    for body in (whole, {"choices": [choice]}, {"choices": [{"message": message, "logprobs": choice}], "usage": whole}):
        found = parse(json.dumps(body))
        if not isinstance(found, str):
            assert 0 <= found.prompt_tokens <= MAX_TOKENS and 0 <= found.completion_tokens <= MAX_TOKENS


@given(values, values)
def test_no_error_is_a_bug(whole: Any, inner: Any) -> None:
    for body in (whole, {"error": inner}, {"error": {"code": inner, "message": whole}}, {"detail": [inner]}):
        assert wire.error_for(400, {}, json.dumps(body).encode()).kind
        Form().heed(400, json.loads(json.dumps(body)), REQUEST)


@pytest.mark.parametrize("code", ["²", "9" * 5000, "٤٢٩", "4_2"], ids=["power", "long", "other digits", "line"])
def test_a_code_that_is_no_status_means_nothing(code: str) -> None:
    assert parse({"error": {"code": code}}) == "bad_body"


@pytest.mark.parametrize("words", ["context length is 1 ", "max_tokens: 1", "temperature ", "model ", "not support "])
def test_an_error_with_a_long_message_is_read_at_once(words: str) -> None:
    told = json.dumps({"error": {"message": words * (100_000 // len(words))}}).encode()
    begun = time.process_time()
    wire.error_for(400, {}, told)
    Form().heed(400, wire.body_of(told), REQUEST)
    assert time.process_time() - begun < 1, "a square of the length takes ten seconds"


def test_a_retry_after_that_means_harm_is_bounded_or_nothing(subtests: pytest.Subtests) -> None:
    for value in [
        "1e9",
        "inf",
        "1e400",
        "1" * 5000,
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "Fri, 31 Dec 9999 23:59:59 -2359",
        "Mon, 01 Jan 0001 00:00:00 +2359",
        "Fri, 31 Dec 99999 23:59:59 GMT",
        "Mon, 01 Jan 2026 00:00:00 +999999999999",
        "-inf",
        "٥",
        "(" * 20_000,
        "Mon, 01 Jan 2026 " + "0:" * 50_000,
        "a" * 100_000,
        "\0",
    ]:
        with subtests.test(value=value):
            begun = time.process_time()
            found = wire.retry_after({"Retry-After": value})
            assert found is None or (0 <= found <= wire.MAX_RETRY_AFTER and math.isfinite(found))
            assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("head", "part", "times"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-Flood: " + b"x" * 1000 + b"\r\n", 100_000),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 100_000, 1000),
        (b"HTTP/1.1 200 OK\r\n", b"Content-Length: 5\r\n", 10),
        (b"HTTP/1.1 " + b"2" * 100_000, b"", 1),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", 100_000),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", b"{}", 1),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", b"{}", 1),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n", b"{}", 1),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0;" + b"x" * 100_000, 100),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: nonsense\r\nContent-Length: 2\r\n\r\n", b"{}", 1),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n", b"{}", 1),
        (b"\x00\xff\xfe" * 1000, b"", 1),
    ],
    ids=[
        "headers",
        "long header",
        "two lengths",
        "long status",
        "hints",
        "negative length",
        "huge length",
        "negative chunk",
        "chunk extensions",
        "unknown encoding",
        "no gzip",
        "no http",
    ],
)
def test_a_flood_of_headers_and_broken_http_are_one_typed_error(head: bytes, part: bytes, times: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head)
            for _ in range(times):
                writer.write(part)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def main() -> LMError:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        lm = client.openai("m", settings(api_base=base))
        try:
            with pytest.raises(LMError) as caught:
                async with asyncio.timeout(20):
                    await lm.complete(REQUEST)
            return caught.value
        finally:
            await lm.aclose()
            server.close()
            await asyncio.sleep(0.05)  # connections that broke off are closed in later turns of the loop

    error = asyncio.run(main())
    assert error.kind in ("broken", "bad_body", "connection", "bad_request") and len(str(error)) < 500


def test_an_ordinary_answer_is_taken_and_an_endless_header_is_not() -> None:
    with ChatServer() as server:
        assert ask(server).text == "hello there"
    with ChatServer("429", retry_after="1" * 200_000) as server:
        assert fail(server).kind in ("rate_limit", "broken", "bad_request")
