"""`workbench serve`: what clients are answered, what they are refused, and what they are not told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.helpers.scripted import Script

import workbench
from workbench.errors import LMError, SpecError
from workbench.lm import Request, Response

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from workbench_serve.app import App
from workbench_serve.settings import Settings

NODES = {"sort": {"predict": "text -> label: Literal['a', 'b']"}}
JSON = {"Content-Type": "application/json"}

Say = Callable[[Request], str | Response]


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "winner.yaml"
    path.write_text(yaml.safe_dump({"name": "sorter", "lm": "openai/scripted", "nodes": NODES, **changes}))
    return path


def talk(
    folder: Path,
    main: Callable[[httpx.AsyncClient], Awaitable[Any]],
    say: Say | Script = lambda request: "a",
    *,
    log: list[str] | None = None,
    base: str = "http://127.0.0.1:8000",
    settings: dict[str, Any] | None = None,
    **changes: Any,
) -> Any:
    """What a conversation with the application gives, in the loop in which it is served."""
    pool = say if isinstance(say, Script) else Script(say)
    with workbench.load(write(folder, **changes), pool=pool) as wf:

        async def whole() -> Any:
            app = App(wf, Settings(**(settings or {})), (log if log is not None else []).append)
            transport = httpx.ASGITransport(app, raise_app_exceptions=True)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url=base) as client:
                return await main(client)

        return wf.run_in_loop(whole())


def ask(folder: Path, method: str, path: str, say: Say | Script = lambda request: "a", **more: Any) -> httpx.Response:
    sent = {name: more.pop(name) for name in ("json", "content", "headers") if name in more}
    return talk(folder, lambda client: client.request(method, path, **sent), say, **more)


def error(found: httpx.Response) -> tuple[int, str, str | None]:
    told = found.json()["error"]
    assert set(told) == {"message", "type", "param", "code", "request"} and "Traceback" not in found.text
    return found.status_code, told["type"], told["param"]


class Slow(Script):
    """Answers after some seconds; it notes how many run at once, and how many were cancelled."""

    def __init__(self, seconds: float):
        super().__init__(lambda request: "a")
        self.seconds, self.running, self.most, self.cancelled = seconds, 0, 0, 0

    async def complete(self, request: Request) -> Response:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return Response("a", "stop", 1, 1, 0.0)


@pytest.mark.parametrize("path", ["/", "/predict"])
def test_friction_28_inputs_as_json_get_outputs_and_cost(tmp_path: Path, path: str) -> None:
    found = ask(tmp_path, "POST", path, json={"text": "x"})
    assert found.status_code == 200 and found.json()["outputs"] == {"label": "a"}
    cost = found.json()["cost"]
    assert (cost["calls"], cost["tokens"]) == (1, 6) and cost["seconds"] > 0 and "trace" not in found.json()


def test_the_trace_comes_on_request(tmp_path: Path) -> None:
    """Where `--trace` says so, and without the messages of tools: security 10."""
    found = ask(tmp_path, "POST", "/predict?trace=1", json={"text": "x"}, settings={"trace": True}).json()["trace"]
    assert [span["node"] for span in found] == ["sort"] and found[0]["calls"][0]["text"] == "a"
    assert error(ask(tmp_path, "POST", "/predict?trace=1", json={"text": "x"})) == (403, "no_trace", None)


def test_a_trace_has_no_message_of_a_tool(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("def look(text: str) -> str:\n    raise ValueError('SECRET at /srv/secret')\n")
    nodes = {"look": {"tool": "python:t.py:look", "optional": True}, "sort": {"predict": "text -> label"}}
    found = ask(tmp_path, "POST", "/predict?trace=1", json={"text": "x"}, settings={"trace": True}, nodes=nodes)
    assert [span.get("error") for span in found.json()["trace"]] == ["tool", None]
    assert "SECRET" not in found.text and "secret" not in found.text


@pytest.mark.parametrize(
    ("sent", "status", "field"),
    [
        ({}, 422, "text"),
        ({"text": None}, 422, "text"),
        ({"text": 3}, 422, "text"),
        ({"text": "x", "txt": "y"}, 422, "txt"),
        ([1], 422, None),
        ("[1", 400, None),
        ("[" * 100_000, 400, None),
        ("1" * 5000, 400, None),
        (b'"\xff"', 400, None),
    ],
)
def test_wrong_inputs_are_refused_with_the_field_named(
    tmp_path: Path, sent: Any, status: int, field: str | None
) -> None:
    script = Script(lambda request: "a")
    content = sent if isinstance(sent, str | bytes) else json.dumps(sent)
    found = error(ask(tmp_path, "POST", "/predict", script, content=content, headers=JSON))
    assert (found[0], found[2]) == (status, field) and not script.requests, "no call is paid"


def test_typed_inputs_are_checked_by_their_types(tmp_path: Path) -> None:
    nodes = {"n": {"predict": "count: int, words: list[str] -> label"}}
    for sent, field in (({"count": "3", "words": []}, "count"), ({"count": 3, "words": [1]}, "words")):
        assert error(ask(tmp_path, "POST", "/predict", json=sent, nodes=nodes)) == (422, "invalid_input", field)
    good = ask(tmp_path, "POST", "/predict", json={"count": 3, "words": ["a"]}, nodes=nodes)
    assert good.status_code == 200


def test_a_long_body_is_refused_whatever_its_head_says(tmp_path: Path) -> None:
    async def main(client: httpx.AsyncClient) -> list[int]:
        async def parts() -> Any:
            yield b'{"text": "'
            yield b"x" * 200
            yield b'"}'

        whole = await client.post("/predict", json={"text": "x" * 200})
        in_parts = await client.post("/predict", content=parts(), headers=JSON)
        short = await client.post("/predict", json={"text": "x"})
        return [found.status_code for found in (whole, in_parts, short)]

    assert talk(tmp_path, main, settings={"max_body": 100}) == [413, 413, 200]


@pytest.mark.parametrize(
    ("failure", "status", "kind"),
    [
        (LMError("server", "http://10.0.0.7/secret broke"), 502, "server"),
        (LMError("auth", "key sk-123 rejected"), 502, "auth"),
        (LMError("bad_request", "secret"), 502, "bad_request"),
        ("?? secret", 502, "unparsed"),
        (RuntimeError("secret"), 502, "provider"),
    ],
)
def test_failures_of_the_provider_have_a_kind_and_no_details(
    tmp_path: Path, failure: Any, status: int, kind: str
) -> None:
    def say(request: Request) -> str:
        if isinstance(failure, Exception):
            raise failure
        return failure

    log: list[str] = []
    lm = {"model": "openai/scripted", "attempts": 1}
    found = ask(tmp_path, "POST", "/predict", say, json={"text": "x"}, lm=lm, log=log)
    assert error(found)[:2] == (status, kind)
    assert "secret" not in found.text and "sk-123" not in found.text and "10.0.0.7" not in found.text
    number = found.json()["error"]["request"]
    assert len(log) == 1 and log[0].startswith(f"{number} {status} {kind}: ")


def test_a_tool_that_raises_tells_clients_nothing_of_its_error(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def look(text: str) -> str:\n    raise KeyError('/etc/secret')\n")
    log: list[str] = []
    nodes = {"n": {"tool": "python:tools.py:look", "output": "found"}}
    found = ask(tmp_path, "POST", "/predict", json={"text": "x"}, nodes=nodes, log=log)
    assert error(found)[:2] == (500, "tool") and "secret" not in found.text and "/etc/secret" in log[0]


def test_tool_calls_that_must_be_asked_about_are_denied(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def pay(text: str) -> str:\n    return 'paid'\n")
    nodes = {"n": {"tool": "python:tools.py:pay", "output": "paid"}}
    found = ask(tmp_path, "POST", "/predict", json={"text": "x"}, nodes=nodes, policy={"rules": [{"ask": "pay"}]})
    assert error(found)[:2] == (500, "policy") and "paid" not in found.text


def test_the_deadline_ends_the_work(tmp_path: Path) -> None:
    script = Slow(30)
    found = ask(tmp_path, "POST", "/predict", script, json={"text": "x"}, settings={"deadline": 0.2})
    assert error(found)[:2] == (504, "deadline") and script.cancelled == 1


def test_requests_wait_for_a_turn_and_too_many_are_refused(tmp_path: Path) -> None:
    script = Slow(0.2)

    async def main(client: httpx.AsyncClient) -> tuple[list[httpx.Response], list[httpx.Response]]:
        async def wave(size: int) -> list[httpx.Response]:
            return await asyncio.gather(*(client.post("/predict", json={"text": str(i)}) for i in range(size)))

        return await wave(7), await wave(5)

    found, later = talk(tmp_path, main, script, settings={"concurrency": 2, "waiting": 3})
    assert [one.status_code for one in later] == [200] * 5, "those that waited have left the queue"
    codes = sorted(one.status_code for one in found)
    assert codes == [200] * 5 + [503] * 2 and script.most == 2
    refused = next(one for one in found if one.status_code == 503)
    assert error(refused)[:2] == (503, "overloaded") and int(refused.headers["Retry-After"]) >= 1


def test_the_deadline_counts_the_wait_and_gives_the_turn_back(tmp_path: Path) -> None:
    async def main(client: httpx.AsyncClient) -> list[int]:
        late = await asyncio.gather(*(client.post("/predict", json={"text": str(i)}) for i in range(3)))
        script.seconds = 0.0
        return [one.status_code for one in (*late, await client.post("/predict", json={"text": "again"}))]

    script = Slow(30)
    assert talk(tmp_path, main, script, settings={"concurrency": 1, "deadline": 0.3}) == [504] * 3 + [200]


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    async def main(client: httpx.AsyncClient) -> list[int]:
        shown = (None, "Bearer wrong", "Bearer ", "Basic s3cret", "Bearer s3cret", "bearer s3cret", "Bearer s3crét")
        found = []
        for value in shown:
            headers = {} if value is None else {"Authorization": value.encode()}
            found.append((await client.post("/predict", json={"text": "x"}, headers=headers)).status_code)
        found.append((await client.get("/openapi.json")).status_code)
        found.append((await client.get("/health")).status_code)
        return found

    codes = talk(tmp_path, main, settings={"token": "s3cret", "host": "0.0.0.0"}, base="http://example.org")
    assert codes == [401, 401, 401, 401, 200, 200, 401, 401, 200], "probes of health need none"


@pytest.mark.fault("dns-rebinding")
@pytest.mark.parametrize(
    ("host", "headers", "status"),
    [
        ("http://127.0.0.1:8000", {}, 200),
        ("http://localhost:8000", {}, 200),
        ("http://[::1]:8000", {}, 200),
        ("http://localhost:8000", {"Origin": "http://localhost:3000"}, 200),
        ("http://evil.example:8000", {}, 403),
        ("http://127.0.0.1.evil.example", {}, 403),
        ("http://127.0.0.1:8000", {"Origin": "https://evil.example"}, 403),
        ("http://127.0.0.1:8000", {"Origin": "null"}, 403),
    ],
)
def test_without_a_token_pages_of_others_are_refused(
    tmp_path: Path, host: str, headers: dict[str, str], status: int
) -> None:
    """DNS rebinding sends the page's own name; a page that asks 127.0.0.1 sends its origin."""
    script = Script(lambda request: "a")
    found = ask(tmp_path, "POST", "/predict", script, json={"text": "x"}, headers=headers, base=host)
    assert found.status_code == status and bool(script.requests) == (status == 200)


