"""Policy of tool calls in a workflow: allow, deny or ask, with conditions on arguments.

Source: Progent (arXiv 2504.11703): rules over tool names and arguments, enforced outside the model. The policy is part
of the workflow file, like the budget. No patch can change it, so it also holds during an optimization.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol

from pydantic import Field, field_validator, model_validator

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import PluginError
from workbench.plugins import plugins
from workbench.spec.base import Strict
from workbench.spec.patterns import Pattern, TooSlow, check_pattern

Verdict = Literal["allow", "deny", "ask"]


def read_conditions(value: Any) -> Any:
    """Read conditions by name, in which a plain value stands for itself, for pydantic."""
    return {k: v if is_dict(v) else {"one_of": [v]} for k, v in value.items()} if is_dict(value) else value


class Condition(Strict):
    """A condition on an argument or field. All given parts must hold. A missing one never meets a condition."""

    one_of: list[Any] | None = Field(None, description="any of these values; `{NAME: value}` names one")
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
        """Return True if a value certainly meets the condition, as a rule that allows requires."""
        if self.one_of is not None and not any(_surely_equal(value, one) for one in self.one_of):
            return False
        if self.matches is not None and not (isinstance(value, str) and _surely_matches(self.matches, value)):
            return False
        if (self.min is not None or self.max is not None) and not self.in_bounds(value):
            return False
        return self.max_length is None or bool(self.short_enough(value))

    def in_bounds(self, value: Any) -> bool | None:
        """Return True if a number is within min and max; None for a value that is not a number."""
        # Not math.isfinite, which overflows for a long integer.
        if not isinstance(value, int | float) or isinstance(value, bool) or not -math.inf < value < math.inf:
            return None
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)

    def short_enough(self, value: Any) -> bool | None:
        """Return True if a text or list is within max_length; None for other values."""
        if not isinstance(value, str) and not is_list(value):
            return None
        return self.max_length is None or len(value) <= self.max_length


def _surely_equal(value: Any, wanted: Any) -> bool:
    """Return True if both are of one kind, and equal. A boolean is not a number."""
    alike = type(value) is type(wanted) or {type(value), type(wanted)} <= {int, float}
    return alike and bool(value == wanted)


def _surely_matches(pattern: str, text: str) -> bool:
    try:
        return bool(Pattern(pattern).fullmatch(text))
    except TooSlow:
        return False


@dataclass(slots=True)
class MadeCall:
    """A tool call that was allowed earlier in the row. done: True if it gave a result; None: not known yet."""

    tool: str
    done: bool | None = None


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

    _plain_values = field_validator("when", mode="before")(read_conditions)

    @model_validator(mode="after")
    def _one_verdict(self) -> Rule:
        if sum(v is not None for v in (self.allow, self.deny, self.ask, self.formula)) != 1:
            raise ValueError("a rule has exactly one of allow, deny, ask, formula, e.g. {deny: delete_*}")
        if self.formula is not None and (self.when or self.before is not None or self.after is not None):
            raise ValueError("a formula stands alone: it says itself when it applies")
        try:
            self.named()
        except ValueError:
            raise
        except Exception as error:  # also a plugin's bug
            raise ValueError(f"nothing here decides a rule with `{self._plugin_key()}`: {error}") from None
        return self

    def _plugin_key(self) -> str | None:
        """Return the key for which a plugin decides the rule; None if core decides it."""
        given = {"formula": self.formula, "before": self.before, "after": self.after}
        timed = next((key for key, value in given.items() if value is not None), None)
        return timed or ("when" if self.when and self.allow is None else None)

    @property
    def needs_reader(self) -> bool:
        """Return True if a plugin decides the rule."""
        return self._plugin_key() is not None

    @property
    def pattern(self) -> str:
        """Return the pattern of the tools that the rule applies to. A formula applies to all."""
        return self.allow or self.deny or self.ask or "*"

    @property
    def verdict(self) -> Verdict:
        return "allow" if self.allow is not None else "ask" if self.ask is not None else "deny"

    def applies(self, tool: str, arguments: Mapping[str, Any], earlier: Sequence[MadeCall] = ()) -> bool:
        """Return True if the rule applies to a call. In doubt, a rule that denies or asks applies, and a rule that
        allows does not. earlier: the row's calls before it."""
        if not self.is_time(tool, earlier):
            return False
        if self.allow is not None:
            return all(surely_met(condition, name, arguments) for name, condition in self.when.items())
        return not self.when or _rule_reader().may_be_met(self, arguments)

    def is_time(self, tool: str, earlier: Sequence[MadeCall]) -> bool:
        """Return True if the rule applies to a call of a tool now, before its arguments are considered."""
        if self.formula is None and not fnmatchcase(tool, self.pattern):
            return False
        return self._plugin_key() is None or _rule_reader().is_time(self, tool, earlier)

    def named(self) -> list[str]:
        """Return the patterns of the tools that it names. Raises PluginError without a reader, ValueError if wrong."""
        return [self.pattern] if self._plugin_key() is None else _rule_reader().named(self)

    def impossible(self) -> list[tuple[str, str]]:
        """Return (argument, reason) for each condition that is never met, as far as an installed plugin can tell."""
        try:
            return _rule_reader().impossible(self) if self.when else []
        except PluginError:
            return []


