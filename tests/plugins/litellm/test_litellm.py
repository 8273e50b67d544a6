"""The bridge to dspy.LM and LiteLLM: typed outcomes, and no second retry layer, in both of DSPy's engines."""

from __future__ import annotations

import asyncio
import email.utils
import gc
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.helpers.journal import journal, nothing_reserved, run, spec
from tests.helpers.lm_faults import ChatServer

from workbench.errors import LMError, PluginError, SpecError
from workbench.lm import LM, Request, Response, make_lm
from workbench.spec import lm_spec

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # raised while dspy and its dependencies are imported
    from workbench_litellm import provider

# LiteLLM warns about its own pydantic models, and about an event loop that its import looks for.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Item .* on TypedDict class:UserWarning"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:litellm.*"),
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20"),
]
HELLO = Request(({"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello there"}))


def settings(model: str = "litellm/openai/local", **values: Any) -> Any:
    defaults = {"api_base": None, "api_key_env": None, "timeout": 5.0, "concurrency": None, "price": None}
    defaults |= {"omit": [], "rename": {}}
    return SimpleNamespace(model=model, **({"extra": {}} | defaults | values))


def ask(server: ChatServer, engine: str, request: Request = HELLO, **values: Any) -> Response:
    lm = provider.anything("", settings(api_base=server.base, extra={"engine": engine}, **values))

    async def run() -> Response:
        try:
            return await lm.complete(request)
        finally:
            await lm.aclose()
            await asyncio.sleep(0)

    return asyncio.run(run())


@pytest.fixture(scope="module", autouse=True)
def _quiet_import():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import litellm  # slow and noisy, so once, here
    yield
    with warnings.catch_warnings():  # its clients stay in a cache of its own, and would be collected in any later test
        warnings.simplefilter("ignore")
        litellm.in_memory_llm_clients_cache.flush_cache()
        gc.collect()


def test_an_lm_that_nobody_closed_keeps_no_connection_of_others_open():
    """One whose event loop has ended: the next LM is the last in use, and closes what LiteLLM holds."""
    import litellm
    from aiohttp import ClientSession

    async def forget() -> Any:
        abandoned = provider.anything("", settings(api_base="http://127.0.0.1:9", extra={"engine": "litellm"}))
        abandoned._open()
        return abandoned

    abandoned = asyncio.run(forget())
    with ChatServer() as server:
        ask(server, "litellm")
    clients = [getattr(held, "_client", None) for held in litellm.in_memory_llm_clients_cache.cache_dict.values()]
    transports = [getattr(client, "_transport", None) for client in clients]
    sessions = [s for s in (getattr(t, "client", None) for t in transports) if isinstance(s, ClientSession)]
    assert sessions and all(session.closed for session in sessions), abandoned.model


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["lm15", "litellm"])
def test_answers_once(engine):
    with ChatServer() as server:
        response = ask(server, engine)
        assert response == Response("hello there", "stop", 11, 7, usd=0.0)
        assert server.requests == 1
        assert server.bodies[0]["temperature"] == 0.0
    assert isinstance(provider.anything("", settings(api_base=server.base)), LM)


FAULTS = {
    "429": "rate_limit",
    "500": "server",
    "503": "server",
    "400": "bad_request",
    "404": "blocked",
    "redirect": "blocked",
    "422": "bad_request",
    "401": "auth",
    "403": "auth",
    "reset": "broken",
    "drop": "broken",
    "truncated": "bad_body",
    "html": "bad_body",
    "badutf8": "bad_body",
    "list": "bad_body",
    "empty": "bad_body",
    "error200": "server",
    "gateway": "rate_limit",
    "deep": "bad_body",
    "huge": "bad_body",
    "hugechunked": "bad_body",
    "endless": "bad_body",
    "bomb": "bad_body",
    "endlessbomb": "bad_body",
    "oddcoding": "bad_body",
}
#: What is told of bodies that are not read to their end.
REFUSED = {
    **dict.fromkeys(("huge", "hugechunked", "endless", "bomb", "endlessbomb"), "a body over 33554432 bytes"),
    "oddcoding": "a body packed as 'gzip, gzip', which was not asked for",
}
#: LiteLLM makes a 500 of an answer that is no object, a 422 of an error sent with status 200.
LITELLM = {"list": "server", "error200": "bad_request"}


