"""The stored rows of a run: which failed, and all that is known of one of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from workbench.errors import StoreError, suggest
from workbench.run import candidates, read_input_names, row_inputs, winner_of
from workbench.store import Candidates, Evaluations, Journal, Store, kind_of, list_attributions, read_report


def failed_rows(store: Store, row: Any, report: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The rows of a run that score below 1, worst first, with their inputs where these are known: of an evaluation,
    those that it scored; of `optimize`, the test rows of its winner, or those of val where none was tested."""
    found = read_rows(store, row, report)
    if kind_of(row) != "eval":
        found = [r for r in found if r["split"] == "test"] or [r for r in found if r["split"] == "val"]
    wrong = [r for r in found if r["score"] is None or r["score"] < 1]
    _add_inputs(store, row, wrong)
    return sorted(wrong, key=lambda r: -1.0 if r["score"] is None else r["score"])


def read_rows(
    store: Store,
    row: Any,
    report: Mapping[str, Any] | None,
    candidate: str | None = None,
    *,
    split: str | None = None,
    examples: Collection[str] | None = None,
    parsed: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """The stored results of a candidate (default: the winner, or the workflow that was evaluated), with what is JSON
    read. Raises StoreError for what is damaged.

    split, examples: only of these. parsed: the parts that are read as JSON, `cost` among them; the others stay text.
    """
    if candidate is None:
        candidate = winner_of(report)
    found = Evaluations(store, row["id"]).read_rows(candidate, split=split, examples=examples)
    for one in found:
        place = f"the row {one['example']} of run {row['run']} (table results)"
        for name, form in _JSON.items():
            if parsed is None or name in parsed:
                one[name] = _parsed(one[name], form, place)
        score, costs = one["score"], [one["cost"].get(name, 0) for name in COSTS] if one["cost"] else []
        if (score is not None and not 0 <= score <= 1) or not all(isinstance(n, int | float) for n in costs):
            raise StoreError(f"{place} is damaged: its score or cost cannot be; use a copy of the database")
    return found


def find_candidate(store: Store, row: Any, report: Mapping[str, Any] | None, asked: str) -> str | None:
    """The hash of a candidate by its hash or the beginning of it, `baseline` or `winner` (also ""): of an evaluation
    the workflow that was evaluated. None if there is none yet. Raises StoreError for one that is not there."""
    known = [c["hash"] for c in candidates(store, row["id"])]
    if asked in ("", "winner"):
        killed = report is None and kind_of(row) == "eval"  # its workflow is the candidate that was added last
        return known[-1] if killed and known else winner_of(report)
    if asked == "baseline":
        return Candidates(store, row["id"]).find_baseline()
    found = [hash_ for hash_ in known if hash_.startswith(asked)]
    if len(found) != 1:
        what = "several candidates" if found else "no candidate"
        raise StoreError(f"run {row['run']} has {what} '{asked}'; see workbench show {row['run']}")
    return found[0]


#: The parts of a row's cost.
COSTS = ("tokens", "calls", "usd", "seconds")
_JSON: Mapping[str, type] = {"prediction": dict, "spans": list, "fields": dict, "scores": dict, "cost": dict}


def _parsed(text: str | None, form: type, place: str) -> Any:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, form):
        raise StoreError(f"{place} is damaged; use a copy of the database")
    return value


def row_details(
    store: Store, row: Any, report: Mapping[str, Any] | None, example: str, candidate: str | None = None
) -> list[dict[str, Any]]:
    """All that is stored of one row: each time that it was scored, with the prompts as they were sent, and under
    `diagnoses` what runs of `workbench agent attribute` found of it.

    example: the id of the row, its beginning, or its end, as in `test:17`. Raises StoreError if there is none, or
    several rows begin with it.
    """
    found = read_rows(store, row, report, candidate)
    chosen = [r for r in found if r["example"] == example] or [
        r for r in found if r["example"].endswith((f":{example}", f"/{example}"))
    ]
    ids = list(dict.fromkeys(r["example"] for r in found))
    begin = [one for one in ids if one.startswith(example)]
    if not chosen and len(begin) == 1:
        chosen = [r for r in found if r["example"] == begin[0]]
    if not chosen:
        near = f" {suggest(example, ids)}" if len(ids) <= 20 else ""
        raise StoreError(
            f"run {row['run']} has no result of a row '{example}'"
            f"{f', and {len(begin)} rows begin with it' if begin else ''}.{near} "
            f"It has {len(ids)} rows{f', e.g. {ids[0]}' if ids else ''}"
        )
    return add_details(store, row, chosen)


