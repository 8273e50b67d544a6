"""Texts as a model writes them: `astream` of a loaded workflow, and the streams of `workbench serve`."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from aiohttp import web
from tests.helpers.scripted import Script
from tests.helpers.upstream import USAGE, Upstream, as_event, chat_answer, upstream

import workbench
from workbench import PredictionError
from workbench.errors import SpecError
from workbench.inference import LoadedWorkflow

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from workbench_serve.app import App
from workbench_serve.settings import Settings

ANSWER = ("It is the second door on the left, ", "behind the tall ", "plant.\n")


def load(folder: Path, server: Upstream, nodes: Any = None, **more: Any) -> LoadedWorkflow:
    tree = {
        "name": "guide",
        "lm": {"model": "openai/x", "api_base": f"{server.address}/v1", **more},
        "nodes": nodes or {"say": {"predict": "text -> answer"}},
    }
    (folder / "guide.yaml").write_text(yaml.safe_dump(tree))
    return workbench.load(folder / "guide.yaml")


def chunk(text: str | None = None, finish: str | None = None) -> dict[str, Any]:
    delta = {} if text is None else {"role": "assistant", "content": text}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "x", "choices": [choice]}


class Gated:
    """An answer whose later part is written once it is told to; and which may break off."""

    def __init__(self, parts: tuple[str, ...] = ANSWER, breaks: bool = False):
        self.parts, self.breaks, self.go = parts, breaks, threading.Event()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(as_event(chunk(self.parts[0])))
        while not self.go.is_set():
            await asyncio.sleep(0.01)
        if self.breaks:
            assert request.transport is not None
            request.transport.abort()
            return response
        for part in self.parts[1:]:
            await response.write(as_event(chunk(part)))
        await response.write(as_event(chunk(finish="stop")) + as_event({**chunk(), "choices": [], "usage": USAGE}))
        await response.write(as_event("[DONE]"))
        return response


async def collect(parts: AsyncIterator[Any], gate: Gated | None = None) -> list[Any]:
    found = list[Any]()
    async for part in parts:
        found.append(part)
        if gate is not None:
            gate.go.set()  # only after the first part has arrived
    return found


def test_a_text_arrives_while_it_is_written(tmp_path: Path) -> None:
    gate = Gated()
    with upstream() as server, load(tmp_path, server) as wf:
        server.answers["chat/completions"] = [gate]
        *texts, found = asyncio.run(collect(wf.astream(text="where?"), gate))
        assert texts[0] == ANSWER[0] and "".join(texts).strip() == found["answer"] == "".join(ANSWER).strip()
        assert found.cost.calls == 1 and found.cost.completion_tokens == USAGE["completion_tokens"]
        (body,) = server.bodies("chat/completions")
        assert body["stream"] is True


@pytest.mark.parametrize(
    ("parts", "texts"),
    [
        (("**Answer:** on ", "the left, behind the plant"), ["on the left, behind the plant"]),
        (
            ("\n\n ans", "wer: left, and then along the corridor", " again"),
            ["left, and then along the corridor", " again"],
        ),
        (("left",), ["left"]),
        (("the answer: to that is a door", " on the left"), ["the answer: to that is a door", " on the left"]),
    ],
)
def test_a_label_before_the_text_is_left_out(tmp_path: Path, parts: tuple[str, ...], texts: list[str]) -> None:
    gate = Gated(parts)
    gate.go.set()
    with upstream() as server, load(tmp_path, server) as wf:
        server.answers["chat/completions"] = [gate]
        *found, _ = asyncio.run(collect(wf.astream(text="where?")))
        assert found == texts


@pytest.mark.parametrize(
    "node",
    [
        {"predict": "text -> answer", "samples": 3},
        {"predict": "text -> answer", "reasoning": True},
        {"predict": "text -> answer: Literal['a', 'b']"},
        {"predict": "text -> answer: int"},
    ],
)
def test_what_has_to_be_read_first_comes_in_one_piece(tmp_path: Path, node: Any) -> None:
    said = {"int": "3"}.get(node["predict"].split(": ")[-1], "reasoning: so\nanswer: a" if "reasoning" in node else "a")
    script = Script(lambda request: said)
    nodes = {"say": node}
    (tmp_path / "f.yaml").write_text(yaml.safe_dump({"lm": "openai/x", "nodes": nodes}))
    with workbench.load(tmp_path / "f.yaml", pool=script) as wf:
        *texts, found = asyncio.run(collect(wf.astream(text="where?")))
        assert texts == [str(found["answer"])] and all(request.pieces is None for request in script.requests)


def test_only_the_node_that_writes_the_output_streams(tmp_path: Path) -> None:
    nodes = {"think": {"predict": "text -> notes"}, "say": {"predict": "text, notes -> answer"}}
    gate = Gated()
    with upstream() as server, load(tmp_path, server, nodes) as wf:
        server.answers["chat/completions"] = [chat_answer("some notes that nobody asked for"), gate]
        *texts, found = asyncio.run(collect(wf.astream(text="where?"), gate))
        streams = ["stream" in body for body in server.bodies("chat/completions")]
    assert wf.outputs == ("answer",) and streams == [False, True]
    assert texts[0] == ANSWER[0] and "".join(texts).strip() == found["answer"]


def test_two_outputs_are_no_stream(tmp_path: Path) -> None:
    with upstream() as server, load(tmp_path, server, {"say": {"predict": "text -> answer, tone"}}) as wf:
        with pytest.raises(SpecError, match="guide has 2 outputs"):
            asyncio.run(collect(wf.astream(text="where?")))
        assert not server.asked


def test_a_stream_that_breaks_raises_after_its_beginning(tmp_path: Path) -> None:
    gate = Gated(breaks=True)
    with upstream() as server, load(tmp_path, server) as wf:
        server.answers["chat/completions"] = [gate]
        seen = list[Any]()

        async def read() -> None:
            async for part in wf.astream(text="where?"):
                seen.append(part)
                gate.go.set()

        with pytest.raises(PredictionError, match="broken"):
            asyncio.run(read())
        assert seen == [ANSWER[0]] and len(server.asked) == 1, "a part was passed on, so that it is not asked again"


def talk(wf: LoadedWorkflow, gate: Gated | None, log: list[str], **settings: Any) -> tuple[int, list[str]]:
    """The status and the events that a client of `serve` gets, over the whole of HTTP."""
    import uvicorn

    async def main() -> tuple[int, list[str]]:
        config = uvicorn.Config(App(wf, Settings(**settings), log.append), port=0, log_level="error", lifespan="off")
        served = uvicorn.Server(config)
        running = asyncio.create_task(served.serve())
        while not served.started:
            await asyncio.sleep(0.01)
        port = served.servers[0].sockets[0].getsockname()[1]
        body = {"model": "guide", "messages": [{"role": "user", "content": "where?"}], "stream": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
        events = list[str]()
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                async for line in answer.aiter_lines():
                    if line:
                        events.append(line.removeprefix("data: "))
                        if gate is not None:
                            gate.go.set()
        served.should_exit = True
        await running
        return answer.status_code, events

    return wf.run_in_loop(main())


def test_serve_passes_a_text_on_while_it_is_written(tmp_path: Path) -> None:
    gate, log = Gated(), list[str]()
    with upstream() as server, load(tmp_path, server) as wf:
        server.answers["chat/completions"] = [gate]
        status, events = talk(wf, gate, log)
    told = [json.loads(event) for event in events[:-1]]
    texts = [choice["delta"].get("content", "") for event in told for choice in event["choices"]]
    assert (
        status == 200
        and events[-1] == "[DONE]"
        and texts[0] == ANSWER[0]
        and "".join(texts).strip() == "".join(ANSWER).strip()
    )
    assert told[0]["choices"][0]["delta"]["role"] == "assistant" and "role" not in told[1]["choices"][0]["delta"]
    assert told[-1]["usage"]["completion_tokens"] == USAGE["completion_tokens"] and not log


@pytest.mark.parametrize(
    ("gate", "settings", "kind"),
    [(Gated(breaks=True), {}, "broken"), pytest.param(None, {"deadline": 5.0}, "deadline", marks=pytest.mark.slow)],
)
def test_serve_tells_what_fails_after_the_beginning(
    tmp_path: Path, gate: Gated | None, settings: Any, kind: str
) -> None:
    log = list[str]()
    with upstream() as server, load(tmp_path, server) as wf:
        server.answers["chat/completions"] = [gate or Gated()]
        status, events = talk(wf, gate, log, **settings)
        assert server.broken or gate
    assert status == 200 and json.loads(events[0])["choices"][0]["delta"]["content"] == ANSWER[0]
    assert json.loads(events[-1])["error"]["code"] == kind and "[DONE]" not in events
    assert len(log) == 1 and "after a part of the answer" in log[0]


def test_serve_refuses_what_fails_before_the_beginning(tmp_path: Path) -> None:
    log = list[str]()
    with upstream() as server, load(tmp_path, server, attempts=1) as wf:
        server.answers["chat/completions"] = [(400, {"error": {"message": "no"}})] * 4
        status, events = talk(wf, None, log)
    assert status == 502 and json.loads(events[0])["error"]["code"] == "bad_request"
