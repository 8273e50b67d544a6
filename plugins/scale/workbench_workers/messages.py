"""Messages between a driver and its workers.

A worker asks, and the driver replies under the same number. Ledger, journal, budget and trust are the driver's; so a
call takes two questions: may it be sent, and this came back.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from workbench.errors import FailureKind, LMError, NodeError, WorkbenchError
from workbench.lm import Request, Response
from workbench.runtime import Draw
from workbench.spec import LMSpec
from workbench.task import Example
from workbench.workflow import ExampleRun, Trace


class WorkerLost(WorkbenchError):
    """A worker ended, or nothing is heard of it. The message says why, as far as it is known."""


class Order(Enum):
    """Replies that are orders."""

    SEND = "send the request"
    RUN = "run the effect"


# From the driver


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A language model that stays with the driver, which sends its calls: what a row may want to know of it."""

    identity: str
    concurrency: int
    reads_images: bool
    apis: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunRow:
    """Run a workflow on an example. tree: of the workflow, if this worker does not have it; models: those of the
    driver that the workflow uses, by `LMPool.key`."""

    row: int
    workflow: str
    example: Example
    draw: Draw
    tree: Mapping[str, Any] | None = None
    models: Mapping[str, ModelFacts] | None = None


@dataclass(frozen=True, slots=True)
class CancelRow:
    row: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a question: a value, or an error that is raised where it was asked. stops: it stops the run."""

    number: int
    value: Any = None
    error: BaseException | None = None
    stops: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """Close what the rows share. Replied with `Ended`."""


# From a worker


@dataclass(frozen=True, slots=True)
class Call:
    """May this request be sent? Replied with `Order.SEND`, or with (response, `Settled`); the response is None if it is
    the one that the worker got. identity: of the model that would get it. vectors: it embeds texts. streamed: a client
    waits for its pieces."""

    row: int
    number: int
    request: Request
    role: str
    spec: LMSpec
    identity: str
    vectors: bool = False
    streamed: bool = False


@dataclass(frozen=True, slots=True)
class Came:
    """The outcome of a request that was sent: replied as `Call`, since it may be sent again. begun: a client has a part
    of the answer."""

    row: int
    number: int
    response: Response | None
    error: BaseException | None
    seconds: float
    begun: bool = False


@dataclass(frozen=True, slots=True)
class Effect:
    """Was this effect run before? Replied with its result, or with `Order.RUN`. shared: by the whole run."""

    row: int
    number: int
    kind: str
    content: Any
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of an effect as JSON, or the exception that it raised. Replied as `Effect`."""

    row: int
    number: int
    result: str | None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Recall:
    """A call that something recorded made: replied as `Ledger.recall` returns it."""

    row: int
    number: int
    key: str
    role: str


@dataclass(frozen=True, slots=True)
class SandboxOpened:
    """Is a sandbox of this level allowed in this run? Replied with None, or SandboxError."""

    row: int
    number: int
    name: str
    level: str


@dataclass(frozen=True, slots=True)
class Gone:
    """Nobody waits any more for the reply to a question."""

    row: int
    number: int


@dataclass(frozen=True, slots=True)
class RowEnded:
    """The outcome of a row (`pack_outcome`), or what ended it. began: when, by this worker's clock, in seconds since
    1970.

    warnings, kept_state: of what the rows of this worker share (`workbench.runtime.Runtime.shared`).
    """

    row: int
    outcome: bytes | None
    error: BaseException | None
    began: float
    warnings: Sequence[str] = ()
    kept_state: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Alive:
    """The worker is there, although it has nothing to say."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker has closed what its rows shared, and may be killed."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The worker cannot run rows of this run. reason: what its machine lacks."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker can run rows. worker: its machine and process; pid: of the process, on that machine."""

    worker: str
    pid: int


Question = Call | Effect | Recall | SandboxOpened


def portable(error: BaseException) -> BaseException:
    """The error, or what can be said of it, if it cannot be pickled."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        said = f"{type(error).__name__}: {error}"
        return LMError(error.kind, said) if isinstance(error, LMError) else NodeError("code", said)


def pack_outcome(outcome: ExampleRun) -> bytes:
    """Pickle the outcome of a row. One that cannot be pickled is a failure of its row, and not of the line, on which
    other rows depend."""
    try:
        return pickle.dumps(outcome, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return pickle.dumps(_not_carried(outcome.trace.example, error))


def unpack_outcome(packed: bytes, example: str) -> ExampleRun:
    """The outcome of a row; example: its id."""
    try:
        return pickle.loads(packed)
    except Exception as error:  # its class is defined in a file that only the worker has loaded, say
        return _not_carried(example, error)


def _not_carried(example: str, error: Exception) -> ExampleRun:
    said = f"its outcome cannot be brought from a worker, give text or JSON ({type(error).__name__}: {error})"
    return ExampleRun({}, Trace(example), FailureKind.CODE, said)