@pytest.mark.fault("foreign-pages")
def test_a_form_of_another_page_is_not_json(tmp_path: Path) -> None:
    """A browser sends text/plain to any address without asking first."""
    found = ask(tmp_path, "POST", "/predict", content='{"text": "x"}', headers={"Content-Type": "text/plain"})
    assert error(found)[:2] == (415, "unsupported_media_type")


@pytest.mark.fault("other-machines")
@pytest.mark.parametrize(("host", "refused"), [("0.0.0.0", True), ("::", True), ("", True), ("127.0.0.2", False)])
def test_listening_beyond_this_machine_needs_a_token(host: str, refused: bool) -> None:
    if refused:
        with pytest.raises(SpecError, match="no token is set"):
            Settings(host).check(no_auth=False)
    else:
        Settings(host).check(no_auth=False)
    Settings(host).check(no_auth=True)
    Settings(host, token="s").check(no_auth=False)


def test_openapi_has_the_types_of_the_signature(tmp_path: Path) -> None:
    nodes = {
        "one": {"predict": "text, limit: int -> draft"},
        "two": {"predict": "draft -> label: Literal['a', 'b'], score: float"},
    }
    found = ask(tmp_path, "GET", "/openapi.json", nodes=nodes).json()
    inputs = found["components"]["schemas"]["Inputs"]
    assert inputs["properties"] == {"text": {"type": "string"}, "limit": {"type": "integer"}}
    assert inputs["required"] == ["text", "limit"] and inputs["additionalProperties"] is False
    answer = found["paths"]["/predict"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer["properties"]["outputs"]["properties"] == {
        "label": {"enum": ["a", "b"], "type": "string"},
        "score": {"type": "number"},
    }
    assert found["openapi"].startswith("3.1") and "security" not in found


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "sorter", "messages": [{"role": "user", "content": "x"}], **more}


