"""Checks of what is read from a run database: texts are JSON of the form that workbench writes, and checksums match.

A database may be a stranger's, or damaged. What cannot be what was written ends in a StoreError that names the place.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from workbench.base.type_guards import is_dict, is_list
from workbench.errors import StoreError

Check = Callable[[Any], bool]
T = TypeVar("T", dict[str, Any], list[Any])


def checksum(*parts: object) -> str:
    """24 hexadecimal digits that change with any part. Guards against damage, not against forgery."""
    text = "\0".join("" if part is None else str(part) for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def text_key(text: str) -> str:
    """The key of a large text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def check_sum(row: sqlite3.Row | dict[str, Any], place: str, *parts: object, column: str = "checksum") -> None:
    """Raise StoreError if the parts are not those of which the row's checksum was made. Rows that were written before
    there were checksums have none. place: names the table and the row."""
    if row[column] is not None and row[column] != checksum(*parts):
        raise StoreError(f"{place} is damaged: its content does not match its checksum; use a copy of the database")


def parse_json(text: str, place: str, kind: type[T]) -> T:
    """A stored text as the JSON that it must be. Raises StoreError, which names the place."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError, TypeError):
        value = None
    if not isinstance(value, kind):
        what = "an object" if kind is dict else "a list"
        raise StoreError(f"{place} is damaged: it is not JSON of {what}; use a copy of the database")
    return value


def check_tree(tree: dict[str, Any], place: str) -> dict[str, Any]:
    """A workflow's tree, if it has the form of one: nodes by name, each with a kind. Raises StoreError."""
    nodes = tree.get("nodes")
    if not is_dict(nodes) or not all(is_dict(n) and isinstance(n.get("kind"), str) for n in nodes.values()):
        raise StoreError(f"{place} is damaged: it is not a workflow; use a copy of the database")
    return tree


# Reports and options


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


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
#: The parts without which no look can say how a run ended.
_NEEDED = (
    *("best.workflow", "best.test.score", "baseline.test.score"),
    *("gain.diff", "gain.ci95", "gain.p", "spent.calls", "spent.usd"),
)
#: The parts of the report of an evaluation that are shown.
_EVAL_REPORT: Mapping[str, Check] = {
    "lines": _texts,
    "workflow": _text,
    "split": _text,
    "label": _text,
    "score": _number,
    "ci95": _pair,
    "n": _number,
    "of": _number,
    "scores": is_dict,
    "cost": is_dict,
    "spent": is_dict,
    "spent.calls": _number,
    "spent.usd": _number,
}
#: The parts of a diagnosis in the report of an attribution.
_FINDING: Mapping[str, Check] = {
    "row": _text,
    "candidate": _maybe(_text),
    "replica": _whole,
    "score": _maybe(_number),
    "node": _maybe(_text),
    "agent": _maybe(_text),
    "step": _maybe(_whole),
    "steps": _maybe(_whole),
    "confidence": _number,
    "repaired": lambda value: value is None or isinstance(value, bool),
    "reruns": _whole,
    "calls": _whole,
    "usd": _number,
    "evidence": _text,
    "failure": _text,
}
#: The parts of the report of an attribution that are shown.
_ATTRIBUTE_REPORT: Mapping[str, Check] = {
    "lines": _texts,
    "method": _text,
    "examined": _texts,
    "rows": lambda value: is_list(value) and all(is_dict(one) for one in value),
}
#: The options of a run that are read before it goes on.
_OPTIONS: Mapping[str, Check] = {
    "sets": _maybe(_settings),
    "outside": _maybe(_settings),
    "out": _maybe(_text),
    "sandbox": _maybe(_text),
    "split": _maybe(_text),
    "label": _maybe(_text),
    "inputs": lambda value: isinstance(value, list) and all(map(_text, value)),
    "repeats": lambda value: isinstance(value, int) and 0 < value < 10_000,
    "keep_unproved": lambda value: isinstance(value, bool),
    "referred": _maybe(_text),
    "chosen": _maybe(lambda value: isinstance(value, list) and all(map(_text, value))),
    "branched_from.run": _text,
    "branched_from.candidate": _text,
}


def read_report(row: Any) -> dict[str, Any] | None:
    """The report of a stored run; None if it has none. Raises StoreError if it is damaged."""
    if not row["report"]:
        return None
    place = f"the report of run {row['run']} (table runs)"
    check_sum(row, place, row["run"], row["report"])
    report = parse_json(row["report"], place, dict)
    if report.get("kind") == "eval":
        _check(report, _EVAL_REPORT, place, [*_EVAL_REPORT])
    elif report.get("kind") == "attribute":
        _check(report, _ATTRIBUTE_REPORT, place, [*_ATTRIBUTE_REPORT])
        for finding in report["rows"]:
            _check(finding, _FINDING, place, [*_FINDING])
    elif "kind" in report:  # of a plugin
        _check(report, {"lines": _texts}, place, ["lines"])
    else:
        _check(report, _REPORT, place, _NEEDED)
    return report


def read_spec(row: Any) -> str:
    """The workflow file that a stored run was started with, as text. Raises StoreError if it is damaged."""
    kept = (row["run"], row["name"], row["file"], row["spec"])
    check_sum(row, f"the workflow file of run {row['run']} (table runs)", *kept, column="spec_checksum")
    return row["spec"]


def read_options(row: Any) -> dict[str, Any]:
    """The options that a stored run was started with, `sets` as a list of (address, value). Raises StoreError."""
    place = f"the options of run {row['run']} (table runs)"
    options = parse_json(row["options"], place, dict)
    _check(options, _OPTIONS, place)
    outside = options.get("outside")
    return {
        "out": None,
        **options,
        "sets": [(address, value) for address, value in options.get("sets") or ()],
        "outside": None if outside is None else [(address, value) for address, value in outside],
    }


def _check(value: Mapping[str, Any], form: Mapping[str, Check], place: str, needed: Collection[str] = ()) -> None:
    """Raise StoreError if a part that is there has a wrong form, or one that is needed is not there: versions of
    workbench have written more or less of the others."""
    for address, check in form.items():
        part: Any = value
        for key in address.split("."):
            part = part.get(key, _Missing) if is_dict(part) else _Missing
        if (address in needed) if part is _Missing else not check(part):
            raise StoreError(f"{place} is damaged: {address} is not what workbench writes; use a copy of the database")


class _Missing:
    """Stands for a part that is not there."""
