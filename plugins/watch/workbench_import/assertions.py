"""The metric `assertions`: each row has conditions on its answer, in promptfoo's format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from workbench.base.type_guards import is_dict, is_list
from workbench.spec import Pattern, TooSlow
from workbench.task import Example, Score


def _texts(value: Any) -> list[str]:
    if is_list(value):
        return [str(v) for v in value]
    return [part.strip() for part in str(value).split(",")]


def _is_json(answer: str, value: Any) -> bool:
    try:
        json.loads(answer)
        return True
    except (ValueError, RecursionError):
        return False


def _equals(answer: str, value: Any) -> bool:
    if isinstance(value, str):
        return answer.strip() == value.strip()
    try:
        return json.loads(answer) == value
    except (ValueError, RecursionError):
        return answer.strip() == str(value)


CHECKS: dict[str, Callable[[str, Any], bool]] = {
    "equals": _equals,
    "contains": lambda answer, value: str(value) in answer,
    "icontains": lambda answer, value: str(value).lower() in answer.lower(),
    "contains-any": lambda answer, value: any(v in answer for v in _texts(value)),
    "contains-all": lambda answer, value: all(v in answer for v in _texts(value)),
    "icontains-any": lambda answer, value: any(v.lower() in answer.lower() for v in _texts(value)),
    "icontains-all": lambda answer, value: all(v.lower() in answer.lower() for v in _texts(value)),
    "starts-with": lambda answer, value: answer.startswith(str(value)),
    "regex": lambda answer, value: Pattern(str(value)).search(answer) is not None,
    "is-json": _is_json,
}


class Assertions:
    """1 if the answer meets all assertions of the row, else 0; the feedback names the failed ones.

    An assertion is {type, value}. Types: equals, contains, icontains, contains-any, contains-all, icontains-any,
    icontains-all, starts-with, regex, is-json, and each with the prefix `not-`.

    Args:
        field: the field of the prediction.
        asserts: the field of the row with the list.
    """

    def __init__(self, field: str, asserts: str = "asserts"):
        self.field, self.target = field, asserts

    def __call__(self, example: Example, prediction: Mapping[str, Any], trace: Any = None) -> Score:
        if self.field not in prediction:
            raise ValueError(f"the prediction has no field '{self.field}'; it has: {', '.join(prediction)}")
        given = prediction[self.field]
        answer = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
        failed = [told for a in example[self.target] if (told := _fault(answer, a))]
        return Score(float(not failed), f"failed: {'; '.join(failed)}" if failed else None)


def _fault(answer: str, assertion: Any) -> str | None:
    """Explain how an answer fails an assertion. A pattern that takes too long fails, also one with `not-`."""
    try:
        return None if meets(answer, assertion) else f"{assertion['type']}: {assertion.get('value', '')!s:.100}"
    except TooSlow as error:
        return f"{assertion['type']}: {error}"


def meets(answer: str, assertion: Any) -> bool:
    """Return True if an answer meets an assertion. Raises ValueError if it is invalid, TooSlow for its pattern."""
    if not is_dict(assertion) or str(assertion.get("type", "")).removeprefix("not-") not in CHECKS:
        raise ValueError(f"{assertion!s:.100} is not an assertion; types: {', '.join(CHECKS)}")
    kind = str(assertion["type"])
    return CHECKS[kind.removeprefix("not-")](answer, assertion.get("value")) != kind.startswith("not-")
