"""A workflow file as a function: `wf = workbench.load("optimized.yaml")`, then `wf(question=...)`."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import math
import os
import re
import threading
import weakref
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import CancelledError, Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from workbench.base.concurrency import BackgroundLoop
from workbench.base.plain_values import records_of
from workbench.errors import LMError, ServerDead, SpecError, WorkbenchError, collect_errors, suggest
from workbench.inference.prediction import Prediction, PredictionError, prediction_of
from workbench.ledger import Spend
from workbench.lm import LMPool, Piece, Pieces, locate_lms
from workbench.runtime import Consent, Program, Run, SandboxChoice
from workbench.spec import Code, Inherited, Source, Spec, apply_overrides, check_nodes, read_source
from workbench.task import Example, section_loaders
from workbench.workflow import Workflow, called_lms

#: Rows of a batch that are begun or wait to be returned, per row that may run at once: a slow row delays the results
#: behind it, but not their work.
AHEAD = 4

T = TypeVar("T")
Row = Mapping[str, Any]
_CLOSED = "the workflow was closed before the row was done"


def load(
    path: str | Path | Source,
    *,
    changes: Mapping[str, Any] | None = None,
    sandbox: str | None = None,
    consent: Consent | None = None,
    pool: LMPool | None = None,
) -> LoadedWorkflow:
    """Load a workflow file to call it. It needs no data, metric or budget; these sections are not read if present.

    Like an import, this runs the Python that the file names.

    Args:
        path: the workflow file, e.g. the result of `optimize`, or one already read.
        changes: other settings by address, e.g. {"lm.api_base": "http://127.0.0.1:8000/v1"}.
        sandbox: name of the sandbox for code of models; default: the strongest that works.
        consent: asks somebody to allow a tool call if the policy says `ask`; without it such calls are refused.
        pool: replaces the plugins' language models in tests.

    Raises:
        SpecError: the file cannot be used.
        LMError: the key of a model is missing.
    """
    spec, _, workflow = read_workflow(path, list((changes or {}).items()))
    choice = SandboxChoice(sandbox) if sandbox else SandboxChoice.from_environment()
    loaded = LoadedWorkflow(spec, workflow, choice, consent, pool)
    check_ready(spec, workflow, loaded.pool)
    return loaded


def read_workflow(
    path: str | Path | Source, changes: Sequence[tuple[str, Any]], code: Code = "loaded"
) -> tuple[Spec, Source, Workflow]:
    """Read the parts of a file that a call needs: neither data nor metric. changes: settings by address. code: the
    state of its user code. Raises SpecError."""
    source = apply_overrides(read := read_source(path), changes)
    base = Path(read.file).resolve().parent
    spec, inherited = locate_lms(check_nodes(source), base), list[Inherited]()
    with source.locating():
        sections = section_loaders(spec, base, inherited, code)
        _, workflow = collect_errors((sections["lm"], sections["nodes"]))
        workflow.check()
    return spec.model_copy(update={"policy": spec.policy.inherit(inherited)}), source, workflow


def check_ready(spec: Spec, workflow: Workflow, pool: LMPool) -> None:
    """Raise LMError for a model that cannot be called from here, e.g. because a key is missing."""
    asked = {role for node in workflow.walk() for role in node.roles}
    roles = (lm for role, lm in spec.roles.items() if role in asked)
    for lm in {lm.model_dump_json(): lm for lm in (*called_lms(workflow, spec.lm), *roles)}.values():
        if (ready := getattr(pool.get(lm), "ready", None)) is not None:
            ready()


class LoadedWorkflow:
    """A workflow that can be called: `wf(...)`, `await wf.acall(...)`, `wf.batch(rows)`, `wf.abatch(rows)`.

    Its calls run in an event loop of its own, in a thread, so it works in notebooks, in web servers and in plain
    programs, and all callers share its connections and limits. Close it, or use it in a `with` block, to end that
    thread and the sandbox immediately. Otherwise they end with the last reference to it, or with the process.
    """

    def __init__(
        self,
        spec: Spec,
        workflow: Workflow,
        sandbox: SandboxChoice | None = None,
        consent: Consent | None = None,
        pool: LMPool | None = None,
    ):
        self.spec, self.workflow = spec, workflow
        self.inputs: tuple[str, ...] = tuple(workflow.input_fields)
        self.outputs: tuple[str, ...] = tuple(workflow.output_fields)
        self._sandbox, self._consent = sandbox, consent
        self._given, self.pool = pool, pool or LMPool()
        self._open = self._opened()
        _LOADED.add(self)
        self._numbers = itertools.count()

    def __repr__(self) -> str:
        return f"<workflow {self.spec.name}: {', '.join(self.inputs)} -> {', '.join(self.outputs)}>"

    def __call__(self, **inputs: Any) -> Prediction:
        """Run the workflow on one input and wait for the result. Raises PredictionError if it fails, and SpecError for
        unknown inputs."""
        self._check(inputs)
        return _or_raise(_wait(self._submit(self._run(inputs, next(self._numbers)))))

    async def acall(self, **inputs: Any) -> Prediction:
        """Run the workflow on one input, in any event loop. Raises the errors of `__call__`."""
        self._check(inputs)
        run = self._run(inputs, next(self._numbers))
        return _or_raise(await (run if self._open.loop.is_running_here else _wait_in_loop(self._submit(run))))

    async def astream(self, **inputs: Any) -> AsyncGenerator[str | Prediction]:
        """Yield the text of the only output as the model writes it, and at last the prediction. In any event loop.

        The text comes in one piece if its node has to read the answer first (several outputs, a vote, reasoning, typed
        values), or its model does not stream. A label of the output before the text is left out. Raises the errors of
        `__call__`, those of the model also after a part of the text.
        """
        self._check(inputs)
        if len(self.outputs) != 1:
            raise SpecError(f"{self.spec.name} has {len(self.outputs)} outputs", hint="A stream is of one text.")
        here, texts = asyncio.get_running_loop(), asyncio.Queue[str | None]()
        pieces = _Texts(self.outputs[0], lambda text: here.call_soon_threadsafe(texts.put_nowait, text))
        run = self._run(inputs, next(self._numbers), pieces=pieces)
        job = asyncio.ensure_future(run if self._open.loop.is_running_here else _wait_in_loop(self._submit(run)))
        job.add_done_callback(lambda _: texts.put_nowait(None))
        try:
            while (text := await texts.get()) is not None:
                yield text
            found = _or_raise(await job)
            said = str(found.get(self.outputs[0], ""))
            if said.startswith(pieces.said) and said != pieces.said:
                yield said[len(pieces.said) :]
            yield found
        finally:
            job.cancel()

    def run_in_loop(self, job: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the event loop of the calls, and wait for it: its `acall` changes no thread. Inside it,
        calls that block without `await`, such as `wf(...)` and `batch`, would wait forever."""
        return self._submit(job).result()

    def batch(
        self,
        rows: Iterable[Row],
        *,
        concurrency: int | None = None,
        progress: Callable[[int], None] | None = None,
        trace: bool = False,
    ) -> Iterator[Prediction]:
        """Run the workflow on many rows. Rows are read as needed, and results are returned in their order.

        Args:
            rows: mappings, or a DataFrame. Fields that the workflow does not read are ignored.
            concurrency: rows at once; default: the file's.
            progress: called with the number of results returned so far.
            trace: keep the traces of results.

        A row that fails, or has no value for an input, gives a result with `failure`. Raises errors that concern all
        rows, e.g. a rejected key.
        """
        window = _Window(check_limit(self.spec, concurrency), progress)
        try:
            for row in _records(rows):
                window.add(self._submit(self._in_slot(window.slots, row, next(self._numbers), trace)))
                for future in window.due():
                    yield _wait(future)
            for future in window.due(rest=True):
                yield _wait(future)
        finally:
            window.cancel()

    async def abatch(
        self,
        rows: Iterable[Row] | AsyncIterable[Row],
        *,
        concurrency: int | None = None,
        progress: Callable[[int], None] | None = None,
        trace: bool = False,
    ) -> AsyncIterator[Prediction]:
        """Run `batch` in any event loop. rows may be an asynchronous iterator."""
        window = _Window(check_limit(self.spec, concurrency), progress)
        try:
            async for row in _arecords(rows):
                window.add(self._submit(self._in_slot(window.slots, row, next(self._numbers), trace)))
                for future in window.due():
                    yield await _wait_in_loop(future)
            for future in window.due(rest=True):
                yield await _wait_in_loop(future)
        finally:
            window.cancel()

    def close(self) -> None:
        """End the thread, the connections and the sandbox. A later call starts them again."""
        self._open.close()

    async def aclose(self) -> None:
        """Run `close` in any event loop."""
        await asyncio.to_thread(self.close)

    @property
    def warnings(self) -> list[str]:
        """Return warnings about prompts that servers cut."""
        run = self._open.run
        return run.ledger.warnings() if run is not None else []

    @property
    def unpriced(self) -> dict[str, int]:
        """Return the number of answers without a known price, by model."""
        run = self._open.run
        return dict(run.ledger.prices.unpriced) if run is not None else {}

    @property
    def reused(self) -> Spend:
        """Return the original cost of the calls that earlier runs of the database had paid for."""
        run = self._open.run
        return run.ledger.reused if run is not None else Spend()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def _submit(self, job: Coroutine[Any, Any, T]) -> Future[T]:
        if self._open.loop.process != os.getpid():  # after a fork the thread is the other process's
            self._open, self.pool = self._opened(), self._given or LMPool()
        return self._open.loop.submit(job)

    def _opened(self) -> _Open:
        """Return the resources that calls open. Forgetting to close them does not exhaust the threads."""
        weakref.finalize(self, (opened := _Open()).collect).atexit = False
        return opened

    def _check(self, inputs: Row) -> None:
        for name in self.inputs:
            if _is_missing(inputs.get(name)):
                raise SpecError(f"the input '{name}' is missing", hint=f"The workflow reads {', '.join(self.inputs)}.")
        for name in inputs:
            if name not in self.inputs:
                raise SpecError(f"the workflow reads no input '{name}'", hint=suggest(name, self.inputs))

    async def _in_slot(self, slots: asyncio.Semaphore, row: Row, number: int, trace: bool) -> Prediction:
        async with slots:
            return await self._run(row, number, trace)

    async def _run(self, inputs: Row, number: int, trace: bool = True, pieces: Pieces | None = None) -> Prediction:
        if (run := self._open.run) is None:
            given: dict[str, Any] = {"pool": self.pool, "sandbox": self._sandbox, "consent": self._consent}
            run = self._open.run = Run.in_memory("call", self.spec, **given)
            self._open.program = Program(self.workflow, run.runtime)
        try:
            return await predict_row(self._open.program, self.inputs, inputs, number, trace, pieces)
        except (ServerDead, LMError):  # a rejected key is an LMError
            run.ledger.revive()  # the next call tries again
            raise


