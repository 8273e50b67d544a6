"""The metric `checklist`: the share of a row's own checks that an answer passes.

Source of the form: AGENTIF (Qi et al., arXiv 2505.16944), whose constraints are checked by code, by a model, or by
both, and some only under a condition. `whole` is its instruction success rate, the default its constraint success rate.
Departures: code runs in the sandbox, and a check that raises has failed.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.errors import NodeError
from workbench.kit.answers import read_grade
from workbench.lm import split_thoughts
from workbench.task import Example, Score
from workbench.workflow import Trace, tool_uses
from workbench_metrics.base import get_field

_KINDS = ("regex", "contains", "code", "ask", "called")
_MORE = ("not", "if", "extract", "weight", "say", "arguments")
_ASK = """\
You check one point of an answer. Reply with one short sentence of reasoning, and then a last line of the form
score: N
where N is 1 if the point holds, and 0 if it does not."""
_EXTRACT = "You take something out of an answer. Reply with what is asked for, word by word, and nothing else."


class Checklist:
    """Scores by the checks that the row lists: the share of their weights that hold, of those that apply.

    A check is one of `regex: PATTERN` and `contains: TEXT` in the answer; `code: SOURCE`, whose last function says of
    the answer whether it holds, in the sandbox; `ask: QUESTION`, put to the role `judge`; `called: TOOL`, a call in the
    run, with `arguments`, {name: value, or a list of accepted ones}. `not: true` turns it round, `weight` is 1 by
    default, `say` names it in the feedback. `if`, another check, says whether it applies; `extract: QUESTION` has the
    judge take out of the answer what is checked.

    Args:
        field: of the prediction.
        checks: the field of the row with the list.
        whole: 1 if all hold, else 0.
        ask: whether the checks may ask a model.
        max_tokens: of the judge's answers.
    """

    powers = {}
    needs_sandbox = True

    def __init__(
        self, field: str, checks: str = "checks", whole: bool = False, ask: bool = False, max_tokens: int = 200
    ):
        self.field, self.checks, self.whole, self.needs_lm, self.max_tokens = field, checks, whole, ask, max_tokens

    async def __call__(
        self,
        example: Example,
        prediction: Mapping[str, Any],
        trace: Trace | None,
        *,
        sandbox: Callable[..., Awaitable[Any]],
        lm: Callable[..., Awaitable[Any]] | None = None,
    ) -> Score:
        given = get_field(prediction, self.field, "prediction")
        answer = split_thoughts(given)[1] if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        checks, passed, weight, failed = self._read(example), 0.0, 0.0, list[str]()
        run = _Run(answer, trace, sandbox, lm, self.max_tokens)
        for number, check in enumerate(checks):
            try:
                if "if" in check and not await run.holds(check["if"]):
                    continue
                holds = await run.holds(check)
            except (ValueError, TypeError, re.error) as error:
                raise ValueError(f"the row's {self.checks}[{number}]: {error}") from None
            weight += check.get("weight", 1)
            passed += check.get("weight", 1) * holds
            failed += [] if holds else [_name(check)]
        share = passed / weight if weight else 1.0
        return Score(float(not failed) if self.whole else share, f"failed: {'; '.join(failed)}" if failed else None)

    def _read(self, example: Example) -> list[Mapping[str, Any]]:
        checks = get_field(example, self.checks, "row")
        if not isinstance(checks, list) or not checks:
            raise ValueError(f"the row's '{self.checks}' must be a list of checks, not {checks!r:.100}")
        return checks


@dataclass
class _Run:
    """An answer, and what checks it."""

    answer: str
    trace: Trace | None
    sandbox: Callable[..., Awaitable[Any]]
    lm: Callable[..., Awaitable[Any]] | None
    max_tokens: int

    async def holds(self, check: Mapping[str, Any]) -> bool:
        """Return True if a check holds. Raises ValueError for one that cannot be read, NodeError("judge")."""
        kinds = [kind for kind in _KINDS if kind in check]
        if unknown := [key for key in check if key not in (*_KINDS, *_MORE)] or len(kinds) != 1:
            found = unknown if isinstance(unknown, list) else kinds
            raise ValueError(f"write one of {', '.join(_KINDS)}, with {', '.join(_MORE)}; here are {found or 'none'}")
        text = await self._asked(_EXTRACT, check["extract"]) if "extract" in check else self.answer
        found = await getattr(self, f"_{kinds[0]}")(check, text)
        return found != bool(check.get("not"))

    async def _regex(self, check: Mapping[str, Any], text: str) -> bool:
        return re.search(check["regex"], text) is not None

    async def _contains(self, check: Mapping[str, Any], text: str) -> bool:
        return str(check["contains"]).casefold() in text.casefold()

    async def _code(self, check: Mapping[str, Any], text: str) -> bool:
        functions = [node for node in ast.parse(check["code"]).body if isinstance(node, ast.FunctionDef)]
        if not functions or not functions[-1].args.args:
            raise ValueError("the code has no function of the answer")
        result = await self.sandbox(check["code"], functions[-1].name, {functions[-1].args.args[0].arg: text})
        return result.ok and bool(result.value)

    async def _called(self, check: Mapping[str, Any], text: str) -> bool:
        wanted = check.get("arguments", {})
        return any(
            use.tool == check["called"]
            and not use.failed
            and all(use.arguments.get(k) in (v if isinstance(v, list) else [v]) for k, v in wanted.items())
            for use in (tool_uses(self.trace) if self.trace else ())
        )

    async def _ask(self, check: Mapping[str, Any], text: str) -> bool:
        said = await self._asked(_ASK, check["ask"], text)
        if (grade := read_grade(said, 1)) is None:
            raise NodeError("judge", f"the judge gave no verdict on {check['ask']!r:.100}: {said[:200]!r}")
        return grade[0] >= 0.5

    async def _asked(self, system: str, question: str, text: str | None = None) -> str:
        if self.lm is None:
            raise ValueError("it asks a model: write checklist(FIELD, ask=true)")
        user = f"Answer: {self.answer if text is None else text}\n\n{question}"
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        response = await self.lm(messages, max_tokens=self.max_tokens)
        if response.finish == "length":
            raise NodeError("judge", "its answer was cut (max_tokens)")
        return response.text


def _name(check: Mapping[str, Any]) -> str:
    """Return the name of a check in feedback."""
    kind = next(kind for kind in _KINDS if kind in check)
    named = "code" if kind == "code" else f"{'not ' if check.get('not') else ''}{kind} {check[kind]}"
    return str(check.get("say") or named)[:200]
