"""The reader `agentif`: AGENTIF's file of instructions with constraints, as rows for the metric `checklist`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workbench.errors import SpecError
from workbench_readers.json_files import read_json


def read_agentif(location: str, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Read rows of `system`, `question` and `checks` (AGENTIF, Qi et al., arXiv 2505.16944: its `eval.json`).

    A constraint's steps become one check: `llm_conditional_check` becomes its `if`. `llm` becomes its `extract` if code
    follows, else its `ask`. `code` becomes its `code`. Raises SpecError.
    """
    return (_row(number, one, location) for number, one in enumerate(read_json(location, options)))


def _row(number: int, one: Mapping[str, Any], location: str) -> dict[str, Any]:
    try:
        said = {message["role"]: message["content"] for message in one["input"]}
        checks = [_check(constraint) for constraint in one["constraints"]]
    except (KeyError, TypeError) as error:
        hint = "Each entry has `input`, a list of messages, and `constraints`, each with `evaluation`."
        raise SpecError(f"entry {number} is not of AGENTIF's form: {error}", file=location, hint=hint) from None
    return {"system": said.get("system", ""), "question": said.get("user", ""), "checks": checks}


def _check(constraint: Mapping[str, Any]) -> dict[str, Any]:
    steps = {step["type"]: step["exec"] for step in constraint["evaluation"]}
    check = {"say": constraint["desc"]} if constraint.get("desc") else {}
    if "llm_conditional_check" in steps:
        check["if"] = {"ask": steps["llm_conditional_check"]}
    if "code" not in steps:
        return {**check, "ask": steps["llm"]}
    return {**check, **({"extract": steps["llm"]} if "llm" in steps else {}), "code": steps["code"]}
