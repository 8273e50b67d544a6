"""A workflow on each row of a file: `workbench predict`. A killed job continues where it was.

Two files beside the output hold what is done: `OUT.part`, the finished rows in their order, and `OUT.calls`, a run
database, from which calls of unfinished rows are answered. Both are removed once each row has an answer, or a failure
that another try would not mend.

One file: one job, from its rows to its output.
"""

from __future__ import annotations

import csv
import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.base.files import check_output, make_private, open_whole
from workbench.base.hashing import digest
from workbench.base.text import begins_formula
from workbench.errors import FailureKind, SpecError, WorkbenchError, count_missing
from workbench.inference.loaded import LoadedWorkflow, check_ready, read_workflow
from workbench.inference.prediction import Prediction
from workbench.inference.rows_file import read_rows_file
from workbench.lm import LMPool
from workbench.runtime import SandboxChoice
from workbench.spec import Source, Spec, read_source
from workbench.store import Journal, Store, add_run, find_or_add_run, new_run_name
from workbench.task import data_folder, data_path, file_readers, resolve_row
from workbench.workflow import Workflow

FORMATS = (".jsonl", ".csv")
_STATUS = "predict"


@dataclass
class Predicted:
    """The result of `predict_file`.

    rows: in all. earlier: those that earlier processes answered. unanswered: those that failed for want of a server,
    which the same call asks again. failures: by kind. renamed: fields of the rows that the output has as `row_NAME`.
    tokens, usd: of answers that this process paid for. reused, reused_usd: calls that earlier runs had paid for, and
    what they had cost. unpriced: answers without a known price, by model. warnings: on the server's answers.
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
        """The number of rows without a result, by the kind of failure."""
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
    """Run a workflow on each row of a file, and write the rows with the fields that it wrote.

    Args:
        path: the workflow file, or one read before.
        rows_file: .csv, .jsonl, .xlsx, ..., or READER:PLACE, read as `read_rows_file` says.
        out: .jsonl or .csv: the row's fields, the outputs, and `failure`; what has no value is null, in CSV empty. A
            field of a row with the name of an output is kept as `row_NAME`.
        changes: settings of the workflow file, by address.
        concurrency: rows at once; default: that of the workflow file.
        overwrite: whether `out` may be replaced.
        sandbox, pool: as for `load`.
        progress: called with the number of rows that are done, and that of all.
        database: used only with `cache: true`, to take answers from and to record them in.

    Raises:
        SpecError: a file cannot be used, no row has an input, another process writes to `out`, or the unfinished output
            is of other rows or of another workflow.
        LMError: the key of a model is missing.
        WorkbenchError: the disk is full or fails. The finished rows are kept.
    """
    _check_out(out, ((path := read_source(path)).file, data_path(rows_file, Path.cwd())))
    spec, source, workflow = read_workflow(path, changes)
    rows, asked = _read(rows_file, source, workflow)
    job, outputs = digest([workflow.hash, _settings(spec), asked]), [*workflow.output_fields, "failure"]
    check_ready(spec, workflow, pool := pool or LMPool())
    with closing(_open_part(out, job, overwrite)) as part:
        found = Predicted(len(rows), part.earlier, failures=part.failures, renamed=_renamed(rows, outputs))
        store, run_id = _open_journal(out, spec, source, job, database)
        before = _sum_paid(store, run_id)
        with LoadedWorkflow(spec, workflow, sandbox, None, pool, (store, run_id), part.done) as wf:
            answers = wf.batch(asked[part.done :], concurrency=concurrency)
            for row, prediction in zip(rows[part.done :], answers, strict=True):
                part.add(_cells(row, prediction, outputs))
                _count(found, prediction)
                _ = progress and progress(part.done, len(rows))
            _add_bill(found, wf, before, _sum_paid(store, run_id))
        part.write(out, [*(_kept(name, outputs) for name in _names(rows)), *outputs])
        if not found.unanswered:
            _remove_records(out)
    return found


def _renamed(rows: Sequence[Mapping[str, Any]], outputs: Collection[str]) -> tuple[str, ...]:
    """The fields of the rows that have the name of an output."""
    return tuple(name for name in _names(rows) if name in outputs)


def _check_out(out: Path, inputs: Sequence[str | Path]) -> None:
    if out.suffix.lower() not in FORMATS:
        raise SpecError(f"--out {out}: no format has the suffix '{out.suffix}'", hint="Write .jsonl or .csv.")
    check_output(out, inputs=inputs, overwrite=True)  # unfinished output is looked at before (`_Part`)


def _remove_records(out: Path) -> None:
    for end in (".part", ".calls", ".calls-wal", ".calls-shm"):
        out.with_name(f"{out.name}{end}").unlink(missing_ok=True)


def _open_journal(out: Path, spec: Spec, source: Source, job: str, database: str | Path) -> tuple[Store, int]:
    """The record of calls of this job, without those that got no answer: they are asked again. With a cache it is a
    run of the run database, which stays: a job that continues takes the answers of the earlier process from there."""
    if spec.cache:
        store = Store(database)
        name = new_run_name()
        return store, add_run(store, run=name, name=spec.name, status=_STATUS, spec=source.text, options="{}")
    store = Store(out.with_name(f"{out.name}.calls"))
    run_id, _, _ = find_or_add_run(store, (_STATUS,), name=spec.name, spec=source.text, options=job)
    Journal(store, run_id).delete_unanswered_calls()
    return store, run_id


def _sum_paid(store: Store, run_id: int) -> tuple[int, float]:
    """(tokens, dollars) of the answers that all processes of this job paid for."""
    _, prompt_tokens, completion_tokens, usd = Journal(store, run_id).sum_calls()
    return prompt_tokens + completion_tokens, usd


def _add_bill(found: Predicted, wf: LoadedWorkflow, before: tuple[int, float], after: tuple[int, float]) -> None:
    found.tokens, found.usd = after[0] - before[0], after[1] - before[1]
    found.reused, found.reused_usd, found.unpriced = wf.reused.calls, wf.reused.usd, wf.unpriced
    found.warnings = wf.warnings


def _settings(spec: Spec) -> list[Any]:
    return [part.model_dump(mode="json") for part in (spec.lm, *spec.roles.values(), spec.policy)]


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields of all rows, in the order in which they are first met."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _read(
    rows_file: str, source: Source, workflow: Workflow
) -> tuple[Sequence[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """The rows as they are, and as the workflow is called with them. Raises SpecError if none has one of its inputs."""
    rows, asked = read_rows_file(rows_file, source.value.get("data"), workflow.input_fields)
    names = _names(asked)
    if asked and (lacking := [name for name in workflow.input_fields if name not in names]):
        hint = f"The rows have {', '.join(names)}. If these are several fields in one, name the delimiter of the file."
        raise SpecError(f"no row of {rows_file} has the field '{lacking[0]}', which the workflow reads", hint=hint)
    readers, folder = [*file_readers(workflow)], data_folder(rows_file, Path.cwd())
    return rows, [resolve_row(readers, row, folder)[0] for row in asked] if readers else asked


def _kept(name: str, outputs: Sequence[str]) -> str:
    """The name of a field of the rows in the output."""
    return f"row_{name}" if name in outputs else name


def _cells(row: Mapping[str, Any], prediction: Prediction, outputs: Sequence[str]) -> dict[str, Any]:
    """A row of the output. What the workflow did not write is null, also where the row has a field of that name."""
    failure = f"{prediction.failure}: {prediction.message}" if prediction.failure else None
    kept = {_kept(name, outputs): value for name, value in row.items()}
    return {**kept, **dict.fromkeys(outputs), **prediction.outputs, "failure": failure}


def _count(found: Predicted, prediction: Prediction) -> None:
    if prediction.failure:
        found.failures[prediction.failure] += 1
        found.unanswered += FailureKind(prediction.failure).infrastructure


def _open_part(out: Path, job: str, overwrite: bool) -> _Part:
    """Raises SpecError where nothing can be written, as in /proc."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        return _Part(out, job, overwrite)
    except OSError as error:
        message = f"--out {out} cannot be written: {error.strerror}"
        raise SpecError(message, hint="Name a file in a folder of yours.") from error


