"""What a provider sent with calls goes back to it, though agents drop it; clients of chat are given the thoughts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from tests.helpers.gateway_sessions import ScriptedSession, send, serve

from workbench.lm import Message, Response
from workbench_external.gateway import Ask, Gateway, returned as module
from workbench_external.gateway.returned import ReturnedTurns

USER: Message = {"role": "user", "content": "sort INV-7"}


def turn(number: str = "c1", arguments: str = '{"code": "INV-7"}', **more: Any) -> dict[str, Any]:
    call = {"id": number, "type": "function", "function": {"name": "look", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **more}


def response(signature: str = "abc", number: str = "c1") -> Response:
    calls = ({"id": number, "name": "look", "arguments": {"code": "INV-7"}},)
    return Response("", "tool_calls", tool_calls=calls, message=turn(number, reasoning_content=signature))


def ask(*messages: Message, samples: int = 1) -> Ask:
    return Ask("m", messages, samples=samples)


def test_t9_a_turn_with_calls_is_put_back_as_its_provider_sent_it() -> None:
    turns = ReturnedTurns()
    assert turns.restore(ask(USER, turn())).messages == (USER, turn()), "nothing is kept"
    turns.keep(ask(USER), [response()])
    for sent in (turn(content=""), turn(arguments='{"code":"INV-7"}'), turn(name="agent")):
        assert turns.restore(ask(USER, sent)).messages[1] == turn(reasoning_content="abc")


def test_what_an_agent_has_changed_stays_as_it_sent_it() -> None:
    turns = ReturnedTurns()
    turns.keep(ask(USER), [response()])
    others = (turn("c2"), turn(arguments='{"code": "APP-3"}'), turn(arguments="no JSON"), USER)
    for sent in others:
        assert turns.restore(ask(USER, sent)).messages[1] == sent


def test_ids_that_begin_anew_in_each_conversation_keep_their_turns_apart() -> None:
    turns, other = ReturnedTurns(), {"role": "user", "content": "sort it again"}
    turns.keep(ask(USER), [response("first")])
    turns.keep(ask(other), [response("second")])
    told = [turns.restore(ask(one, turn())).messages[1]["reasoning_content"] for one in (USER, other)]
    assert told == ["first", "second"]
    shortened = turns.restore(ask({"role": "user", "content": "[shortened]"}, turn()))
    assert shortened.messages[1]["reasoning_content"] == "second", "the latest, where nothing fits better"


def test_each_of_several_answers_is_kept_and_only_with_calls() -> None:
    turns = ReturnedTurns()
    turns.keep(ask(USER, samples=2), [response("one", "c1"), response("two", "c2")])
    turns.keep(ask(USER), [Response("x", message={"role": "assistant", "content": "x", "reasoning_content": "hm"})])
    assert [turns.restore(ask(USER, turn(n))).messages[1]["reasoning_content"] for n in ("c1", "c2")] == ["one", "two"]
    plain = {"role": "assistant", "content": "x"}
    assert turns.restore(ask(USER, plain)).messages[1] == plain, "thoughts without calls do not go back"


def test_a_long_conversation_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[int]()

    def digest(value: Any) -> str:
        read.append(len(str(value)))
        return str(len(read))

    monkeypatch.setattr(module, "_digest", digest)
    turns = ReturnedTurns()
    turns.keep(ask(USER), [response()])
    messages = [one for n in range(200) for one in (turn(f"c{n}"), {"role": "user", "content": "x" * 1000})]
    read.clear()
    turns.restore(ask(*messages))
    assert sum(read) < 2 * sum(len(str(one)) for one in messages)


def test_the_oldest_turns_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 2)
    turns = ReturnedTurns()
    for number in ("c1", "c2", "c3"):
        turns.keep(ask(USER), [response("kept", number)])
    told = ["reasoning_content" in turns.restore(ask(USER, turn(n))).messages[1] for n in ("c1", "c2", "c3")]
    assert told == [False, True, True]


def test_thoughts_are_given_as_reasoning_content_whole_and_streamed() -> None:
    thought = replace(Response("technical"), thoughts="Is it billing? No.")

    asked = {"model": "m", "messages": [USER]}

    async def main(gateway: Gateway, secret: str) -> tuple[Any, str]:
        _, whole, _ = await send(gateway, f"/s/{secret}/v1/chat/completions", asked)
        async with aiohttp.ClientSession() as client:
            url = f"{gateway.address}/s/{secret}/v1/chat/completions"
            async with client.post(url, json={**asked, "stream": True}) as answer:
                return whole, await answer.text()

    whole, streamed = serve(ScriptedSession(thought), main)
    assert whole["choices"][0]["message"]["reasoning_content"] == "Is it billing? No."
    deltas = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    said = [event["choices"][0]["delta"].get("reasoning_content", "") for event in deltas]
    assert "".join(said) == "Is it billing? No."