@pytest.mark.fault("broken-bodies")
def test_every_fault_is_one_typed_error_after_one_request(subtests: pytest.Subtests) -> None:
    for engine in ["lm15", "litellm"]:
        for fault in FAULTS:
            with subtests.test(engine=engine, fault=fault):
                with ChatServer(fault) as server, pytest.raises(LMError) as caught:
                    ask(server, engine)
                assert server.requests == 1, "no retry layer but the ledger's"
                assert caught.value.kind == ((LITELLM.get(fault) if engine == "litellm" else None) or FAULTS[fault])
                if fault.isdigit():
                    assert caught.value.status == int(fault) and f"injected {fault}" in str(caught.value)
                if fault in REFUSED:
                    assert str(caught.value) == f"openai/local: {REFUSED[fault]}"


@pytest.mark.parametrize("engine", ["lm15", "litellm"])
@pytest.mark.parametrize(("fault", "most"), [("endless", 48 << 20), ("endlessbomb", 8 << 20)])
def test_a_body_without_an_end_is_read_to_its_bound_and_no_further(fault: str, most: int, engine: str) -> None:
    with ChatServer(fault) as server, pytest.raises(LMError):
        ask(server, engine)
    assert 0 < server.sent < most, "the bound, and what buffers of sockets hold"


def test_such_a_body_is_tried_again_and_its_end_is_journalled(tmp_path: Path) -> None:
    async def main() -> None:
        for _ in range(2):  # again as another process: from the journal
            lm = provider.anything("", settings(api_base=server.base))
            with journal(tmp_path / "run.db", calls=9) as ledger:
                settled = await ledger.call(lm, HELLO, "task", spec(attempts=2, timeout=20))
                assert settled.response is None and settled.error is not None
                told = "openai/local: a body over 33554432 bytes"
                assert (settled.error.kind, str(settled.error)) == ("bad_body", told)
                assert settled.attempts == ledger.sent.calls == 2 and nothing_reserved(ledger)
            await lm.aclose()

    with ChatServer("endless") as server:
        run(main)
        assert server.requests == 2


@pytest.mark.parametrize("engine", ["lm15", "litellm"])
@pytest.mark.parametrize("fault", ["packed", "deflated"])
def test_a_packed_answer_is_unpacked(fault: str, engine: str) -> None:
    with ChatServer(fault) as server:
        assert ask(server, engine).text == "packed"


def test_another_dspy_is_refused_and_not_read_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench_dspy_seam.clients import http_parser
    from workbench_litellm import bodies

    monkeypatch.delattr(http_parser()[0], "_framing_decoder")
    with pytest.raises(PluginError, match="has no place for a bound of bodies: install dspy 3.4"):
        bodies.bound_native_client.__wrapped__()


def test_embeddings_have_the_bound_too() -> None:
    with ChatServer("endless") as server, pytest.raises(LMError, match="a body over 33554432 bytes") as caught:
        lm = provider.anything("", settings(api_base=server.base))
        asyncio.run(lm.embed(["hello"]))
    assert caught.value.kind == "bad_body" and server.sent < 48 << 20
    assert server.requests == 1, "LiteLLM would try three times by itself"


@pytest.mark.parametrize("engine", ["lm15", "litellm"])
def test_a_refused_connection_is_none_that_broke_off(engine):
    with pytest.raises(LMError) as caught:
        ask(SimpleNamespace(base="http://127.0.0.1:9/v1"), engine)  # type: ignore[arg-type]
    assert caught.value.kind == "no_server"


@pytest.mark.parametrize("engine", ["lm15", "litellm"])
@pytest.mark.parametrize(
    ("fault", "finish", "text"),
    [
        ("null", "empty", ""),
        ("blank", "empty", " \n"),
        ("length", "length", "cut sh"),
        ("filter", "refusal", ""),
        ("surrogate", "stop", "bad ? half"),
    ],
)
def test_typed_outcomes(fault, finish, text, engine):
    with ChatServer(fault) as server:
        response = ask(server, engine)
    assert (response.finish, response.text) == (finish, text)
    assert (response.prompt_tokens, response.completion_tokens) == (11, 7)