@contextmanager
def _writing(path: Path) -> Generator[None]:
    """Turns an error of the disk into one that names the file. Raises WorkbenchError."""
    try:
        yield
    except OSError as error:
        raise WorkbenchError(
            f"{path} cannot be written: {error.strerror}. Finished rows are kept. Make room, then the same command "
            "continues."
        ) from error


class _Part:
    """`OUT.part`: a first line that names the job, then the finished rows in their order. One process writes it.

    What an earlier process finished is kept up to the first row that failed for want of a server: it and those behind
    it are done again, from the record of calls where they were answered. earlier: the number of rows that were.
    """

    def __init__(self, out: Path, job: str, overwrite: bool):
        self.path, self.done, self.earlier, self.failures = out.with_name(f"{out.name}.part"), 0, 0, Counter[str]()
        if out.exists() and not overwrite and not self.path.exists():
            raise SpecError(f"{out} exists", hint="Name another file, or add --overwrite.")
        make_private(self.path)
        self.file = self.path.open("r+b")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self.path.exists() or not os.path.samestat(os.fstat(self.file.fileno()), self.path.stat()):
                raise BlockingIOError  # another process has just ended with it
            self._continue(job)
        except BlockingIOError:
            self.file.close()
            raise SpecError(f"another process is writing {out}", hint="Wait for it, or name another --out.") from None
        except BaseException:
            self.file.close()
            raise

    def _continue(self, job: str) -> None:
        head = self.file.readline()
        if not head.endswith(b"\n"):  # new, or killed in its first line
            self.file.truncate(0)
            self.file.seek(0)
            self.file.write(json.dumps({"job": job}).encode() + b"\n")
            self.file.flush()
            return
        if json.loads(head) != {"job": job}:
            raise SpecError(
                f"{self.path} contains unfinished rows of another workflow, other settings or other rows",
                hint="Remove it, or name another --out.",
            )
        end, whole = self.file.tell(), True
        for line in self.file:
            if not line.endswith(b"\n"):
                break
            kind = (json.loads(line)["failure"] or "").partition(":")[0]
            unanswered = FailureKind(kind).infrastructure if kind else False
            self.earlier += not unanswered
            if whole := whole and not unanswered:
                self.failures += Counter([kind] if kind else ())
                end += len(line)
                self.done += 1
        self.file.truncate(end)
        self.file.seek(end)

    def add(self, row: Mapping[str, Any]) -> None:
        with _writing(self.path):
            self.file.write(json.dumps(row, default=str).encode() + b"\n")
            self.file.flush()
        self.done += 1

    def close(self) -> None:
        with suppress(OSError):  # of a row that could not be written, and was told
            self.file.close()

    def write(self, out: Path, names: Sequence[str]) -> None:
        """Make the output of the finished rows, whole or not at all."""
        with _writing(out), open_whole(out, errors="backslashreplace", newline="") as file:
            if out.suffix.lower() == ".csv":
                # Quotes around each text: some spreadsheets begin cells at semicolons, too.
                writer = csv.DictWriter(file, names, restval="", quoting=csv.QUOTE_NONNUMERIC)
                writer.writeheader()
                writer.writerows({name: _cell(value) for name, value in row.items()} for row in self._rows())
            else:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        with self.path.open("rb") as file:
            next(file)
            yield from map(json.loads, file)


def _cell(value: Any) -> Any:
    """A value in CSV: what is no text or number is JSON. A text that a spreadsheet would run as a formula is quoted."""
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
