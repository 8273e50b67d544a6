"""Trackers: reports of runs to other systems, such as an OpenTelemetry collector or MLflow.

The workflow file names them (`track:`). Each gets the events of its run in a thread of its own, from a queue that is
bounded: one that is slow, hangs or raises costs the run nothing but its own record.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from inspect import isfunction, signature
from typing import Any, ClassVar

from workbench.base.distribution import how_to_get, pip_install
from workbench.errors import PluginError, SpecError, WorkbenchError
from workbench.plugins import plugins
from workbench.spec import connect

#: Capacity of a tracker's event queue. Later events are dropped, and counted.
MAX_WAITING = 10_000
#: Most seconds that a tracker rests after an event, to leave Python to the run. It rests as long as it worked.
_REST = 0.01
#: Seconds that the end of a run waits for trackers.
PATIENCE = 15.0


@dataclass(frozen=True)
class RunInfo:
    """The description of the run in events.

    kind: `optimize` or `eval`. settings: those that distinguish runs, flat: seed, models, rows, optimizers.
    """

    run: str
    name: str
    database: str
    budget: dict[str, Any]
    kind: str = "optimize"
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Tracker:
    """Base of all trackers. One is made for each run, and its methods are called in one thread, in the order of events.

    needs: the package to import, and the name to install it with pip.
    """

    needs: ClassVar[tuple[str, str] | None] = None

    def __init__(self, run: RunInfo):
        self.run = run

    def run_started(self, resumed: bool) -> None:
        """Report that the run starts. resumed: earlier processes sent calls, which the journal now answers."""

    def candidate_proposed(self, candidate: Any, optimizer: str) -> None:
        """Report a new candidate of an optimizer. candidate: `workbench.workflow.Workflow`."""

    def candidate_evaluated(self, evaluation: Any, accepted: bool, calls: int) -> None:
        """Report an evaluation of a candidate on val. evaluation: `workbench.study.Evaluation`. accepted: it is the
        best so far. calls: number of calls that the run has used."""

    def call_settled(self, call: Any) -> None:
        """Report an LM call that was answered, or failed for good. call: `workbench.ledger.CallInfo`."""

    def row_finished(self, row: Any) -> None:
        """Report a run of a workflow on a row. row: `workbench.study.RowRun`, with its trace."""

    def optimizer_told(self, optimizer: str, message: str, figures: Mapping[str, Any], calls: int) -> None:
        """Report an optimizer's progress. figures: e.g. the reward of a training step. calls: as above."""

    def run_finished(self, report: Any) -> None:
        """Report the end of the run, and send what is left. report: `workbench.proof.Report` or
        `workbench.evaluation.EvalReport`."""

    def lost(self) -> str:
        """Describe lost events for the run's report; empty if there are none."""
        return ""


#: The parameters of the method for each event.
_EVENTS = {
    name: [*signature(method).parameters][1:]
    for name, method in vars(Tracker).items()
    if isfunction(method) and name not in ("__init__", "lost")
}


class _Subscription:
    """A tracker of one run, with its thread and its queue of events."""

    def __init__(self, name: str, make: type[Tracker], run: RunInfo):
        self.name, self.error, self.dropped, self._lost = name, "", 0, ""
        self._ending = threading.Event()
        self._waiting = queue.Queue[tuple[str, dict[str, Any]] | None](MAX_WAITING)
        self._thread = threading.Thread(target=self._serve, args=(make, run), name=f"tracker {name}", daemon=True)
        self._thread.start()

    def _serve(self, make: type[Tracker], run: RunInfo) -> None:
        try:
            tracker = make(run)
            while (item := self._waiting.get()) is not None:
                begun = time.monotonic()
                getattr(tracker, item[0])(**item[1])
                self._ending.wait(min(_REST, time.monotonic() - begun))
            self._lost = tracker.lost()
        except BaseException as error:
            self.error = " ".join(f"{type(error).__name__}: {error}".split())[:300]

    def add(self, event: str, values: dict[str, Any]) -> None:
        if self.error:
            return
        try:
            self._waiting.put_nowait((event, values))
        except queue.Full:
            self.dropped += 1

    def end(self, until: float) -> Iterator[str]:
        """Wait until the queue is empty, or until a time of the monotonic clock. Yields warnings for the user."""
        self._ending.set()
        try:
            self._waiting.put(None, timeout=max(0.0, until - time.monotonic()))
        except queue.Full:
            pass
        self._thread.join(max(0.0, until - time.monotonic()))
        if self.error:
            yield f"tracker '{self.name}' was set aside: {self.error}"
        elif self._thread.is_alive():
            yield f"tracker '{self.name}' was not done {PATIENCE:g} s after the end of the run: some is missing there"
        elif self._lost:
            yield f"tracker '{self.name}': {self._lost}"
        if self.dropped:
            yield f"tracker '{self.name}' was too slow for the run: {self.dropped} events were not sent to it"


class Trackers:
    """The trackers of one run. False if there are none.

    names: as registered. Raises PluginError for one that cannot be loaded.
    """

    def __init__(self, names: Iterable[str], run: RunInfo):
        names = [*names]
        for name in names:
            _connect(name)
        self._subscriptions = [_Subscription(name, plugins().get("trackers", name), run) for name in names]

    def __bool__(self) -> bool:
        return bool(self._subscriptions)

    def emit(self, event: str, data: Mapping[str, Any]) -> None:
        """Send an event to all trackers, with the arguments of its method. Returns at once."""
        if self._subscriptions and event in _EVENTS:
            values = {name: data[name] for name in _EVENTS[event]}
            for one in self._subscriptions:
                one.add(event, values)

    def close(self) -> list[str]:
        """Wait at most PATIENCE seconds in all until everything is sent. Returns warnings for the report."""
        until, ended, self._subscriptions = time.monotonic() + PATIENCE, self._subscriptions, []
        return [line for one in ended for line in one.end(until)]


def trackers_not_ready(names: Iterable[str]) -> Iterator[WorkbenchError]:
    """Yield an error for each unknown tracker (SpecError) or one without its package (PluginError)."""
    known = plugins().names("trackers")
    for name in names:
        _connect(name)
        if name not in known:
            hint = how_to_get("trackers", name) or f"There are: {', '.join(known) or 'none'}."
            yield SpecError(f"there is no tracker '{name}'", hint=hint, path=("track",))
        elif (needs := plugins().get("trackers", name).needs) is not None and not _is_installed(needs[0]):
            yield PluginError(f"track: {name} needs the package {needs[0]}: {pip_install(needs[1])}")


def _connect(name: str) -> None:
    connect(f"the server that the tracker '{name}' reports to")


def check_trackers(names: Iterable[str]) -> None:
    """Raise the first error of `trackers_not_ready`."""
    for error in trackers_not_ready(names):
        raise error


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is not installed
        return False
