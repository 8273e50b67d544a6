"""A ledger with its own database, and a simulated language model that a test controls."""

from __future__ import annotations

import asyncio
import inspect
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import LMError
from workbench.ledger import Ledger
from workbench.lm import Request, Response
from workbench.spec import BudgetSpec, LMSpec, lm_spec
from workbench.store import Store


class FakeLM:
    """answer(request) gives a Response, an exception to raise, or an awaitable of either."""

    identity = "fake"

    def __init__(self, answer: Callable[[Request], Any] = lambda request: reply(), concurrency: int = 8):
        self.answer, self.concurrency = answer, concurrency
        self.requests: list[Request] = []
        self.open = self.most = 0

    async def complete(self, request: Request) -> Response:
        self.requests.append(request)
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            said = self.answer(request)
            if inspect.isawaitable(said):
                said = await said
            if isinstance(said, BaseException):
                raise said
            return said
        finally:
            self.open -= 1

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        return 1e-3 * prompt_tokens + 2e-3 * completion_tokens

    async def aclose(self) -> None:
        pass


def reply(text: str = "yes", prompt: int = 5, completion: int = 1, **more: Any) -> Response:
    return Response(text, prompt_tokens=prompt, completion_tokens=completion, **more)


def ask(text: str = "hello", **settings: Any) -> Request:
    return Request(({"role": "user", "content": text},), **{"max_tokens": 10, **settings})


def spec(**settings: Any) -> LMSpec:
    return lm_spec({"model": "openai/fake", **settings})


@contextmanager
def pausing(seconds: float | None) -> Iterator[None]:
    """All ledgers wait so long before they ask again; None: as long as for a user."""
    with pytest.MonkeyPatch.context() as patch:
        if seconds is not None:
            patch.setattr("workbench.ledger.ledger.pause_before", lambda attempt, asked, jitter: seconds)
        yield


@contextmanager
def journal(path: Path, *, pause: float | None = 0.0, recorded: bool = True, **budget: Any) -> Iterator[Ledger]:
    """The ledger of run 1 in a database, as of a new process on each call. pause: as for `pausing`."""
    store = Store(path)
    if store.row("select 1 from runs") is None:
        store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
    ledger = Ledger(store, 1, BudgetSpec.model_validate(budget), recorded=recorded)
    try:
        with pausing(pause):
            yield ledger
    finally:
        store.close()


def run(main: Callable[[], Any]) -> Any:
    """Run a coroutine function to its end, for at most 20 s, and assert that it leaves no tasks."""

    async def watched() -> Any:
        result = await asyncio.wait_for(main(), 20)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"still running: {left}"
        return result

    return asyncio.run(watched())


class _SkippingSelector(selectors.DefaultSelector):
    """Counts the seconds that the loop would sleep, and does not sleep."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(None if timeout is None else 0)
        if not events and timeout:
            self.skipped += timeout
        return events


class _SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.skipping = _SkippingSelector()
        super().__init__(self.skipping)

    def time(self) -> float:
        return super().time() + self.skipping.skipped


def run_without_waiting(main: Callable[[], Any]) -> Any:
    """Run a coroutine function in a loop whose clock jumps to the next event: hours of pauses take no time."""
    with asyncio.Runner(loop_factory=_SkippingLoop) as runner:
        return runner.run(main())


def skipped_seconds() -> float:
    """What the running loop of `run_without_waiting` has skipped so far."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, _SkippingLoop)
    return loop.skipping.skipped


async def turns(n: int) -> None:
    """Yield to other tasks for n turns of the event loop."""
    for _ in range(n):
        await asyncio.sleep(0)


def nothing_reserved(ledger: Ledger) -> bool:
    left = ledger.ceilings.reserved
    return left.calls == left.tokens == 0 and abs(left.usd) < 1e-9


def scripted(*outcomes: Any) -> FakeLM:
    rest = list(outcomes)
    return FakeLM(lambda request: rest.pop(0) if rest else reply())


def failure(kind: str = "server", **more: Any) -> LMError:
    return LMError(kind, f"planted {kind}", **more)
