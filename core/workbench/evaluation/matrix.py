"""Evaluations of one file with several settings: a cell for each combination of values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.base.type_guards import is_dict
from workbench.errors import BudgetSpent, SpecError, WorkbenchError, merge_errors
from workbench.evaluation.eval_report import EvalReport
from workbench.evaluation.eval_run import EvalOptions, evaluate
from workbench.lm import LMPool
from workbench.run import Listener, evaluated_lms, lms_not_ready, prepare, wrong_in_file
from workbench.spec import Source, apply_overrides, parse_value, read_source

#: A matrix with more cells than this is taken for a mistake.
MAX_CELLS = 200


@dataclass(frozen=True)
class Axis:
    """An address and its values, each with the text that represents it."""

    address: str
    values: Sequence[tuple[str, Any]]


def parse_axis(text: str) -> Axis:
    """Parse `lm=openai/a,openai/b` or `nodes.answer.instructions=@short.txt,@long.txt`: YAML values separated by
    commas; `@FILE` is the text of a file.

    Raises:
        SpecError: the text has another form, repeats a value, or names a missing file.
    """
    address, equals, rest = text.partition("=")
    if not equals or not address.strip() or not rest.strip():
        raise SpecError(f"'{text}' is not an axis", hint="Write ADDRESS=VALUE,VALUE, e.g. lm=openai/a,openai/b.")
    parts = _split(rest)
    if twice := [part for part in parts if parts.count(part) > 1]:
        hint = "Name each value once; --repeats runs each row several times."
        raise SpecError(f"'{text}' has the value '{twice[0]}' twice", hint=hint)
    return Axis(address.strip(), [(part, _value(part)) for part in parts])


def _split(text: str) -> list[str]:
    """Split a text at its commas, except those inside quotes or brackets."""
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if sign == "," and not depth and not quote:
            parts.append("")
            continue
        parts[-1] += sign
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        else:
            depth += (sign in "[{") - (sign in "]}")
    return [part.strip() for part in parts]


def _value(text: str) -> Any:
    if not text.startswith("@"):
        return parse_value(text)
    try:
        return Path(text[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        why = (error.strerror or error) if isinstance(error, OSError) else "it is not UTF-8"
        raise SpecError(
            f"the file {text[1:]} cannot be read: {why}", hint="@FILE is replaced by the text of FILE."
        ) from error


def evaluate_matrix(
    path: Path | Source,
    axes: Sequence[Axis],
    *,
    options: EvalOptions,
    database: str | Path,
    listener: Listener | None = None,
    pool: LMPool | None = None,
) -> list[EvalReport]:
    """Evaluate a file once for each combination of the axes' values, under one budget: a cell gets what earlier cells
    left. Stops at the first unfinished cell. Other arguments and errors are those of `evaluate`. Errors in the settings
    or models of any cell are raised before the first one begins."""
    cells = list(itertools.product(*(axis.values for axis in axes)))
    if len(cells) > MAX_CELLS:
        raise SpecError(f"a matrix of {len(cells)} cells", hint=f"Ask for at most {MAX_CELLS}.")
    source, chosen = read_source(path), list[EvalOptions]()
    for cell in cells:
        added = [one for a, (_, value) in zip(axes, cell, strict=True) for one in _settings(a.address, value, source)]
        label = ", ".join(f"{a.address}={_short(shown)}" for a, (shown, _) in zip(axes, cell, strict=True))
        chosen.append(replace(options, sets=[*options.sets, *added], label=label))
    _check_cells(source, chosen, pool or LMPool())
    reports: list[EvalReport] = []
    for one in chosen:
        left, spent = _left(apply_overrides(source, one.sets).value, reports)
        one = replace(one, sets=[*one.sets, *left])
        reports.append(evaluate(source, options=one, database=database, listener=listener, pool=pool, spent=spent))
        if not reports[-1].complete:
            break
    return reports


def _settings(address: str, value: Any, source: Source) -> list[tuple[str, Any]]:
    """Return the settings for one value. `lm` alone changes only what it names, either the model or `{model: ...,
    price: ...}`, and keeps the server and other settings of the file's model."""
    place = source.value.get("lm") if is_dict(source.value) else None
    if address != "lm" or not is_dict(place):
        return [(address, value)]
    return [(f"lm.{name}", one) for name, one in (value if is_dict(value) else {"model": value}).items()]


def _check_cells(file: Source, cells: Sequence[EvalOptions], pool: LMPool) -> None:
    """Raise, before anything is paid, the errors of any cell, including a missing key or price of its models."""
    found = list[WorkbenchError]()
    for cell in cells:
        _, source, task, _ = prepare(file, cell.sets)
        for error in lms_not_ready(evaluated_lms(task), pool, task.spec.budget.usd):
            found += [source.locate(error) if isinstance(error, SpecError) else error]
    if wrong := list({str(error): error for error in wrong_in_file(found)}.values()):
        raise merge_errors(wrong)
    if found:
        raise found[0]


def _left(file: Any, reports: Sequence[EvalReport]) -> tuple[list[tuple[str, Any]], BudgetSpent | None]:
    """Return the ceilings for the next cell, and the error of a ceiling that earlier cells have reached. file: with all
    settings from outside."""
    given = file.get("budget") if is_dict(file) else None
    budget = given if is_dict(given) else {}
    used = {
        "calls": sum(r.spent["calls"] for r in reports),
        "tokens": sum(r.spent["prompt_tokens"] + r.spent["completion_tokens"] for r in reports),
        "usd": sum(r.spent["usd"] for r in reports),
        "minutes": sum(r.spent["seconds"] for r in reports) / 60,
    }
    left, spent = list[tuple[str, Any]](), None
    for name in used if reports else ():
        ceiling = budget.get(name)
        if not isinstance(ceiling, int | float) or not used[name]:
            continue
        if ceiling > used[name]:
            left.append((f"budget.{name}", ceiling - used[name]))
        else:
            spent = BudgetSpent(name, ceiling, used[name])
    return left, spent


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
