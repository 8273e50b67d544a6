"""The report and the options of a stored run, in the form that workbench writes them. Any other is a StoreError."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workbench.errors import StoreError
from workbench.store import check_sum, parse_json
from workbench.type_guards import is_dict, is_list

Check = Callable[[Any], bool]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return is_list(value) and all(map(_text, value))


def _pair(value: Any) -> bool:
    return is_list(value) and len(value) == 2 and all(map(_number, value))


def _settings(value: Any) -> bool:
    return is_list(value) and all(is_list(pair) and len(pair) == 2 and _text(pair[0]) for pair in value)


#: The parts of a report that are shown, by address.
_REPORT: Mapping[str, Check] = {
    "lines": _maybe(_texts),
    "gain": _maybe(is_dict),
    "gain.diff": _number,
    "gain.p": _number,
    "gain.shown": lambda value: isinstance(value, bool),
    "gain.ci95": _pair,
    "baseline": is_dict,
    "baseline.test": is_dict,
    "baseline.test.score": _maybe(_number),
    "best": is_dict,
    "best.workflow": _text,
    "best.test": is_dict,
    "best.test.score": _maybe(_number),
    "spent": is_dict,
    "spent.calls": _number,
    "spent.usd": _number,
}
#: The options of a run that are read before it goes on.
_OPTIONS: Mapping[str, Check] = {
    "sets": _maybe(_settings),
    "outside": _maybe(_settings),
    "of": _maybe(_text),
    "out": _maybe(_text),
    "sandbox": _maybe(_text),
    "keep_unproved": lambda value: isinstance(value, bool),
    "referred": _maybe(_text),
}


def read_report(row: Any) -> dict[str, Any] | None:
    """The report of a stored run; None if it has none. Raises StoreError if it is damaged."""
    if not row["report"]:
        return None
    place = f"the report of run {row['run']} (table runs)"
    check_sum(_stored_sum(row), place, row["run"], row["report"])
    report = parse_json(row["report"], place, dict)
    _check(report, _REPORT, place)
    return report


def read_options(row: Any) -> dict[str, Any]:
    """The options that a stored run was started with, `sets` as a list of (address, value). Raises StoreError."""
    place = f"the options of run {row['run']} (table runs)"
    options = parse_json(row["options"], place, dict)
    _check(options, _OPTIONS, place)
    outside = options.get("outside")
    return {
        "out": None,
        "of": None,
        **options,
        "sets": [(address, value) for address, value in options.get("sets") or ()],
        "outside": None if outside is None else [(address, value) for address, value in outside],
    }


def _stored_sum(row: Any) -> str | None:
    return row["checksum"] if "checksum" in row.keys() else None  # noqa: SIM118  # of a sqlite3.Row


def _check(value: Mapping[str, Any], form: Mapping[str, Check], place: str) -> None:
    """Raise StoreError if a part that is there has a wrong form: versions of workbench have written more or less."""
    for address, check in form.items():
        part: Any = value
        for key in address.split("."):
            part = part.get(key, _Missing) if is_dict(part) else _Missing
        if part is not _Missing and not check(part):
            raise StoreError(f"{place} is damaged: {address} is not what workbench writes; use a copy of the database")


class _Missing:
    """Stands for a part that is not there."""