async def predict_row(
    program: Program, inputs: Sequence[str], row: Row, number: int, trace: bool = True, pieces: Pieces | None = None
) -> Prediction:
    """Run a workflow on one row. A value that is not a row, or a missing input, is a failure of the data."""
    if not isinstance(row, Mapping):
        return Prediction({}, "data", f"a row is a mapping of fields, not {type(row).__name__}")
    if missing := [name for name in inputs if _is_missing(row.get(name))]:
        return Prediction({}, "data", f"the row has no {', '.join(missing)}")
    example = Example(str(number), {name: row[name] for name in inputs})
    return prediction_of(await program.run(example, pieces=pieces), trace)


def check_limit(spec: Spec, concurrency: int | None) -> int:
    """Return the number of rows at once; None: the workflow file's. Raises SpecError."""
    limit = spec.concurrency if concurrency is None else concurrency
    if limit < 1:
        raise SpecError(f"concurrency must be at least 1, not {limit}")
    return limit


class _Open:
    """Resources that a workflow's calls keep open: the thread of their event loop, and the run with its program."""

    def __init__(self) -> None:
        self.loop = BackgroundLoop("workbench-calls")
        self.run: Run | None = None
        self.program: Program

    def close(self) -> None:
        if self.loop.process != os.getpid():
            return  # after a fork they belong to the other process
        self.loop.close(self._end)

    async def _end(self) -> None:
        """Close the run once nothing is running: a call that continues would open a program again."""
        run, self.run = self.run, None
        if run is not None:
            await run.aclose()

    def collect(self) -> None:
        """Close when garbage-collected, which may happen in the loop that is to end."""
        if self.loop.is_running_here:
            threading.Thread(target=self.close, name="workbench-close", daemon=True).start()
        else:
            self.close()


