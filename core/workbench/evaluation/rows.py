"""The stored rows of a run: failed rows, and all details of a row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from workbench.errors import StoreError
from workbench.run import candidates, read_input_names, row_inputs, winner_of
from workbench.store import (
    Candidates,
    Evaluations,
    Journal,
    RunRecord,
    Store,
    kind_of,
    list_attributions,
    parse_json,
    read_report,
    typed,
)
from workbench.task import find_row


def failed_rows(store: Store, row: Any, report: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """List the rows of a run that score below 1, worst first, with their inputs if known: for an evaluation, all scored
    rows; for `optimize`, the test rows of its winner, or its val rows if none was tested."""
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
    """Read the stored results of a candidate (default: the winner, or the evaluated workflow), with JSON columns
    parsed. Raises StoreError for damaged rows.

    split, examples: read only these. parsed: the columns to parse as JSON, `cost` among them; others stay text.
    """
    if candidate is None:
        candidate = winner_of(report)
    found = Evaluations(store, row["id"]).read_rows(candidate, split=split, examples=examples)
    handles = RunRecord(store, row["id"]).read_handles() if found else {}
    for one in found:
        one["handle"] = handles.get(one["example"], one["example"])
        place = f"the row {one['example']} of run {row['run']} (table results)"
        for name, form in _JSON.items():
            if parsed is None or name in parsed:
                one[name] = None if one[name] is None else parse_json(one[name], place, form)
        score, costs = one["score"], [one["cost"].get(name, 0) for name in COSTS] if one["cost"] else []
        if (score is not None and not 0 <= score <= 1) or not all(isinstance(n, int | float) for n in costs):
            raise StoreError(f"{place} is damaged: its score or cost cannot be; use a copy of the database")
    return found


def find_candidate(store: Store, row: Any, report: Mapping[str, Any] | None, asked: str) -> str | None:
    """Return the hash of a candidate by its hash or a prefix, `baseline` or `winner` (also ""); for an evaluation, the
    evaluated workflow. None if there is none yet. Raises StoreError for an unknown candidate."""
    known = [c["hash"] for c in candidates(store, row["id"])]
    if asked in ("", "winner"):
        killed = report is None and kind_of(row) == "eval"  # then its workflow is the candidate that was added last
        return known[-1] if killed and known else winner_of(report)
    if asked == "baseline":
        return Candidates(store, row["id"]).find_baseline()
    found = [hash_ for hash_ in known if hash_.startswith(asked)]
    if len(found) != 1:
        what, run = "several candidates" if found else "no candidate", row["run"]
        raise StoreError(f"run {run} has {what} '{asked}'; see: {typed(f'workbench show {run}', store.path)}")
    return found[0]


#: The parts of a row's cost.
COSTS = ("tokens", "calls", "usd", "seconds")
_JSON: Mapping[str, type[Any]] = {"prediction": dict, "spans": list, "fields": dict, "scores": dict, "cost": dict}


def row_details(
    store: Store, row: Any, report: Mapping[str, Any] | None, example: str, candidate: str | None = None
) -> list[dict[str, Any]]:
    """Return everything stored for one row: each scored result, with the prompts as sent, and under `diagnoses` the
    findings of `workbench agent attribute`.

    example: a handle or an id of the row (`workbench.task.find_row`). Raises StoreError if no row, or several rows,
    match.
    """
    found = read_rows(store, row, report, candidate)
    chosen = find_row(example, {r["example"]: r["handle"] for r in found}, f"run {row['run']}")
    return add_details(store, row, [r for r in found if r["example"] == chosen])


def add_details(
    store: Store, row: Any, results: Sequence[dict[str, Any]], inputs: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return results of `read_rows` with the additions of `add_texts`, and `diagnoses`."""
    for one in add_texts(store, row, results, inputs):
        one["diagnoses"] = find_diagnoses(store, row["run"], one["example"], one["candidate"], one["replica"])
    return [*results]


def add_texts(
    store: Store, row: Any, results: Sequence[dict[str, Any]], inputs: Mapping[str, Any] | None = None
) -> Sequence[dict[str, Any]]:
    """Return results of `read_rows` with `inputs`, the fields that the workflow reads; `further`, the other fields of
    an evaluation's row, including the label; and the prompts in their spans.

    inputs: the inputs of the run's rows by id, if already read.
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
    """Return the diagnoses of one result, the oldest first: each a RowFinding as a dict, with `run` and `method` of the
    attribution that made it. Raises StoreError for a damaged report."""
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
    """Read n calls of a run with their texts, in no particular order. roles: read only these."""
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
    """Describe a diagnosis in one line: the step that `workbench agent attribute` found, and its method."""
    by = f"diagnosed by run {found['run']} ({found['method']})"
    if found["failure"]:
        return f"{by}: nothing, {found['failure']}"
    if found["step"] is None:
        return f"{by}: no step; {found['evidence']}"
    node, agent, alone = found["node"], found["agent"], found["repaired"]
    place = (node or agent or "-") if node is None or agent in (None, node) else f"{node} ({agent})"
    repaired = "" if alone is None else f", {'repaired' if alone else 'not repaired'} by it alone"
    return f"{by}: {place}, step {found['step']}, confidence {found['confidence']:.2f}{repaired}; {found['evidence']}"
