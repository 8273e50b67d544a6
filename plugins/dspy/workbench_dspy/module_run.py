"""A run of a DSPy module on one example, with every call of a language model paid through the node's context.

The module runs in its own thread, or in the event loop if it has `aforward`. Each of its predictors runs as a child of
the node, so that a trace shows it, and calls the model through that child's context. DSPy's settings apply only to this
run. Errors that end the run (the budget, a stop) pass through the module as `Ended`, which is not an `Exception`, and
are raised again outside.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import dspy

from workbench.base.concurrency import run_in_thread
from workbench.errors import LMError, NodeError
from workbench.runtime import Context
from workbench.workflow import NodeConfig, NodeKind
from workbench_dspy.bridge import Ended, Engine, as_response
from workbench_dspy.exported.predictor import PlainAdapter
from workbench_dspy.predictors import plain, predictors_of
from workbench_dspy_seam.programs import ADAPTERS, AdapterParseError, read_request
from workbench_kit.prompting import check_said

T = TypeVar("T")

#: Seconds. The run has its own limit for Python's time between two calls.
_LONGEST = 86_400.0
_ADAPTERS = {**ADAPTERS, "plain": PlainAdapter}


class ModuleRun:
    """A copy of a node's module, for one example. node: a `workbench_dspy.node.DSPyModule`."""

    def __init__(self, node: Any, ctx: Context):
        self.node, self.ctx, self.loop = node, ctx, asyncio.get_running_loop()
        self.calls, self.waiting, self.moved = 0, 0, time.monotonic()
        self.ended: BaseException | None = None
        self._asked, self._lock = Counter[str](), threading.Lock()

    async def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs. Raises NodeError, and any error that ends the run."""
        program = self.node.program.deepcopy()
        for name, predictor in predictors_of(program).items():
            self._route(name, predictor)
        try:
            found = await self._within_time(asyncio.ensure_future(self._call(program, inputs)))
        except Ended:
            raise (self.ended or RuntimeError("the module ended without a reason")) from None
        except Exception as error:
            raise original_error(error) from None
        finally:
            self.ended = self.ended or Ended("the module has returned")
        return self._outputs(found)

    async def _call(self, program: Any, inputs: Mapping[str, Any]) -> Any:
        with dspy.context(**self._settings(self.ctx)):
            if type(program).__dict__.get("aforward") is not None:
                return await program.acall(**inputs)
            return await run_in_thread(lambda: program(**inputs), _LONGEST)

    def _settings(self, ctx: Context) -> dict[str, Any]:
        """Return DSPy's settings for code that runs in a context."""

        def complete(request: Any) -> Any:
            return self.wait(lambda: self.complete(ctx, request))

        async def acomplete(request: Any) -> Any:
            return await self.watched(lambda: self.complete(ctx, request))

        lm = dspy.LM(
            "workbench/task", engine=Engine(complete), async_engine=Engine(acomplete), cache=False, num_retries=0
        )
        adapter = _ADAPTERS[self.node.config.adapter]()
        return {"lm": lm, "adapter": adapter, "disable_history": True, "provide_traceback": False}

    async def _within_time(self, work: asyncio.Future[Any]) -> Any:
        """Wait for the result. Python code that takes too long between two calls is abandoned."""
        limit = self.ctx.program.runtime.timeout
        try:
            while not work.done():
                left = limit if self.waiting else limit - (time.monotonic() - self.moved)
                if left <= 0:
                    raise NodeError("code", f"{self.node.address.name}: no result within {limit:g} s")
                await asyncio.wait({work}, timeout=left)
            return work.result()
        finally:
            work.cancel()

    def _outputs(self, found: Any) -> dict[str, Any]:
        name = self.node.address.name
        if not hasattr(found, "items"):
            raise NodeError("code", f"{name} gave {type(found).__name__}, not a dspy.Prediction")
        values = dict(found.items())
        if missing := [field for field in self.node.outputs if field not in values]:
            raise NodeError("code", f"{name} gave no '{missing[0]}'; it gave: {', '.join(values)}")
        return {field: plain(values[field]) for field in self.node.outputs}

    def _route(self, name: str, predictor: Any) -> None:
        """Make a predictor run as a child of the node."""
        forward, aforward = (getattr(type(predictor), name).__get__(predictor) for name in ("forward", "aforward"))
        predictor.lm = None  # calls of a model that it brings would not be paid

        def call(**given: Any) -> Any:
            return self.wait(lambda: self._run_predictor(name, predictor, given, forward, None))

        async def acall(**given: Any) -> Any:
            return await self.watched(lambda: self._run_predictor(name, predictor, given, None, aforward))

        predictor.forward, predictor.aforward = call, acall

    async def _run_predictor(
        self, name: str, predictor: Any, given: dict[str, Any], forward: Any, aforward: Any
    ) -> Any:
        given.pop("lm", None)
        fields = [*predictor.signature.input_fields]
        found: list[Any] = []

        async def work(ctx: Context) -> Mapping[str, Any]:
            with dspy.context(**self._settings(ctx)):
                if aforward is not None:
                    found.append(await aforward(**given))
                else:
                    found.append(await run_in_thread(lambda: forward(**given), _LONGEST))
            return _plain_fields(found[0])

        inputs = _plain_fields({field: given[field] for field in fields if field in given})
        replica = self.draw([name, inputs, given.get("config")])
        node = _Call(f"predictors.{name}", NodeConfig(), self.node.base, work)
        await self.ctx.run_child(node, node.name, inputs, replica=replica)
        return found[0]

    def draw(self, content: Any) -> int:
        """Count earlier requests with the same content, so that a repeated request samples another answer."""
        key = json.dumps(content, sort_keys=True, default=str)
        with self._lock:
            self._asked[key] += 1
            return self._asked[key] - 1

    async def complete(self, ctx: Context, request: Any) -> Any:
        """Answer a request of DSPy's."""
        messages, settings = read_request(request)
        self.calls += 1
        if self.calls > self.node.config.calls:
            raise NodeError("steps", f"more than calls: {self.node.config.calls} calls of the language model")
        # The replica of a predictor's call is that of its node.
        replica = self.draw([messages, settings]) if ctx is self.ctx else 0
        answer = await ctx.complete(messages, lm=self.node.lm, replica=replica, **settings)
        check_said(answer)
        return as_response(answer, request.model)

    def wait(self, make: Callable[[], Awaitable[T]]) -> T:
        """Run something in the loop, from the module's thread."""
        if self.ended is not None:
            raise Ended
        return asyncio.run_coroutine_threadsafe(self.watched(make), self.loop).result()

    async def watched(self, make: Callable[[], Awaitable[T]]) -> T:
        """Run something that the module waits for. Errors that are not failures of this example end the module."""
        if self.ended is not None:
            raise Ended
        self.waiting += 1
        try:
            return await make()
        except LMError as error:
            if error.kind == "auth":
                self.ended = error
                raise Ended from error
            raise
        except (NodeError, Ended, AdapterParseError):
            raise
        except BaseException as error:
            self.ended = self.ended or error
            raise Ended from error
        finally:
            self.waiting -= 1
            self.moved = time.monotonic()


class _Call(NodeKind):
    """A predictor's call as a child of the node."""

    def __init__(self, name: str, config: Any, base: Any, work: Callable[[Context], Awaitable[Mapping[str, Any]]]):
        super().__init__(name, config, base)
        self.work = work

    async def run(self, inputs: Mapping[str, Any], ctx: Any) -> Mapping[str, Any]:
        try:
            return await self.work(ctx)
        except Exception as error:
            raise original_error(error) from None


def _plain_fields(values: Any) -> dict[str, Any]:
    return {str(name): plain(value) for name, value in values.items()}


def original_error(error: Exception) -> Exception:
    """Return the failure of a node or model that caused an error of DSPy or the module; else the error itself."""
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        if isinstance(found, NodeError | LMError):
            return found
        seen.add(id(found))
        found = found.__cause__ or found.__context__
    return NodeError("unparsed", str(error)[:2000]) if isinstance(error, AdapterParseError) else error
