"""The report of an evaluation as one file: a page, Markdown, JSON, or a table of its rows with the answers."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.base.text import visible, visible_json
from workbench.errors import StoreError
from workbench.evaluation import EvalReport, add_details, read_rows, stored_report
from workbench.run import status_of
from workbench.store import Store, read_report
from workbench_view.exports import names_beside, names_in, place_of, plain, plain_cell, table_cell, table_writer
from workbench_view.page import environment, format_score, format_seconds, format_usd, read_style

#: Maximum rows of a page, and of Markdown, worst first. The CSV has all.
PAGE, ROWS = 1000, 50


@dataclass(frozen=True)
class EvalFacts:
    """An evaluation. rows: as returned by `add_details`, the worst first."""

    report: EvalReport
    started: str
    version: str
    rows: Sequence[Mapping[str, Any]]


def read_evaluation(store: Store, row: Any) -> EvalFacts:
    """Read the facts of a run of `eval`. Raises StoreError if it has no report yet, or is damaged."""
    report = read_report(row)
    if report is None:
        raise StoreError(f"run {row['run']} has no report: it is {status_of(store, row)}; see workbench resume")
    rows = add_details(store, row, read_rows(store, row, report))
    rows.sort(key=lambda one: -1.0 if one["score"] is None else one["score"])
    return EvalFacts(stored_report(report), str(row["started"]), str(row["version"]), rows)


def write_page(facts: EvalFacts) -> str:
    """Return the page. Texts of models and rows are escaped, so they are shown and never run."""
    template = environment().get_template("evaluation.html")
    return template.render(facts=facts, report=facts.report, rows=facts.rows[:PAGE], style=read_style())


def write_markdown(facts: EvalFacts) -> str:
    """Return the score, the failures, and the worst rows by their ids, without inputs, since it is pasted where many
    people read it."""
    report = facts.report
    lines = [f"# {plain(report.name)}: run {report.run}", "", visible(report.headline()), ""]
    lines += [f"- {plain(name)}: {report.describe_further(name)}" for name in report.scores]
    for kind, count in report.failures.items():
        lines.append(f"- {'no result' if kind in report.missing else 'failed'}, {plain(kind)}: {count}")
    wrong = [row for row in facts.rows if row["score"] is None or row["score"] < 1]
    lines += ["", "| row | score | failure |", "| --- | --- | --- |"] if wrong else []
    cells = ([place_of(row["handle"]), format_score(row["score"]), row["failure"] or ""] for row in wrong[:ROWS])
    lines += [f"| {' | '.join(map(table_cell, row))} |" for row in cells]
    if len(wrong) > ROWS:
        lines += ["", f"and {len(wrong) - ROWS} more: `--out report.html` and `.csv` have them."]
    spent = report.spent
    costs = f"{spent['calls']:,} calls, {format_usd(spent['usd'])}, {format_seconds(spent['seconds'])}"
    return "\n".join([*lines, "", f"{costs}; workbench {facts.version}"]) + "\n"


def write_json(facts: EvalFacts) -> str:
    """Return the stored report and its rows, without their traces."""
    kept = ("example", "handle", "split", "replica", "inputs", "further", "prediction", "score", "scores", "failure")
    rows = [{name: row[name] for name in (*kept, "message", "feedback", "cost")} for row in facts.rows]
    return visible_json({"run": facts.report.as_dict(), "rows": rows}, indent=1) + "\n"


def write_csv(facts: EvalFacts) -> str:
    """Return a line for each row: its id, split and repeat, its fields, the answer, and the score."""
    fields = names_in(_fields(row) for row in facts.rows)
    answers = names_in(row["prediction"] for row in facts.rows)
    scores = names_in(row["scores"] for row in facts.rows)
    out = io.StringIO()
    writer = table_writer(out)
    last = ("score", "failure", "message", "feedback")
    further = [f"scores.{name}" for name in scores]
    first, found = ("row", "split", "repeat"), (*(f"prediction.{name}" for name in answers), *last, *further)
    writer.writerow(map(plain_cell, [*first, *names_beside(fields, [*first, *found]), *found]))
    for row in facts.rows:
        given, said = _fields(row), row["prediction"] or {}
        cells = [row["handle"], row["split"], row["replica"] + 1, *(given.get(name) for name in fields)]
        cells += [*(said.get(name) for name in answers), *(row[name] for name in last)]
        writer.writerow(map(plain_cell, [*cells, *((row["scores"] or {}).get(name) for name in scores)]))
    return out.getvalue()


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**(row["inputs"] or {}), **(row["further"] or {})}


#: By suffix of a file.
EVAL_WRITERS: Mapping[str, Callable[[EvalFacts], str]] = {
    ".html": write_page,
    ".md": write_markdown,
    ".json": write_json,
    ".csv": write_csv,
}
