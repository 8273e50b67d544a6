"""The HTTP server: uvicorn, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from workbench.errors import SpecError


class _Server(uvicorn.Server):
    """A server that reports when it is listening, ends on a signal, and does not send it on."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]):
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        earlier = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)


def listen(app: ASGIApp, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until a signal. ready: called with the address once the server listens. Raises SpecError if nothing can
    listen there."""
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        message = f"nothing can listen at {host}, port {port}: {error.strerror or error}"
        raise SpecError(message, hint="Name another --port or --host.") from None
    shown = f"[{host}]" if ":" in host else host
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=2,
    )
    try:
        address = f"http://{shown}:{found.getsockname()[1]}"
        _Server(config, lambda: ready(address)).run(sockets=[found])
    finally:
        found.close()