@pytest.mark.parametrize("engine", ["lm15", "litellm"])
def test_the_cost_in_a_header_is_the_bill_of_that_answer_alone(engine: str) -> None:
    with ChatServer("stated") as server:
        first, second = ask(server, engine), ask(server, engine)
    assert (first.usd, first.stated, first.computed_usd) == (0.5, True, 0.0)
    assert (second.usd, second.stated) == (0.0, False)


@pytest.mark.parametrize("engine", ["lm15", "litellm"])
def test_usage_tools_logprobs(engine):
    with ChatServer("nousage") as server:
        response = ask(server, engine)
        assert response.estimated and response.prompt_tokens > 0 and response.completion_tokens == 7
    with ChatServer("tools") as server:
        assert ask(server, engine).tool_calls == ({"id": "c1", "name": "look", "arguments": {"x": 1}},)
    with ChatServer("badtools") as server:
        assert ask(server, engine).tool_calls[0]["arguments"] == '{"x": '
    with ChatServer("logprobs") as server:
        assert ask(server, engine, Request(HELLO.messages, logprobs=True)).logprobs == (-0.5, -1.5)


def test_refusals_are_seen_by_the_native_engine():
    with ChatServer("refusal") as server:
        response = ask(server, "lm15")
    assert (response.finish, response.text) == ("refusal", "I can't help with that.")


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [("2", 2, 2), ("3600", 3600, 3600), ("soon", None, None), ("-5", None, None), ("in 300 s", 250, 301)],
    ids=["seconds", "hour", "words", "negative", "date"],
)
def test_retry_after(value, low, high):
    if value == "in 300 s":  # counted from here: other tests come first
        value = email.utils.formatdate(time.time() + 300, usegmt=True)
    with ChatServer("429", retry_after=value) as server, pytest.raises(LMError) as caught:
        ask(server, "lm15")
    found = caught.value.retry_after
    assert found is None if low is None else found is not None and low <= found <= high


def test_long_prompts():
    error = {"message": "maximum context length is 8192", "code": "context_length_exceeded"}
    with ChatServer("400", **error) as server:
        with pytest.raises(LMError) as caught:
            ask(server, "lm15")
    assert caught.value.kind == "too_long"


def test_hanging_server_can_be_cancelled():
    with ChatServer("slowloris") as server, pytest.raises(TimeoutError):

        async def run() -> None:
            lm = provider.anything("", settings(api_base=server.base, extra={"engine": "lm15"}))
            try:
                async with asyncio.timeout(0.5):
                    await lm.complete(HELLO)
            finally:
                await lm.aclose()

        asyncio.run(run())


def test_keys(monkeypatch):
    key = "sk-canary-0123456789"
    monkeypatch.setenv("MY_API_KEY", key)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other-0123456789")
    with ChatServer("401", message=f"bad key {key}") as server:
        with pytest.raises(LMError) as caught:
            ask(server, "lm15", api_key_env="MY_API_KEY")
        assert server.headers[0]["Authorization"] == f"Bearer {key}"
        assert "canary" not in str(caught.value) and "***" in str(caught.value)
        with pytest.raises(LMError):
            ask(server, "lm15")
        assert "sk-other" not in str(server.headers[1]), "no default key to an address from a workflow file"
        with pytest.raises(LMError, match="NO_SUCH_VARIABLE") as caught:
            ask(server, "lm15", api_key_env="NO_SUCH_VARIABLE")
        assert caught.value.kind == "auth" and server.requests == 2


def test_names_identity_and_price():
    lm = provider.anything("claude-sonnet-4-5", settings("anthropic/claude-sonnet-4-5"))
    assert lm.identity == "anthropic/claude-sonnet-4-5@default"
    assert provider.anything("", settings("litellm:gemini/x")).model == "gemini/x"
    assert lm.price(1_000_000, 1_000_000) == pytest.approx(18.0)
    assert provider.anything("", settings("x/y", price={"input": 1, "output": 2})).price(10**6, 10**6) == 3.0
    assert provider.anything("", settings("x/y", api_base="https://h.example.org/v1")).price(1, 1) is None
    assert "secret" not in provider.anything("", settings("x/y", api_base="https://u:secret@h/v1?k=secret")).identity
    with pytest.raises(SpecError, match="names no provider"):
        provider.anything("", settings("gpt"))


def test_registering_imports_neither_dspy_nor_litellm():
    code = "import sys, workbench_litellm; assert not {'dspy', 'litellm'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_prefixes_read_from_litellms_source_are_those_that_it_knows() -> None:
    import litellm

    assert provider.anything.providers() == {str(getattr(n, "value", n)) for n in litellm.provider_list}


