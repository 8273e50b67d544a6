"""Progress of a run: a live line on a terminal, plain lines elsewhere. Both use the same events."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from workbench.base.text import indented, one_line, visible
from workbench.cli.output import Output, bare_stderr, echo_json, escaping, say

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress

    from workbench.evaluation import Compared, EvalReport
    from workbench.proof import Report

DEFAULT = Output()
Listen = Callable[[str, dict[str, Any]], None]


#: Width of the budget bar, in characters.
_BAR = 16
#: Seconds between two progress lines on rows of an evaluation, without a live line.
EVERY = 5.0


@contextmanager
def listener(output: Output = DEFAULT) -> Iterator[Listen]:
    """Yield a listener for run events, which reports on stderr."""
    with ExitStack() as stack:
        listeners: list[Listen] = []
        if not output.quiet:
            listeners.append(stack.enter_context(_Live()) if sys.stderr.isatty() else ProgressLines(output.verbose))
        if output.log_file is not None:
            output.log_file.parent.mkdir(parents=True, exist_ok=True)
            listeners.append(_Log(stack.enter_context(output.log_file.open("a", encoding="utf-8"))))

        def tell(event: str, data: dict[str, Any]) -> None:
            for one in listeners:
                one(event, data)

        yield listeners[0] if len(listeners) == 1 else tell


def _call_line(data: dict[str, Any]) -> str:
    call = data["call"]
    again = " (from the journal)" if call.cached else ""
    return (
        f"call {call.key[:8]} {call.role} {one_line(call.lm)}: {call.outcome}{again}, "
        f"{call.prompt_tokens} + {call.completion_tokens} tokens, {call.seconds:.2f} s, ${call.usd:.6f}"
    )


def order_words(order: dict[str, Any]) -> list[str]:
    """Return the data of an order, as on the command line."""
    named = ("candidate", "run")
    words = [str(order[key])[:8] for key in named if key in order]
    return [*words, *(f"{key}={value}" for key, value in order.items() if key not in named)]


def worker_line(event: str, data: Mapping[str, Any]) -> str:
    """Return the line for a worker that joined or left."""
    if event == "worker_started":
        return f"worker {data['workers']} runs on {one_line(data['worker'])}"
    lost = f"{data['rows']} rows run again" + (
        f", {data['calls']} calls have no known outcome" if data["calls"] else ""
    )
    return f"worker lost: {one_line(data['reason'])}; {lost}; {data['workers']} left"


class _State:
    """The progress so far, collected from the events."""

    def __init__(self) -> None:
        self.scored: list[tuple[float, str]] = []  # score on val, and its 95% interval
        self.candidates = 0
        self.doing = "starting"
        self.paused = False
        self.started = time.monotonic()
        self.warned = set[str]()

    def line(self, event: str, data: dict[str, Any]) -> str | None:
        """Record an event. Returns the line to print for it, or None."""
        if event == "run_started":
            new = [w for w in data["warnings"] if w not in self.warned]  # the runs of a matrix share theirs
            self.warned.update(new)
            return "\n".join([self._started(data), *(f"warning: {indented(w)}" for w in new)])
        if event == "row_scored":
            self.doing = f"{data['done']}/{data['of']} rows  mean {data['mean']:.3f}"
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
        if event in ("worker_started", "worker_lost"):
            return worker_line(event, data)
        if event == "steered":
            what = "".join(f" {one_line(word)}" for word in order_words(data["order"]))
            self.paused = {"pause": True, "continue": False}.get(data["action"], self.paused)
            return f"order {data['action']}{what}: {one_line(data['outcome'])}"
        if event == "testing":
            self.doing = "sealed test"
            if data["sides"] > 2:
                return "sealed test of baseline, winner and best on val"
            return "sealed test of baseline and winner" if data["changed"] else "sealed test of the baseline"
        if event == "tested":
            self.doing = f"sealed test {data['done']}/{data['of']}"
        if event == "stopping":
            self.doing = "stopping: waiting for calls in flight (interrupt again to stop now)"
            return self.doing
        return None

    def _started(self, data: dict[str, Any]) -> str:
        run = data["run"]
        if run.kind == "eval":
            self.doing = f"evaluating {data['split']}"
            return f"run {run.run} of {one_line(run.name)}: {self.doing}"
        budget = ", ".join(f"{k} {v:g}" for k, v in run.budget.items()) or "none"
        return f"run {run.run} of {one_line(run.name)}; budget: {budget}; database {one_line(run.database)}"

    @property
    def best(self) -> tuple[float, str] | None:
        """Return the score and the interval of the best so far, the first one in a tie."""
        return max(self.scored, key=lambda one: one[0], default=None)

    def _evaluated(self, evaluation: Any) -> str | None:
        failed = _failed(evaluation)
        note = one_line(evaluation.workflow.patch.note) if evaluation.workflow.patch else "baseline"
        name = evaluation.workflow.hash[:8]  # show, diff and export accept it
        if not self.scored:
            within = _interval(evaluation)
            self.scored.append((evaluation.score, within))
            return f"baseline: val {evaluation.score:.3f}{within}{failed}{_reason(evaluation)}"
        if not evaluation.complete:
            return f"candidate {name} ({note}): stopped after {len(evaluation.results)} rows"
        before, within = self.best, _interval(evaluation)
        self.scored.append((evaluation.score, within))
        mark = failed if self.best == before else f"{within}{failed}  <- best"
        return f"candidate {name} ({note}): val {evaluation.score:.3f}{mark}"


def _failed(evaluation: Any) -> str:
    """Describe the rows that failed, and those without a result, which are not in the mean."""
    missing = sum(evaluation.missing.values())
    failed = sum(evaluation.failures.values()) - missing
    parts = [f"{failed} failed" if failed else "", f"{missing} without a result" if missing else ""]
    return "".join(f", {part}" for part in parts if part)


def _reason(evaluation: Any) -> str:
    """Return the reason for the failure of the first row, if most rows failed."""
    reasons = [r.message or r.failure for r in evaluation.results if getattr(r, "failure", None)]
    return f", e.g. {one_line(reasons[0])[:300]}" if 2 * len(reasons) > len(evaluation.results) else ""


def _interval(evaluation: Any) -> str:
    from workbench.proof import interval

    low, high = interval([result.score for result in evaluation.results if result.score is not None])
    return f" [{low:.2f}, {high:.2f}]"


class ProgressLines:
    """Prints one line per event on stderr, and some lines on the rows of an evaluation."""

    def __init__(self, verbose: bool = False) -> None:
        self.state, self.verbose, self._told = _State(), verbose, time.monotonic()

    def __call__(self, event: str, data: dict[str, Any]) -> None:
        line = self.state.line(event, data)
        if event == "row_scored" and data["done"] < data["of"] and time.monotonic() - self._told > EVERY:
            self._told, line = time.monotonic(), self.state.doing
        if self.verbose and event == "call_settled":
            line = _call_line(data)
        if line:
            say(line, err=True)


class _Log:
    """Appends each line with its time, and each call, to a file."""

    def __init__(self, file: TextIO):
        self.state, self.file = _State(), file

    def __call__(self, event: str, data: dict[str, Any]) -> None:
        line = _call_line(data) if event == "call_settled" else self.state.line(event, data)
        if line:
            at = time.strftime("%Y-%m-%dT%H:%M:%S")
            self.file.write("".join(f"{at} {visible(part)}\n" for part in line.split("\n")))
            self.file.flush()


def _make_progress(console: Console) -> Progress:
    """Make the live line. On a narrow terminal, the current step and the best so far are above the bar."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class Fitting(Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            for task in self.tasks:
                spent = TextColumn("{task.fields[spent]}", markup=False)
                columns = [BarColumn(bar_width=_BAR), spent, TimeElapsedColumn()]
                if len(task.description) + _BAR + len(task.fields["spent"]) + len(" 0:00:00  ") <= console.width:
                    self.columns = (TextColumn("{task.description}", markup=False), *columns)
                else:
                    yield Text(task.description, no_wrap=True, overflow="ellipsis")
                    self.columns = columns
                yield self.make_tasks_table([task])

    return Fitting(console=console, transient=True)


