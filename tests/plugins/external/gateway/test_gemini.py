"""Agents that speak Gemini's API before a model of Google's: what passes, what is replaced, what is counted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.helpers.gemini_asks import LOOK, SIGNED, THOUGHT, USER, ask, gemini
from tests.helpers.gemini_server import KEY, GeminiServer, answer, gemini_server
from tests.helpers.passing import served

from workbench.ledger import Ledger
from workbench.lm import LMPool, Native, Response
from workbench.runtime import Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store, add_run
from workbench.task import Example
from workbench.workflow import Workflow, node_tree
from workbench_external.gateway import Ask, Gateway, streaming
from workbench_external.gateway.access import variables_for
from workbench_external.trial import make_example
from workbench_kit.wire import join_events


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", KEY)


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

    async def main(server: GeminiServer) -> list[bytes]:
        async with served(gemini(server)) as (gateway, secret), aiohttp.ClientSession() as client:
            url = f"{gateway.address}/v1beta/models/m:streamGenerateContent?alt=sse&key={secret}"
            async with client.post(url, json={"contents": USER}) as found:
                assert found.headers["Content-Type"].startswith("text/event-stream")
                return [part async for part in found.content.iter_any()]

    with gemini_server() as server:
        server.seconds, server.answers = 0.1, [pieces, pieces]
        parts = asyncio.run(main(server))
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

    async def main() -> bytes:
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

    raw = asyncio.run(main())
    body = join_events("gemini", raw) or json.loads(raw)
    (candidate,) = body["candidates"]
    call = {"functionCall": {"id": "c1", "name": "look", "args": {"a": 1}}}
    assert (
        candidate["content"]["parts"] == [THOUGHT, {"text": "Looking."}, call] and candidate["finishReason"] == "STOP"
    )
    assert body["usageMetadata"] == {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}
    assert raw.startswith(b"data: " if "sse" in method else b"[" if "stream" in method else b"{")


def test_what_the_path_says_is_part_of_a_request_and_names_of_parameters_are_no_keys() -> None:
    def told(method: str, name: str = "headers", text: str = "One.") -> Any:
        schema = {"type": "object", "properties": {name: {"type": "string", "description": text}}}
        tools = [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": schema}]}]
        return Native("gemini", {"contents": USER, "tools": tools}, method=method).as_dict()

    assert told("generateContent") != told("streamGenerateContent?alt=sse") != told("streamGenerateContent")
    assert told("generateContent") != told("generateContent", text="Another.")


def test_a_stream_that_begins_late_has_no_comment_which_google_s_clients_take_for_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streaming, "PING_SECONDS", 0.05)
    with gemini_server() as server:
        server.late = 0.3
        status, found, _ = ask(gemini(server), {"contents": USER}, "streamGenerateContent?alt=sse")
        assert status == 200 and found == server.sent[0]


def test_the_variables_lead_googles_clients_here_and_a_key_of_another_service_stays_in_a_row() -> None:
    url, secret = "http://h/s/SECRET", "SECRET"
    assert variables_for(url, secret, {"GOOGLE_API_KEY": "of maps"}).items() >= {
        ("GOOGLE_GEMINI_BASE_URL", url),
        ("GEMINI_API_BASE", f"{url}/v1beta"),
        ("GEMINI_API_KEY", secret),
    }
    assert "GOOGLE_API_KEY" not in variables_for(url, secret, {"GOOGLE_API_KEY": "of maps"})
    assert variables_for("http://h", secret, {})["GOOGLE_API_KEY"] == secret


def test_the_trial_makes_examples_of_schemas_with_types_in_capitals() -> None:
    parts = {"n": {"type": "INTEGER"}, "many": {"type": "ARRAY", "items": {"type": "BOOLEAN"}}}
    assert make_example({"type": "OBJECT", "properties": parts}) == {"n": 1, "many": [True]}


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

    async def main() -> str:
        runtime = Runtime(ledger, lm_spec(gemini(server)), {}, LMPool())
        try:
            outcome = await Program(workflow, runtime).run(Example("1", {"text": "x"}))
            assert outcome.failure is None, outcome.message
            return str(outcome.prediction["label"])
        finally:
            await runtime.aclose()

    try:
        return asyncio.run(main()), run, ledger.paid.calls
    finally:
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
