"""The single channel for a run's events: to its listener, its trackers and the events of its database."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workbench.run.options import Listener
from workbench.run.trackers import RunInfo, Trackers
from workbench.runtime import Run
from workbench.store import typed
from workbench.study import Evaluator

#: Events that have a table of their own, or that only move a progress line.
_NOT_STORED = {"call_settled", "candidate_evaluated", "candidate_proposed", "row_scored", "tested"}
#: Keys of event data whose values are objects of this process.
_OBJECTS = {"call", "candidate", "evaluation", "ledger", "report", "run"}


class Announcer:
    """Announces the events of one run, the calls that its ledger settles, and what slows it down.

    listener: called with each event and its data, immediately, in the run's thread. info: the run's description.
    """

    def __init__(self, run: Run, info: RunInfo, listener: Listener | None):
        self.store, self.run_id, self.info = run.store, run.id, info
        self.listener = listener or (lambda event, data: None)
        self.trackers = Trackers((), info)
        ledger = run.ledger
        ledger.on_call = lambda call: self.emit("call_settled", call=call, ledger=ledger)
        ledger.on_slowed = lambda lm, before, after: self.emit("rate_limited", lm=lm, before=before, after=after)
        run.on_stop = lambda: self.emit("stopping")
        run.resume_with = typed(f"workbench resume {run.name}", run.store.path)

    def start(self, trackers: Iterable[str], evaluator: Evaluator, **data: Any) -> None:
        """Announce the start of the run. trackers: by name; they also receive each row that the evaluator runs."""
        self.trackers = Trackers(trackers, self.info)
        if self.trackers:
            evaluator.on_row = lambda row: self.trackers.emit("row_finished", {"row": row})
        self.emit("run_started", run=self.info, **data)

    def emit(self, event: str, **data: Any) -> None:
        """Announce an event. Returns at once."""
        self.listener(event, data)
        self.trackers.emit(event, data)
        if event not in _NOT_STORED:
            self.store.event(self.run_id, event, **{k: v for k, v in data.items() if k not in _OBJECTS})

    def finish(self, report: Any) -> list[str]:
        """Announce the end of the run, and wait for the trackers. Returns warnings for the report."""
        self.emit("run_finished", report=report)
        return self.trackers.close()
