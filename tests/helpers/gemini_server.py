"""A server of Gemini's generateContent: it refuses what Google's refuses, in Google's words, and keeps requests.

Rules, by the page that states them: names of fields, in camel case or with underscores (ai.google.dev/api/
generate-content and /api/caching; protobuf.dev/programming-guides/json); roles, and as many results as calls in the
turn after them (ai.google.dev/gemini-api/docs/function-calling); signatures of the calls of a model that thinks
(ai.google.dev/gemini-api/docs/thought-signatures); statuses and the form of errors
(ai.google.dev/gemini-api/docs/troubleshooting). A stream is of events with `alt=sse`, else an array; its lines end with
CRLF, as Google's do.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiohttp import web

Json = dict[str, Any]
KEY = "AIza-key-of-this-test-0123456789"
USAGE = {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10}

_NAMES: Mapping[str, str] = {
    "": "model contents tools toolConfig safetySettings systemInstruction generationConfig cachedContent "
    "serviceTier store",
    "generationConfig": "temperature topP topK candidateCount maxOutputTokens stopSequences responseLogprobs logprobs "
    "presencePenalty frequencyPenalty seed responseMimeType responseSchema responseJsonSchema responseModalities "
    "mediaResolution speechConfig thinkingConfig imageConfig enableEnhancedCivicAnswers",
    "content": "role parts",
    "part": "text thought thoughtSignature inlineData fileData functionCall functionResponse executableCode "
    "codeExecutionResult videoMetadata mediaResolution partMetadata",
    "functionCall": "id name args",
    "functionResponse": "id name response willContinue scheduling parts",
    "inlineData": "mimeType data displayName",
    "tool": "functionDeclarations googleSearch googleSearchRetrieval codeExecution urlContext googleMaps fileSearch "
    "computerUse mcpServers",
    "function": "name description behavior parameters parametersJsonSchema response responseJsonSchema",
    "schema": "type format title description nullable enum maxItems minItems properties required minProperties "
    "maxProperties minLength maxLength pattern example anyOf propertyOrdering default items minimum maximum "
    "additionalProperties",
    "toolConfig": "functionCallingConfig retrievalConfig includeServerSideToolInvocations",
    "functionCallingConfig": "mode allowedFunctionNames",
}
_TYPES = "STRING NUMBER INTEGER BOOLEAN ARRAY OBJECT NULL".split()


class Wrong(Exception):
    """What a server refuses, with its status."""

    def __init__(self, message: str, code: int = 400, status: str = "INVALID_ARGUMENT"):
        self.code, self.status = code, status
        super().__init__(message)

    def body(self) -> Json:
        return {"error": {"code": self.code, "message": str(self), "status": self.status}}


def check_content(body: Json) -> None:
    """Raises Wrong for a body of generateContent that Google's server does not take."""
    body = _camel(body, "", "")
    if not body.get("contents"):
        raise Wrong("* GenerateContentRequest.contents: contents is not specified\n")
    if "systemInstruction" in body:
        _content(body["systemInstruction"], "system_instruction")
    contents = [_content(one, f"contents[{n}]") for n, one in enumerate(_list(body["contents"]))]
    config = _camel(body.get("generationConfig", {}), "generationConfig", "generation_config")
    for name in ("responseSchema",):
        if name in config:
            _schema(config[name], f"generation_config.{name}")
    if {"responseSchema", "responseJsonSchema"} & {*config} and config.get("responseMimeType") != "application/json":
        raise Wrong("Function calling config or response schema needs response_mime_type application/json")
    for tool in _list(body.get("tools", [])):
        for function in _list(_camel(tool, "tool", "tools").get("functionDeclarations", [])):
            function = _camel(function, "function", "tools.function_declarations")
            if not re.fullmatch(r"[A-Za-z_][\w.:-]{0,127}", function.get("name", "")):
                raise Wrong("* GenerateContentRequest.tools[0].function_declarations[0].name: Invalid function name.")
            if "parameters" in function:
                _schema(function["parameters"], "tools.function_declarations.parameters")
    calling = _camel(body.get("toolConfig", {}), "toolConfig", "tool_config").get("functionCallingConfig", {})
    _camel(calling, "functionCallingConfig", "function_calling_config")
    thinks = "thinkingConfig" in config
    for before, after in zip(contents, [*contents[1:], {"parts": []}], strict=True):
        _turns(before, after, thinks)


def _turns(before: Json, after: Json, thinks: bool) -> None:
    calls = [part for part in before["parts"] if "functionCall" in part]
    results = [part for part in after["parts"] if "functionResponse" in part]
    if len(calls) != len(results):
        raise Wrong(
            "Please ensure that the number of function response parts is equal to the number of function call parts "
            "of the function call turn."
        )
    names = [part["functionCall"].get("name") for part in calls]
    ids = [part["functionCall"].get("id") for part in calls]
    for held in (part["functionResponse"] for part in results):
        # Google's own client leaves out the id of a call whose function it has run itself.
        if held.get("name") not in names or held.get("id") not in (None, *ids):
            raise Wrong("function response does not match a function call")
    if calls and thinks and "thoughtSignature" not in calls[0]:
        raise Wrong("Function call is missing a thought_signature in functionCall parts.")


