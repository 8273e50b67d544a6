"""A workflow on each row of a file: `workbench predict`. A killed job continues where it was.

Two files beside the output hold what is done: `OUT.part`, the finished rows in their order, and `OUT.calls`, a run
database, from which calls of unfinished rows are answered. Both are removed at the end.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import SpecError
from workbench.files import check_writable, make_private
from workbench.hashing import digest
from workbench.inference.loaded import LoadedWorkflow, read_workflow
from workbench.inference.prediction import Prediction
from workbench.lm import LMPool
from workbench.runtime import Consent, SandboxChoice
from workbench.store import Store, add_run, find_started_run
from workbench.task import read_rows

FORMATS = (".jsonl", ".csv")
_STATUS = "predict"


@dataclass
class Predicted:
    """What `predict_file` did: rows in all, those that earlier processes finished, failures by kind, what it cost."""

    rows: int
    earlier: int = 0
    failures: Counter[str] = field(default_factory=Counter[str])
    tokens: int = 0
    usd: float = 0.0


def predict_file(
    path: Path,
    rows_file: str,
    out: Path,
    *,
    changes: Sequence[tuple[str, Any]] = (),
    options: Mapping[str, Any] | None = None,
    concurrency: int | None = None,
    sandbox: SandboxChoice | None = None,
    consent: Consent | None = None,
    pool: LMPool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Predicted:
    """Run a workflow on each row of a file, and write the rows with the fields that it wrote.

    Args:
        path: the workflow file.
        rows_file: .csv, .tsv, .jsonl, .json, .parquet, or READER:PLACE.
        out: .jsonl or .csv. Each row has its own fields, those of the workflow, and `failure`, which is null (in CSV
            empty) unless the row failed.
        changes: settings of the workflow file, by address.
        options: of the reader of rows.
        concurrency: rows at once; default: that of the workflow file.
        sandbox, consent, pool: as for `load`.
        progress: called with the number of rows that are done, and that of all.

    Raises:
        SpecError: a file cannot be used, or the unfinished output is of other rows or of another workflow.
    """
    if out.suffix not in FORMATS:
        raise SpecError(f"--out {out}: no format has the suffix '{out.suffix}'", hint="Write .jsonl or .csv.")
    check_writable(out)
    spec, source, workflow = read_workflow(path, changes)
    rows = read_rows(rows_file, Path.cwd(), options or {})
    fields = [spec.lm, *spec.roles.values(), spec.policy]
    job = digest([workflow.hash, [part.model_dump(mode="json") for part in fields], rows])
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f"{out.name}.part")
    found = _continue(part, job, Predicted(len(rows)))
    store = Store(calls := out.with_name(f"{out.name}.calls"))
    run = find_started_run(store, _STATUS, source.text, job)
    run_id = (
        run["id"] if run else add_run(store, run=_STATUS, name=spec.name, status=_STATUS, spec=source.text, options=job)
    )
    wf = LoadedWorkflow(spec, workflow, sandbox, consent, pool, (store, run_id), found.earlier)
    _predict(wf, rows, part, found, concurrency, progress)
    _finish(part, out, [*_names(rows), *(n for n in wf.outputs if n not in _names(rows)), "failure"])
    for name in (calls.name, f"{calls.name}-wal", f"{calls.name}-shm"):
        out.with_name(name).unlink(missing_ok=True)
    return found


def _predict(
    wf: LoadedWorkflow,
    rows: Sequence[Mapping[str, Any]],
    part: Path,
    found: Predicted,
    concurrency: int | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Append the rows that are left, and count them."""
    left = rows[found.earlier :]
    with closing(wf), part.open("a", encoding="utf-8") as file:
        for number, prediction in enumerate(wf.batch(left, concurrency=concurrency)):
            file.write(_line(left[number], prediction))
            file.flush()
            found.failures.update([prediction.failure] if prediction.failure else [])
            found.tokens += prediction.cost.tokens
            found.usd += prediction.cost.usd
            _ = progress and progress(found.earlier + number + 1, len(rows))


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields of all rows, in the order in which they are first met."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _line(row: Mapping[str, Any], prediction: Prediction) -> str:
    failure = f"{prediction.failure}: {prediction.message}" if prediction.failure else None
    return json.dumps({**row, **prediction.outputs, "failure": failure}, ensure_ascii=False, default=str) + "\n"


def _continue(part: Path, job: str, found: Predicted) -> Predicted:
    """Count what an earlier process finished, and cut off a line that it did not. Begins the file if there is none."""
    make_private(part)
    with part.open("r+b") as file:
        head = file.readline()
        if not head.endswith(b"\n"):  # new, or killed in its first line
            file.truncate(0)
            file.seek(0)
            file.write(json.dumps({"job": job}).encode() + b"\n")
            return found
        if json.loads(head) != {"job": job}:
            raise SpecError(
                f"{part} holds unfinished rows of another workflow, other settings or other rows",
                hint="Remove it, or name another --out.",
            )
        end = file.tell()
        for line in file:
            if not line.endswith(b"\n"):
                break
            end += len(line)
            found.earlier += 1
            if failure := json.loads(line)["failure"]:
                found.failures.update([failure.partition(":")[0]])
        file.truncate(end)
    return found


def _lines(part: Path) -> Iterator[str]:
    with part.open(encoding="utf-8") as file:
        next(file)
        yield from file


def _finish(part: Path, out: Path, names: Sequence[str]) -> None:
    """Make the output of the finished rows, whole or not at all."""
    ready = out.with_name(f"{out.name}.ready")
    ready.unlink(missing_ok=True)
    make_private(ready)
    with ready.open("w", encoding="utf-8", newline="") as file:
        if out.suffix == ".csv":
            writer = csv.DictWriter(file, list(dict.fromkeys(names)), restval="")
            writer.writeheader()
            for line in _lines(part):
                writer.writerow({name: _cell(value) for name, value in json.loads(line).items()})
        else:
            file.writelines(_lines(part))
    if out.exists():
        shutil.copymode(out, ready)
    os.replace(ready, out)
    part.unlink()


def _cell(value: Any) -> Any:
    """A value in CSV: what is no text or number is JSON. A text that a spreadsheet would run as a formula is quoted."""
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t", "\r")) and not _is_number(value) else value
    return value if isinstance(value, int | float) else json.dumps(value, ensure_ascii=False)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
