"""The server that plays all dialects, each under a path with its name, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from tests.dialects.apis import CHAT
from tests.dialects.dialect import KEY, Asked, Dialect, Refused
from tests.dialects.planted import answer


class Lab:
    """The dialects by name. asked: bodies of the requests so far, by dialect; refused: the messages of refusals."""

    def __init__(self, dialects: Mapping[str, Dialect]):
        self.dialects, self.address = dialects, ""
        self.asked: dict[str, list[dict[str, Any]]] = {}
        self.refused: dict[str, list[str]] = {}
        self.signed: dict[str, dict[str, str]] = {name: {} for name in dialects}

    async def handle(self, request: web.Request) -> web.Response:
        name, _, path = request.path.lstrip("/").partition("/")
        dialect = self.dialects[name]
        headers = {key.lower(): value for key, value in request.headers.items()}
        try:
            body = self._answer(dialect, f"/{path}", dict(request.query), headers, await request.json())
        except Refused as refused:
            self.refused.setdefault(name, []).append(refused.message)
            return web.json_response(dialect.error(refused), status=refused.status)
        return web.json_response(body)

    def _answer(self, dialect: Dialect, path: str, query: Any, headers: Any, body: Any) -> Any:
        self.asked.setdefault(dialect.name, []).append(body)
        api, signed = dialect.api or CHAT, self.signed[dialect.name]
        asked = Asked(path, query, headers, body, signed)
        if path != dialect.base.partition("?")[0] + api.path:
            raise Refused("Not Found", 404)
        if dialect.hosted and not dialect.key_header and headers.get("authorization") != f"Bearer {KEY}":
            raise Refused("Incorrect API key provided", 401, code="invalid_api_key")
        for rule in dialect.rules:
            rule(asked)
        said = answer(api.read(asked), dialect.thoughts is not None)
        return api.write(dialect, said, asked, signed.__setitem__)


@contextmanager
def playing(dialects: Mapping[str, Dialect]) -> Iterator[Lab]:
    """The lab, while it listens on loopback."""
    lab, loop = Lab(dialects), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(_open(lab), loop).result()
    try:
        yield lab
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _open(lab: Lab) -> web.AppRunner:
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/{path:.*}", lab.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    lab.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    return runner
