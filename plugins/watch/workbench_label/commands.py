"""`workbench label`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.base.text import indented, one_line
from workbench.cli import ask_text, echo_json, say
from workbench.cli.options import DB, JSON, limit_option

if TYPE_CHECKING:
    from workbench_kit.labels import Item, Label, RunAnswers

#: Suffixes that identify a missing TARGET as a file.
_FILES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".xlsx", ".parquet")
#: Maximum characters of a cell to show.
_SHOWN = 4000


@click.command("label")
@click.argument("target", default="last")
@click.option("--labels", "place", type=click.Path(path_type=Path, dir_okay=False), help="File of the labels.")
@click.option("--by", help="Name of the labeller. [default: the user name]")
@click.option("--field", help="Field with the answer. [default: the metric's field; for a file: output]")
@limit_option("Label at most this many answers.")
@click.option("--report", is_flag=True, help="Show the agreement among labellers and with the judge, and ask nothing.")
@DB
@JSON
def label_command(
    target: str,
    place: Path | None,
    by: str | None,
    field: str | None,
    limit: int | None,
    report: bool,
    db: str,
    as_json: bool,
) -> None:
    """Score answers by hand, blind, to calibrate a judge.

    TARGET is a run or a file of rows. For a run of `optimize`, these are the sealed answers of baseline and winner,
    shuffled and unnamed. Each label is saved at once, and the same command continues after a stop. With
    `proof: {labels: FILE}` in the workflow, a judge can then prove a gain: see `workbench resume`.
    """
    import getpass

    from workbench.errors import SpecError
    from workbench_kit.labels import file_items, order_items, read_labels, run_answers

    found: RunAnswers | None = None
    if Path(target).is_file():
        answers = file_items(Path(target), field or "output")
        place = place or Path(target).with_suffix(".labels.jsonl")
    else:
        if Path(target).suffix.lower() in _FILES:
            raise SpecError(f"there is no file {one_line(target)}", hint="Name a run, or a file of rows.")
        found = _read_run(run_answers, target, field, db)
        answers = [(one.cluster, one.item) for one in found.answers]
        place = place or found.labels or Path("labels.jsonl")
    labels = read_labels(place) if place.exists() else []
    if report:
        return _report(labels, found, as_json)
    name = by or getpass.getuser()
    done = {(label.row, label.answer) for label in labels if label.by == name}
    items = order_items(answers)
    left = [item for item in items if (item.row, item.key) not in done]
    say(f"{len(items)} answers, {len(items) - len(left)} of them labelled by {one_line(name)}")
    given = _label_all(left[:limit], place, name)
    what = "1 label" if given == 1 else f"{given} labels"
    from workbench.store import typed

    again = typed(f"workbench label {one_line(target)} --report", db)
    say(f"{what} written to {one_line(place)}. Next: {again}")


def _read_run(read: Any, target: str, field: str | None, db: str) -> RunAnswers:
    from workbench.store import ReadOnlyStore

    with ReadOnlyStore(db) as store:
        return read(store, target, field)


def _label_all(left: Sequence[Item], place: Path, name: str) -> int:
    """Ask for a label of each item until there are no more, or the labeller stops. Returns the number of labels."""
    from workbench_kit.labels import Label, append_label

    for number, item in enumerate(left):
        _show(item, number + 1, len(left))
        score = _ask_score()
        if score == "stop":
            return number
        edit = ask_text("Better answer (enter: none)") if score is not None else ""
        comment = ask_text("Comment (enter: none)") if score is not None else ""
        append_label(place, Label(item.row, item.key, name, score, edit or None, comment or None))
    return len(left)


def _ask_score() -> Any:
    """Return a number in [0, 1], None to skip, or "stop"."""
    while True:
        given = ask_text("Score: y good, n bad, or 0 to 1; s skips, q stops").strip().lower()
        if given in ("y", "n", "s", "q"):
            return {"y": 1.0, "n": 0.0, "s": None, "q": "stop"}[given]
        try:
            score = float(given)
        except ValueError:
            say("Type y, n, s, q, or a number from 0 to 1.", err=True)
            continue
        if 0 <= score <= 1:
            return score
        say("A score is from 0 to 1.", err=True)


def _show(item: Item, number: int, of: int) -> None:
    say(f"\n{number} of {of}", bold=True)
    for name, value in item.inputs.items():
        say(f"{one_line(name)}: {_cell(value)}")
    say("Answer:", bold=True, nl=False)
    fields = item.answer if isinstance(item.answer, Mapping) else {"": item.answer}
    for name, value in fields.items():
        say(f" {one_line(name)}{': ' if name else ''}{_cell(value)}")


def _cell(value: Any) -> str:
    from workbench.base.text import visible_json

    text = value if isinstance(value, str) else visible_json(value)
    cut = f" [... {len(text) - _SHOWN} more characters]" if len(text) > _SHOWN else ""
    return indented(text[:_SHOWN]) + cut


def _report(labels: Sequence[Label], found: RunAnswers | None, as_json: bool) -> None:
    from workbench_kit.labels import calibrate, compare_labellers, describe_labellers

    people = compare_labellers(labels)
    judge = calibrate(found.answers, labels, judged=found.judged) if found is not None else None
    if as_json:
        echo_json({"labellers": vars(people), "judge": judge and judge.as_dict()})
        return
    for line in (*describe_labellers(people), *(judge.lines() if judge is not None else ())):
        say(line)
