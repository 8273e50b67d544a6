"""The ASGI application: paths, limits, deadlines. Every failure becomes one JSON object without details."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from workbench.errors import FailureKind
from workbench.inference import LoadedWorkflow, Prediction, PredictionError
from workbench.workflow import Span
from workbench_serve import chat
from workbench_serve.access import check_access, check_type
from workbench_serve.errors import RequestError, encode, explain, json_response
from workbench_serve.fields import Fields
from workbench_serve.openapi import describe
from workbench_serve.settings import Settings
from workbench_serve.under_load import Configurations

#: Seconds for the body of a request to arrive.
BODY_SECONDS = 30.0

_STREAM = {"Cache-Control": "no-store"}

Handler = Callable[[Request], Awaitable[Response]]


class App:
    """A served workflow.

    wf: the file's own configuration. others: its further configurations, in the order of the file.
    log: takes a line for each request that failed.
    """

    def __init__(
        self,
        wf: LoadedWorkflow,
        settings: Settings,
        log: Callable[[str], None],
        others: Sequence[LoadedWorkflow] = (),
    ):
        self.wf, self.settings, self.log = wf, settings, log
        self._loaded, self._under_load = (wf, *others), None
        if others and wf.spec.targets is not None:
            self._under_load = Configurations(wf.spec.targets, wf.spec.configurations, settings.concurrency)
        self.fields, self.model, self.begun = Fields.of(wf), wf.spec.name, int(time.time())
        self._slots, self._waiting = asyncio.Semaphore(settings.concurrency), 0
        self._openapi = encode(describe(self.model, self.fields, settings))
        self.paths: dict[str, tuple[str, Handler]] = {
            "/": ("POST", self.predict),
            "/predict": ("POST", self.predict),
            "/v1/chat/completions": ("POST", self.complete_chat),
            "/v1/models": ("GET", self.list_models),
            "/openapi.json": ("GET", self.openapi),
            "/health": ("GET", self.health),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request, number = Request(scope, receive), secrets.token_hex(4)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except RequestError as error:
            response = error.response(number)
        except asyncio.CancelledError:  # a second signal; uvicorn would print a traceback
            response = RequestError(503, "stopped", "The server has been stopped.").response(number)
        except Exception as error:
            told = explain(error)
            self.log(f"{number} {told.status} {told.kind}: {type(error).__name__}: {error}")
            response = told.response(number)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path, method = request.scope["path"], request.method
        if path != "/health":
            check_access(request, self.settings)
        if path not in self.paths:
            raise RequestError(404, "not_found", f"There is nothing here; paths: {', '.join(self.paths)}.")
        allowed, handler = self.paths[path]
        if method != allowed and (method, allowed) != ("HEAD", "GET"):
            raise RequestError(405, "method_not_allowed", f"{path} takes {allowed}.", headers={"Allow": allowed})
        if method != "POST" or self.settings.deadline is None:
            return await handler(request)
        try:
            async with asyncio.timeout(self.settings.deadline):
                return await handler(request)
        except TimeoutError:
            raise _too_late(self.settings.deadline) from None

    async def predict(self, request: Request) -> Response:
        traced = request.query_params.get("trace") == "1"
        if traced and not self.settings.trace:
            raise RequestError(403, "no_trace", "Traces are off: `workbench serve --trace` turns them on.")
        inputs = self.fields.check(await self._body(request))
        found, place = await self._run(**inputs)
        answer = {"outputs": {name: found.get(name) for name in self.wf.outputs}, "cost": _cost(found)}
        if self._under_load is not None:
            answer["configuration"] = place
        if traced:
            answer["trace"] = [_shown(span) for span in found.trace.spans] if found.trace else []
        return json_response(answer)

    async def complete_chat(self, request: Request) -> Response:
        if why := self.fields.why_no_chat():
            raise RequestError(404, "not_found", why)
        asked = await self._body(request)
        inputs = {self.wf.inputs[0]: chat.text_of(asked, self.model)}
        if chat.is_streamed(asked) and self._under_load is None:
            return await self._stream(inputs, chat.Events(self.model, asked))
        found, place = await self._run(**inputs)
        text = str(found.get(self.wf.outputs[0], ""))
        mark = f"configuration-{place}" if self._under_load is not None else None
        if chat.is_streamed(asked):
            events = chat.Events(self.model, asked, mark)
            return Response(events.text(text) + events.end(found), 200, _STREAM, "text/event-stream")
        return json_response(chat.completion(text, found, self.model, mark))

    async def _stream(self, inputs: dict[str, Any], events: chat.Events) -> Response:
        """Return the answer as events. What fails before the first one is an error as without a stream."""
        end = math.inf if self.settings.deadline is None else time.monotonic() + self.settings.deadline
        parts = self._parts(inputs)
        first = await anext(parts)

        async def body() -> AsyncGenerator[str]:
            part: str | Prediction = first
            try:
                while isinstance(part, str):
                    yield events.text(part)
                    part = await asyncio.wait_for(anext(parts), None if end == math.inf else end - time.monotonic())
                yield events.end(part)
            except TimeoutError:
                yield self._broken(_too_late(self.settings.deadline))
            except Exception as error:
                yield self._broken(explain(error), error)
            finally:
                await parts.aclose()

        return StreamingResponse(body(), 200, _STREAM, "text/event-stream")

    async def _parts(self, inputs: dict[str, Any]) -> AsyncGenerator[str | Prediction]:
        async with self._slot():
            async with aclosing(self.wf.astream(**inputs)) as parts:
                async for part in parts:
                    yield part

    def _broken(self, told: RequestError, error: Exception | None = None) -> str:
        """Return the event of an error after a part of the answer, which OpenAI's clients raise."""
        number = secrets.token_hex(4)
        self.log(f"{number} {told.status} {told.kind} after a part of the answer: {error or told}")
        return f"data: {bytes(told.response(number).body).decode()}\n\n"

    async def list_models(self, request: Request) -> Response:
        if why := self.fields.why_no_chat():
            raise RequestError(404, "not_found", why)
        return json_response(chat.models(self.model, self.begun))

    async def openapi(self, request: Request) -> Response:
        return Response(self._openapi, media_type="application/json")

    async def health(self, request: Request) -> Response:
        return json_response({"status": "ok"})

    async def _run(self, **inputs: Any) -> tuple[Prediction, int]:
        """Return the answer, and the index of the configuration that gave it."""
        arrived = time.monotonic()
        async with self._slot():
            if self._under_load is None:
                return await self.wf.acall(**inputs), 0
            begun = time.monotonic()
            place = self._under_load.choose(begun - arrived, self._waiting)
            try:
                found = await self._loaded[place].acall(**inputs)
            except (PredictionError, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) or error.prediction.failure == FailureKind.TIMEOUT:
                    self._under_load.record_cut(place, time.monotonic() - begun)
                raise  # other failures are no evidence of its speed
            self._under_load.record(place, time.monotonic() - begun)
            return found, place

    @asynccontextmanager
    async def _slot(self) -> AsyncGenerator[None]:
        """Wait for a slot. Raises RequestError (503) if too many requests are waiting."""
        if self._slots.locked():
            if self._waiting >= self.settings.waiting:
                headers = {"Retry-After": "1"}
                raise RequestError(503, "overloaded", "Too many requests are waiting.", headers=headers)
            self._waiting += 1
            try:
                await self._slots.acquire()
            finally:
                self._waiting -= 1
        else:
            await self._slots.acquire()
        try:
            yield
        finally:
            self._slots.release()

    async def _body(self, request: Request) -> Any:
        """Return the JSON of a request. Raises RequestError if it is too long, too slow or not JSON."""
        check_type(request)
        too_long = RequestError(413, "too_long", f"A request has at most {self.settings.max_body} bytes.")
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self.settings.max_body:
            raise too_long
        raw = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    raw += part
                    if len(raw) > self.settings.max_body:
                        raise too_long
        except TimeoutError:
            raise RequestError(408, "timeout", "The request did not arrive in time.") from None
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):  # the former also for numbers with too many digits
            raise RequestError(400, "invalid_json", "The request is not JSON.") from None


def _too_late(deadline: float | None) -> RequestError:
    return RequestError(504, "deadline", f"No answer within {deadline:g} s.")


def _shown(span: Span) -> dict[str, Any]:
    """Describe a node's run. Of its error only the kind is shown, as the message is from a tool, a server or Python."""
    kind = span.error and span.error.partition(":")[0]
    return span.as_dict() | ({"error": kind} if kind else {})


def _cost(found: Prediction) -> dict[str, Any]:
    cost = found.cost
    return {"calls": cost.calls, "tokens": cost.tokens, "usd": cost.usd, "seconds": round(cost.seconds, 4)}
