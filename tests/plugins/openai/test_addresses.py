"""Which address is asked, with which key, and what is said of one that does not take it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.helpers.lm_faults import ChatServer
from tests.plugins.openai.test_openai import HELLO, KEY, _complete, fail, settings

from workbench.errors import LMError, SpecError
from workbench_openai import client


@pytest.mark.parametrize(
    ("key", "values", "told"),
    [
        pytest.param("", {}, True, id="nu8-none"),
        pytest.param(KEY, {}, False, id="nu8-usual-key"),
        pytest.param("", {"extra": {"headers": {"api-key": "mine"}}}, False, id="nu8-own-header"),
    ],
)
def test_nu8_a_refusal_for_want_of_a_key_says_so(key: str, values: Any, told: bool, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with ChatServer("401") as server:
        error = fail(server, **values)
    assert error.kind == "auth" and ("no API key was sent; name its variable" in str(error)) is told


def test_nu9_an_address_that_is_not_found_is_named_without_what_is_secret(monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ChatServer("404") as server:
        base = f"{server.base.replace('//', '//me:pass@')}/wrong?key={KEY}"
        lm = client.openai("m", settings(api_base=base))
        with pytest.raises(LMError) as caught:
            asyncio.run(_complete(lm, HELLO))
        assert str(caught.value).endswith(f"(asked: {server.base}/wrong/chat/completions, for m)")
    assert server.headers[0]["Authorization"].startswith("Basic ")


@pytest.mark.parametrize("beside", [{"api_key_env": "MY_KEY"}, {"extra": {"headers": {"authorization": "Bearer x"}}}])
def test_nu10_a_server_takes_one_authorization(beside: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="a name and password in api_base, and a key beside it"):
        client.openai("m", settings(api_base="http://me:pass@127.0.0.1:9/v1", **beside))


@pytest.mark.parametrize(
    ("base", "asked"),
    [
        pytest.param("https://h.example", "https://h.example/v1/chat/completions", id="nu11-host"),
        pytest.param("https://h.example/", "https://h.example/v1/chat/completions", id="nu11-slash"),
        pytest.param("https://h.example/chat/completions", "https://h.example/chat/completions", id="nu11-full"),
        pytest.param(
            "https://h.example/chat/completions/?a=b", "https://h.example/chat/completions?a=b", id="nu11-query"
        ),
        pytest.param("https://h.example/v1/chat/completions", "https://h.example/v1/chat/completions", id="nu11-v1"),
    ],
)
def test_nu11_a_full_address_is_asked_as_it_is(base: str, asked: str) -> None:
    assert str(client.openai("m", settings(api_base=base))._url) == asked
