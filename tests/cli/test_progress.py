"""What a run shows while it goes, on a terminal that remembers what stands on it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.cli.output import Output
from workbench.cli.progress import Listen, listener
from workbench.study import Evaluation, Result
from workbench.task import Example


class Terminal(io.StringIO):
    """Understands what rich writes: lines, erasing a line, going up, colours; hidden says whether the cursor is."""

    def isatty(self) -> bool:
        return True

    @property
    def hidden(self) -> bool:
        return self.getvalue().rfind("\x1b[?25l") > self.getvalue().rfind("\x1b[?25h")

    def screen(self, tell: Any = None) -> list[str]:
        """What is there to see, after the live line of a listener is drawn, which else comes by itself ten times a
        second: the lines that stand on it now, without trailing spaces and empty lines at the end."""
        if tell is not None:
            tell.progress.refresh()
        lines, row, column = [""], 0, 0
        for code, text in re.findall(r"(\x1b\[[?\d;]*[A-Za-z]|\r|\n)|([^\x1b\r\n]+)", self.getvalue()):
            if text:
                lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
                column += len(text)
            elif code == "\r":
                column = 0
            elif code == "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            elif code == "\x1b[2K":
                lines[row] = ""
            elif code.endswith("A"):
                row -= int(code[2:-1] or 1)
        found = [line.rstrip() for line in lines]
        while found and not found[-1]:
            found.pop()
        return found


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name, value in {"TERM": "xterm", "COLUMNS": "100", "LINES": "25"}.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


@contextmanager
def shown_on(terminal: Terminal) -> Iterator[Listen]:
    with redirect_stderr(terminal), listener() as tell:
        yield tell


def started(kind: str = "optimize", **budget: float) -> dict[str, Any]:
    run = SimpleNamespace(run="ab12", name="sort [it]", budget=budget, database="run.db", kind=kind)
    return {"run": run, "warnings": ["2 rows are [bold]twice[/bold]"]}


def evaluated(score: float, note: str = "", *, rows: int = 4, complete: bool = True, failed: int = 0) -> dict[str, Any]:
    """failed: the last rows, with answers that could not be read."""
    workflow: Any = SimpleNamespace(hash="0123456789abcdef", patch=SimpleNamespace(note=note) if note else None)
    kinds = [None] * (rows - failed) + ["unparsed"] * failed
    results = [
        Result(Example(str(n), {}), float(n < round(score * rows)), kind, kind and "no label in\n'x'")
        for n, kind in enumerate(kinds)
    ]
    return {"evaluation": Evaluation(workflow, "val", tuple(results), complete)}


def settled(sent: int, dollars: float = 0.0, retries: int = 0, reused: int = 0, **budget: Any) -> dict[str, Any]:
    ledger = SimpleNamespace(
        spent=SimpleNamespace(calls=sent, usd=dollars),
        paid=SimpleNamespace(calls=sent - reused, usd=dollars),
        reused=SimpleNamespace(calls=reused),
        retries=retries,
        budget=SimpleNamespace(**{"calls": None, "usd": None, **budget}),
    )
    return {"call": None, "ledger": ledger}


def test_what_happened_stands_above_one_live_line(terminal: Terminal) -> None:
    with shown_on(terminal) as tell:
        tell("run_started", started(calls=200))
        tell("candidate_proposed", {})
        tell("candidate_evaluated", evaluated(0.5, failed=1))
        tell("candidate_proposed", {})
        tell("candidate_evaluated", evaluated(0.75, "more demos"))
        tell("candidate_proposed", {})
        tell("candidate_evaluated", evaluated(0.6, "fewer demos"))
        *above, live = terminal.screen(tell)
        assert terminal.hidden
    assert above == [
        "run ab12 of sort [it]; budget: calls 200; database run.db",
        "warning: 2 rows are [bold]twice[/bold]",  # as it was written: a file's text is not markup
        "baseline: val 0.500 [0.15, 0.85], 1 failed",
        "candidate 01234567 (more demos): val 0.750 [0.30, 0.95]  <- best",
        "candidate 01234567 (fewer demos): val 0.500",
    ]
    assert live.startswith("candidate 2  best 0.750 [0.30, 0.95]") and "━" in live


def test_the_live_line_shows_what_is_spent_of_the_budget(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("workbench.cli.progress.time", SimpleNamespace(monotonic=lambda: clock[0]))
    with shown_on(terminal) as tell:
        tell("run_started", started(calls=200))
        tell("call_settled", settled(50, 0.0123, 3, calls=200, usd=1.5))
        tell("testing", {"changed": True, "sides": 2})
        live = terminal.screen(tell)[-1]
        assert "sealed test" in live and "50/200 calls $0.0123/$1.5 3 retries" in live
        clock[0] += 0.05
        tell("call_settled", settled(51, calls=200))  # too soon to be shown
        tell("tested", {"done": 1, "of": 8})
        live = terminal.screen(tell)[-1]
        assert "sealed test 1/8" in live and "50/200" in live
        clock[0] += 0.1
        tell("call_settled", settled(52))
        tell("tested", {"done": 2, "of": 8})
        live = terminal.screen(tell)[-1]
        assert "52 calls" in live and "$" not in live and "retries" not in live


def test_on_80_columns_nothing_of_a_run_that_costs_is_cut_off(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with shown_on(terminal) as tell:
        tell("run_started", started(calls=20000))
        tell("candidate_evaluated", evaluated(0.75))
        tell("call_settled", settled(12345, 12.3456, 117, reused=3400, calls=20000, usd=25.0))
        tell("tested", {"done": 144, "of": 2000})
        *_, doing, bar = terminal.screen(tell)
    assert doing == "sealed test 144/2000  best 0.750 [0.30, 0.95]"
    assert "━" in bar and "12345/20000 calls (3400 reused) $12.3456/$25 117 retries 0:00:0" in bar and len(bar) <= 80


def test_a_run_that_is_paused_says_so_until_it_goes_on(terminal: Terminal) -> None:
    with shown_on(terminal) as tell:
        tell("run_started", started(calls=200))
        tell("candidate_proposed", {})
        tell("steered", {"action": "pause", "order": {}, "outcome": "done"})
        *above, live = terminal.screen(tell)
        assert above[-1] == "order pause: done" and live.startswith("paused")
        tell("steered", {"action": "continue", "order": {}, "outcome": "done"})
        assert terminal.screen(tell)[-1].startswith("evaluating the baseline")


def test_friction_12_an_eval_shows_its_rows_and_their_mean_as_they_come(terminal: Terminal) -> None:
    with shown_on(terminal) as tell:
        tell("run_started", {**started(kind="eval"), "split": "val"})
        assert "evaluating val" in terminal.screen(tell)[-1]
        tell("row_scored", {"done": 3, "of": 8, "mean": 2 / 3})
        assert terminal.screen(tell)[-1].startswith("3/8 rows  mean 0.667")


def test_at_the_end_the_live_line_is_gone_and_the_cursor_is_back(terminal: Terminal) -> None:
    with pytest.raises(RuntimeError), shown_on(terminal) as tell:
        tell("candidate_evaluated", evaluated(0.5))
        raise RuntimeError
    assert terminal.screen() == ["baseline: val 0.500 [0.15, 0.85]"] and not terminal.hidden


def test_a_candidate_that_was_stopped_early_is_never_the_best(terminal: Terminal) -> None:
    with shown_on(terminal) as tell:
        tell("candidate_evaluated", evaluated(0.5))
        tell("candidate_evaluated", evaluated(0.9, "lucky", rows=3, complete=False))
        tell("stopping", {})
        *above, live, _ = terminal.screen(tell)  # it is long, so the bar is below it
    assert above[1] == "candidate 01234567 (lucky): stopped after 3 rows"
    assert live.startswith("stopping: waiting for calls in flight (interrupt again to stop now)  best 0.500")


def test_elsewhere_there_are_plain_lines_or_none(capfd: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        with listener(Output(quiet)) as tell:
            tell("candidate_evaluated", evaluated(0.5))
            tell("call_settled", settled(50, calls=200))
            tell("optimizer_told", {"optimizer": "mcts", "message": "converged"})
            tell("budget_spent", {"message": "budget reached"})
        lines = [
            "baseline: val 0.500 [0.15, 0.85]",
            "mcts: converged",
            "budget reached; testing the best candidate so far",
        ]
        assert capfd.readouterr() == ("", "" if quiet else "\n".join(lines) + "\n")


def test_friction_40_a_rate_limit_is_told_with_what_is_sent_at_once(terminal: Terminal) -> None:
    with shown_on(terminal) as tell:
        tell("rate_limited", {"lm": "m@http://[x]\x1b", "before": 64, "after": 32})
        assert terminal.screen(tell)[0] == "rate limited: 64 -> 32 at once (m@http://[x]\\x1b)"


def test_the_live_line_tells_what_earlier_runs_paid_for(terminal: Terminal) -> None:
    with shown_on(terminal) as tell:
        tell("run_started", started(calls=200))
        tell("call_settled", settled(50, 0.0, 0, 20, calls=200))
        tell("testing", {"changed": True, "sides": 2})
        assert "50/200 calls (20 reused)" in terminal.screen(tell)[-1]


def test_the_sides_of_the_sealed_test_are_named(terminal: Terminal) -> None:
    with shown_on(terminal) as tell:
        tell("run_started", started(calls=200))
        for sides, words in ((2, "baseline and winner"), (3, "baseline, winner and best on val")):
            tell("testing", {"changed": True, "sides": sides})
            assert f"sealed test of {words}" in "\n".join(terminal.screen(tell))


@pytest.mark.parametrize(("failed", "told"), [(3, True), (2, False)])
def test_a_baseline_that_mostly_fails_says_why_at_once(failed: int, told: bool, terminal: Terminal) -> None:
    """Before the search spends on it."""
    with shown_on(terminal) as tell:
        tell("candidate_evaluated", evaluated(0.25, failed=failed))
        (line, *_) = terminal.screen(tell)
    assert ("e.g. no label in\\n'x'" in line) is told


def test_rows_without_a_result_are_counted_apart(terminal: Terminal) -> None:
    workflow: Any = SimpleNamespace(hash="0123456789abcdef", patch=None)
    outcomes = [(1.0, None), (1.0, None), (0.0, "cut"), (None, "server")]
    results = tuple(Result(Example(str(n), {}), score, kind) for n, (score, kind) in enumerate(outcomes))
    with shown_on(terminal) as tell:
        tell("candidate_evaluated", {"evaluation": Evaluation(workflow, "val", results, True)})
        (line, *_) = terminal.screen(tell)
    assert line.startswith("baseline: val 0.667 [0.21, 0.94], 1 failed, 1 without a result")
