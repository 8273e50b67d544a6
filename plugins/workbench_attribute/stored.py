"""Logs from the stored rows of our own runs.

Each run of a node is a step. Where an agent made several calls, each answer and each result of a tool is a step of its
own, in the order of the prompts, which the journal has.

Sealed rows: of a test split, and of an evaluation of all rows, nothing is taken but what the workflow itself reads and
says. There is no right answer in such a log, and no feedback, which may quote it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workbench.errors import PluginError, SpecError, StoreError, suggest
from workbench.evaluation import read_rows
from workbench.lm import content_text
from workbench.run import candidate_workflow, read_stored_source, row_inputs
from workbench.store import Journal, Store, kind_of, read_report
from workbench.text import short
from workbench.user_code import without_user_code
from workbench.workflow import Workflow
from workbench_attribute.log import Log, Step, StoredRow

#: Splits whose right answers are not read.
SEALED = ("test", "all")


def load_stored_logs(store: Store, run: str, rows: Sequence[str] = (), split: str | None = None) -> list[Log]:
    """The logs of a run's rows, in their stored order.

    Args:
        store: the run database.
        run: name of a run of `eval` or `optimize`, or a beginning of it, a tag, or `last`.
        rows: ids, or beginnings of ids; none: the rows that score below 1.
        split: of these rows; None: val, or the one that an evaluation was on.

    Raises:
        StoreError: there is no such run or row, or it is damaged.
        SpecError: the run stores no steps of such rows, or failed none.
    """
    with_steps, taken = scored_rows(store, run, split, rows)
    row = store.find_run(run)
    failed = with_steps if rows else [r for r in with_steps if r["score"] is None or r["score"] < 1]
    if not failed:
        raise SpecError(
            f"run {row['run']} failed none of its {len(with_steps)} {taken} rows",
            hint="Name a row with --row ID to examine it anyway, or another run.",
        )
    if any(r["fields"] is None for r in failed):  # `optimize` stores no rows: what the workflow reads of them is known
        known = row_inputs(store, row)
        failed = [{**r, "fields": r["fields"] or known.get(r["example"])} for r in failed]
    journal, inputs = Journal(store, row["id"]), _input_fields(store, row)
    return [_log(one, journal, inputs, sealed=taken in SEALED) for one in failed]


def scored_rows(
    store: Store, run: str, split: str | None = None, rows: Sequence[str] = ()
) -> tuple[list[Mapping[str, Any]], str]:
    """The stored rows of a run that have steps, and their split. Takes and raises what `load_stored_logs` does, but for
    rows that all pass."""
    row = store.find_run(run)
    report = read_report(row)
    found = read_rows(store, row, report)
    splits = sorted({r["split"] for r in found})
    taken: str = split or (splits[0] if kind_of(row) == "eval" and len(splits) == 1 else "val")
    chosen: list[Mapping[str, Any]] = [r for r in found if r["split"] == taken]
    chosen = _named(rows, chosen, row["run"], taken) if rows and chosen else chosen
    with_steps = [r for r in chosen if r["spans"]]
    if not with_steps:
        raise _no_steps(row, taken, [s for s in splits if any(r["spans"] for r in found if r["split"] == s)])
    return with_steps, taken


def _named(names: Sequence[str], found: Sequence[Mapping[str, Any]], run: str, split: str) -> list[Mapping[str, Any]]:
    chosen: list[Mapping[str, Any]] = []
    for name in names:
        fit = [r for r in found if r["example"] == name] or [r for r in found if r["example"].startswith(name)]
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
            "workbench attribute last."
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
    truth = _lines(labels)
    if truth and row["feedback"]:
        truth += f"\nscore {row['score']}: {row['feedback']}"
    failed = ": ".join(part for part in (row["failure"], row["message"]) if part)
    outcome = [_lines(row["prediction"] or {}), f"failed with {failed}" if failed else ""]
    replica = f" (repeat {row['replica'] + 1})" if row["replica"] else ""
    return Log(
        f"{row['example']}{replica}",
        tuple(read_steps(row["spans"], journal)) or (Step("workflow", "no node ran", error=failed or None),),
        _lines(asked),
        truth or None,
        "\n".join(part for part in outcome if part),
        sealed=sealed,
        row=StoredRow(row["example"], row["replica"], row["candidate"], row["score"]),
    )


def _lines(fields: Mapping[str, Any]) -> str:
    return "\n".join(f"{k}: {v if isinstance(v, str) else short(v, 4000)}" for k, v in fields.items())


# Spans as steps


def read_steps(spans: Sequence[Mapping[str, Any]], journal: Journal) -> Iterator[Step]:
    """The steps of stored spans. A node with others inside comes after these: its outputs are made of theirs."""
    place = 0
    while place < len(spans):
        inside = place + 1
        while inside < len(spans) and str(spans[inside]["node"]).startswith(f"{spans[place]['node']}."):
            inside += 1
        yield from read_steps(spans[place + 1 : inside], journal)
        yield from _span_steps(spans[place], journal)
        place = inside


def _span_steps(span: Mapping[str, Any], journal: Journal) -> Iterator[Step]:
    node = str(span["node"])
    agent = str(span.get("agent") or node)
    outputs = Step(agent, _lines(span.get("outputs") or {}), error=span.get("error"), node=node)
    calls = span.get("calls") or []
    tools = (span.get("notes") or {}).get("tools") or []
    if len(calls) < 2 and not tools:
        said = str(calls[0]["text"]) if calls and not outputs.content else ""
        yield outputs if outputs.content or not said else Step(agent, said, error=outputs.error, node=node)
        return
    before: Sequence[Mapping[str, Any]] = ()
    results: list[str] = []
    for number, call in enumerate(calls):
        prompt = _prompt(call, journal)
        # A prompt that goes on from the one before it holds what came in between; others are calls of their own.
        if number and len(prompt) > len(before) and list(prompt[: len(before)]) == list(before):
            told = [content_text(m.get("content")) for m in prompt[len(before) :] if m.get("role") != "assistant"]
            yield from (Step(agent, text, "result", node=node) for text in told)
            results += told
        before = prompt
        yield Step(agent, str(call["text"]) or "(a call of a tool)", "answer", node=node)
    for tool in tools:  # those that no later prompt holds
        if not any(text.startswith(str(tool.get("result"))) for text in results):
            text = f"{tool.get('name')}({short(tool.get('arguments'), 500)}) gave {tool.get('result')}"
            yield Step(agent, text, "result", node=node)
    if outputs.content or outputs.error:
        yield Step(agent, outputs.content, "outputs", outputs.error, node)


def _prompt(call: Mapping[str, Any], journal: Journal) -> Sequence[Mapping[str, Any]]:
    stored = journal.read_call(str(call["key"])) if "key" in call else None
    return stored["request"]["messages"] if stored else ()