class RuleReader(Protocol):
    """A plugin that decides rules on earlier calls, and conditions of rules that deny or ask.

    named: returns the patterns of the tools that a rule names. The ValueError for a wrong rule says what is wrong.
    is_time: returns True if, after the earlier calls, a rule may apply to a call of a tool now.
    may_be_met: returns True if arguments may meet all conditions of a rule, also in doubt.
    impossible: returns (argument, reason) for each condition that can never be met.
    """

    def named(self, rule: Rule) -> list[str]: ...
    def is_time(self, rule: Rule, tool: str, earlier: Sequence[MadeCall]) -> bool: ...
    def may_be_met(self, rule: Rule, arguments: Mapping[str, Any]) -> bool: ...
    def impossible(self, rule: Rule) -> list[tuple[str, str]]: ...


#: The name under which a plugin registers its RuleReader.
_READER = "policy"


def readers_of(policy: PolicySpec) -> set[str]:
    """Return the names of the rule readers that a policy requires."""
    own = {_READER for rule in policy.rules if rule.needs_reader}
    return own.union(*(readers_of(inherited.policy) for inherited in policy.inherited))


def _rule_reader() -> RuleReader:
    """Return the reader of a plugin. Raises PluginError without one, so that no rule is skipped."""
    return plugins().get("policies", _READER)


class PolicySpec(Strict):
    """Rules in order. The first that applies decides; if none does, the default.

    Actions in an environment are calls, too, of a tool with the environment's name and the arguments `action` (its
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
        """Return this policy combined with those of files whose functions are used, without duplicates."""
        more = [i for n, i in enumerate(inherited) if i not in self.inherited and i not in inherited[:n]]
        return self.model_copy(update={"inherited": [*self.inherited, *more]}) if more else self

    def verdict(self, tool: str, arguments: Mapping[str, Any], earlier: Sequence[MadeCall] = ()) -> tuple[Verdict, str]:
        """Return (verdict, reason) for a call: by the rules, or by an inherited policy if that is stricter. A formula
        that the call would make false denies it, whatever the rules say. earlier: the row's calls before it."""
        broken = next((r for r in self.rules if r.formula is not None and r.is_time(tool, earlier)), None)
        if broken is not None:
            return "deny", broken.why or f"{broken.formula} must hold"
        rule = next((r for r in self.rules if r.formula is None and r.applies(tool, arguments, earlier)), None)
        own = (rule.verdict, rule.why) if rule is not None else (self.default, "")
        more = (i.policy.verdict(tool, arguments, earlier) for i in self.inherited if tool in i.tools)
        return strictest_verdict([own, *more])

    def permits(self, tool: str, earlier: Sequence[MadeCall]) -> bool:
        """Return True if a call of a tool with some arguments is permitted now."""
        now = [rule for rule in self.rules if rule.is_time(tool, earlier)]
        if any(rule.formula is not None for rule in now):
            return False
        deciding = next((rule for rule in now if not rule.when or rule.verdict == "allow"), None)
        own = self.default if deciding is None else deciding.verdict
        return own != "deny" and all(i.policy.permits(tool, earlier) for i in self.inherited if tool in i.tools)


class Inherited(Strict):
    """The policy of another file, which applies to the functions taken from it."""

    tools: list[str] = Field(description="names of these functions")
    policy: PolicySpec = Field(description="what their file says")


PolicySpec.model_rebuild()


def strictest_verdict(verdicts: Iterable[tuple[Verdict, str]]) -> tuple[Verdict, str]:
    """Return the verdict of several policies: deny before ask before allow; of equal ones the first."""
    return max(verdicts, key=lambda found: ("allow", "ask", "deny").index(found[0]))


def surely_met(condition: Condition, name: str, arguments: Mapping[str, Any]) -> bool:
    """Return True if the argument of that name certainly meets a condition. For a dotted name, the value inside objects
    must meet it, too. A name that leads through anything but objects is in doubt."""
    values = [arguments[name]] if name in arguments else []
    if "." in name:
        inner: list[Any] = [dict(arguments)]
        for part in name.split("."):
            if not all(value is None or is_dict(value) for value in inner):
                return False
            inner = [value[part] for value in inner if value is not None and part in value]
        values += inner
    return bool(values) and all(condition.surely_holds(value) for value in values)