def test_one_text_in_and_one_out_is_a_chat_model(tmp_path: Path) -> None:
    found = ask(tmp_path, "POST", "/v1/chat/completions", json=chat(temperature=0.3)).json()
    assert found["object"] == "chat.completion" and found["model"] == "sorter"
    assert found["choices"][0]["message"]["content"] == "a" and found["choices"][0]["finish_reason"] == "stop"
    assert found["usage"] == {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    assert [m["id"] for m in ask(tmp_path, "GET", "/v1/models").json()["data"]] == ["sorter"]


@pytest.mark.parametrize(
    ("nodes", "fields"),
    [
        ({"n": {"predict": "text, more -> label"}}, "text, more"),
        ({"n": {"predict": "text -> label, why"}}, "label, why"),
        ({"n": {"predict": "text -> count: int"}}, "count"),
    ],
)
def test_other_workflows_are_no_chat_models_and_say_why(tmp_path: Path, nodes: Any, fields: str) -> None:
    for method, path in (("POST", "/v1/chat/completions"), ("GET", "/v1/models")):
        found = ask(tmp_path, method, path, json=chat(), nodes=nodes)
        assert error(found)[:2] == (404, "not_found") and fields in found.json()["error"]["message"]


@pytest.mark.parametrize(
    ("changes", "status", "field"),
    [
        ({"model": "gpt-4.1"}, 404, "model"),
        ({"n": 2}, 400, "n"),
        ({"tools": [{"type": "function"}]}, 400, "tools"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "x"}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages"),
    ],
)
def test_what_a_workflow_would_ignore_though_it_matters_is_refused(
    tmp_path: Path, changes: Any, status: int, field: str
) -> None:
    script = Script(lambda request: "a")
    found = error(ask(tmp_path, "POST", "/v1/chat/completions", script, json=chat(**changes)))
    assert (found[0], found[2]) == (status, field) and not script.requests


def test_clients_of_openai_understand_answers_streams_and_refusals(tmp_path: Path) -> None:
    openai = pytest.importorskip("openai")

    async def main(http: httpx.AsyncClient) -> None:
        client = openai.AsyncOpenAI(base_url="http://127.0.0.1/v1", api_key="x", http_client=http, max_retries=0)
        messages = [{"role": "user", "content": [{"type": "text", "text": "x"}]}]
        answer = await client.chat.completions.create(model="sorter", messages=messages)
        assert answer.choices[0].message.content == "a"
        parts = await client.chat.completions.create(
            model="sorter", messages=messages, stream=True, stream_options={"include_usage": True}
        )
        seen = [part async for part in parts]
        assert "".join(c.delta.content or "" for part in seen for c in part.choices) == "a"
        assert seen[-1].usage.total_tokens == 6 and seen[1].choices[0].finish_reason == "stop"
        with pytest.raises(openai.BadRequestError, match="one message of the role user"):
            await client.chat.completions.create(model="sorter", messages=messages * 2)
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="other", messages=messages)

    talk(tmp_path, main)


