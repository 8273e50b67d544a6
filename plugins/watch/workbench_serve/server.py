"""The HTTP server: uvicorn in the event loop of the calls, so that a request never changes threads."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn

from workbench.base.concurrency import fewer_collections
from workbench.errors import SpecError
from workbench.inference import LoadedWorkflow
from workbench_serve.app import App
from workbench_serve.settings import Settings

#: Seconds for running requests to end after the first signal.
GRACE = 30


class _Server(uvicorn.Server):
    """A server that leaves signals to the main thread, and reports when it is listening."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]):
        super().__init__(config)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def serve(
    wf: LoadedWorkflow,
    settings: Settings,
    *,
    log: Callable[[str], None],
    ready: Callable[[str], None],
    others: Sequence[LoadedWorkflow] = (),
) -> None:
    """Serve a workflow until SIGTERM or SIGINT. The first lets running requests end, the second cancels them.

    Args:
        log: takes a line for each request that failed.
        ready: called with the address once it listens.
        others: further configurations of the file, for high load.

    Raises:
        SpecError: nothing can listen at the address.
    """
    listening = _listen(settings)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{listening.getsockname()[1]}"
    config = uvicorn.Config(
        App(wf, settings, log, others),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        backlog=2048,
        timeout_graceful_shutdown=GRACE,
    )
    server = _Server(config, lambda: ready(address))
    try:
        with _signals(server), fewer_collections():
            wf.run_in_loop(server.serve(sockets=[listening]))
    finally:
        listening.close()


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With the protocol given, asyncio turns Nagle's algorithm off; otherwise each answer is 40 ms late.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((settings.host, settings.port))
    except OSError as error:
        found.close()
        message = f"nothing can listen at {settings.host}, port {settings.port}: {error.strerror}"
        raise SpecError(message, hint="Name another --port or --host.") from None
    return found


@contextmanager
def _signals(server: uvicorn.Server) -> Generator[None]:
    """Handle signals: the first ends the server after running requests are answered, the second at once."""

    def handle(number: int, frame: Any) -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    earlier = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
