"""The metric `checklist`: the share of a row's own checks that an answer passes.

Source of the form: AGENTIF (Qi et al., arXiv 2505.16944), whose constraints are checked by code, by a model, or by
both, and some only under a condition. `whole` is its instruction success rate, the default its constraint success rate.
Departures: code runs in the sandbox, and a check that raises has failed.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from workbench.base.type_guards import is_dict
from workbench.errors import NodeError, SpecError
from workbench.lm import split_thoughts
from workbench.spec import Pattern, Strict, check_pattern, spec_error
from workbench.task import Example, Score
from workbench.workflow import Trace
from workbench_kit.answers import load_loose, read_grade
from workbench_kit.logs import tool_uses
from workbench_metrics.base import get_field, unreadable
from workbench_metrics.structured import is_accepted

_KINDS = ("regex", "contains", "code", "ask", "called")
_ASK = """\
You check one point of an answer. Reply with one short sentence of reasoning, and then a last line of the form
score: N
where N is 1 if the point holds, and 0 if it does not."""
_EXTRACT = "You take something out of an answer. Reply with what is asked for, word by word, and nothing else."


class Check(Strict):
    """A check of a row: exactly one of the first five fields, and how it counts."""

    regex: str | None = Field(None, description="a pattern in the answer")
    contains: str | None = Field(None, min_length=1, description="a text in the answer")
    code: str | None = Field(None, description="its last function says of the answer whether it holds")
    ask: str | None = Field(None, min_length=1, description="a question, put to the judge")
    called: str | None = Field(None, min_length=1, description="a tool that was called")
    arguments: dict[str, Any] = Field(
        default_factory=dict, description="of the call: a value, or a list of accepted ones"
    )
    not_: bool = Field(False, alias="not", description="it must not hold")
    if_: Check | None = Field(None, alias="if", description="without which it does not apply")
    extract: str | None = Field(None, min_length=1, description="what the judge takes out of the answer to be checked")
    weight: float = Field(1, gt=0, allow_inf_nan=False, description="beside the other checks")
    say: str | None = Field(None, description="its name in the feedback")

    _pattern = field_validator("regex")(check_pattern)

    @field_validator("code")
    @classmethod
    def _has_a_function(cls, value: str | None) -> str | None:
        try:
            function_of(value or "def none(of): ...")
        except (SyntaxError, RecursionError, MemoryError) as error:
            raise ValueError(f"this is no Python: {error}") from None
        return value

    @model_validator(mode="after")
    def _is_one(self) -> Check:
        found = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(found) != 1:
            raise ValueError(f"a check is one of {', '.join(_KINDS)}; here are {' and '.join(found) or 'none'}")
        if self.called is None and self.arguments:
            raise ValueError("arguments belong to called")
        return self

    @property
    def asks(self) -> bool:
        """Return True if the check needs a model."""
        return bool(self.ask or self.extract or (self.if_ and self.if_.asks))

    @property
    def kind(self) -> str:
        return next(kind for kind in _KINDS if getattr(self, kind) is not None)

    @property
    def name(self) -> str:
        """Return the check's name in feedback."""
        named = "code" if self.code else f"{'not ' if self.not_ else ''}{self.kind} {getattr(self, self.kind)}"
        return (self.say or named)[:200]


def function_of(source: str) -> tuple[str, str]:
    """Return (name, parameter) of the last function in a source. Raise ValueError or SyntaxError."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    if not functions or not functions[-1].args.args:
        raise ValueError("the code has no function of the answer")
    return functions[-1].name, functions[-1].args.args[0].arg


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

    needs_sandbox = True

    def __init__(
        self, field: str, checks: str = "checks", whole: bool = False, ask: bool = False, max_tokens: int = 200
    ):
        self.field, self.checks, self.whole, self.needs_lm, self.max_tokens = field, checks, whole, ask, max_tokens
        self.reads = (checks,)

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
        for check in checks:
            if check.if_ is not None and not await run.applies(check.if_):
                continue
            holds = await run.holds(check)
            weight += check.weight
            passed += check.weight * holds
            failed += [] if holds else [check.name]
        share = passed / weight if weight else 1.0
        return Score(float(not failed) if self.whole else share, f"failed: {'; '.join(failed)}" if failed else None)

    def _read(self, example: Example) -> list[Check]:
        """Return the checks of a row. Raise NodeError("data") with the position, before paying for any check."""
        written, found = get_field(example, self.checks, "row"), list[Check]()
        checks = load_loose(written) if isinstance(written, str) else written  # a string in CSV files
        if not isinstance(checks, list) or not checks:
            raise unreadable(self.checks, f"it must be a list of checks, not {written!r:.100}")
        for number, check in enumerate(checks):
            try:
                found.append(Check.model_validate(_without_nulls(check)))
            except ValidationError as error:
                raise unreadable(self.checks, _told(f"[{number}]", spec_error(error, Check))) from None
            if not self.needs_lm and found[-1].asks:
                raise unreadable(self.checks, f"[{number}] asks a model: write checklist(FIELD, ask=true)")
        return found


def _without_nulls(check: Any) -> Any:
    """Return the check without null fields: columns of structs store missing fields as null."""
    if not is_dict(check):
        return check
    return {k: _without_nulls(v) if k == "if" else v for k, v in check.items() if v is not None}


def _told(place: str, error: SpecError) -> str:
    message = error.message.removeprefix("the file: ")
    return f"{place}: {message}" + (f" ({error.hint})" if error.hint else "")


@dataclass
class _Run:
    """An answer, and the means to check it."""

    answer: str
    trace: Trace | None
    sandbox: Callable[..., Awaitable[Any]]
    lm: Callable[..., Awaitable[Any]] | None
    max_tokens: int

    async def applies(self, condition: Check) -> bool:
        """Return True if a condition holds, and its own condition, too."""
        return (condition.if_ is None or await self.applies(condition.if_)) and await self.holds(condition)

    async def holds(self, check: Check) -> bool:
        """Return True if a check holds. Raise NodeError("judge"), or TooSlow for a pattern."""
        text = await self._asked(_EXTRACT, check.extract) if check.extract else self.answer
        return await getattr(self, f"_{check.kind}")(check, text) is not check.not_

    async def _regex(self, check: Check, text: str) -> bool:
        return Pattern(check.regex or "").search(text) is not None

    async def _contains(self, check: Check, text: str) -> bool:
        return (check.contains or "").casefold() in text.casefold()

    async def _code(self, check: Check, text: str) -> bool:
        source = check.code or ""
        name, parameter = function_of(source)
        result = await self.sandbox(source, name, {parameter: text})
        return result.ok and bool(result.value)

    async def _called(self, check: Check, text: str) -> bool:
        return any(
            use.tool == check.called
            and not use.failed
            and all(is_accepted(use.arguments.get(name), value) for name, value in check.arguments.items())
            for use in (tool_uses(self.trace) if self.trace else ())
        )

    async def _ask(self, check: Check, text: str) -> bool:
        said = await self._asked(_ASK, check.ask or "", text)
        if (grade := read_grade(said, 1)) is None:
            raise NodeError("judge", f"the judge gave no verdict on {check.ask!r:.100}: {said[:200]!r}")
        return grade[0] >= 0.5

    async def _asked(self, system: str, question: str, text: str | None = None) -> str:
        assert self.lm is not None
        user = f"Answer: {self.answer if text is None else text}\n\n{question}"
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        response = await self.lm(messages, max_tokens=self.max_tokens)
        if response.finish == "length":
            raise NodeError("judge", "its answer was cut (max_tokens)")
        return response.text
