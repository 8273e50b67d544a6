"""Who reaches a session: with its secret, from this machine, and from no web page."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from tests.helpers.gateway_sessions import CHAT_BODY, HELLO, ScriptedSession, opened, send, serve

from workbench.errors import SpecError
from workbench_external.gateway import Gateway

CHAT = "/v1/chat/completions"


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def asked_with(path: str, headers: dict[str, str]) -> tuple[int, Any]:
    """(status, error or text) of a chat; SECRET and PORT stand for what they are."""

    async def use(gateway: Gateway, secret: str) -> tuple[int, Any]:
        port = gateway.address.rpartition(":")[2]
        shown = {name: value.replace("SECRET", secret).replace("PORT", port) for name, value in headers.items()}
        status, body, _ = await send(gateway, path.replace("SECRET", secret), CHAT_BODY, shown)
        return status, body["choices"][0]["message"]["content"] if status == 200 else body["error"]

    return serve(ScriptedSession(), use)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (f"/s/SECRET{CHAT}", {}),
        ("/s/SECRET/chat/completions", {}),
        ("/s/SECRET//v1//chat/completions/", {}),
        ("/s/SECRET/openai/deployments/m/chat/completions?api-version=1", {}),
        (CHAT, {"Authorization": "Bearer SECRET"}),
        (CHAT, {"Authorization": "bearer  SECRET "}),
        (CHAT, {"x-api-key": "SECRET"}),
        (CHAT, {"api-key": "SECRET"}),
        (CHAT, {"api-key": "SECRET", "Authorization": "Bearer SECRET"}),
        (f"/s/SECRET{CHAT}", {"Authorization": "Bearer sk-the-agents-own"}),
        (f"/s/SECRET{CHAT}", {"Host": "localhost:PORT"}),
        (f"/s/SECRET{CHAT}", {"Sec-Fetch-Site": "none"}),
    ],
)
def test_the_secret_leads_in(path: str, headers: dict[str, str]) -> None:
    assert asked_with(path, headers) == (200, HELLO.text)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (CHAT, {}),
        (CHAT, {"Authorization": "Bearer "}),
        (CHAT, {"Authorization": "Basic SECRET"}),
        (CHAT, {"Authorization": "SECRET"}),
        (CHAT, {"Authorization": "Bearer sk-workbench-wrong-wrong-wrong-wrong"}),
        (CHAT, {"x-api-key": "SECRETx"}),
        (f"/s/SECRETx{CHAT}", {}),
        (f"/s/{CHAT}", {}),
        (f"/s/wrong{CHAT}", {"Authorization": "Bearer SECRET"}),
        (f"/s/SECRET{CHAT}", {"Authorization": "Bearer sk-workbench-of-another-session-1234"}),
        (f"{CHAT}?key=SECRET", {}),
    ],
)
def test_nothing_else_does(path: str, headers: dict[str, str]) -> None:
    status, error = asked_with(path, headers)
    assert (status, error["code"]) == (401, "invalid_api_key")


@pytest.mark.fault("dns-rebinding")
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:PORT"},
        {"Host": "127.0.0.1.evil.example:PORT"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": "localhost.:PORT"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:PORT"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_a_web_page_does_not_reach_a_session_even_with_its_secret(headers: dict[str, str]) -> None:
    status, error = asked_with(f"/s/SECRET{CHAT}", headers)
    assert (status, error["code"]) == (403, "forbidden")


def test_two_sessions_are_apart() -> None:
    mine, other = ScriptedSession(), ScriptedSession()

    async def use(gateway: Gateway, secret: str) -> None:
        second = gateway.admit(other, "a-secret-of-a-served-workflow")
        with pytest.raises(SpecError, match="already in use"):
            gateway.admit(other, secret)
        for path, headers in (
            (f"/s/{secret}{CHAT}", bearer(second)),
            (f"/s/{second}{CHAT}", bearer(secret)),
            (CHAT, {**bearer(secret), "x-api-key": second}),
        ):
            status, body, _ = await send(gateway, path, CHAT_BODY, headers)
            assert status == 401 and "two sessions" in body["error"]["message"]
        assert not mine.asked and not other.asked
        assert (await send(gateway, f"/s/{second}{CHAT}", CHAT_BODY))[0] == 200
        assert (len(mine.asked), len(other.asked)) == (0, 1)
        _, kept, _ = await send(gateway, f"/s/{second}/v1/responses", {"model": "m", "input": "hi"})
        for path in (f"/v1/responses/{kept['id']}",):
            assert (await send(gateway, f"/s/{secret}{path}"))[0] == 404
            assert (await send(gateway, f"/s/{second}{path}"))[0] == 200

    serve(mine, use)


def test_a_secret_that_was_dismissed_leads_nowhere() -> None:
    async def use(gateway: Gateway, secret: str) -> None:
        other = gateway.admit(ScriptedSession())
        await gateway.dismiss(secret)
        await gateway.dismiss(secret)
        for path, headers in (
            (f"/s/{secret}{CHAT}", {}),
            (CHAT, bearer(secret)),
            (f"/s/{other}{CHAT}", bearer(secret)),
        ):
            assert (await send(gateway, path, CHAT_BODY, headers))[0] == 401

    serve(ScriptedSession(), use)


@pytest.mark.parametrize("secret", ["", "short", "x" * 23, "a/../b" * 9, "with space " * 9, "ä" * 40, "x" * 201])
def test_a_secret_must_be_long_and_fit_for_an_address(secret: str) -> None:
    async def use(gateway: Gateway, _: str) -> None:
        with pytest.raises(SpecError, match="24 to 200"):
            gateway.admit(ScriptedSession(), secret)

    serve(ScriptedSession(), use)


@pytest.mark.fault("other-machines")
@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "127.evil.example", ""])
def test_no_other_machine_can_reach_a_gateway(host: str) -> None:
    with pytest.raises(SpecError, match="cannot listen"):
        asyncio.run(Gateway.open(host))


@pytest.mark.parametrize("host", ["127.0.0.2", "localhost", "[::1]"])
def test_other_names_of_this_machine_can_be_listened_at(host: str) -> None:
    async def main() -> int:
        try:
            gateway = await Gateway.open(host)
        except OSError:
            pytest.skip("this machine has no such address")
        found = await send(gateway, f"/s/{gateway.admit(ScriptedSession())}{CHAT}", CHAT_BODY)
        await gateway.aclose()
        return found[0]

    assert asyncio.run(main()) == 200


def test_errors_tell_nothing_of_the_gateway() -> None:
    hidden = ["/home/me/rows.jsonl", "sk-provider-key"]

    async def main() -> list[Any]:
        errors: list[Exception] = []
        gateway = await Gateway.open(on_error=errors.append)
        secret = gateway.admit(ScriptedSession(RuntimeError(" ".join(hidden))))
        bodies: list[Any] = []
        for path, body in (
            (CHAT, CHAT_BODY),
            (CHAT, {**CHAT_BODY, "stream": True}),
            ("/v1/responses", {"model": "m", "input": "hi"}),
            ("/v1/messages", {**CHAT_BODY, "max_tokens": 3}),
        ):
            status, found, headers = await send(gateway, f"/s/{secret}{path}", body)
            assert (status, headers["x-should-retry"]) == (500, "false")
            bodies.append(found)
        for path in ("/", f"/s/{secret}", f"/s/{secret}/v1/files", CHAT):
            bodies.append((await send(gateway, path))[1])
        await gateway.aclose()
        assert [type(error) for error in errors] == [RuntimeError] * 4
        return [*bodies, secret]

    *bodies, secret = asyncio.run(main())
    assert not [word for word in (*hidden, secret, "Traceback", "RuntimeError") if word in str(bodies)]


def test_an_agent_gets_the_variables_of_its_clients_and_no_others() -> None:
    async def use(gateway: Gateway, secret: str) -> None:
        plain = gateway.environment(secret, {"PATH": "/bin", "NO_PROXY": "intranet"})
        base = f"{gateway.address}/s/{secret}"
        assert plain["OPENAI_BASE_URL"] == plain["OPENAI_API_BASE"] == f"{base}/v1"
        assert plain["ANTHROPIC_BASE_URL"] == base
        keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
        assert {plain[name] for name in keys} == {secret}
        assert plain["NO_PROXY"] == "intranet,127.0.0.1,localhost" and plain["no_proxy"] == "127.0.0.1,localhost"
        assert not [name for name in plain if "AZURE" in name or "VLLM" in name]
        azure = gateway.environment(secret, {"AZURE_OPENAI_API_KEY": "mine"})
        assert (azure["AZURE_OPENAI_API_KEY"], azure["AZURE_OPENAI_ENDPOINT"]) == (secret, base)

    serve(ScriptedSession(), use)


def test_a_gateway_can_be_closed_twice_and_leaves_its_port() -> None:
    async def main() -> None:
        async with opened(ScriptedSession()) as (gateway, _):
            port = int(gateway.address.rpartition(":")[2])
            await gateway.aclose()
        await (await Gateway.open(port=port)).aclose()

    asyncio.run(main())


@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "api-key", "authorization"])
def test_s17_a_key_that_is_there_twice_is_refused(name: str) -> None:
    async def use(gateway: Gateway, secret: str) -> tuple[int, int]:
        other = gateway.admit(ScriptedSession())
        written = [f"Bearer {key}" if name.lower() == "authorization" else key for key in (secret, other)]
        statuses = []
        for keys in (written, written[:1]):
            async with aiohttp.ClientSession() as client:
                url, headers = f"{gateway.address}/v1/chat/completions", [(name, key) for key in keys]
                async with client.post(url, data=json.dumps(CHAT_BODY), headers=headers) as answer:
                    statuses.append(answer.status)
        return statuses[0], statuses[1]

    assert serve(ScriptedSession(), use) == (400, 200)


def test_ea9_other_machines_reach_a_gateway_that_lets_them_with_the_secret_alone() -> None:
    async def main() -> None:
        gateway = await Gateway.open("0.0.0.0", beyond=True)
        try:
            secret, port = gateway.admit(ScriptedSession()), gateway.address.rpartition(":")[2]
            assert "0.0.0.0" not in gateway.address
            key, page = {"x-api-key": secret}, {"Origin": "http://evil.example"}
            async with aiohttp.ClientSession() as client:
                for headers, status in ((key, 200), ({}, 401), ({**key, **page}, 403)):
                    url, body = f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(CHAT_BODY)
                    headers = {"Host": "host.docker.internal:1", **headers}
                    async with client.post(url, data=body, headers=headers) as answer:
                        assert answer.status == status
        finally:
            await gateway.aclose()

    asyncio.run(main())
