"""Services that a run starts itself: servers that read their models' address from the environment, as in production.

Their requests do not identify a row. So a service has one row at a time, and its requests meanwhile belong to that row.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from workbench.base.hashing import digest
from workbench.errors import NodeError, SpecError
from workbench.lm import Response
from workbench.workflow import Signature
from workbench_external.config import ExternalConfig, Slot
from workbench_external.exchange import command_line, environment, fill_fields
from workbench_external.gateway import Ask, Gateway, GatewaySession, Refused
from workbench_external.process import last_words, read_ends, running
from workbench_external.slots.files import replace_files
from workbench_external.workspace import Workspaces

#: Placeholder for a free port.
PORT = "{port}"
#: Seconds between two checks whether it listens.
_LOOK = 0.05
#: Seconds to wait for a service to end after its connection broke.
_LAST_WORDS = 0.5


def check_service(config: ExternalConfig, signature: Signature) -> None:
    """Raise SpecError for an invalid address, and for a `command` that cannot start the service there."""
    if not config.addresses and config.a2a is None:
        return
    key = "url" if config.a2a is None else "a2a"
    if wrong := next((repr(one) for one in config.addresses or [""] if not _is_address(one)), None):
        raise SpecError(
            f"{wrong} is not an address of an HTTP service",
            hint="Write one in full: http://127.0.0.1:8000/ask.",
            path=(key,),
        )
    told = [*(config.command or ()), *config.env.values()]
    if {PORT in address for address in config.addresses} != {any(PORT in text for text in told)}:
        raise SpecError(
            f"{PORT} is needed in `{key}` and in `command` or `env`, or in neither",
            hint=f"Write it in both: {key}: http://127.0.0.1:{PORT}/, command: [python, serve.py, --port, '{PORT}'].",
            path=(key,),
        )
    if config.command is None:
        if config.state == "fresh":
            raise SpecError(
                "a service that runs already cannot be started anew for each row",
                hint="Name a `command` that starts it, or leave `state` out.",
                path=("state",),
            )
        return
    inputs = [field.name for field in signature.inputs]
    if "port" in inputs:
        raise SpecError("an input of a service that is started cannot be named 'port'", hint="Rename it.")
    if named := next((name for name in inputs for text in told if f"{{{name}}}" in text), None):
        raise SpecError(
            f"a service is started once for many rows, so {{{named}}} has no value there",
            hint="Its inputs come in the body of each request.",
            path=("command",),
        )


def _is_address(url: str) -> bool:
    try:
        place = urlsplit(url.replace(PORT, "80"))
        return place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError:  # an unclosed IPv6 address, an invalid port
        return False


class Turns(GatewaySession):
    """Requests of a service, passed to the row that has its turn."""

    row: GatewaySession | None = None
    passes = True

    def _current(self) -> GatewaySession:
        if self.row is None:
            raise Refused(429, "ended", "The row has ended. Do not try again.")
        return self.row

    async def complete(self, ask: Ask) -> Sequence[Response]:
        return await self._current().complete(ask)

    def passes_path(self, *asked: Any) -> bool:
        row: Any = self._current()
        return row.passes_path(*asked)

    async def forward(self, *asked: Any) -> Any:
        row: Any = self._current()
        return await row.forward(*asked)

    def note_refusal(self, error: Exception) -> None:
        row: Any = self.row
        if row is not None:
            row.note_refusal(error)

    async def embed(self, texts: Sequence[str], model: str) -> tuple[Sequence[Sequence[float]], int]:
        return await self._current().embed(texts, model)

    def models(self) -> Sequence[str]:
        return self._current().models()


@dataclass(eq=False)
class StartedService:
    """A service that listens. key: identity of its settings and files; missed: slots whose file differs."""

    url: str
    port: int
    key: str
    turns: Turns
    process: asyncio.subprocess.Process
    errors: IO[bytes]
    stack: AsyncExitStack
    missed: Sequence[str] = ()

    def describe_end(self) -> str | None:
        """Describe the end of the process; None while it runs."""
        if (code := self.process.returncode) is None:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"the service {how}{last_words(read_ends(self.errors))}"


@dataclass
class Services:
    """The services of a node: at most `most` at once, started when rows need them, and reused for later rows unless
    each row gets one `anew`."""

    most: int
    anew: bool = False
    idle: list[StartedService] = field(default_factory=list[StartedService])
    running: int = 0

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.most)

    @asynccontextmanager
    async def lease(
        self, key: str, row: GatewaySession, start: Callable[[], Awaitable[StartedService]]
    ) -> AsyncGenerator[StartedService]:
        """Yield a service for a row. A service whose row was cut short may still be busy, and is stopped.

        start: starts one for this key. Raises NodeError.
        """
        async with self._places:
            service = await self._take(key, start)
            keep = False
            try:
                service.turns.row = row
                yield service
                keep = True
            except NodeError as error:
                keep = error.kind == "exit"
                if error.kind in ("connection", "broken"):  # perhaps before its end is known here
                    with suppress(TimeoutError):
                        await asyncio.wait_for(service.process.wait(), _LAST_WORDS)
                if (ended := service.describe_end()) is not None:
                    raise NodeError("crash", ended) from error
                raise
            finally:
                service.turns.row = None
                if keep and not self.anew and service.process.returncode is None:
                    self.idle.append(service)
                else:
                    await self._close(service)

    async def _take(self, key: str, start: Callable[[], Awaitable[StartedService]]) -> StartedService:
        for service in [one for one in self.idle if one.process.returncode is not None]:
            self.idle.remove(service)
            await self._close(service)
        if (found := next((one for one in self.idle if one.key == key), None)) is not None:
            self.idle.remove(found)
            return found
        if self.running >= self.most and self.idle:
            await self._close(self.idle.pop(0))
        self.running += 1
        try:
            return await start()
        except BaseException:
            self.running -= 1
            raise

    async def _close(self, service: StartedService) -> None:
        self.running -= 1
        await service.stack.aclose()

    async def aclose(self) -> None:
        while self.idle:
            await self._close(self.idle.pop())


async def start_service(
    config: ExternalConfig,
    base: Path,
    folder: Path | None,
    files: Sequence[tuple[str, Slot]],
    gateway: Gateway,
    workspaces: Workspaces,
) -> StartedService:
    """Start a service and wait until it listens. files: slots that are files of its folder. Raises NodeError."""
    async with AsyncExitStack() as stack:
        turns, port = Turns(), _find_port()
        known = {"port": port}
        secret = gateway.admit(turns)
        stack.push_async_callback(gateway.dismiss, secret)
        leading = gateway.environment(secret, dict.fromkeys(config.env, ""))
        url = fill_fields(config.addresses[0], known)
        if await _listens(url):  # rows would go there
            told = "stop it, or leave out `command` if it is the agent"
            raise NodeError("start", f"another program listens at {url}: {told}")
        place = await stack.enter_async_context(workspaces.fresh(folder))
        missed = await asyncio.to_thread(replace_files, place, files)
        errors = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        program = running(
            command_line(config, known, base, folder, place),
            cwd=place,
            env=environment(config, known, leading, place),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        try:
            process = await stack.enter_async_context(program)
        except OSError as error:
            raise NodeError("start", f"the service cannot be started: {error}") from None
        service = StartedService(url, port, key_of(config, files), turns, process, errors, stack, missed)
        await _wait_for(service, config.start)
        service.stack = stack.pop_all()
        return service


def key_of(config: ExternalConfig, files: Sequence[tuple[str, Slot]]) -> str:
    """Return the identity of a started service: rows of another workflow may have other settings, and a candidate other
    files."""
    settings = [config.command, config.addresses, config.env, config.folder]
    return digest([settings, [[name, slot.text] for name, slot in files]])


def _find_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def _wait_for(service: StartedService, seconds: float) -> None:
    """Wait until it listens. Raises NodeError if it ends before, or takes longer."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not await _listens(service.url):
        if (ended := service.describe_end()) is not None:
            raise NodeError("start", f"{ended}, before it listened at {service.url}")
        if loop.time() - begun > seconds:
            raise NodeError("start", f"the service does not listen at {service.url} after {seconds:g} s")
        await asyncio.sleep(_LOOK)


async def _listens(url: str) -> bool:
    place = urlsplit(url)
    try:
        _, writer = await asyncio.open_connection(
            place.hostname, place.port or (443 if place.scheme == "https" else 80)
        )
    except OSError:
        return False
    writer.close()
    return True