class _Live:
    """Prints the same lines above a live line with the budget bar."""

    def __enter__(self) -> _Live:
        from rich.console import Console

        self.state, self.console = _State(), Console(file=bare_stderr(), highlight=False)
        self.progress = _make_progress(self.console)
        self.progress.start()
        self._escaping = escaping()  # again, since rich has replaced the streams
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
            best = "  best {:.3f}{}".format(*self.state.best) if self.state.best is not None else ""
            doing = "paused" if self.state.paused else self.state.doing
            self.progress.update(self.task, description=f"{doing}{best}")

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


def print_report(report: Report | EvalReport, quiet: bool = False) -> None:
    """Print the end of a run on stdout. quiet: without its warnings."""
    shown = getattr(report, "gain_shown", None)  # an evaluation has no verdict
    for index, line in enumerate(report.summary()):
        warning, verdict = line.startswith("Warning"), index == 1 and shown is not None
        color = "yellow" if warning or (verdict and not shown) else "green" if verdict else None
        if not (warning and quiet):
            say(indented(line), fg=color, bold=verdict)


def print_evaluation(report: EvalReport, compared: Compared, *, as_json: bool, quiet: bool) -> None:
    """Print an evaluation on stdout, with its comparison to the run that it must not be worse than."""
    from workbench.evaluation import bar_lines

    if as_json:
        gate = {"not_worse": compared[0], "against": compared[1].as_dict()} if compared else {}
        return echo_json({**report.as_dict(), **gate})
    print_report(report, quiet)
    for line in bar_lines(*compared) if compared else ():
        say(indented(line))


def exit_code(report: EvalReport) -> int:
    """Return the exit code of an evaluation, before any limits on its score: 1 also if rows have no result."""
    return 130 if report.status == "interrupted" else 0 if report.complete and not report.missing else 1
