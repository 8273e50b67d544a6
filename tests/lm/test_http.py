"""One rule of what is on this machine, of statuses, secrets and reasoning models, for all clients."""

from __future__ import annotations

import base64
import json
import pickle
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from tests.helpers.sqlite import connect

from workbench.errors import FailureKind, LMError, NodeError
from workbench.lm import Request, Response, is_loopback, thinks
from workbench_kit.wire import (
    Form,
    as_it_came,
    describe_redirect,
    is_reasoning,
    kind_of_status,
    make_body,
    parse_price,
    redact,
    redact_answer,
)


@pytest.mark.parametrize(
    "base",
    [
        "http://127.0.0.1:8000/v1",
        "http://127.8.8.8",
        "http://localhost:1",
        "http://LOCALHOST/v1",
        "http://[::1]:9/v1",
        "https://user:pw@127.0.0.1/v1",
        "http://[::ffff:127.0.0.1]/v1",
    ],
)
def test_on_this_machine(base: str) -> None:
    assert is_loopback(base)


def test_not_on_this_machine(subtests: pytest.Subtests) -> None:
    """What costs nothing is decided by this, so a name that only begins with 127. must not pass."""
    for base in [
        "http://127.0.0.1.nip.io/v1",
        "http://127.evil.com/v1",
        "http://localhost.evil.com/v1",
        "http://localhost./v1",
        "http://127.0.0.1@evil.com/v1",
        "http://10.0.0.1/v1",
        "http://0.0.0.0/v1",
        "http://[::ffff:10.0.0.1]/v1",
        "https://api.openai.com/v1",
        "",
        None,
        "127.0.0.1",
        "http://e.org\\@127.0.0.1/v1",
        "http://[::1/v1",
    ]:
        with subtests.test(base=base):
            assert not is_loopback(base)


def test_statuses() -> None:
    found = {s: str(kind_of_status(s)) for s in (400, 401, 402, 403, 404, 408, 413, 422, 429, 500, 503, 529)}
    assert found == {
        400: "bad_request",
        401: "auth",
        402: "auth",
        403: "auth",
        404: "blocked",
        408: "timeout",
        413: "too_long",
        422: "bad_request",
        429: "rate_limit",
        500: "server",
        503: "server",
        529: "server",
    }


def test_secrets_do_not_stand_in_error_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-canary+0123/abc")
    monkeypatch.setenv("MINE", "my-own-secret")
    said = "sk-canary+0123/abc sk-canary%2B0123%2Fabc c2stY2FuYXJ5KzAxMjMvYWJj my-own-secret in-a-header short"
    assert redact(said, "MINE", {"X": "in-a-header", "Y": "short"}) == "*** *** *** *** *** short"


def test_reasoning_models_and_prices() -> None:
    assert is_reasoning("openai/o3-mini") and is_reasoning("gpt-5.1") and not is_reasoning("gpt-5-chat-latest")
    assert parse_price(None) is None
    rates = parse_price({"input": 1, "output": 2})
    assert rates is not None and rates == parse_price(SimpleNamespace(input=1.0, output=2.0))
    assert rates.price(4_000_000, 1_000_000, 1_000_000, 1_000_000) == pytest.approx(6.0)


# Kinds of failure

PROPERTIES = {  # as the four sets had them before: retryable, maybe_billed, infrastructure, dead_server
    "rate_limit": (1, 0, 1, 1),
    "server": (1, 0, 1, 1),
    "connection": (1, 0, 1, 1),
    "no_server": (1, 0, 1, 1),
    "broken": (1, 1, 1, 1),
    "timeout": (1, 1, 1, 1),
    "bad_body": (1, 1, 1, 1),
    "provider": (0, 0, 1, 1),
    "auth": (0, 0, 1, 0),
    "worker": (0, 0, 1, 0),
    "blocked": (0, 0, 1, 1),
}
#: Kinds besides those of infrastructure that say nothing about the workflow.
NO_RESULT = {"data", "judge"}


def test_what_follows_from_a_kind(subtests: pytest.Subtests) -> None:
    for kind in [*map(str, FailureKind), "of_a_plugin"]:
        with subtests.test(kind=kind):
            found = FailureKind(kind)
            now = found.retryable, found.maybe_billed, found.infrastructure, found.dead_server
            assert tuple(map(int, now)) == PROPERTIES.get(kind, (0, 0, 0, 0))
            assert found.no_result == (found.infrastructure or kind in NO_RESULT)
            assert LMError(kind, "").kind == kind and NodeError(kind, "").kind == kind


@pytest.mark.parametrize("kind", ["timeout", "of_a_plugin"])
def test_a_kind_is_its_text(kind: str) -> None:
    """Databases, reports and comparisons see what they always saw."""
    found = FailureKind(kind)
    assert found == kind and {kind: 1}[found] == 1 and f"{found}" == str(found) == kind
    assert json.dumps({found: found}) == json.dumps({kind: kind})
    assert connect(":memory:").execute("select ?, typeof(?)", (found, found)).fetchone() == (kind, "text")
    assert pickle.loads(pickle.dumps(found)) == kind


