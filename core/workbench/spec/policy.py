"""Which tool calls a workflow may make: allow, deny or ask, with conditions on arguments.

Source: Progent (arXiv 2504.11703): rules over tool names and arguments, enforced outside the model. The policy is part
of the workflow file, like the budget. No patch can change it, so it also holds while a workflow is optimized.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence, Sized
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeGuard

from pydantic import Field, field_validator, model_validator

from workbench.base.type_guards import is_dict, is_list
from workbench.spec.base import Strict
from workbench.spec.likeness import from_json, may_equal, plain_texts, surely_equal
from workbench.spec.past import MadeCall, parse_formula, was_called
from workbench.spec.patterns import Pattern, TooSlow, Unmatchable, check_pattern, shortest_match

Verdict = Literal["allow", "deny", "ask"]


class Condition(Strict):
    """A condition on an argument. All given parts must hold; a missing argument meets no condition."""

    one_of: list[Any] | None = Field(None, description="any of these values; `when: {argument: value}` names one")
    matches: str | None = Field(None, description="a regular expression for the whole text")
    min: float | None = Field(None, description="a number not below this")
    max: float | None = Field(None, description="a number not above this")
    max_length: int | None = Field(None, ge=0, description="a text or list not longer than this")

    @model_validator(mode="after")
    def _some(self) -> Condition:
        if not self.model_fields_set:
            raise ValueError("a condition needs one of one_of, matches, min, max, max_length")
        return self

    _matches = field_validator("matches")(check_pattern)

    def surely_holds(self, value: Any) -> bool:
        """Return True if a value meets the condition beyond doubt: as a rule that allows reads it."""
        if self.one_of is not None and not any(surely_equal(value, one) for one in self.one_of):
            return False
        if self.matches is not None and not (isinstance(value, str) and _surely_matches(self.matches, value)):
            return False
        if (self.min is not None or self.max is not None) and not (_is_number(value) and self._in_bounds(value)):
            return False
        return self.max_length is None or (_has_length(value) and len(value) <= self.max_length)

    def may_hold(self, value: Any) -> bool:
        """Return True if a value may meet the condition: as a rule that denies or asks reads it.

        What cannot be decided, such as whether a text is a number of at least 100, counts as met. So the rule cannot be
        evaded with another spelling or a value of another type.
        """
        if self.one_of is not None and not any(may_equal(value, one) for one in self.one_of):
            return False
        texts = plain_texts(value) if isinstance(value, str) else []
        if self.matches is not None and texts and not any(_may_match(self.matches, text) for text in texts):
            return False
        if _is_number(value) and not self._in_bounds(value):
            return False
        return self.max_length is None or not _has_length(value) or len(value) <= self.max_length

    def _in_bounds(self, number: float) -> bool:
        return (self.min is None or number >= self.min) and (self.max is None or number <= self.max)

    def impossible(self) -> str | None:
        """Why no value can meet the condition; None where one can, or where that is not certain."""
        if self.min is not None and self.max is not None and self.min > self.max:
            return f"no number is at least {self.min:g} and at most {self.max:g}"
        if self.one_of == []:
            return "`one_of` lists nothing"
        if self.matches is None:
            return None
        try:
            shortest = shortest_match(self.matches)
        except Unmatchable as error:
            return f"nothing matches {self.matches!r}, since {error}"
        if self.max_length is not None and self.max_length < shortest:
            return f"what matches {self.matches!r} is longer than a max_length of {self.max_length}"
        listed = self.one_of or []
        texts = [value for value in listed if isinstance(value, str)]
        # Words alone: of numbers and JSON, values that are spelled otherwise count, too.
        words = all(text.isalpha() for text in texts) and len(texts) == len(listed) > 0
        if words and not any(_may_match(self.matches, text) for text in texts):
            return f"{texts[0]!r} does not match {self.matches!r}"
        return None


def _surely_matches(pattern: str, text: str) -> bool:
    try:
        return bool(Pattern(pattern).fullmatch(text))
    except TooSlow:
        return False


def _may_match(pattern: str, text: str) -> bool:
    """Match however the text is spelled, and also where the search would take too long."""
    try:
        return bool(Pattern(pattern, re.DOTALL | re.IGNORECASE).fullmatch(text))
    except TooSlow:
        return True


def _is_number(value: Any) -> TypeGuard[float]:
    # Not math.isfinite, which a long integer overflows.
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf


def _has_length(value: Any) -> TypeGuard[Sized]:
    return isinstance(value, str) or is_list(value)


class Rule(Strict):
    """A rule: allow, deny or ask, with a pattern of tool names (`*` and `?` as in a shell), and when it applies; or a
    formula about the calls of the row, which each call must keep true."""

    allow: str | None = Field(None, description="name or pattern of tools that may be called")
    deny: str | None = Field(None, description="name or pattern of tools that may not be called")
    ask: str | None = Field(None, description="name or pattern of tools that need a person's consent")
    when: dict[str, Condition] = Field(default_factory=dict, description="argument (dotted if nested): its condition")
    before: str | None = Field(
        None, description="applies until such a tool has given a result in the row, e.g. {deny: send, before: verify}"
    )
    after: str | None = Field(None, description='applies once such a tool was called, e.g. {deny: "*", after: close}')
    formula: str | None = Field(
        None, description="refuses calls that make it false: past-time logic of tools, e.g. H(submit -> O(verify))"
    )
    why: str = Field("", description="reason given to the model if the rule refuses a call")

    @field_validator("when", mode="before")
    @classmethod
    def _plain_values(cls, value: Any) -> Any:
        if is_dict(value):
            return {k: v if is_dict(v) else {"one_of": [v]} for k, v in value.items()}
        return value

    @model_validator(mode="after")
    def _one_verdict(self) -> Rule:
        if sum(v is not None for v in (self.allow, self.deny, self.ask, self.formula)) != 1:
            raise ValueError("a rule has exactly one of allow, deny, ask, formula, e.g. {deny: delete_*}")
        if self.formula is not None:
            if self.when or self.before is not None or self.after is not None:
                raise ValueError("a formula stands alone: it says itself when it applies")
            parse_formula(self.formula)
        return self

    @property
    def pattern(self) -> str:
        """The pattern of the tools that it is about; a formula is about all."""
        return self.allow or self.deny or self.ask or "*"

    @property
    def verdict(self) -> Verdict:
        return "allow" if self.allow is not None else "ask" if self.ask is not None else "deny"

    def applies(self, tool: str, arguments: Mapping[str, Any], earlier: Sequence[MadeCall] = ()) -> bool:
        """Return True if the rule is about a call. If that is in doubt, a rule that denies or asks applies, and one
        that allows does not. earlier: the calls of the row before it."""
        if not self.is_time(tool, earlier):
            return False
        if self.allow is not None:
            return all(_surely_met(condition, name, arguments) for name, condition in self.when.items())
        return all(_may_be_met(condition, name, arguments) for name, condition in self.when.items())

    def is_time(self, tool: str, earlier: Sequence[MadeCall]) -> bool:
        """Return True if the rule is about a call of a tool now, as far as its arguments allow."""
        if self.formula is not None:
            made = [call.tool for call in earlier if call.done is not False]
            return not parse_formula(self.formula)([*made, tool])
        if not fnmatchcase(tool, self.pattern):
            return False
        surely = self.allow is not None
        if self.before is not None and was_called(self.before, earlier, surely=not surely):
            return False
        return self.after is None or was_called(self.after, earlier, surely=surely)


class PolicySpec(Strict):
    """Rules in order: the first that applies decides; if none does, the default.

    Actions in an environment are calls, too: of a tool with the environment's name, with the arguments `action` (its
    text) and `verb` (its first word; in `sql`, everything that the statement would do), e.g.
    {deny: sql, when: {verb: {one_of: [delete, drop, update]}}}.
    """

    default: Verdict = Field(default="allow", description="for calls that no rule applies to")
    rules: list[Rule] = Field(default=[], description="rules in their order")
    inherited: list[Inherited] = Field(
        default=[], description="policies of files whose functions are used here: written by workbench"
    )

    @property
    def restricts(self) -> bool:
        """Return True if the policy can refuse any call."""
        return self.default != "allow" or bool(self.rules or self.inherited)

    def inherit(self, inherited: Sequence[Inherited]) -> PolicySpec:
        """This policy with those of files whose functions are used, none of them twice."""
        more = [i for n, i in enumerate(inherited) if i not in self.inherited and i not in inherited[:n]]
        return self.model_copy(update={"inherited": [*self.inherited, *more]}) if more else self

    def verdict(self, tool: str, arguments: Mapping[str, Any], earlier: Sequence[MadeCall] = ()) -> tuple[Verdict, str]:
        """(verdict, reason) on a call: by the rules, or by an inherited policy if that is stricter. A formula that it
        makes false denies it, whatever the rules say. earlier: the calls of the row before it."""
        broken = next((r for r in self.rules if r.formula is not None and r.is_time(tool, earlier)), None)
        if broken is not None:
            return "deny", broken.why or f"{broken.formula} must hold"
        rule = next((r for r in self.rules if r.formula is None and r.applies(tool, arguments, earlier)), None)
        own = (rule.verdict, rule.why) if rule is not None else (self.default, "")
        more = (i.policy.verdict(tool, arguments, earlier) for i in self.inherited if tool in i.tools)
        return strictest_verdict([own, *more])

    def permits(self, tool: str, earlier: Sequence[MadeCall]) -> bool:
        """Return True if a call of a tool may be made now, with some arguments."""
        now = [rule for rule in self.rules if rule.is_time(tool, earlier)]
        if any(rule.formula is not None for rule in now):
            return False
        deciding = next((rule for rule in now if not rule.when or rule.verdict == "allow"), None)
        own = self.default if deciding is None else deciding.verdict
        return own != "deny" and all(i.policy.permits(tool, earlier) for i in self.inherited if tool in i.tools)


class Inherited(Strict):
    """The policy of another file, which holds for the functions taken from it."""

    tools: list[str] = Field(description="names of these functions")
    policy: PolicySpec = Field(description="what their file says")


PolicySpec.model_rebuild()


def strictest_verdict(verdicts: Iterable[tuple[Verdict, str]]) -> tuple[Verdict, str]:
    """The verdict where several policies hold: deny before ask before allow; of equal ones the first."""
    return max(verdicts, key=lambda found: ("allow", "ask", "deny").index(found[0]))


def _surely_met(condition: Condition, name: str, arguments: Mapping[str, Any]) -> bool:
    values, sure = _arguments(arguments, name, doubtful=False)
    return sure and bool(values) and all(condition.surely_holds(value) for value in values)


def _may_be_met(condition: Condition, name: str, arguments: Mapping[str, Any]) -> bool:
    values, sure = _arguments(arguments, name, doubtful=True)
    return not sure or any(condition.may_hold(value) for value in values)


def _arguments(arguments: Mapping[str, Any], name: str, doubtful: bool) -> tuple[list[Any], bool]:
    """The arguments that a name may mean, and whether there can be no others.

    An argument of that name; for a dotted name also one inside an object, inside the objects of a list, and inside JSON
    written as text. There can be others where the name leads through something that is none of these, and, for a rule
    that allows, through anything but an object.
    """
    found, sure = ([arguments[name]] if name in arguments else []), True
    if "." not in name:
        return found, sure
    values: list[Any] = [dict(arguments)]
    for part in name.split("."):
        inner: list[Any] = []
        for value in values:
            parsed = from_json(value)
            objects, others = _objects(parsed)
            sure = sure and (parsed is None or is_dict(value) or (doubtful and not others))
            inner += [found[part] for found in objects if part in found]
        values = inner
    return [*found, *values], sure


def _objects(value: object) -> tuple[list[dict[str, Any]], bool]:
    """An object, or those in a list, however deep; and whether there is anything that is none."""
    if is_dict(value):
        return [value], False
    if not is_list(value):
        return [], True
    found = [_objects(from_json(item)) for item in value]
    return [inner for objects, _ in found for inner in objects], any(others for _, others in found)