class _Texts(Pieces):
    """Sends on the text of an answer, without a label of the output at its beginning. said: all that was sent."""

    def __init__(self, name: str, send: Callable[[str], object]):
        super().__init__()
        self.wanted, self.said, self._held, self._send = True, "", "", send
        self._label, self._most = re.compile(rf"\s*(?:\W*{re.escape(name)}\W*:\W*)?", re.IGNORECASE), len(name) + 16

    def add(self, *parts: bytes | Piece) -> None:
        self._held += "".join(part.text for part in parts if isinstance(part, Piece) and part.kind == "text")
        if not self.said and len(self._held.strip()) < self._most:
            return  # perhaps a label, or its beginning
        text, self._held = self._held if self.said else self._label.sub("", self._held, count=1), ""
        if text:
            self.said += text
            self._send(text)


class _Window:
    """The rows of a batch that are begun and not yet returned, in order."""

    def __init__(self, limit: int, progress: Callable[[int], None] | None):
        self.slots = asyncio.Semaphore(limit)
        self._most, self._progress, self._done = AHEAD * limit, progress, 0
        self._waiting = deque[Future[Prediction]]()

    def add(self, future: Future[Prediction]) -> None:
        self._waiting.append(future)

    def due(self, *, rest: bool = False) -> Iterator[Future[Prediction]]:
        """Yield the rows to return now: finished ones, and those in excess of the limit. rest: all."""
        while self._waiting and (rest or len(self._waiting) >= self._most or self._waiting[0].done()):
            yield self._waiting.popleft()
            self._done += 1
            if self._progress is not None:
                self._progress(self._done)

    def cancel(self) -> None:
        for future in self._waiting:
            future.cancel()