def test_other_paths_and_methods_say_what_there_is(tmp_path: Path) -> None:
    assert error(ask(tmp_path, "GET", "/docs"))[:2] == (404, "not_found")
    found = ask(tmp_path, "GET", "/predict")
    assert error(found)[:2] == (405, "method_not_allowed") and found.headers["Allow"] == "POST"


def test_a_client_sends_an_image_and_names_no_file_of_the_server(tmp_path: Path) -> None:
    """A path would show the model a file beside the workflow, which is not the client's."""
    (tmp_path / "private.png").write_bytes(b"\x89PNG\r\n\x1a\nIEND")
    nodes = {"look": {"predict": "photo: Image -> label"}}
    script = Script(lambda request: "a cat")
    script.reads_images = True  # type: ignore[attr-defined]
    for path in ("private.png", "./private.png", "file:private.png", 3, ["data:image/"]):
        found = ask(tmp_path, "POST", "/predict", script, json={"photo": path}, nodes=nodes)
        assert error(found) == (422, "invalid_input", "photo") and not script.requests
    sent = "data:image/png;base64,iVBORw0KGgpJRU5E"
    found = ask(tmp_path, "POST", "/predict", script, json={"photo": sent}, nodes=nodes)
    assert found.json()["outputs"] == {"label": "a cat"} and sent in str(script.requests[0].messages)
    told = ask(tmp_path, "GET", "/openapi.json", script, nodes=nodes).json()
    assert told["components"]["schemas"]["Inputs"]["properties"]["photo"]["type"] == "string"
