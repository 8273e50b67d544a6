"""Headers of the settings belong to the key of the cache; redirects are told and not followed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.helpers.said import Reply, billed, saying

from workbench.errors import LMError
from workbench.lm import LM, Request, Response, make_lm
from workbench.spec import lm_spec

REQUEST = Request(({"role": "user", "content": "hello"},))
BASE = "http://127.0.0.1:9/v1"


async def complete(lm: LM) -> Response:
    try:
        return await lm.complete(REQUEST)
    finally:
        await lm.aclose()


def key(model: str = "openai/m", **extra: Any) -> str:
    return REQUEST.key(make_lm(lm_spec({"model": model, "api_base": BASE, "extra": extra})).identity)


@pytest.mark.parametrize("model", ["openai/m", "litellm/openai/m", "anthropic/m"])
def test_headers_that_choose_what_answers_are_in_the_key(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, one = key(model), key(model, headers={"x-tenant": "one"})
    assert (
        len({plain, one, key(model, headers={"x-tenant": "two"}), key(model, headers={"anthropic-beta": "one"})}) == 4
    )
    assert one == key(model, headers={"X-Tenant": "one"})
    for name in ("Authorization", "x-api-key", "api-key", "Cookie", "Ocp-Apim-Subscription-Key", "X-Auth-Token"):
        assert key(model, headers={name: "sk-0123456789"}) == plain
    monkeypatch.setenv("TENANT", "one")
    assert key(model, headers={"x-tenant": "$TENANT"}) == one
    assert key(model, headers={"x-route": "${MY_TOKEN}"}) == plain
    identity = make_lm(lm_spec({"model": model, "api_base": BASE, "extra": {"headers": {"x-t": "canary"}}})).identity
    assert "canary" not in identity


def test_the_query_of_an_address_is_in_the_key() -> None:
    def at(query: str) -> str:
        return REQUEST.key(make_lm(lm_spec({"model": "openai/m", "api_base": f"{BASE}{query}"})).identity)

    assert len({at(""), at("?tenant=1"), at("?tenant=2")}) == 3 and at("?api-key=one") == at("")


def test_the_key_without_headers_is_what_it_was() -> None:
    assert make_lm(lm_spec({"model": "openai/m", "api_base": BASE})).identity == "m@http://127.0.0.1:9/v1"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("model", ["openai/m", "litellm/openai/m"])
def test_a_redirect_is_told_and_never_followed(status: int, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-0123456789")
    with saying(lambda asked: billed()) as other:
        place = other.base.replace("/v1", "/v2") + "/chat/completions?key=sk-0123456789"
        with saying(lambda asked: Reply({}, status, {"Location": place})) as server:
            lm = make_lm(lm_spec({"model": model, "api_base": server.base, "api_key_env": "SOME_KEY"}))
            with pytest.raises(LMError) as raised:
                asyncio.run(complete(lm))
    assert not other.asked and "sk-0123456789" not in str(raised.value)
    assert f"redirects to {other.base.replace('/v1', '/v2')}/chat/completions, " in str(raised.value)
    assert f"api_base: {other.base.replace('/v1', '/v2')})" in str(raised.value)


def test_a_relative_redirect_is_told_as_an_address() -> None:
    with saying(lambda asked: Reply({}, 307, {"location": "/v2/chat/completions"})) as server:
        lm = make_lm(lm_spec({"model": "openai/m", "api_base": server.base}))
        with pytest.raises(LMError, match=f"redirects to {server.base[:-3]}/v2/chat/completions"):
            asyncio.run(complete(lm))
