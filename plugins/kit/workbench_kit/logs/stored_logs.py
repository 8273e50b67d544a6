"""Logs from the stored rows of our own runs.

Each run of a node is a step. If an agent made several calls, each answer and each tool result is a separate step, in
the order of the prompts in the journal.

Sealed rows are those of a test split, and of an evaluation of all rows. Their logs contain only the workflow's own
inputs and outputs: no right answer, and no feedback or error of the metric, which may quote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import SpecError
from workbench.evaluation import add_texts, read_rows
from workbench.lm import locate_lms
from workbench.run import read_stored_source
from workbench.spec import LMSpec, check_nodes
from workbench.store import Store, kind_of, read_report
from workbench.study import METRIC_SAID
from workbench.task import find_row
from workbench_kit.logs.agent_log import Log, LogSource, LogStep, field_lines, read_steps

#: Splits whose right answers are not read.
SEALED = ("test", "all")


def load_stored_logs(store: Store, run: str, rows: Sequence[str] = (), split: str | None = None) -> list[Log]:
    """Return the logs of a run's rows, in their stored order. Takes and raises the same as RunLogs and its `logs`."""
    return RunLogs(store, run, split).logs(rows)


def scored_rows(store: Store, run: str, split: str | None = None) -> tuple[list[dict[str, Any]], str]:
    """Return the stored rows of a run that have steps, and their split. Takes and raises the same as RunLogs."""
    found = RunLogs(store, run, split)
    return found.scored(), found.split


class RunLogs:
    """The rows of a run, read once, and their logs.

    Args:
        store: the run database.
        run: name of a run of `eval` or `optimize`, or its first letters, a tag, or `last`.
        split: of its rows; None: val, or the split of an evaluation.

    Raises:
        StoreError: there is no such run, or it is damaged.
    """

    def __init__(self, store: Store, run: str, split: str | None = None):
        self._store, self._run = store, store.find_run(run)
        found = read_rows(store, self._run, read_report(self._run))
        splits = sorted({r["split"] for r in found})
        self.split: str = split or (splits[0] if kind_of(self._run) == "eval" and len(splits) == 1 else "val")
        self._rows: list[dict[str, Any]] = [r for r in found if r["split"] == self.split]
        self._splits_with_steps = [s for s in splits if any(r["spans"] for r in found if r["split"] == s)]

    def scored(self, names: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Return the rows that have steps. Takes and raises the same as `logs`, but allows that all rows pass."""
        named = names and self._rows
        chosen = _named(names, self._rows, self._run["run"], self.split) if named else self._rows
        with_steps = [r for r in chosen if r["spans"]]
        if not with_steps:
            raise _no_steps(self._run, self.split, self._splits_with_steps)
        return with_steps

    def logs(self, names: Sequence[str] = ()) -> list[Log]:
        """Return the logs of rows, in their stored order.

        names: ids, or ends or beginnings of ids; none: the rows that score below 1.

        Raises:
            StoreError: there is no such row.
            SpecError: the run stored no steps of such rows, or none failed.
        """
        found = self.scored(names)
        failed = found if names else [r for r in found if r["score"] is None or r["score"] < 1]
        if not failed:
            raise SpecError(
                f"run {self._run['run']} failed none of its {len(found)} {self.split} rows",
                hint="Name a row with --row ID to examine it anyway, or another run.",
            )
        return [_log(one, sealed=self.split in SEALED) for one in add_texts(self._store, self._run, failed)]


def model_of_run(store: Store, run: str) -> LMSpec | None:
    """Return the model of the role `proposer` in the file of a run, else its `lm`. Runs no code of the file."""
    row = store.find_run(run)
    _, folder, started = read_stored_source(row)
    spec = locate_lms(check_nodes(started), Path(folder))
    return spec.roles.get("proposer", spec.lm)


def _named(names: Sequence[str], found: Sequence[dict[str, Any]], run: str, split: str) -> list[dict[str, Any]]:
    handles = {r["example"]: r["handle"] for r in found}
    asked = [find_row(name, handles, f"{split} of run {run}") for name in names]
    return [r for name in asked for r in found if r["example"] == name]


def _no_steps(row: Any, split: str, others: Sequence[str]) -> SpecError:
    kind, run = kind_of(row), row["run"]
    ways = [f"--split {other}" for other in others]
    hint = f"It has those of {', '.join(others)}: add {' or '.join(ways)}. " if others else ""
    if kind == "optimize":
        hint += (
            f"For val rows: workbench export {run} --out winner.yaml, workbench eval winner.yaml, and "
            "workbench agent attribute last."
        )
    else:
        hint = hint or "Score the rows first: workbench eval FILE."
    return SpecError(f"run {run} ({kind}) stores no steps of {split} rows", hint=hint.strip())


def _log(row: Mapping[str, Any], *, sealed: bool) -> Log:
    asked = row["inputs"] or {}
    # If the workflow's inputs are unknown, nothing of the row is shown: it may contain the right answer.
    labels = {} if sealed or not asked else row["further"]
    truth = field_lines(labels)
    if truth and row["feedback"]:
        truth += f"\nscore {row['score']}: {row['feedback']}"
    message = row["message"] or ""
    said = "" if sealed and message.startswith(METRIC_SAID) else message
    failed = ": ".join(part for part in (row["failure"], said) if part)
    outcome = [field_lines(row["prediction"] or {}), f"failed with {failed}" if failed else ""]
    replica = f" (repeat {row['replica'] + 1})" if row["replica"] else ""
    return Log(
        f"{row['example']}{replica}",
        tuple(read_steps(row["spans"], lambda call: call["messages"]))
        or (LogStep("workflow", "no node ran", error=failed or None),),
        field_lines(asked),
        truth or None,
        "\n".join(part for part in outcome if part),
        sealed=sealed,
        row=LogSource(row["example"], row["replica"], row["candidate"], row["score"], f"{row['handle']}{replica}"),
    )
