"""Agents that speak Gemini's API before a model of Google's: what passes, what is replaced, what is counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.helpers.gemini_server import KEY, GeminiServer, Wrong, answer, check_content, gemini_server
from tests.helpers.passing import model, served

from workbench.ledger import Ledger
from workbench.lm import LMPool, Native, Request, Response, Usage, answered_call, join_events, make_lm
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store, add_run
from workbench.task import Example
from workbench.workflow import Workflow, node_tree
from workbench_external.gateway import Ask, Gateway

USER = [{"role": "user", "parts": [{"text": "hi"}]}]
LOOK = {"name": "look", "description": "Looks."}
SIGNED = {"functionCall": {"name": "look", "args": {"a": 1}}, "thoughtSignature": "c2ln"}
THOUGHT = {"text": "Hm.", "thought": True}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", KEY)


def gemini(server: GeminiServer, name: str = "gemini/up", **settings: Any) -> dict[str, Any]:
    return {**model(name, server.address, **settings), "api_base": f"{server.address}/v1beta"}


def ask(
    lm: Mapping[str, Any],
    body: Any,
    method: str = "generateContent",
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> tuple[int, bytes, Mapping[str, str]]:
    """(status, body, headers) of the answer to an agent that names `gemini-2.5-flash`."""

    async def course() -> tuple[int, bytes, Mapping[str, str]]:
        async with served(lm, **more) as (gateway, secret), aiohttp.ClientSession() as client:
            own = {"x-goog-api-key": secret} if headers is None else headers
            base = gateway.environment(secret, {}, in_path=headers is not None)["GOOGLE_GEMINI_BASE_URL"]
            url = f"{base}/v1beta/models/gemini-2.5-flash:{method}".replace("SECRET", secret)
            async with client.post(url, json=body, headers=own) as found:
                return found.status, await found.read(), found.headers

    return asyncio.run(course())


def test_a_request_and_its_answer_pass_as_they_are() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    result = {"parts": [{"functionResponse": {"name": "look", "response": {"b": [1.0]}}}]}
    body = {
        "system_instruction": {"parts": {"text": "Sort."}},
        "contents": [
            {"parts": [{"text": "é"}, image]},
            {"role": "model", "parts": [THOUGHT, SIGNED]},
            result,
        ],
        "tools": [{"functionDeclarations": [LOOK]}, {"googleSearch": {}}],
        "generationConfig": {"thinkingConfig": {"includeThoughts": True}, "maxOutputTokens": 99},
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    }
    said = json.dumps(answer(THOUGHT, "\u00e9", image, unknown={"x": 1.50}), indent=3).encode()
    with gemini_server() as server:
        server.answers = [said]
        status, found, headers = ask(gemini(server), body)
        ((path, sent, own),) = server.asked
    assert status == 200, found
    assert found == said and headers["Content-Type"].startswith("application/json")
    assert path == "/v1beta/models/up:generateContent" and sent == body
    assert own["x-goog-api-key"] == KEY and "sk-workbench" not in str(own)


def test_a_stream_passes_event_by_event_and_without_alt_sse_it_is_the_array() -> None:
    pieces = [answer(THOUGHT, end=None), answer("a", end=None), answer(SIGNED)]

    async def course(server: GeminiServer) -> list[bytes]:
        async with served(gemini(server)) as (gateway, secret), aiohttp.ClientSession() as client:
            url = f"{gateway.address}/v1beta/models/m:streamGenerateContent?alt=sse&key={secret}"
            async with client.post(url, json={"contents": USER}) as found:
                assert found.headers["Content-Type"].startswith("text/event-stream")
                return [part async for part in found.content.iter_any()]

    with gemini_server() as server:
        server.seconds, server.answers = 0.1, [pieces, pieces]
        parts = asyncio.run(course(server))
        status, whole, headers = ask(gemini(server), {"contents": USER}, "streamGenerateContent")
        paths = [path for path, _, _ in server.asked]
    assert len(parts) == 3 and b"".join(parts) == server.sent[0]
    assert (status, whole) == (200, server.sent[1]) and headers["Content-Type"].startswith("application/json")
    assert paths == ["/v1beta/models/up:streamGenerateContent?alt=sse", "/v1beta/models/up:streamGenerateContent"]


def spelled(value: Any, snake: bool) -> Any:
    """A body with its names with underscores."""
    names = {"systemInstruction": "system_instruction", "functionDeclarations": "function_declarations"}
    names |= {"generationConfig": "generation_config", "responseSchema": "response_schema"}
    names |= {"parametersJsonSchema": "parameters_json_schema", "maxOutputTokens": "max_output_tokens"}
    if isinstance(value, dict):
        return {names.get(name, name) if snake else name: spelled(inner, snake) for name, inner in value.items()}
    return [spelled(one, snake) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("snake", [False, True])
def test_texts_are_replaced_where_they_stand_and_nothing_else(snake: bool) -> None:
    def body(system: str, user: str, tool: str, parameter: str, field: str) -> Any:
        schema = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "description": parameter}}}
        plain = {"type": "object", "properties": {"a": {"type": "string", "description": parameter}}}
        tools = [{"googleSearch": {}}, {"functionDeclarations": [{**LOOK, "description": tool, "parameters": schema}]}]
        tools.append({"functionDeclarations": [{"name": "see", "parametersJsonSchema": plain}]})
        form = {"type": "OBJECT", "title": "Answer", "properties": {"b": {"type": "STRING", "description": field}}}
        return spelled(
            {
                "systemInstruction": {"parts": [{"text": "Mind the rest."}, {"text": system}], "role": "user"},
                "contents": [{"role": "user", "parts": [{"text": user}, {"text": "More."}]}],
                "tools": tools,
                "generationConfig": {"responseSchema": form, "responseMimeType": "application/json", "seed": 3},
            },
            snake,
        )

    slots = {
        "system": {"in": "system", "match": "Sort the mail.", "text": "Sort it well."},
        "user": {"in": "user", "match": "Mail: {{1}}", "text": "Letter: {{1}}"},
        "tool": {"in": "tool", "name": "look", "match": "Looks.", "text": "Looks it up."},
        "one": {"in": "parameter", "name": "look", "parameter": "a", "match": "The a.", "text": "The word."},
        "two": {"in": "parameter", "name": "see", "parameter": "a", "match": "The a.", "text": "The word."},
        "field": {"in": "field", "name": "Answer", "parameter": "b", "match": "The b.", "text": "The kind."},
    }
    node = {"slots": slots}
    with gemini_server() as server:
        status, said, _ = ask(
            gemini(server), body("Sort the mail.", "Mail: x", "Looks.", "The a.", "The b."), node=node
        )
        assert status == 200, said
        ((_, sent, _),) = server.asked
    assert sent == body("Sort it well.", "Letter: x", "Looks it up.", "The word.", "The kind.")


def test_settings_and_examples_of_ours_are_put_in_in_the_words_of_the_api() -> None:
    node = {"temperature": 0.3, "max_tokens": 50, "instructions": "Be brief."}
    with gemini_server() as server:
        ask(gemini(server), {"contents": USER}, node=node)
        more = {"generation_config": {"max_output_tokens": 9, "topK": 2}}
        ask(gemini(server), {"contents": USER, **more}, node={"temperature": 0.3, "max_tokens": 50})
        counted = ask(gemini(server), {"contents": USER}, "countTokens", node={"temperature": 0.3, "max_tokens": 50})
        first, second, third = [body for _, body, _ in server.asked]
    assert first == {
        "contents": USER,
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "generationConfig": {"temperature": 0.3, "maxOutputTokens": 50},
    }
    assert second["generation_config"] == {"max_output_tokens": 9, "topK": 2, "temperature": 0.3}
    assert third == {"contents": USER} and "totalTokens" in json.loads(counted[1])


def test_tokens_are_counted_at_the_server_with_the_texts_replaced_and_its_name_of_the_model() -> None:
    slots = {"user": {"in": "user", "match": "Mail: {{1}}", "text": "Letter: {{1}}"}}
    whole = {"generateContentRequest": {"model": "models/gemini-2.5-flash", "contents": USER}}
    with gemini_server() as server:
        said = {"contents": [{"parts": [{"text": "Mail: x"}]}]}
        assert ask(gemini(server), said, "countTokens", node={"slots": slots})[0] == 200
        assert ask(gemini(server), whole, "countTokens")[0] == 200
        (path, first, _), (_, second, _) = server.asked
    assert path == "/v1beta/models/up:countTokens" and first["contents"][0]["parts"] == [{"text": "Letter: x"}]
    assert second["generateContentRequest"]["model"] == "models/up"


def test_thoughts_are_paid_as_the_answer_and_cached_tokens_at_their_rate() -> None:
    usage = {"promptTokenCount": 1000, "cachedContentTokenCount": 900, "candidatesTokenCount": 10}
    usage |= {"thoughtsTokenCount": 90, "totalTokenCount": 1100}
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


async def closed(lm: Any, request: Request) -> Any:
    try:
        return await lm.complete(request)
    finally:
        await lm.aclose()


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


def test_sound_is_known_by_its_tokens_for_its_price() -> None:
    details = [{"modality": "TEXT", "tokenCount": 5}, {"modality": "AUDIO", "tokenCount": 2}]
    body = {"usageMetadata": {"promptTokensDetails": details, "candidatesTokensDetails": details[:1]}}
    assert answered_call(Usage(7, 3), 7, 3, Request(()), body).conditions == {"audio", "location usual"}


@pytest.mark.parametrize("number", [{}, {"id": "f1"}], ids=["without ids", "with ids"])
def test_functions_and_examples_of_ours_stand_in_the_words_of_the_api(number: Any) -> None:
    source = "def vowels(text):\n    return 2\n"
    function = {"name": "vowels", "description": "Counts.", "parameters": {}, "source": source}
    slots = {"user": {"in": "user", "match": "Mail: {{text}}"}}
    node = {"functions": [function], "demos": [{"text": "old", "label": "b"}], "slots": slots}
    call = {"functionCall": {**number, "name": "vowels", "args": {"text": "abe"}}, "thoughtSignature": "s"}
    second = {"functionCall": {"name": "vowels", "args": {"text": "o"}, **({"id": "f2"} if number else {})}}
    user = {"role": "user", "parts": [{"text": "Mail: x"}]}
    body = {"contents": [user], "tools": [{"googleSearch": {}}, {"functionDeclarations": [LOOK]}]}
    body["generationConfig"] = {"thinkingConfig": {"includeThoughts": True}}
    with gemini_server() as server:
        server.answers = [answer(THOUGHT, call, second), answer("a")]
        status, said, _ = ask(gemini(server), body, node=node)
        assert status == 200 and json.loads(said) == answer("a"), said
        first, again = [sent for _, sent, _ in server.asked]
    shown = [{"role": "user", "parts": [{"text": "Mail: old"}]}, {"role": "model", "parts": [{"text": "b"}]}, user]
    assert first["contents"] == shown and again["contents"][:3] == shown
    assert [one["name"] for one in first["tools"][1]["functionDeclarations"]] == ["look", "vowels"]
    turn, results = again["contents"][3:]
    assert turn == {"role": "model", "parts": [THOUGHT, call, second]}
    given = [part["functionResponse"] for part in results["parts"]]
    assert [one["name"] for one in given] == ["vowels", "vowels"]
    assert [one.get("id") for one in given] == (["f1", "f2"] if number else [None, None])


@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent?alt=sse", "streamGenerateContent"])
def test_an_answer_that_no_server_gave_is_written_in_the_words_of_the_api(method: str) -> None:
    """As of the stand-in by which `agent apply` tries a changed source."""

    class Said:
        passes = True

        async def complete(self, ask: Ask) -> list[Response]:
            assert ask.stream == method.endswith("sse") and ask.model == "m"
            call = {"id": "c1", "name": "look", "arguments": '{"a": 1}'}
            return [Response("Looking.", "tool_calls", 5, 2, tool_calls=(call,), thoughts="Hm.")] * ask.samples

    async def course() -> bytes:
        gateway = await Gateway.open()
        secret = gateway.admit(Said())  # type: ignore[arg-type]
        try:
            async with aiohttp.ClientSession() as client:
                url = f"{gateway.address}/v1beta/models/m:{method}"
                async with client.post(url, json={"contents": USER}, headers={"x-goog-api-key": secret}) as found:
                    assert found.status == 200
                    return await found.read()
        finally:
            await gateway.aclose()

    raw = asyncio.run(course())
    body = join_events("gemini", raw) or json.loads(raw)
    (candidate,) = body["candidates"]
    call = {"functionCall": {"id": "c1", "name": "look", "args": {"a": 1}}}
    assert (
        candidate["content"]["parts"] == [THOUGHT, {"text": "Looking."}, call] and candidate["finishReason"] == "STOP"
    )
    assert body["usageMetadata"] == {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}
    assert raw.startswith(b"data: " if "sse" in method else b"[" if "stream" in method else b"{")


# Errors


@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent?alt=sse", "countTokens"])
def test_a_refusal_has_the_form_of_google(method: str) -> None:
    with gemini_server() as server:
        status, said, _ = ask(gemini(server), {"contents": USER, "nonsense": 1}, method)
    error = json.loads(said)["error"]
    assert (status, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert "nonsense" in error["message"]


def test_a_key_of_nobody_is_refused_as_google_refuses_it() -> None:
    with gemini_server() as server:
        status, said, _ = ask(gemini(server), {"contents": USER}, headers={"x-goog-api-key": "k"}, told=[])
        assert status == 200, said  # the secret stands in the path

        async def course() -> Any:
            async with served(gemini(server)) as (gateway, _), aiohttp.ClientSession() as client:
                url = f"{gateway.address}/v1beta/models/m:generateContent?key=wrong"
                async with client.post(url, json={"contents": USER}) as found:
                    return found.status, await found.json()

        status, body = asyncio.run(course())
    assert (status, body["error"]["status"], body["error"]["code"]) == (401, "UNAUTHENTICATED", 401)


@pytest.mark.parametrize("name", ["openai/up", "anthropic/up"])
def test_a_model_of_another_api_is_refused_and_the_setting_named(name: str) -> None:
    with gemini_server() as server:
        status, said, _ = ask({**gemini(server, name), "api_base": f"{server.address}/v1"}, {"contents": USER})
        assert server.asked == []
    error = json.loads(said)["error"]
    assert (status, error["status"]) == (400, "INVALID_ARGUMENT") and "lm: gemini/" in error["message"]


def test_a_method_that_is_not_served_is_refused_in_the_form_of_google() -> None:
    with gemini_server() as server:
        status, said, _ = ask(gemini(server), {"content": {}}, "embedContent")
    assert (status, json.loads(said)["error"]["status"]) == (404, "NOT_FOUND")


def test_a_stream_that_breaks_off_ends_with_an_error_event() -> None:
    async def course(server: GeminiServer) -> bytes:
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
        found = asyncio.run(course(server))
    *_, last = [line for line in found.decode().splitlines() if line]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == 502


def test_the_key_is_neither_sent_back_nor_the_secret_sent_on() -> None:
    async def course(server: GeminiServer, told: list[str]) -> tuple[str, str]:
        async with served(gemini(server), told=told) as (gateway, secret), aiohttp.ClientSession() as client:
            for path in ("generateContent?key=", "countTokens?x=1&key="):
                url = f"{gateway.address}/v1beta/models/m:{path}{secret}"
                async with client.post(url, json={"contents": USER}) as found:
                    told.append(await found.text())
            return secret, "".join(told)

    with gemini_server() as server:
        server.answers = [answer(f"Your key is {KEY}.")]
        secret, told = asyncio.run(course(server, []))
        assert len(server.asked) == 2 and "Your key is ***." in told
        assert KEY not in told and secret not in str(server.asked) and server.asked[1][0].endswith(":countTokens?x=1")


# A run

AGENT = """\
import json, os, sys
from urllib.request import Request, urlopen

