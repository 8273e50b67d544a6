"""The errors of workbench, as a tree.

WorkbenchError                 everything that we raise on purpose
├── SpecError                  bad input: file, line, column, and what to write instead (exit code 2)
│   └── SandboxError           no sandbox isolates code as well as it must
├── PluginError                a plugin is missing, broken, or breaks its contract
│   └── SealBroken             something asked for the sealed test rows before the search had ended
├── BudgetSpent                the ceiling is reached; a normal end, not a fault
│   └── ShareSpent             an inner optimizer's share of the budget is used up
├── LMError                    one attempt to call a language model failed (kind says how)
├── ServerDead                 a language model's server no longer answers
├── NodeError                  a node could not produce its outputs for one example
├── StoreError                 the run database cannot be used
└── Interrupted                the user asked to stop

Plugins may derive their own. Library code raises errors; only `workbench.cli` turns them into exit codes.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from threading import local
from typing import Any

from workbench.errors.failures import FailureKind

#: The most errors to list for one file.
MAX_LISTED = 20


class WorkbenchError(Exception):
    """Base of all errors that workbench raises on purpose. They can be pickled, whatever their arguments.

    report: of the evaluation that ended with this error; it is stored and can be resumed.
    """

    report: Any = None

    def __reduce__(self) -> Any:
        return _revive, (type(self), self.args, vars(self))


class SpecError(WorkbenchError):
    """Invalid input from the user.

    Raise it with a message and, if a part of the workflow file is at fault, its path. The file's loader adds file, line
    and column (`workbench.spec.Source.locate`).

    Args:
        message: what is wrong.
        hint: what to write instead.
        path: the keys and list indexes that lead to the fault, e.g. ("nodes", "answer", "instructions").
        file, line, column: where the fault is, if known; lines and columns count from 1.

    `more` holds the other errors found in the same file, `omitted` the number of unlisted ones: at most MAX_LISTED are
    listed, so that a file with very many errors costs neither time nor memory.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
        path: tuple[str | int, ...] = (),
    ):
        self.message, self.file, self.line, self.column = message, file, line, column
        self.hint, self.path = hint, path
        self.more: tuple[SpecError, ...] = ()
        self.omitted = 0
        super().__init__(str(self))

    def __str__(self) -> str:
        omitted = [f"and up to {self.omitted:,} more"] if self.omitted else []
        return "\n".join([self._alone(), *(error._alone() for error in self.more), *omitted])

    def _alone(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        text = f"{place}: {self.message}" if place else self.message
        return f"{text}\n  {self.hint}" if self.hint else text


def _revive(kind: type[WorkbenchError], args: tuple[Any, ...], values: dict[str, Any]) -> WorkbenchError:
    error = kind.__new__(kind, *args)
    vars(error).update(values)
    return error


def merge_errors(errors: Iterable[SpecError]) -> SpecError:
    """Return the first error, with the others as its `more`, up to MAX_LISTED. There must be at least one."""
    found = [one for error in errors for one in (error, *error.more)]
    omitted = sum(error.omitted for error in found) + max(0, len(found) - MAX_LISTED)
    for error in found:
        error.more, error.omitted = (), 0
    found[0].more, found[0].omitted = tuple(found[1:MAX_LISTED]), omitted
    return found[0]


def collect_errors(jobs: Iterable[Callable[[], Any]]) -> list[Any]:
    """Return the results of all jobs. Raises their SpecErrors as one, so that the first does not hide the rest. After
    MAX_LISTED errors the other jobs are skipped."""
    made: list[Any] = []
    wrong: list[SpecError] = []
    left = iter(jobs)
    for job in left:
        try:
            made.append(job())
        except SpecError as error:
            wrong.append(error)
            if len(wrong) == MAX_LISTED:
                break
    if wrong:
        merged = merge_errors(wrong)
        merged.omitted += sum(1 for _ in left)
        raise merged from wrong[0].__cause__
    return made


@contextmanager
def errors_at(*path: str | int) -> Generator[None]:
    """Prepend a path to that of every SpecError raised in the block, unless the error already names a file."""
    try:
        with placed_at(*path):
            yield
    except SpecError as error:
        for one in (error, *error.more):
            if one.file is None:
                one.path = (*path, *one.path)
        raise


class _Place(local):
    path: tuple[str | int, ...] = ()


_place = _Place()


@contextmanager
def placed_at(*path: str | int, anew: bool = False) -> Generator[None]:
    """Note that the block makes the part at this path inside the current one (`current_place`). anew: of the file."""
    before, _place.path = _place.path, path if anew else (*_place.path, *path)
    try:
        yield
    finally:
        _place.path = before


def current_place() -> tuple[str | int, ...]:
    """Return the path in the workflow file of the part that is being made, as far as it is noted."""
    return _place.path


class PluginError(WorkbenchError):
    """A plugin is missing, failed to load, or broke its contract; the message names it."""


class SealBroken(PluginError):
    """The sealed test rows were read during a search. Only the proof may read them, once the winner is chosen."""


class BudgetSpent(WorkbenchError):
    """The next call could exceed the budget's ceiling, so it was not sent.

    Args:
        what: calls, tokens, usd or minutes.
        ceiling: the budget's ceiling.
        needed: the total after the call at worst.
        held: the part of the ceiling that is reserved for the proof.
    """

    def __init__(self, what: str, ceiling: float, needed: float, held: float = 0.0):
        self.what, self.ceiling, self.needed, self.held = what, ceiling, needed, held
        proof = f", of which {held:g} are reserved for the proof" if held else ""
        super().__init__(
            f"budget reached: {ceiling:g} {what}{proof}; one more call could bring the total to {needed:g}"
        )


class ShareSpent(BudgetSpent):
    """An inner optimizer's share of the budget is used up. The run itself may continue."""

    def __init__(self, what: str, left: float, needed: float):
        WorkbenchError.__init__(self, f"the share of the budget is used up: {left:g} {what} left, {needed:g} needed")
        self.what, self.ceiling, self.needed, self.held = what, left, needed, 0.0


class SearchStopped(BudgetSpent):
    """The user ended the search. The best so far is tested, as at the budget's ceiling."""

    def __init__(self) -> None:
        WorkbenchError.__init__(self, "the search was stopped by its user")
        self.what, self.ceiling, self.needed, self.held = "calls", 0.0, 0.0, 0.0


#: The answer of a server that closed the connection immediately.
NOTHING: tuple[int, dict[str, str], bytes] = (0, {}, b"")
_HUNG_UP = (FailureKind.CONNECTION, FailureKind.NO_SERVER, FailureKind.BROKEN, FailureKind.TIMEOUT)


class LMError(WorkbenchError):
    """An attempt to call a language model failed.

    Args:
        kind: how it failed; this also decides whether another attempt may help.
        retry_after: seconds that the server asks to wait.
        status: of the HTTP response.
        passed: (status, headers, body) of the server's answer, or of its beginning, for a client that used the server's
            API; or NOTHING. Such a failure is the client's to retry, and the journal does not replay it.

    `key` is the journal's key of the call, if it failed for good.
    """

    def __init__(
        self,
        kind: FailureKind | str,
        message: str,
        *,
        retry_after: float | None = None,
        status: int | None = None,
        passed: tuple[int, dict[str, str], bytes] | None = None,
    ):
        self.kind, self.retry_after, self.status, self.key = FailureKind(kind), retry_after, status, ""
        self.passed = passed
        super().__init__(message)

    @property
    def hung_up(self) -> bool:
        """Return True if no complete answer came and no server gave a reason."""
        return self.status is None and self.kind in _HUNG_UP


class ServerDead(WorkbenchError):
    """The language model's server no longer answers. The run can be resumed once it does."""


class NodeError(WorkbenchError):
    """A node gave no outputs for one example. kind: the kind of failure, stored with the result. field: with `data`,
    the input that is missing or wrong, if known."""

    def __init__(self, kind: FailureKind | str, message: str, *, node: str | None = None, field: str = ""):
        self.kind, self.node, self.field = FailureKind(kind), node, field
        super().__init__(message)


class StoreError(WorkbenchError):
    """The run database is missing, corrupt, newer than this program, or used by another process."""


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown word: the most similar known one, else all known ones; of very many, the first."""
    known = sorted(known)
    close = difflib.get_close_matches(word[:200], known[:1000], n=1, cutoff=0.6)
    if close:
        return f"Did you mean '{close[0]}'?"
    more = f", and {len(known) - 100:,} more" if len(known) > 100 else ""
    return f"Known: {', '.join(known[:100])}{more}." if known else "None are known."


class SandboxError(SpecError):
    """No sandbox with a real boundary is available here, or it cannot be started."""


class Interrupted(WorkbenchError):
    """The user asked to stop. Everything paid for is recorded, and the run can be resumed."""
