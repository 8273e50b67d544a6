"""A workflow on each row of a file: `workbench predict`. A killed job continues where it stopped.

It is a run of the run database: the same command finds it while some rows have no answer, its journal answers calls
already paid for, and the output is written whole.
"""

from __future__ import annotations

import asyncio
import csv
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from workbench.base.concurrency import run_in_loop
from workbench.base.files import check_output, open_whole
from workbench.base.hashing import digest
from workbench.base.text import begins_formula
from workbench.errors import FailureKind, SpecError, WorkbenchError, count_missing
from workbench.inference.loaded import AHEAD, check_limit, check_ready, predict_row, read_workflow
from workbench.inference.prediction import Prediction
from workbench.inference.rows_file import read_rows_file
from workbench.lm import LMPool
from workbench.runtime import Program, Run, SandboxChoice, no_ceiling
from workbench.spec import Source, Spec, read_source
from workbench.store import Store, dumps
from workbench.task import data_folder, data_path, file_readers, resolve_row
from workbench.workflow import Workflow

FORMATS = (".jsonl", ".csv")
#: Statuses of a run: some rows have no answer yet; all rows have an answer, or a failure that no retry would change.
WORKING, DONE = "predicting", "predicted"


@dataclass
class Predicted:
    """The result of `predict_file`.

    rows: all rows. earlier: rows that earlier processes answered. unanswered: rows that failed because of a server; the
    same command asks them again. failures: by kind. renamed: fields of the rows that the output has as `row_NAME`.
    tokens, usd: of answers that this process paid for. reused, reused_usd: calls paid for by earlier runs, and their
    original cost. unpriced: answers without a known price, by model. warnings: about the server's answers.
    """

    rows: int
    earlier: int = 0
    unanswered: int = 0
    failures: Counter[str] = field(default_factory=Counter[str])
    tokens: int = 0
    usd: float = 0.0
    reused: int = 0
    reused_usd: float = 0.0
    unpriced: dict[str, int] = field(default_factory=dict[str, int])
    renamed: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list[str])

    @property
    def missing(self) -> dict[str, int]:
        """Return the number of rows without a result, by kind of failure."""
        return count_missing(self.failures)


def predict_file(
    path: Path | Source,
    rows_file: str,
    out: Path,
    *,
    changes: Sequence[tuple[str, Any]] = (),
    concurrency: int | None = None,
    overwrite: bool = False,
    sandbox: SandboxChoice | None = None,
    pool: LMPool | None = None,
    progress: Callable[[int, int], None] | None = None,
    database: str | Path = "workbench.db",
) -> Predicted:
    """Run a workflow on each row of a file, and write the rows with the workflow's outputs.

    Args:
        path: the workflow file, or one already read.
        rows_file: .csv, .jsonl, .xlsx, ..., or READER:PLACE (see `read_rows_file`).
        out: .jsonl or .csv: the row's fields, the outputs, and `failure`; missing values are null, in CSV empty. A
            field of a row with the name of an output becomes `row_NAME`.
        changes: changed settings of the workflow file, as (address, value).
        concurrency: rows at once; default: that of the workflow file.
        overwrite: replace an existing `out`.
        sandbox, pool: as for `load`.
        progress: called with the number of finished rows and of all rows.
        database: path of the run database.

    Raises:
        SpecError: a file cannot be used, no row has an input, or `out` exists.
        LMError: the key of a model is missing, or no model answers.
        StoreError: another process does the same job.
        WorkbenchError: the disk is full or fails. Answers are kept.
    """
    _check_out(out, ((path := read_source(path)).file, data_path(rows_file, Path.cwd())))
    spec, source, workflow = read_workflow(path, changes)
    rows, asked = _read(rows_file, source, workflow)
    check_ready(spec, workflow, pool := pool or LMPool())
    job = digest([workflow.hash, _settings(spec), asked])
    found = Predicted(len(rows), renamed=_renamed(rows, [*workflow.output_fields, "failure"]))

    limit = check_limit(spec, concurrency)

    async def main() -> Predicted:
        with Store(database) as store:
            options = dumps({"job": job, "out": str(out.resolve())})
            stored = {"name": spec.name, "kind": "predict", "spec": source.text, "options": options}
            run = Run.found(store, (WORKING,), spec, stored, budget=no_ceiling(), pool=pool, sandbox=sandbox)
            async with run:
                if out.exists() and not overwrite and not run.resumed:
                    run.record.remove()
                    raise SpecError(f"{out} exists", hint="Name another file, or add --overwrite.")
                run.ledger.bill.forget_unanswered()
                before = run.ledger.journal.sum_calls()
                with _open_output(out) as file:
                    await _Job(run, workflow, rows, asked, found, progress).write(file, out.suffix, limit)
                _add_bill(found, run, before)
                if not found.unanswered:
                    run.record.end(DONE)
                return found

    return run_in_loop(main())


@contextmanager
def _open_output(out: Path) -> Generator[TextIO]:
    """Open a file that is written whole or not at all. Raises SpecError if that is impossible, as in /proc, and
    WorkbenchError if the disk is full."""
    begun = False
    try:
        with open_whole(out, errors="backslashreplace", newline="") as file:
            begun = True
            yield file
    except OSError as error:
        message = f"{out} cannot be written: {error.strerror}"
        if not begun:
            raise SpecError(f"--out {message}", hint="Name a file in a folder of yours.") from error
        again = "Answers are kept. Make room, then the same command continues."
        raise WorkbenchError(f"{message}. {again}") from error


