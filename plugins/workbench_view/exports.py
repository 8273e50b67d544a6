"""The report in other forms: Markdown to paste, JSON and CSV to go on with."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence

from workbench_view.facts import Facts
from workbench_view.page import format_score, write_page
from workbench_view.text_diff import Piece, describe_change


def write_markdown(facts: Facts) -> str:
    """The verdict, the scores, what was changed, and the rows that changed sides."""
    report = facts.report
    lines = [f"# {facts.run['name']}: run {facts.run['run']}", "", *facts.verdict, ""]
    lines += ["| | val | test | rows |", "| --- | --- | --- | --- |"]
    for name, side in (("baseline", report["baseline"]), ("winner", report["best"])):
        values = [format_score(side["val"]), format_score(side["test"]["score"]), str(side["test"]["n"])]
        lines.append(f"| {name} | {' | '.join(values)} |")
    for change in (describe_change(*change) for change in facts.changes):
        lines += ["", f"`{change.address}`", "", "```diff"]
        if change.kind == "text":
            lines += [f"{sign}{line}" for sign in "-+" for line in _side(change.pieces, sign)]
        for sign, before, after in change.lines:
            lines += [f" {before}"] if sign == " " else [f"-{before}"] * (sign == "-") + [f"+{after}"] * bool(after)
        lines.append("```")
    if facts.changed:
        lines += ["", "| row | baseline | winner |", "| --- | --- | --- |"]
        lines += [f"| {row.example} | {row.scores[0]:.3f} | {row.scores[1]:.3f} |" for row in facts.changed]
    return "\n".join(lines) + "\n"


def _side(pieces: Sequence[Piece], sign: str) -> list[str]:
    return "".join(text for mark, text in pieces if mark in (" ", sign)).splitlines()


def write_json(facts: Facts) -> str:
    """The stored report, with the changes, the noise band and the rows that changed sides."""
    rows = [
        {"row": row.example, "baseline": row.scores[0], "winner": row.scores[1], "outputs": list(row.outputs)}
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
        "course": points,
    }
    return json.dumps(found, ensure_ascii=False, indent=1, default=str) + "\n"


def write_csv(facts: Facts) -> str:
    """A line for each sealed row: its id, the score on both sides, and their difference."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["row", "baseline", "winner", "difference"])
    if facts.sides is not None:
        first, second = (side.rows for side in facts.sides)
        for key in (key for key in first if key in second):
            a, b = first[key].score, second[key].score
            difference = b - a if a is not None and b is not None else ""
            writer.writerow([_plain(first[key].example), "" if a is None else a, "" if b is None else b, difference])
    return out.getvalue()


def _plain(cell: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell[:1] in "=+-@\t\r" else cell


#: By the ending of a file.
WRITERS: Mapping[str, Callable[[Facts], str]] = {
    ".html": write_page,
    ".md": write_markdown,
    ".json": write_json,
    ".csv": write_csv,
}
