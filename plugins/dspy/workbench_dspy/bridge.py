"""Runs calls from DSPy's worker threads in the run's event loop, so that they are paid, journaled and billed.

DSPy's optimizers are synchronous and evaluate in threads; the run is one event loop. The bridge passes work from a
thread to the loop and waits for the result. When the budget is spent (or the run is stopped) it raises `Ended`, also
for every later call. `Ended` is not an `Exception`, because DSPy would catch that and continue.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import dspy

from workbench.errors import LMError, NodeError
from workbench.lm import Response
from workbench.study import Study
from workbench_dspy_seam.programs import make_response, read_request

T = TypeVar("T")


class Ended(BaseException):
    """The budget is spent or the run is stopping; `Bridge.reason` is the cause."""


class Bridge:
    """An optimizer's connection to the event loop that it was called from."""

    def __init__(self, study: Study):
        self.study, self.loop = study, asyncio.get_running_loop()
        self.reason: BaseException | None = None
        self._lock, self._pending = threading.Lock(), set[Any]()

    def __deepcopy__(self, memo: dict[int, Any]) -> Bridge:
        return self  # DSPy copies programs; there is still one run

    def __copy__(self) -> Bridge:
        return self

    def wait(self, make: Callable[[], Awaitable[T]]) -> T:
        """Run the awaitable from `make` in the loop, from a thread. Errors of models and nodes are raised; all others
        end the bridge."""

        async def work() -> T:
            if self.reason is not None:
                raise Ended
            return await make()

        with self._lock:
            if self.reason is not None:
                raise Ended
            future = asyncio.run_coroutine_threadsafe(work(), self.loop)
            self._pending.add(future)
        try:
            return future.result()
        except (LMError, NodeError) as error:
            if isinstance(error, LMError) and error.kind == "auth":
                self.reason = error
                raise Ended from error
            raise
        except BaseException as error:
            self.reason = self.reason or error
            raise Ended from error
        finally:
            self._pending.discard(future)

    async def close(self) -> None:
        """Refuse new work, and wait for work in flight from DSPy's threads."""
        with self._lock:
            self.reason = self.reason or Ended("the optimizer has returned")
        while self._pending:
            await asyncio.sleep(0.01)

    def lm(self, role: str) -> dspy.LM:
        """Return a role's language model as DSPy's. All proposals are requested through it."""
        complete_as, asked = self.study.lm(role), Counter[str]()

        def complete(request: Any) -> Any:
            messages, settings = read_request(request)
            # DSPy repeats a request when it wants another answer; its cache is off, so each repetition is a fresh draw.
            key = repr((messages, request.config.temperature, request.config.max_tokens))
            asked[key] += 1
            replica = asked[key] - 1
            settings.pop("stop")
            answer = self.wait(lambda: complete_as(messages, replica=replica, **settings))
            return as_response(answer, request.model)

        return dspy.LM(f"workbench/{role}", engine=Engine(complete), cache=False, num_retries=0, temperature=1.0)


class Engine:
    """`dspy.LM`'s engine, in a thread or in the event loop: takes a canonical request, returns a response."""

    def __init__(self, complete: Callable[[Any], Any]):
        self.complete = complete

    def __deepcopy__(self, memo: Any) -> Engine:
        return self

    def close(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def as_response(answer: Response, model: str) -> Any:
    """Convert an answer of workbench to DSPy's."""
    return make_response(
        answer.text, model, answer.finish == "length", (answer.prompt_tokens, answer.completion_tokens)
    )