def _is_missing(value: Any) -> bool:
    """Return True if a row has no value here: None, or NaN in a DataFrame."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _wait(future: Future[Prediction]) -> Prediction:
    try:
        return future.result()
    except CancelledError:
        raise WorkbenchError(_CLOSED) from None


async def _wait_in_loop(future: Future[Prediction]) -> Prediction:
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # the caller itself is cancelled
        raise WorkbenchError(_CLOSED) from None


#: Open workflows. Those that nobody closed are closed before the interpreter ends.
_LOADED = weakref.WeakSet[LoadedWorkflow]()


@atexit.register
def _close_all() -> None:
    for loaded in list(_LOADED):
        loaded.close()


def _or_raise(prediction: Prediction) -> Prediction:
    if not prediction.ok:
        raise PredictionError(prediction)
    return prediction


def _records(rows: Any) -> Iterator[Row]:
    """Yield rows one by one, also those of a DataFrame."""
    if isinstance(rows, str | bytes | Mapping):
        raise SpecError(f"rows are mappings, one after the other, not one {type(rows).__name__}")
    return iter(records_of(rows))


async def _arecords(rows: Any) -> AsyncIterator[Row]:
    if hasattr(rows, "__aiter__"):
        async for row in rows:
            yield row
    else:
        for row in _records(rows):
            yield row
