"""Which tool calls a workflow may make: allow, deny or ask, with conditions on arguments.

Source: Progent (arXiv 2504.11703): rules over tool names and arguments, enforced outside the model. The policy stands
in the workflow file beside the budget: no patch reaches it, so it also holds while a workflow is optimized.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from workbench.spec.base import Strict
from workbench.spec.likeness import from_json, may_equal, plain_texts, surely_equal

Verdict = Literal["allow", "deny", "ask"]


class Condition(Strict):
    """What an argument must be; all that is given must hold. An argument that is not there meets no condition."""

    equals: Any = Field(None, description="this value; `when: {argument: value}` is short for it")
    one_of: list[Any] | None = Field(None, description="any of these values")
    matches: str | None = Field(None, description="a regular expression for the whole text")
    min: float | None = Field(None, description="a number of at least this")
    max: float | None = Field(None, description="a number of at most this")
    max_length: int | None = Field(None, ge=0, description="a text or list of at most this length")

    @model_validator(mode="after")
    def _some(self) -> Condition:
        if not self.model_fields_set:
            raise ValueError("a condition needs one of equals, one_of, matches, min, max, max_length")
        return self

    @field_validator("matches")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"matches is no regular expression: {error}") from None
        return value

    def holds(self, value: Any, *, doubtful: bool = False) -> bool:
        """Whether a value meets the condition. doubtful: what cannot be told, such as whether a text is a number of at
        least 100, counts as met: so a rule that denies is not got round by a value of another type."""
        alike = may_equal if doubtful else surely_equal
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        unsure = doubtful and number != number  # not math.isnan, which a long integer overflows
        sized = isinstance(value, str | list | dict)
        texts = plain_texts(value) if doubtful and isinstance(value, str) else [value] if isinstance(value, str) else []
        return (
            ("equals" not in self.model_fields_set or alike(value, self.equals))
            and (self.one_of is None or any(alike(value, one) for one in self.one_of))
            and (
                self.matches is None
                or (doubtful and not texts)
                or any(re.fullmatch(self.matches, text, re.DOTALL) for text in texts)
            )
            and (self.min is None or unsure or number >= self.min)
            and (self.max is None or unsure or number <= self.max)
            and (self.max_length is None or (len(value) <= self.max_length if sized else doubtful))
        )


class Rule(Strict):
    """One of allow, deny and ask, with the tool's name (`*` and `?` stand for any characters), and when it counts."""

    allow: str | None = Field(None, description="name or pattern of tools that may be called")
    deny: str | None = Field(None, description="name or pattern of tools that may not be called")
    ask: str | None = Field(None, description="name or pattern of tools about which a person is asked")
    when: dict[str, Condition] = Field(default_factory=dict, description="argument (dotted if nested): its condition")
    why: str = Field("", description="told to the model where the rule refuses a call")

    @field_validator("when", mode="before")
    @classmethod
    def _plain_values(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: v if isinstance(v, dict) else {"equals": v} for k, v in value.items()}
        return value

    @model_validator(mode="after")
    def _one_verdict(self) -> Rule:
        if sum(v is not None for v in (self.allow, self.deny, self.ask)) != 1:
            raise ValueError("a rule has exactly one of allow, deny, ask, e.g. {deny: delete_*}")
        return self

    @property
    def verdict(self) -> Verdict:
        return "allow" if self.allow is not None else "deny" if self.deny is not None else "ask"

    def counts(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the rule is about a call. One that allows must hold surely, one that denies or asks may be in
        doubt."""
        if not fnmatchcase(tool, self.allow or self.deny or self.ask or ""):
            return False
        doubtful = self.allow is None
        for name, condition in self.when.items():
            values, sure = _arguments(arguments, name, doubtful)
            met = [condition.holds(value, doubtful=doubtful) for value in values]
            if not (any(met) or not sure if doubtful else met and all(met) and sure):
                return False
        return True


class PolicySpec(Strict):
    """Rules in order: the first that counts decides; where none does, the default.

    Actions in an environment are calls, too: of a tool with the environment's name, with the arguments `action` (its
    text) and `verb` (its first word), e.g. {deny: sql, when: {verb: {one_of: [delete, drop, update]}}}.
    """

    default: Verdict = Field(default="allow", description="for calls that no rule is about")
    rules: list[Rule] = Field(default_factory=list, description="rules in their order")
    inherited: list[Inherited] = Field(
        default_factory=list, description="policies of files whose functions are used here: written by workbench"
    )

    @property
    def restricts(self) -> bool:
        """Whether it may refuse anything."""
        return self.default != "allow" or bool(self.rules or self.inherited)

    def verdict(self, tool: str, arguments: Mapping[str, Any]) -> tuple[Verdict, str]:
        """(verdict, why) on a call: that of the rules, or of an inherited policy that is stricter."""
        rule = next((r for r in self.rules if r.counts(tool, arguments)), None)
        own = (rule.verdict, rule.why) if rule is not None else (self.default, "")
        more = (i.policy.verdict(tool, arguments) for i in self.inherited if tool in i.tools)
        return strictest([own, *more])


class Inherited(Strict):
    """The policy of another file, which holds for the functions that came from it."""

    tools: list[str] = Field(description="names of those functions")
    policy: PolicySpec = Field(description="what their file says")


PolicySpec.model_rebuild()


def strictest(verdicts: Iterable[tuple[Verdict, str]]) -> tuple[Verdict, str]:
    """Where several policies hold: deny before ask before allow; of equals the first."""
    return max(verdicts, key=lambda found: ("allow", "ask", "deny").index(found[0]))


def refusal(tool: str, verdict: Verdict, why: str) -> str | None:
    """What is told of a call that is refused where nobody is there to ask; None for one that is allowed."""
    reason = f": {why}" if why else ""
    if verdict == "ask":
        return f"{tool} needs a person's consent, and nobody is here to ask{reason}"
    return f"{tool} is not allowed here{reason}" if verdict == "deny" else None


def _arguments(arguments: Mapping[str, Any], name: str, doubtful: bool) -> tuple[list[Any], bool]:
    """What a name may mean, as far as it is there: an argument of that name, and what is inside an argument, be it an
    object, a list of them, or JSON as a text. And whether that is all that it can mean: not where something stands in
    its way that is no object. Only to a rule that denies is a text that writes an object one."""
    found, sure = ([arguments[name]] if name in arguments else []), True
    if "." not in name:
        return found, sure
    values: list[Any] = [arguments]
    for part in name.split("."):
        inner: list[Any] = []
        for value in values:
            parsed = from_json(value)
            kinds = Mapping | list | None if doubtful else Mapping | None
            sure = sure and isinstance(parsed if doubtful else value, kinds)
            inner += [v[part] for v in _objects(parsed) if part in v]
        values = inner
    return [*found, *values], sure


def _objects(value: Any) -> list[Mapping[str, Any]]:
    """An object, or those in a list, however deep."""
    if isinstance(value, Mapping):
        return [value]
    return [found for item in value for found in _objects(from_json(item))] if isinstance(value, list) else []


def with_inherited(policy: PolicySpec, inherited: Sequence[Inherited]) -> PolicySpec:
    """A policy with those of files whose functions are used, none twice."""
    more = [i for n, i in enumerate(inherited) if i not in policy.inherited and i not in inherited[:n]]
    return policy.model_copy(update={"inherited": [*policy.inherited, *more]}) if more else policy
