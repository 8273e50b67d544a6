"""Which tool calls a workflow may make: allow, deny or ask, with conditions on arguments.

Source: Progent (arXiv 2504.11703): rules over tool names and arguments, enforced outside the model. The policy stands in
the workflow file beside the budget: no patch reaches it, so it also holds while a workflow is optimized.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from workbench.strict import Strict

Verdict = Literal["allow", "deny", "ask"]


class Condition(Strict):
    """What an argument must be; all that is given must hold. An argument that is not there meets no condition."""

    equals: Any = None
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

    def holds(self, value: Any) -> bool:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        return (
            ("equals" not in self.model_fields_set or value == self.equals)
            and (self.one_of is None or value in self.one_of)
            and (self.matches is None or (isinstance(value, str) and re.fullmatch(self.matches, value) is not None))
            and (self.min is None or number >= self.min)
            and (self.max is None or number <= self.max)
            and (self.max_length is None or (isinstance(value, str | list) and len(value) <= self.max_length))
        )


class Rule(Strict):
    """One of allow, deny and ask, with the tool's name (`*` and `?` stand for any characters), and when it counts."""

    allow: str | None = None
    deny: str | None = None
    ask: str | None = None
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
        pattern = self.allow or self.deny or self.ask or ""
        return fnmatchcase(tool, pattern) and all(
            there and condition.holds(value)
            for name, condition in self.when.items()
            for there, value in [_argument(arguments, name)]
        )


class PolicySpec(Strict):
    """Rules in order: the first that counts decides; where none does, the default."""

    default: Verdict = Field(default="allow", description="for calls that no rule is about")
    rules: list[Rule] = Field(default_factory=list)

    def verdict(self, tool: str, arguments: Mapping[str, Any]) -> tuple[Verdict, str]:
        """(verdict, why) on a call."""
        for rule in self.rules:
            if rule.counts(tool, arguments):
                return rule.verdict, rule.why
        return self.default, ""


def _argument(arguments: Mapping[str, Any], name: str) -> tuple[bool, Any]:
    """(whether it is there, its value); a dotted name reaches into an argument that is an object."""
    value: Any = arguments
    for part in [name] if name in arguments else name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False, None
        value = value[part]
    return True, value
