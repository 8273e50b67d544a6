"""Logs from the stored rows of our own runs.

Each run of a node is a step. Where an agent made several calls, each answer and each result of a tool is a step of its
own, in the order of the prompts, which the journal has.

Sealed rows: of a test split, and of an evaluation of all rows, nothing is taken but what the workflow itself reads and
says. There is no right answer in such a log, and no feedback or error of the metric, which may quote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.errors import PluginError, SpecError, StoreError, suggest
from workbench.evaluation import read_rows
from workbench.kit.logs.agent_log import Log, LogSource, LogStep, PromptOf, field_lines, read_steps
from workbench.lm import locate_lms
from workbench.run import candidate_workflow, read_stored_source, row_inputs
from workbench.spec import LMSpec, check_nodes, without_user_code
from workbench.store import Journal, Store, kind_of, read_report
from workbench.study import METRIC_SAID
from workbench.workflow import Workflow

#: Splits whose right answers are not read.
SEALED = ("test", "all")


def load_stored_logs(store: Store, run: str, rows: Sequence[str] = (), split: str | None = None) -> list[Log]:
    """The logs of a run's rows, in their stored order. Takes and raises what RunLogs and its `logs` do."""
    return RunLogs(store, run, split).logs(rows)


def scored_rows(store: Store, run: str, split: str | None = None) -> tuple[list[Mapping[str, Any]], str]:
    """The stored rows of a run that have steps, and their split. Takes and raises what RunLogs does."""
    found = RunLogs(store, run, split)
    return found.scored(), found.split


class RunLogs:
    """The rows of a run, read once, and their logs.

    Args:
        store: the run database.
        run: name of a run of `eval` or `optimize`, or a beginning of it, a tag, or `last`.
        split: of its rows; None: val, or the one that an evaluation was on.

    Raises:
        StoreError: there is no such run, or it is damaged.
    """

    def __init__(self, store: Store, run: str, split: str | None = None):
        self._store, self._run = store, store.find_run(run)
        found = read_rows(store, self._run, read_report(self._run))
        splits = sorted({r["split"] for r in found})
        self.split: str = split or (splits[0] if kind_of(self._run) == "eval" and len(splits) == 1 else "val")
        self._rows: list[Mapping[str, Any]] = [r for r in found if r["split"] == self.split]
        self._splits_with_steps = [s for s in splits if any(r["spans"] for r in found if r["split"] == s)]

    def scored(self, names: Sequence[str] = ()) -> list[Mapping[str, Any]]:
        """The rows that have steps. Takes and raises what `logs` does, but for rows that all pass."""
        named = names and self._rows
        chosen = _named(names, self._rows, self._run["run"], self.split) if named else self._rows
        with_steps = [r for r in chosen if r["spans"]]
        if not with_steps:
            raise _no_steps(self._run, self.split, self._splits_with_steps)
        return with_steps

    def logs(self, names: Sequence[str] = ()) -> list[Log]:
        """The logs of rows, in their stored order.

        names: ids, or ends or beginnings of ids; none: the rows that score below 1.

        Raises:
            StoreError: there is no such row.
            SpecError: the run stores no steps of such rows, or failed none.
        """
        found = self.scored(names)
        failed = found if names else [r for r in found if r["score"] is None or r["score"] < 1]
        if not failed:
            raise SpecError(
                f"run {self._run['run']} failed none of its {len(found)} {self.split} rows",
                hint="Name a row with --row ID to examine it anyway, or another run.",
            )
        if any(r["fields"] is None for r in failed):
            failed = [{**r, "fields": r["fields"] or self._known.get(r["example"])} for r in failed]
        journal = Journal(self._store, self._run["id"])
        return [_log(one, journal, self._inputs, sealed=self.split in SEALED) for one in failed]

    @cached_property
    def _known(self) -> Mapping[str, Any]:
        """By row, what the workflow reads of it: `optimize` stores no rows."""
        return row_inputs(self._store, self._run)

    @cached_property
    def _inputs(self) -> tuple[str, ...]:
        return _input_fields(self._store, self._run)


def model_of_run(store: Store, run: str) -> LMSpec | None:
    """The model of the role `proposer` in the file of a run, else its `lm`. Runs no code of the file."""
    row = store.find_run(run)
    _, folder, started = read_stored_source(row)
    with without_user_code("names"):
        spec = locate_lms(check_nodes(started), Path(folder))
    return spec.roles.get("proposer", spec.lm)


def _named(names: Sequence[str], found: Sequence[Mapping[str, Any]], run: str, split: str) -> list[Mapping[str, Any]]:
    chosen: list[Mapping[str, Any]] = []
    for name in names:
        ends = (f":{name}", f"/{name}")
        fit = (
            [r for r in found if r["example"] == name]
            or [r for r in found if r["example"].endswith(ends)]
            or [r for r in found if r["example"].startswith(name)]
        )
        if len({r["example"] for r in fit}) != 1:
            ids = list(dict.fromkeys(r["example"] for r in found))
            near = suggest(name, ids) if len(ids) <= 20 else f"It has {len(ids)} rows."
            raise StoreError(f"run {run} has {'several rows' if fit else 'no row'} '{name}' of {split}. {near}")
        chosen += fit
    return chosen


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


def _input_fields(store: Store, row: Any) -> tuple[str, ...]:
    """The fields of a row that the workflow reads. Runs no code of the file."""
    base = candidate_workflow(store, row["id"], None)
    if base is None:
        return ()
    try:
        _, folder, _ = read_stored_source(row)
        with without_user_code("names"):
            return tuple(Workflow(base.tree, folder).input_fields)
    except (SpecError, PluginError):
        return ()


def _log(row: Mapping[str, Any], journal: Journal, inputs: Sequence[str], *, sealed: bool) -> Log:
    fields = row["fields"] or {}
    asked = {name: fields[name] for name in inputs if name in fields}
    # Where it is not known what the workflow reads, nothing of the row is shown: the right answer may be among it.
    labels = {} if sealed or not inputs else {k: v for k, v in fields.items() if k not in inputs and k != "id"}
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
        tuple(read_steps(row["spans"], _prompts_of(journal)))
        or (LogStep("workflow", "no node ran", error=failed or None),),
        field_lines(asked),
        truth or None,
        "\n".join(part for part in outcome if part),
        sealed=sealed,
        row=LogSource(row["example"], row["replica"], row["candidate"], row["score"]),
    )


def _prompts_of(journal: Journal) -> PromptOf:
    def prompt_of(call: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        stored = journal.read_call(str(call["key"])) if "key" in call else None
        return stored["request"]["messages"] if stored else ()

    return prompt_of
