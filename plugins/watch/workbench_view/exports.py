"""The report in other forms: Markdown for pasting, JSON and CSV for further processing."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import IO, Any

from workbench.base.text import LINE_END, begins_formula, one_line, visible, visible_json
from workbench_view.facts import ChangedRow, Facts
from workbench_view.page import format_score, format_seconds, format_usd, write_page
from workbench_view.text_diff import Piece, list_changes

#: Maximum changed rows in Markdown, and characters of their ids. It is pasted where many people read it, so it does not
#: contain inputs of rows.
ROWS, CUT = 20, 120


def write_markdown(facts: Facts) -> str:
    """Return the verdict, the scores, the changes, the rows whose result changed, losses first, and the cost."""
    report = facts.report
    lines = [f"# {plain(facts.run['name'])}: run {facts.run['run']}", "", *map(visible, facts.verdict), ""]
    lines += ["| | val | test | test rows |", "| --- | --- | --- | --- |"]
    for name, side in (("baseline", report["baseline"]), ("winner", report["best"])):
        values = [format_score(side["val"]), format_score(side["test"]["score"]), str(side["test"]["n"])]
        lines.append(f"| {name} | {' | '.join(values)} |")
    if facts.changes:
        lines += ["", "## Changes"]
    for change in list_changes(facts.changes):
        found: list[str] = []
        if change.kind == "text":
            found += [f"{sign}{line}" for sign in "-+" for line in _side(change.pieces, sign)]
        for sign, before, after in change.lines:
            found += [f" {before}"] if sign == " " else [f"-{before}"] * (sign == "-") + [f"+{after}"] * bool(after)
        fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", "\n".join(found)))])
        lines += ["", f"`{one_line(change.address)}`", "", f"{fence}diff", *map(one_line, found), fence]
    lines += _list_changed_rows(facts.changed)
    spent = report["spent"]
    costs = f"{spent['calls']:,} calls, {format_usd(spent['usd'])}, {format_seconds(spent['seconds'])}"
    lines += ["", "## The bill", "", f"{costs}; seed {facts.run['seed']}, workbench {facts.run['version']}"]
    return "\n".join(lines) + "\n"


def _list_changed_rows(changed: Sequence[ChangedRow]) -> list[str]:
    """List rows whose result changed, losses first, up to a maximum, so that a pull request stays readable."""
    if not changed:
        return []
    lost = sum(row.gain < 0 for row in changed)
    lines = ["", "## Rows whose result changed", "", f"{lost} lost, {len(changed) - lost} won.", ""]
    lines += ["| row | baseline | winner |", "| --- | --- | --- |"]
    lines += [
        f"| {table_cell(place_of(row.handle))} | {row.scores[0]:.3f} | {row.scores[1]:.3f} |" for row in changed[:ROWS]
    ]
    if len(changed) > ROWS:
        lines += ["", f"and {len(changed) - ROWS} more: `--out report.html` and `.csv` have all."]
    return lines


def place_of(handle: str) -> str:
    """Return the handle of a row without the words that it quotes."""
    return handle.partition(' "')[0]


def table_cell(text: str) -> str:
    """Return a text as a cell of a table, with all markup escaped."""
    return plain(one_line(" ".join(text.split()))[:CUT])


def plain(text: Any) -> str:
    """Return a line of Markdown with all markup escaped."""
    return re.sub(r"([\\`*_{}\[\]<>()#|!~&@])", r"\\\1", one_line(text))


def _side(pieces: Sequence[Piece], sign: str) -> list[str]:
    return "".join(text for mark, text in pieces if mark in (" ", sign)).splitlines()


def write_json(facts: Facts) -> str:
    """Return the stored report, with the changes, the noise band and the rows whose result changed."""
    rows = [
        {
            "row": row.example,
            "handle": row.handle,
            "baseline": row.scores[0],
            "winner": row.scores[1],
            "outputs": list(row.outputs),
        }
        for row in facts.changed
    ]
    points = [
        {"candidate": p.candidate, "calls": p.calls, "score": p.score, "cost": dict(p.cost)} for p in facts.points
    ]
    found = {
        "run": dict(facts.run),
        "report": dict(facts.report),
        "noise": facts.noise,
        "changes": [{"address": address, "old": old, "new": new} for address, old, new in facts.changes],
        "changed_rows": rows,
        "progress": points,
    }
    return visible_json(found, indent=1) + "\n"


def write_csv(facts: Facts) -> str:
    """Return a line for each sealed row: its id, both scores, their difference, its inputs, and both answers."""
    out = io.StringIO()
    writer = table_writer(out)
    inputs = names_in(facts.inputs.values())
    said = names_in(row for side in facts.answers for row in side.values())
    answers = [f"{side}.{name}" for side in ("baseline", "winner") for name in said]
    head = ["row", "baseline", "winner", "difference"]
    writer.writerow(map(plain_cell, [*head, *names_beside(inputs, [*head, *answers]), *answers]))
    if facts.sides is not None:
        first, second = (side.rows for side in facts.sides)
        for key in (key for key in first if key in second):
            example, a, b = first[key].example, first[key].score, second[key].score
            difference = b - a if a is not None and b is not None else None
            cells = [first[key].handle, a, b, difference, *(facts.inputs.get(example, {}).get(name) for name in inputs)]
            cells += [side.get(example, {}).get(name) for side in facts.answers for name in said]
            writer.writerow(map(plain_cell, cells))
    return out.getvalue()


def names_in(rows: Iterable[Mapping[str, Any] | None]) -> list[str]:
    """Return the names in all rows, in the order of first occurrence."""
    return list(dict.fromkeys(name for row in rows for name in row or ()))


def names_beside(fields: Sequence[str], others: Collection[str]) -> list[str]:
    """Return the column names of row fields. A field with the name of another column becomes `row.FIELD`."""
    taken = {*fields, *others}
    return [
        next(found for n in itertools.count(1) if (found := "row." * n + name) not in taken) if name in others else name
        for name in fields
    ]


def table_writer(out: IO[str]) -> Any:
    """Return a CSV writer that quotes each text, since a spreadsheet may split cells at other signs than commas."""
    return csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)


def plain_cell(value: Any) -> Any:
    """Return a value as a cell that no spreadsheet takes for a formula or the end of a row."""
    if value is None or isinstance(value, int | float):
        return "" if value is None else value
    cell = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    cell = LINE_END.sub("\n", cell)
    return f"'{cell}" if begins_formula(cell) else cell


#: By suffix: the writer of a file, and a pattern of its beginning, so that a newer report may replace it.
WRITERS: Mapping[str, tuple[Callable[[Facts], str], str]] = {
    ".html": (write_page, r'(?s).*<meta name="generator" content="workbench report">'),
    ".md": (write_markdown, r"# .*: run [0-9a-f]{8}\n"),
    ".json": (write_json, r'\{\n "run": \{'),
    ".csv": (write_csv, r'"?row"?,"?(baseline"?,"?winner|split"?,"?repeat)"?,'),
}
