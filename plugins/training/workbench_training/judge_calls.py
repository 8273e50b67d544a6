"""Calls of a model beside the policy: a judge or a listener. One that fails is a missing reward, and ends no run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from workbench.errors import FailureKind, LMError
from workbench.lm import Response
from workbench.task import Example

Ask = Callable[..., Awaitable[Response]]

#: Failed calls after which a judge that never answered is taken for one that never will.
_PATIENCE = 8


class JudgeCalls:
    """Asks a judge, and counts its failures.

    Args:
        ask: sends messages to it. Raises LMError.
        fields: of a row, those that the workflow reads; a judge sees them, and never a label.

    Attributes:
        answered: its answers, in earlier processes of the run as well.
    """

    def __init__(self, ask: Ask, fields: Sequence[str] = ()):
        self.ask, self.fields, self.answered = ask, fields, 0
        self._failed, self._told = Counter[str](), 0
        self._last: LMError | None = None

    def show(self, row: Example) -> dict[str, Any]:
        """The row as the workflow sees it."""
        return {name: row[name] for name in self.fields if name in row}

    async def __call__(self, messages: Sequence[Mapping[str, Any]], **settings: Any) -> Response | None:
        """An answer; None for a call that failed. Raises LMError for a rejected key."""
        try:
            response = await self.ask(messages, **settings)
        except LMError as error:
            if error.kind == FailureKind.AUTH:
                raise
            self._failed[str(error.kind)] += 1
            self._last = error
            return None
        self.answered += 1
        return response

    def report(self, log: Callable[[str], None]) -> None:
        """Tell what failed since the last report. Raises LMError for a judge that never answered."""
        failed = self._failed.total()
        if self._last is not None and not self.answered and failed >= _PATIENCE:
            raise self._last
        new, self._told = failed - self._told, failed
        if new:
            kinds = ", ".join(f"{kind} {count}" for kind, count in self._failed.most_common())
            log(f"{new} calls of the judge failed, and leave what they judge without a reward (so far: {kinds})")
