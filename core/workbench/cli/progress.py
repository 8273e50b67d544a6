"""Progress of a run: a live line on a terminal, plain lines elsewhere. Both read the same events."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from workbench.cli.output import bare_stderr, escaping, say
from workbench.text import indented, one_line

if TYPE_CHECKING:
    from workbench.proof import Report

Listen = Callable[[str, dict[str, Any]], None]


@contextmanager
def listener(quiet: bool = False) -> Iterator[Listen]:
    """Yield a listener for run events. quiet: it prints nothing (for --json)."""
    if quiet:
        yield lambda event, data: None
    elif sys.stderr.isatty():
        with _Live() as live:
            yield live
    else:
        yield _Plain()


class _State:
    """The progress so far, gathered from the events."""

    def __init__(self) -> None:
        self.best: float | None = None
        self.baseline: float | None = None
        self.candidates = 0
        self.doing = "starting"
        self.started = time.monotonic()

    def line(self, event: str, data: dict[str, Any]) -> str | None:
        """Record an event. Returns the line to print for it, or None."""
        if event == "run_started":
            budget = ", ".join(f"{k} {v:g}" for k, v in data["run"].budget.items()) or "none"
            name, database = one_line(data["run"].name), one_line(data["run"].database)
            lines = [f"run {data['run'].run} of {name}; budget: {budget}; database {database}"]
            return "\n".join([*lines, *(f"warning: {indented(w)}" for w in data["warnings"])])
        if event == "candidate_proposed":
            self.candidates += 1
            self.doing = "evaluating the baseline" if self.candidates == 1 else f"candidate {self.candidates - 1}"
        if event == "candidate_evaluated":
            return self._evaluated(data["evaluation"])
        if event == "budget_spent":
            return f"{indented(data['message'])}; testing the best candidate so far"
        if event == "optimizer_told":
            return f"{data['optimizer']}: {indented(data['message'])}"
        if event == "rate_limited":
            return f"rate limited: {data['before']} -> {data['after']} at once ({one_line(data['lm'])})"
        if event == "testing":
            self.doing = "sealed test"
            return "sealed test of baseline and winner" if data["changed"] else "sealed test of the baseline"
        if event == "tested":
            self.doing = f"sealed test {data['done']}/{data['of']}"
        if event == "stopping":
            self.doing = "stopping: waiting for calls in flight (interrupt again to stop now)"
            return self.doing
        return None

    def _evaluated(self, evaluation: Any) -> str | None:
        failed = f", {sum(evaluation.failures.values())} failed" if evaluation.failures else ""
        note = one_line(evaluation.workflow.patch.note) if evaluation.workflow.patch else "baseline"
        name = evaluation.workflow.hash[:8]  # show, diff and export accept it
        if self.baseline is None:
            self.baseline = self.best = evaluation.score
            return f"baseline: val {evaluation.score:.3f}{failed}"
        if not evaluation.complete:
            return f"candidate {name} ({note}): stopped after {len(evaluation.results)} rows"
        better = self.best is None or evaluation.score > self.best
        if better:
            self.best = evaluation.score
        mark = "  <- best" if better else ""
        return f"candidate {name} ({note}): val {evaluation.score:.3f}{failed}{mark}"


class _Plain:
    """Prints one line per event on stderr."""

    def __init__(self) -> None:
        self.state = _State()

    def __call__(self, event: str, data: dict[str, Any]) -> None:
        line = self.state.line(event, data)
        if line:
            say(line, err=True)


class _Live:
    """Prints the same lines above a live line with the budget bar."""

    def __enter__(self) -> _Live:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.state, self.console = _State(), Console(file=bare_stderr(), highlight=False)
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[spent]}", markup=False),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
        )
        self.progress.start()
        self._escaping = escaping()  # once more: rich has put streams of its own in place
        self._escaping.__enter__()
        self.task = self.progress.add_task("starting", total=None, spent="")
        self._shown = 0.0
        return self

    def __exit__(self, *exc: object) -> None:
        self._escaping.__exit__(None, None, None)
        self.progress.stop()

    def __call__(self, event: str, data: dict[str, Any]) -> None:
        line = self.state.line(event, data)
        if line:
            say(line, above=self.console)
        if event == "call_settled":
            self._bar(data["ledger"])
        else:
            best = f"  best {self.state.best:.3f}" if self.state.best is not None else ""
            self.progress.update(self.task, description=f"{self.state.doing}{best}")

    def _bar(self, ledger: Any) -> None:
        now = time.monotonic()
        if now - self._shown < 0.1:
            return
        self._shown = now
        spent, budget, reused = ledger.spent, ledger.budget, ledger.reused.calls
        text = f"{spent.calls}/{budget.calls} calls" if budget.calls else f"{spent.calls} calls"
        text += f" ({reused} reused)" if reused else ""
        if ledger.paid.usd:
            text += f" ${ledger.paid.usd:.4f}" + (f"/${budget.usd:g}" if budget.usd else "")
        if ledger.retries:
            text += f" {ledger.retries} retries"
        self.progress.update(self.task, completed=spent.calls, total=budget.calls, spent=text)


def print_report(report: Report) -> None:
    """Print the report on stdout."""
    for index, line in enumerate(report.lines()):
        if index == 1 and report.proof is not None:
            say(indented(line), fg="green" if report.gain_shown else "yellow", bold=True)
        else:
            say(indented(line), fg="yellow" if line.startswith("Warning") else None)