def test_every_kind_that_is_raised_is_listed() -> None:
    import re
    from pathlib import Path

    root = Path(__file__).parents[2]
    raised = {
        kind
        for folder in ("core", "plugins")
        for path in (root / folder).rglob("*.py")
        for kind in re.findall(r'(?:LMError|NodeError)\(\s*"([a-z_]+)"', path.read_text(encoding="utf-8"))
    }
    assert len(raised) > 15 and raised <= set(map(str, FailureKind))


@pytest.mark.parametrize("role", [None, "system", "tool"])
def test_a_turn_of_a_model_goes_back_as_its_own(role: str | None) -> None:
    call = {"id": "c", "name": "f", "arguments": {}}
    sent = {"role": role, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
    assert as_it_came(sent, [call])["role"] == "assistant"


def test_a_system_message_of_parts_stands_in_the_users_message_as_text() -> None:
    system = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    request = Request((system, {"role": "user", "content": "hello"}))
    assert make_body("m", request, {}, Form(frozenset({"system"})))["messages"] == [
        {"role": "user", "content": "Be brief.\n\nhello"}
    ]


@pytest.mark.parametrize(
    ("extra", "thinks_so"),
    [
        ({"reasoning": {"enabled": True}}, True),
        ({"reasoning": {"enabled": False}}, False),
        ({"reasoning": True}, False),
        ({"chat_template_kwargs": "thinking"}, False),
        ({"thinking": "enabled"}, False),
    ],
)
def test_settings_of_thinking_in_any_form_are_read(extra: dict[str, Any], thinks_so: bool) -> None:
    assert thinks("some-model", extra) is thinks_so


@pytest.mark.parametrize("before", ["", "Bearer ", "x", "Authorization: Bearer "])
def test_a_key_is_found_in_every_encoding(before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-canary+0123456789/abcdefgh"
    monkeypatch.setenv("MY_API_KEY", key)
    told = (before + key).encode()
    urlsafe = base64.urlsafe_b64encode(told).decode()
    for text in (key, told.hex(), told.hex().upper(), base64.b64encode(told).decode(), urlsafe, quote(key, safe="")):
        for found in (redact(f"<{text}>"), redact_answer(Response(f"<{text}>"), key).text):
            assert "***" in found and len(found) < len(text) - 20, (text, found)
    assert redact_answer(Response("nothing here"), key).text == "nothing here"


def test_a_key_that_a_server_echoes_is_nowhere_in_an_answer() -> None:
    key = "sk-canary-0123456789"
    call = {"id": key, "name": "f", "arguments": {key: [f"so {key}"]}}
    message = {"signature": f"{key}!", "blocks": [{"thinking": key}]}
    found = redact_answer(Response(key, thoughts=f"my {key}", tool_calls=(call,), message=message), key)
    assert "canary" not in str(found) and found.message == {"signature": "***!", "blocks": [{"thinking": "***"}]}


@pytest.mark.parametrize("header", ["Bearer {}", "bearer  {}", "Basic {}", "{}"])
def test_the_key_of_a_header_is_found_without_its_scheme(header: str) -> None:
    key = "sk-canary-0123456789"
    sent = {"X": header.format(key)}
    for found in (redact(f"bad key {key}", None, sent), redact_answer(Response(key), None, sent).text):
        assert "canary" not in found


def test_an_answer_that_is_nested_too_deeply_is_a_broken_body() -> None:
    deep: Any = []
    for _ in range(3000):
        deep = [deep]
    with pytest.raises(LMError, match="nested too deeply"):
        redact_answer(Response("", message={"reasoning_details": deep}), "sk-canary")


@pytest.mark.parametrize(
    ("model", "thinks_so"),
    [
        ("deepseek-v4-flash", True),
        ("moonshotai/Kimi-K2.6", True),
        ("kimi-k2-0905-preview", False),
        ("deepseek-ai/DeepSeek-V3.2", False),
    ],
)
def test_models_that_think_by_default_are_known_by_name(model: str, thinks_so: bool) -> None:
    assert thinks(model, {}) is thinks_so
    assert not thinks(model, {"thinking": {"type": "disabled"}})


def test_a_redirect_without_a_known_server_gives_no_address_to_write() -> None:
    """DSPy's own client tells the answer's headers alone, and a path is no `api_base`."""
    told = describe_redirect(303, {"location": "/v2/chat/completions"}, "")
    assert "/v2/chat/completions" in told and "api_base" not in told
    assert "write api_base: http://a/v2" in describe_redirect(303, {"location": "/v2/messages"}, "http://a/v1/messages")