def _content(content: Json, where: str) -> Json:
    content = _camel(content, "content", where)
    if content.get("role", "user") not in ("user", "model", "function", "system"):
        raise Wrong("Please use a valid role: user, model.")
    parts = [_camel(part, "part", f"{where}.parts") for part in _list(content.get("parts", []))]
    for part in parts:
        held = {*part} - {"thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata"}
        if len(held) != 1:
            raise Wrong(f"{where}.parts: required oneof field 'data' must have one initialized field")
        for name in held & {"functionCall", "functionResponse", "inlineData"}:
            part[name] = _camel(part[name], name, f"{where}.parts.{name}")
    return {**content, "parts": parts}


def _schema(schema: Json, where: str) -> None:
    schema = _camel(schema, "schema", where)
    if "type" in schema and str(schema["type"]).upper() not in _TYPES:
        raise Wrong(f"Invalid value at '{where}.type' (type.googleapis.com/google.ai.generativelanguage.v1beta.Type)")
    for name, inner in schema.get("properties", {}).items():
        _schema(inner, f"{where}.properties[{name}]")
    for inner in (*([schema["items"]] if "items" in schema else ()), *schema.get("anyOf", ())):
        _schema(inner, where)


def _camel(body: Json, kind: str, where: str) -> Json:
    found = {re.sub("_([a-z])", lambda letter: letter[1].upper(), name): value for name, value in body.items()}
    if unknown := [name for name in found if name not in _NAMES[kind].split()]:
        at = f" at '{where}'" if where else ""
        raise Wrong(f'Invalid JSON payload received. Unknown name "{unknown[0]}"{at}: Cannot find field.')
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def answer(*parts: Any, end: str | None = "STOP", **more: Any) -> Json:
    """An answer, or a piece of one. parts: texts, or as they are."""
    made = [{"text": part} if isinstance(part, str) else part for part in parts]
    ended = {} if end is None else {"finishReason": end}
    candidate = {"content": {"parts": made, "role": "model"}, **ended, "index": 0}
    return {"candidates": [candidate], "usageMetadata": USAGE, "modelVersion": "up", "responseId": "r1", **more}


class GeminiServer:
    """asked: (path with its query, body, headers) of each request. answers: what is given next: a body as JSON or
    bytes, a list of the pieces of a stream, or Wrong; else a text. models: the known ones. down: what is said to every
    request. sent, refused: the bodies of answers and of errors."""

    def __init__(self) -> None:
        self.address = ""
        self.asked: list[tuple[str, Json, Mapping[str, str]]] = []
        self.answers: list[Any] = []
        self.models = {"up"}
        self.sent: list[bytes] = []
        self.refused: list[bytes] = []
        self.down: Wrong | None = None
        self.seconds, self.late = 0.0, 0.0  # between two events, and before the headers

    async def handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except Wrong as wrong:
            self.refused.append(json.dumps(wrong.body(), indent=2).encode())
            return web.Response(body=self.refused[-1], status=wrong.code, content_type="application/json")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.method == "POST" else {}
        self.asked.append((request.path_qs, body, dict(request.headers)))
        if KEY not in (request.headers.get("x-goog-api-key"), request.query.get("key")):
            text = "Method doesn't allow unregistered callers (callers without established identity)."
            raise Wrong(text, 403, "PERMISSION_DENIED")
        if self.down is not None:
            raise self.down
        found = re.fullmatch(r"/v1beta/models/([^:/]+):(\w+)", request.path)
        if found is None:
            raise web.HTTPNotFound
        if found[1] not in self.models:
            text = f"models/{found[1]} is not found for API version v1beta, or is not supported for {found[2]}."
            raise Wrong(text, 404, "NOT_FOUND")
        if found[2] == "countTokens":
            return web.json_response(_counted(body, found[1]))
        check_content(body)
        await asyncio.sleep(self.late)
        given = self.answers.pop(0) if self.answers else answer("a")
        if isinstance(given, Wrong):
            raise given
        if found[2] == "generateContent":
            return self._whole(given)
        pieces = given if isinstance(given, list) else [given]
        if request.query.get("alt") != "sse":
            return self._whole(pieces)
        return await self._stream(request, pieces)

    def _whole(self, given: Any) -> web.Response:
        # As Google writes it: with spaces and lines, so that a copy would differ.
        self.sent.append(given if isinstance(given, bytes) else json.dumps(given, indent=2).encode())
        return web.Response(body=self.sent[-1], content_type="application/json", charset="UTF-8")

    async def _stream(self, request: web.Request, pieces: list[Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.sent.append(b"")
        for piece in pieces:
            if piece is None:  # it breaks off
                assert request.transport is not None
                request.transport.close()
                return response
            written = f"data: {json.dumps(piece)}\r\n\r\n".encode()
            self.sent[-1] += written
            await response.write(written)
            await asyncio.sleep(self.seconds)
        await response.write_eof()
        return response


def _counted(body: Json, model: str) -> Json:
    """https://ai.google.dev/api/tokens"""
    if unknown := sorted({*body} - {"contents", "generateContentRequest"}):
        raise Wrong(f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot find field.')
    asked = body.get("generateContentRequest", body)
    if "generateContentRequest" in body and asked.get("model") != f"models/{model}":
        raise Wrong("* CountTokensRequest.generate_content_request.model: unexpected model name format")
    check_content(asked)
    return {"totalTokens": len(json.dumps(asked)), "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 1}]}


@contextmanager
def gemini_server(port: int = 0) -> Iterator[GeminiServer]:
    """The server, while it listens on loopback in a thread of its own."""
    server, loop = GeminiServer(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(_open(server, port), loop).result()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _open(server: GeminiServer, port: int) -> web.AppRunner:
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    server.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    return runner