@pytest.mark.parametrize("engine", ["lm15", "litellm"])
def test_a_fixed_seed_does_not_make_replicas_the_same_draw(engine: str) -> None:
    with ChatServer() as server:
        ask(server, engine, Request(HELLO.messages, replica=3, extra={"seed": 5}))
        ask(server, engine, Request(HELLO.messages, extra={"seed": 5}))
        assert [body.get("seed") for body in server.bodies] == [8, 5]


def test_settings_of_the_request_are_refused_among_extra() -> None:
    with pytest.raises(SpecError, match="'temperature' cannot be set"):
        provider.anything("", settings(extra={"temperature": 0.1}))


@pytest.mark.parametrize(
    ("model", "extra", "message"),
    [
        ("openai/x", {"base_url": "http://evil.example"}, "Write api_base under lm"),
        ("anthropic/x", {"api_base": "http://evil.example"}, "Write api_base under lm"),
        ("bedrock/x", {"aws_bedrock_runtime_endpoint": "https://evil.example"}, "Write api_base under lm"),
        ("huggingface/https://evil.example/x", {}, "contains an address"),
        ("openai/x", {"api_key": "literal"}, "Write api_key_env"),
        ("azure/x", {"azure_ad_token": "oidc/env/AWS_SECRET_ACCESS_KEY"}, "Write api_key_env"),
        ("vertex_ai/x", {"more": [{"credentials": " os.environ/AWS_SECRET_ACCESS_KEY"}]}, "Write api_key_env"),
    ],
)
def test_addresses_and_keys_stand_where_they_are_checked(model: str, extra: dict[str, Any], message: str) -> None:
    """Else the provider's usual key would go to a server that a workflow file names under `extra`."""
    with pytest.raises(SpecError, match=message):
        provider.anything("", settings(f"litellm/{model}", extra=extra))


@pytest.mark.parametrize(
    ("model", "extra"),
    [("watsonx/x", {}), ("vertex_ai/x", {}), ("openai/x", {"custom_llm_provider": "watsonx"})],
)
def test_an_address_gets_no_token_of_a_provider(model: str, extra: dict[str, Any]) -> None:
    """LiteLLM puts WATSONX_TOKEN, or the token of a login, in the place of the key that it is given."""
    far = {"api_base": "https://evil.example", "extra": extra}
    with pytest.raises(SpecError, match="sends credentials of this machine to the api_base of"):
        provider.anything("", settings(f"litellm/{model}", **far))
    provider.anything("", settings(f"litellm/{model}", extra=extra))
    provider.anything("", settings(f"litellm/{model}", **{**far, "api_base": "http://127.0.0.1:8000"}))


def test_a_setting_that_dspy_cannot_send_is_a_typed_error() -> None:
    lm = provider.anything("", settings(api_base="http://127.0.0.1:9", extra={"fallbacks": [{"model": "openai/x"}]}))
    with pytest.raises(LMError, match="'fallbacks' cannot be carried") as raised:
        asyncio.run(lm.complete(HELLO))
    assert raised.value.kind == "bad_request"


def test_addresses_in_headers_and_fields_are_data() -> None:
    lm = provider.anything("", settings(extra={"headers": {"HTTP-Referer": "https://example.org"}, "top_k": 3}))
    assert lm.identity.startswith("openai/local")


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"model": "anthropic/claude-x"}, "ANTHROPIC_API_KEY"),
        ({"model": "anthropic/claude-x", "api_base": "http://127.0.0.1:9"}, None),
        ({"model": "anthropic/claude-x", "extra": {"headers": {"x-api-key": "1"}}}, None),
        ({"model": "bedrock/amazon.x"}, None),  # may have a role of the machine
        ({"model": "ollama_chat/x"}, None),
    ],
)
def test_friction_22_a_missing_key_is_told_before_the_first_call(
    settings: dict[str, Any], missing: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    lm: Any = make_lm(lm_spec({**settings, "model": f"litellm/{settings['model']}"}))
    if missing is None:
        return lm.ready()
    with pytest.raises(LMError, match=f"set the variable {missing}") as caught:
        lm.ready()
    assert caught.value.kind == "auth"
    return None