row = json.load(sys.stdin)
url = os.environ["GOOGLE_GEMINI_BASE_URL"] + "/v1beta/models/gemini-2.5-flash:METHOD"
body = {"contents": [{"parts": [{"text": row["text"]}]}]}
headers = {"x-goog-api-key": os.environ["GEMINI_API_KEY"], "Content-Type": "application/json"}
print(urlopen(Request(url, json.dumps(body).encode(), headers)).read().hex())
"""


def run_row(server: GeminiServer, folder: Path, database: Path, number: int | None = None) -> tuple[str, int, int]:
    """(what the agent printed, the run, calls paid) of a row."""
    store = Store(database)
    run = number or add_run(store, run="r", name="t", status="running", spec="", options="{}")
    ledger = Ledger(store, run, BudgetSpec.model_validate({}))
    tree = {"external": "text -> label", "command": ["python", "agent.py"]}
    workflow = Workflow({"nodes": {"agent": node_tree(tree)}}, folder)

    async def course() -> str:
        runtime = Runtime(ledger, lm_spec(gemini(server)), {}, LMPool())
        try:
            outcome = await Program(workflow, runtime).run(Example("1", {"text": "x"}))
            assert outcome.failure is None, outcome.message
            return str(outcome.prediction["label"])
        finally:
            await runtime.aclose()

    try:
        return asyncio.run(course()), run, ledger.paid.calls
    finally:
        ledger.close()
        store.close()


@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent?alt=sse", "streamGenerateContent"])
def test_a_call_of_a_run_is_recorded_and_replayed_byte_by_byte(method: str, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT.replace("METHOD", method))
    with gemini_server() as server:
        server.answers = [[answer(THOUGHT, end=None), answer("a")] if "stream" in method else answer(THOUGHT, "a")]
        printed, number, calls = run_row(server, tmp_path, tmp_path / "run.db")
        assert bytes.fromhex(printed) == server.sent[0] and calls == 1
        store = Store(tmp_path / "run.db")
        store.execute("delete from calls where kind != 'lm'")  # as after a kill: the row is run again
        store.close()
        again, _, _ = run_row(server, tmp_path, tmp_path / "run.db", number)
        assert again == printed and len(server.asked) == 1


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
