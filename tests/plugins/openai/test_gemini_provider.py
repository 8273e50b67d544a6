"""`gemini/...`: where its requests go, with which key, and which of them pass as they are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.helpers.gemini_asks import USER, closed
from tests.helpers.gemini_server import KEY, GeminiServer, gemini_server

from workbench.errors import LMError
from workbench.lm import Native, NotCarried, Request, make_lm
from workbench.spec import lm_spec


def asked(server: GeminiServer, **settings: Any) -> str:
    """The path of a request in the words of the API, or the kind of its error."""
    request = Request((), native=Native("gemini", {"contents": USER}, method="generateContent"))
    try:
        asyncio.run(closed(make_lm(lm_spec({"model": "gemini/up", **settings})), request))
    except LMError as error:
        return str(error.kind)
    return server.asked[-1][0]


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("name", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
@pytest.mark.parametrize("version", ["", "/", "/v1beta"])
def test_the_address_and_the_key_are_those_that_googles_client_reads(
    name: str, version: str, clean: pytest.MonkeyPatch
) -> None:
    clean.setenv(name, KEY)
    with gemini_server() as server:
        clean.setenv("GOOGLE_GEMINI_BASE_URL", f"{server.address}{version}")
        assert asked(server) == "/v1beta/models/up:generateContent"


def test_a_usual_key_goes_to_no_address_of_a_file_from_elsewhere(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("GEMINI_API_KEY", KEY)
    made: Any = make_lm(lm_spec({"model": "gemini/up", "api_base": "https://example.org/v1beta"}))
    assert made._server.key() is None
    named = lm_spec({"model": "gemini/up", "api_base": "https://example.org/v1beta", "api_key_env": "GEMINI_API_KEY"})
    other: Any = make_lm(named)
    assert other._server.key() == KEY


def test_an_unknown_model_and_a_missing_key_are_told_apart(clean: pytest.MonkeyPatch) -> None:
    with gemini_server() as server:
        address = {"api_base": f"{server.address}/v1beta"}
        assert asked(server, **address) == "auth"
        clean.setenv("GEMINI_API_KEY", KEY)
        server.models = set()
        assert asked(server, **address) == "blocked"


@pytest.mark.parametrize("more", [{"extra": {"seed": 1}}, {"omit": ["temperature"]}, {"rename": {"max_tokens": "n"}}])
def test_settings_in_the_words_of_chat_completions_leave_the_api_to_the_other_client(more: Any) -> None:
    lm: Any = make_lm(lm_spec({"model": "gemini/up", **more}))
    assert lm.apis == set()
    with pytest.raises(NotCarried):
        asyncio.run(closed(lm, Request((), native=Native("gemini", {"contents": USER}, method="generateContent"))))


def test_what_hosted_models_cost_is_in_the_table() -> None:
    lm: Any = make_lm(lm_spec("gemini/gemini-2.5-flash"))
    assert lm.price(1_000_000, 0) > 0