def add_details(
    store: Store, row: Any, results: Sequence[dict[str, Any]], inputs: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Results of `read_rows` with what else is known of them: that of `add_texts`, and `diagnoses`."""
    for one in add_texts(store, row, results, inputs):
        one["diagnoses"] = find_diagnoses(store, row["run"], one["example"], one["candidate"], one["replica"])
    return [*results]


def add_texts(
    store: Store, row: Any, results: Sequence[dict[str, Any]], inputs: Mapping[str, Any] | None = None
) -> Sequence[dict[str, Any]]:
    """Results of `read_rows` with `inputs`, which the workflow reads; `further`, the other fields of a row of an
    evaluation, the label among them; and the prompts in their spans.

    inputs: those of the run's rows by id, if they have been read before.
    """
    _add_inputs(store, row, results, inputs)
    journal = Journal(store, row["id"])
    for one in results:
        _add_prompts(one["spans"] or (), journal)
    return results


def _add_inputs(
    store: Store, row: Any, results: Sequence[dict[str, Any]], inputs: Mapping[str, Any] | None = None
) -> None:
    whole = [one for one in results if one["fields"] is not None]
    names = read_input_names(row) if whole else []
    if inputs is None:
        inputs = row_inputs(store, row) if len(whole) < len(results) else {}
    for one in results:
        fields = one["fields"]
        one["inputs"] = inputs.get(one["example"]) if fields is None else {n: fields[n] for n in names if n in fields}
        one["further"] = {n: value for n, value in (fields or {}).items() if n not in names and n != "id"}


def find_diagnoses(store: Store, run: str, example: str, candidate: str, replica: int) -> list[dict[str, Any]]:
    """The diagnoses of one result of a run, the oldest first: each a RowFinding as a dict, with `run` and `method` of
    the attribution that made it. Raises StoreError for a report that is damaged."""
    found: list[dict[str, Any]] = []
    for row in list_attributions(store):
        report: Mapping[str, Any] = read_report(row) or {}
        if report.get("kind") != "attribute" or run not in report["examined"]:
            continue
        made = {"run": row["run"], "method": report["method"]}
        key = (example, candidate, replica)
        found += [{**made, **one} for one in report["rows"] if (one["row"], one["candidate"], one["replica"]) == key]
    return found


def _add_prompts(spans: Sequence[Mapping[str, Any]], journal: Journal) -> None:
    for span in spans:
        for call in span.get("calls", ()):
            stored = journal.read_call(str(call["key"])) if "key" in call else None
            call["messages"] = stored["request"]["messages"] if stored else []


def read_calls(store: Store, run_id: int, n: int, roles: Collection[str] = ()) -> list[dict[str, Any]]:
    """n calls of a run with their texts, in no particular order; roles: only of these."""
    return [
        {
            "key": call["key"],
            "role": call["role"],
            "outcome": call["outcome"],
            "messages": call["request"]["messages"],
            "answer": call["response"]["text"] if call["response"] else call["message"],
        }
        for call in Journal(store, run_id).read_calls(n, roles)
    ]


def describe_diagnosis(found: Mapping[str, Any]) -> str:
    """Describe one of `diagnoses` in a line: the step of a row that `workbench agent attribute` found, and how."""
    by = f"diagnosed by run {found['run']} ({found['method']})"
    if found["failure"]:
        return f"{by}: nothing, {found['failure']}"
    if found["step"] is None:
        return f"{by}: no step; {found['evidence']}"
    node, agent, alone = found["node"], found["agent"], found["repaired"]
    place = (node or agent or "-") if node is None or agent in (None, node) else f"{node} ({agent})"
    repaired = "" if alone is None else f", {'repaired' if alone else 'not repaired'} by it alone"
    return f"{by}: {place}, step {found['step']}, confidence {found['confidence']:.2f}{repaired}; {found['evidence']}"