class _Job:
    """The rows of a job, several at once, written in order."""

    def __init__(
        self,
        run: Run,
        workflow: Workflow,
        rows: Sequence[Mapping[str, Any]],
        asked: Sequence[Mapping[str, Any]],
        found: Predicted,
        progress: Callable[[int, int], None] | None,
    ):
        self.run, self.rows, self.asked, self.found, self.progress = run, rows, asked, found, progress
        self.inputs, self.outputs = tuple(workflow.input_fields), [*workflow.output_fields, "failure"]
        self.program, self.sent = Program(workflow, run.runtime), set[str]()
        run.ledger.on_call = lambda call: None if call.cached else self.sent.add(call.key)

    async def write(self, file: TextIO, suffix: str, limit: int) -> None:
        """Write all rows in the format of a suffix. limit: rows at once."""
        add = _writer(file, suffix.lower(), [*(_kept(name, self.outputs) for name in _names(self.rows)), *self.outputs])
        async for number, prediction in self._predictions(limit):
            add(_cells(self.rows[number], prediction, self.outputs))
            self._count(prediction)
            _ = self.progress and self.progress(number + 1, len(self.rows))

    async def _predictions(self, limit: int) -> AsyncIterator[tuple[int, Prediction]]:
        """Yield each row's number and prediction, in order. At most AHEAD times `limit` rows are begun but
        unwritten."""
        slots, waiting = asyncio.Semaphore(limit), deque[asyncio.Task[Prediction]]()

        async def one(number: int) -> Prediction:
            async with slots:
                return await predict_row(self.program, self.inputs, self.asked[number], number)

        done = 0
        try:
            for number in range(len(self.asked)):
                waiting.append(asyncio.create_task(one(number)))
                if len(waiting) >= AHEAD * limit:
                    yield done, await waiting.popleft()
                    done += 1
            while waiting:
                yield done, await waiting.popleft()
                done += 1
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def _count(self, prediction: Prediction) -> None:
        if prediction.failure:
            self.found.failures[prediction.failure] += 1
            self.found.unanswered += FailureKind(prediction.failure).infrastructure
        elif prediction.trace is not None:
            keys = {call.key for span in prediction.trace.spans for call in span.calls}
            self.found.earlier += self.run.resumed and bool(keys) and not keys & self.sent


def _writer(file: TextIO, suffix: str, columns: Sequence[str]) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that writes a row in the format of a suffix."""
    if suffix != ".csv":
        return lambda row: file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
    # Quote each text: some spreadsheets split cells at semicolons, too.
    writer = csv.DictWriter(file, columns, restval="", quoting=csv.QUOTE_NONNUMERIC)
    writer.writeheader()
    return lambda row: writer.writerow({name: _cell(value) for name, value in row.items()})


def _renamed(rows: Sequence[Mapping[str, Any]], outputs: Collection[str]) -> tuple[str, ...]:
    """Return the fields of the rows that have the name of an output."""
    return tuple(name for name in _names(rows) if name in outputs)


def _check_out(out: Path, inputs: Sequence[str | Path]) -> None:
    if out.suffix.lower() not in FORMATS:
        raise SpecError(f"--out {out}: no format has the suffix '{out.suffix}'", hint="Write .jsonl or .csv.")
    check_output(out, inputs=inputs, overwrite=True)  # a resumed job replaces its output


def _add_bill(found: Predicted, run: Run, before: tuple[int, int, int, float]) -> None:
    """Add the spending of this process. before: the journal's totals when it began."""
    _, prompt, completion, usd = (now - then for now, then in zip(run.ledger.journal.sum_calls(), before, strict=True))
    found.tokens, found.usd = int(prompt + completion), usd
    found.reused, found.reused_usd = run.ledger.reused.calls, run.ledger.reused.usd
    found.unpriced, found.warnings = dict(run.ledger.prices.unpriced), run.ledger.warnings()


def _settings(spec: Spec) -> list[Any]:
    return [part.model_dump(mode="json") for part in (spec.lm, *spec.roles.values(), spec.policy)]


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the fields of all rows, in order of first appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _read(
    rows_file: str, source: Source, workflow: Workflow
) -> tuple[Sequence[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return the rows as they are, and as inputs of the workflow. Raises SpecError if none has one of its inputs."""
    rows, asked = read_rows_file(rows_file, source.value.get("data"), workflow.input_fields)
    names = _names(asked)
    if asked and (missing := [name for name in workflow.input_fields if name not in names]):
        hint = f"The rows have {', '.join(names)}. If these are several fields in one, name the delimiter of the file."
        raise SpecError(f"no row of {rows_file} has the field '{missing[0]}', which the workflow reads", hint=hint)
    readers, folder = [*file_readers(workflow)], data_folder(rows_file, Path.cwd())
    return rows, [resolve_row(readers, row, folder)[0] for row in asked] if readers else asked


def _kept(name: str, outputs: Sequence[str]) -> str:
    """Return the name of a row's field in the output."""
    return f"row_{name}" if name in outputs else name


def _cells(row: Mapping[str, Any], prediction: Prediction, outputs: Sequence[str]) -> dict[str, Any]:
    """Return a row of the output. Outputs that the workflow did not write are null, even if the row has the field."""
    failure = f"{prediction.failure}: {prediction.message}" if prediction.failure else None
    kept = {_kept(name, outputs): value for name, value in row.items()}
    return {**kept, **dict.fromkeys(outputs), **prediction.outputs, "failure": failure}


def _cell(value: Any) -> Any:
    """Format a value for CSV: values other than texts and numbers as JSON. A text that a spreadsheet would run as a
    formula is quoted."""
    if value is None:
        return ""
    if isinstance(value, str):
        begins = value[:1] in ("\t", "\r") or begins_formula(value)
        return f"'{value}" if begins and not _is_number(value) else value
    return value if isinstance(value, int | float) else json.dumps(value, ensure_ascii=False)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
