"""`workbench data traces`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.base.text import one_line
from workbench.cli import echo_json, say
from workbench.cli.options import JSON

if TYPE_CHECKING:
    from workbench_traces.rows import Account

_FORMATS = ("otel", "openinference", "langfuse", "langsmith", "atif", "chat")
_KINDS = ("key", "email", "card", "ip", "phone")


@click.command("traces")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Output file for the rows (.jsonl)."
)
@click.option("--from", "form", type=click.Choice(_FORMATS), help="Format of FILES. [default: by their content]")
@click.option(
    "--split",
    type=click.Choice(["conversation", "user", "time"]),
    default="conversation",
    show_default=True,
    help="Keep each conversation or user in one split, or put the newest conversations in test (time).",
)
@click.option("--score", help="Name of the outcome to use. [default: the only one there is]")
@click.option(
    "--score-range",
    type=(float, float),
    default=(0.0, 1.0),
    show_default=True,
    help="Worst and best value of the outcome.",
)
@click.option(
    "--accept", type=float, default=1.0, show_default=True, help="Minimum outcome of a correct answer, from 0 to 1."
)
@click.option("--edit", help="Field or attribute with the human-corrected answer.")
@click.option("--labelled", is_flag=True, help="Keep only rows with a known correct answer.")
@click.option(
    "--keep", type=click.Choice(_KINDS), multiple=True, help="Kind of personal data not to redact. Repeatable."
)
@click.option("--no-workflow", is_flag=True, help="Write only the rows, without a workflow.yaml.")
@JSON
def traces_command(
    files: tuple[Path, ...],
    out: Path,
    form: str | None,
    split: str,
    score: str | None,
    score_range: tuple[float, float],
    accept: float,
    edit: str | None,
    labelled: bool,
    keep: tuple[str, ...],
    no_workflow: bool,
    as_json: bool,
) -> None:
    """Turn recorded traces into rows and a starter workflow.

    FILES are files or folders: OTLP/JSON with GenAI attributes, spans of Phoenix, exports of Langfuse or LangSmith,
    trajectories in ATIF, or lines of {"messages": [...]}. A model's thoughts are removed. E-mail addresses, phone
    numbers, keys, card numbers and IP addresses are redacted. Duplicates are dropped, and all rows of a conversation
    stay in one split. Calls no model and sends nothing.
    """
    from workbench.base.files import check_writable
    from workbench.errors import SpecError, suggest
    from workbench_traces.read_files import read_turns
    from workbench_traces.redact import Redactor
    from workbench_traces.rows import Labels, make_rows

    if score_range[0] >= score_range[1]:
        raise click.UsageError("--score-range needs the worst outcome first, e.g. --score-range 1 5")
    check_writable(out)
    _check_new(out, split, no_workflow)
    turns = read_turns(files, form, (score or "", edit or ""))
    rows, account = make_rows(turns, Labels(score, *score_range, accept), Redactor(keep))
    if score and not account.scores[score]:
        raise SpecError(f"no trace has the outcome '{score}'", hint=suggest(score, sorted(account.scores)))
    if labelled:
        rows = [row for row in rows if row.get("answer")]
    silent = [names for turn in turns if not (turn.input.strip() and turn.output.strip()) for names in turn.unread]
    unread = describe_unread(silent)
    written = _write(out, rows, split, no_workflow, unread)
    if as_json:
        told = {name: written[name] for name in ("files", "workflow")}
        return echo_json({"rows": len(rows), **vars(account), **told})
    _print(len(rows), account, written)
    if unread:
        say(one_line(unread))


def _check_new(out: Path, split: str, no_workflow: bool) -> None:
    """Refuse to overwrite any file."""
    from workbench.errors import SpecError
    from workbench_traces.starter import row_paths

    for path in [*row_paths(out, split).values(), *([] if no_workflow else [out.with_name("workflow.yaml")])]:
        if path.exists():
            raise SpecError(f"{path} exists, and nothing is overwritten", hint="Choose another folder with --out.")


def describe_unread(spans: list[list[str]]) -> str:
    """Describe spans of traces without a question and an answer; empty if there are none."""
    if not spans:
        return ""
    names = sorted({name for one in spans for name in one})
    shown = ", ".join(names[:30]) + (f" and {len(names) - 30} more" if len(names) > 30 else "")
    number = "1 span has" if len(spans) == 1 else f"{len(spans)} spans have"
    return f"{number} no content in a known attribute; their attributes are {shown or 'none'}."


def _write(out: Path, rows: list[dict[str, Any]], split: str, no_workflow: bool, unread: str) -> dict[str, Any]:
    from workbench.errors import SpecError
    from workbench_traces.rows import cut_by_time, group_rows
    from workbench_traces.starter import MIN_ROWS, SHARES, row_paths, write_rows, write_starter

    groups = group_rows(rows, split)
    for row, group in zip(rows, groups, strict=True):
        row["group"] = group
    if len(set(groups)) < MIN_ROWS:
        what = "user or conversation" if split == "user" else "conversation"
        few = f"there are only {len(set(groups))} groups of rows, and train, val and test need one each"
        hint = "Name more files or another --split, or record the content of messages."
        hint = f"{unread} {hint}" if unread else hint
        raise SpecError(f"{few}; rows of one {what} form a group", hint=hint)
    paths, place = row_paths(out, split), out.with_name("workflow.yaml")
    parts = cut_by_time(rows, groups, SHARES) if split == "time" else [rows]
    for path, part in zip(paths.values(), parts, strict=True):
        write_rows(path, part)
    data: dict[str, Any] = {name: path.name for name, path in paths.items()}
    if split != "time":
        shares = dict(zip(("train", "val", "test"), SHARES, strict=True))
        data = {"file": out.name, "split": {**shares, "by": "group"}}
    return {
        "files": [*map(str, paths.values())],
        "workflow": None if no_workflow else str(place),
        "guessed": [] if no_workflow else write_starter(place, data, rows),
        "groups": len(set(groups)),
    }


def _print(rows: int, account: Account, written: dict[str, Any]) -> None:
    say(f"{rows} rows in {written['groups']} groups, of {account.turns} traces")
    for count, what in (
        (account.empty, "left out: question or answer missing"),
        (account.exact, "left out: duplicates"),
        (account.normalised, "left out: duplicates except for case, spaces and punctuation"),
        (account.out_of_range, "outcomes ignored: outside --score-range"),
    ):
        if count:
            say(f"{count} {what}")
    found = ", ".join(f"{kind} {count}" for kind, count in sorted(account.redacted.items()))
    say(f"Redacted: {found or 'nothing'}. Names and personal stories have no pattern: check the rows.")
    if account.scores and account.score is None:
        names = ", ".join(one_line(name) for name in sorted(account.scores)[:20])
        say(f"No outcome was used, as there are several ({names}). Choose one with --score.")
    for line in written["guessed"]:
        say(f"Guessed: {one_line(line)}")
    for path in written["files"]:
        say(f"wrote {one_line(path)}")
    if written["workflow"]:
        say(f"wrote {one_line(written['workflow'])}. Next: workbench validate {one_line(written['workflow'])}")
