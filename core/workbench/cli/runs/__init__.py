"""The group `runs`, about the runs of a database: list, tag, rm, prune."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from workbench.base.text import one_line
from workbench.cli import ask, echo_json, fail, say
from workbench.cli.options import DB, JSON, YES, limit_option, open_store
from workbench.cli.tree import CommandGroup


@click.group("runs", cls=CommandGroup)
def runs_command() -> None:
    """List, tag, remove and prune runs."""


@runs_command.command("list")
@click.option("--tag", "tags", multiple=True, help="Only runs with this tag. Repeatable.")
@click.option("--name", help="Only runs of workflows whose name contains this text.")
@click.option("--kind", type=click.Choice(["optimize", "eval"]), help="Only runs of this command.")
@limit_option("Show at most this many runs.")
@DB
@JSON
def runs_list(
    tags: tuple[str, ...], name: str | None, kind: str | None, limit: int | None, db: str, as_json: bool
) -> None:
    """List the runs of optimize and eval, newest first."""
    from workbench.store import LISTED, tags_of, told_apart

    store = open_store(db)
    found = [r for r in store.list_runs((kind,) if kind else LISTED) if set(tags) <= set(tags_of(r))]
    found = [r for r in found if name is None or name.lower() in (r["name"] or "").lower()]
    rows = [_described(store, r) for r in found[:limit]]
    if as_json:
        return echo_json(rows)
    wide = max((len(row["status"]) for row in rows), default=0)
    for stored, row in zip(found, rows, strict=False):
        apart = "" if row["label"] else told_apart(stored)  # a label has the settings of its cell
        words = (row["run"], f"{row['kind']:<8}", f"{row['status']:<{wide}}", row["started"][5:16].replace("T", " "))
        words = (*words, row["name"], _result(row), apart, describe_origin(row["branched_from"]))
        marks = (*(f"#{tag}" for tag in row["tags"]), *((f"({row['note']})",) if row["note"] else ()))
        say("  ".join(one_line(word) for word in (*words, *marks) if word).rstrip())
    if not rows:
        say("No runs yet." if not (tags or name or kind) else "No such runs.")


def _described(store: Any, r: Any) -> dict[str, Any]:
    from workbench.run import origin_of, status_of
    from workbench.store import kind_of, read_report, tags_of

    report, kind = read_report(r) or {}, kind_of(r)
    tested = r["status"] in ("finished", "budget")  # an interrupted run has a report, but no test yet
    evaluated = kind == "eval" and report.get("n")
    return {
        "run": r["run"],
        "kind": kind,
        "status": status_of(store, r),
        "name": r["name"],
        "label": report.get("label", "") if kind == "eval" else "",
        "started": r["started"],
        "finished": r["finished"],
        "gain": report.get("gain") if tested and kind == "optimize" else None,
        "score": report["score"] if evaluated else None,
        "ci95": report["ci95"] if evaluated else None,
        "split": report["split"] if evaluated else None,
        "n": report["n"] if evaluated else None,
        "tags": tags_of(r),
        "note": r["note"],
        "branched_from": origin_of(r),
    }


def describe_origin(origin: Mapping[str, str] | None) -> str:
    """Describe the candidate that a run starts from; empty if it starts from its file."""
    return f"from {origin['run']}:{origin['candidate'][:8]}" if origin else ""


def _result(row: dict[str, Any]) -> str:
    """Format the score of an evaluation, or the gain of a run."""
    if row["score"] is not None:
        label = f" {row['label']}" if row["label"] else ""
        low, high = row["ci95"]
        return f"{row['split']} {row['score']:.3f} [{low:.2f}, {high:.2f}] n={row['n']}{label}"
    if gain := row["gain"]:
        return f"gain {gain['diff']:+.3f} (p={gain['p']:.2g})" + ("" if gain["shown"] else ", not shown")
    return ""


@runs_command.command("tag")
@click.argument("run")
@click.argument("tags", nargs=-1)
@click.option("--note", help="Replace the note on the run. An empty text removes it.")
@click.option("--remove", is_flag=True, help="Remove these tags.")
@DB
def runs_tag(run: str, tags: tuple[str, ...], note: str | None, remove: bool, db: str) -> None:
    """Add tags or a note to a run.

    All commands find a run by its tags.
    """
    from workbench.store import RunRecord, tags_of

    if not tags and note is None:
        raise click.UsageError("name a tag, or give a --note")
    if wrong := [tag for tag in tags if not tag.replace("-", "").replace("_", "").replace(".", "").isalnum()]:
        raise click.BadParameter(f"'{wrong[0]}' may contain only letters, digits, '.', '_' and '-'", param_hint="TAGS")
    if "last" in tags:
        raise click.BadParameter("'last' means the newest run", param_hint="TAGS")
    store = open_store(db, write=True)
    row = store.find_run(run)
    kept = set(tags_of(row)) - set(tags) if remove else {*tags_of(row), *tags}
    RunRecord(store, row["id"]).tag(kept, (row["note"] if note is None else note) or None)
    say(f"run {row['run']}: {', '.join(sorted(kept)) or 'no tags'}")


@runs_command.command("rm")
@click.argument("runs", nargs=-1, required=True)
@YES
@DB
def runs_rm(runs: tuple[str, ...], yes: bool, db: str) -> None:
    """Remove runs with their calls, candidates and rows.

    Their tests on sealed rows still count in later proofs.
    """
    from workbench.store import RunRecord

    store = open_store(db, write=True)
    found = {row["run"]: row for row in map(store.find_run, runs)}
    _refuse_running(store, list(found.values()))
    names = ", ".join(f"{one_line(row['run'])} ({one_line(row['name'])})" for row in found.values())
    if not yes and not ask(f"Remove {names}, and everything that was paid for?"):
        return fail("nothing was removed", 2)
    for row in found.values():
        RunRecord(store, row["id"]).remove()
    say(f"removed {', '.join(found)}; workbench runs prune frees the disk space")


@runs_command.command("prune")
@click.option("--keep", type=click.IntRange(min=0), default=0, help="Number of newest runs to leave unchanged.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@YES
@DB
def runs_prune(keep: int, dry_run: bool, yes: bool, db: str) -> None:
    """Remove data that finished runs no longer need.

    These are rows of losing candidates, checkpoints and unused texts. Scores, winners, proofs and costs are kept.
    Running and resumable runs are left unchanged.
    """
    from workbench.run import prune_run, removable_files
    from workbench.store import remove_unused_texts

    store = open_store(db, write=True)
    found = [row for row in store.list_runs(("optimize",))[keep:] if row["status"] == "finished"]
    files = removable_files(store, found)
    size, folders = sum(map(_size, files)), sum(path.is_dir() for path in files)
    for path in files:
        say(f"{one_line(path)} ({_size(path) / 1e6:.1f} MB)")
    what = f"rows of losing candidates in {len(found)} finished runs, and {size / 1e6:.1f} MB of checkpoints"
    if dry_run or not found:
        return say(f"Would remove {what}." if found else "There are no finished runs to prune.")
    if not yes and not ask(f"Remove {what}?"):
        return fail("nothing was removed", 2)
    before = store.path.stat().st_size
    rows = sum(prune_run(store, row) for row in found)
    for path in files:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    remove_unused_texts(store)
    freed = before - store.path.stat().st_size + size
    return say(f"removed {rows} rows and {folders} checkpoints; {max(0, freed) / 1e6:.1f} MB are free")


def _size(path: Path) -> int:
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else path.stat().st_size


def _refuse_running(store: Any, rows: Sequence[Any]) -> None:
    from workbench.run import status_of

    if running := [row["run"] for row in rows if status_of(store, row) == "running"]:
        fail(f"run {running[0]} is running; stop it first", 2)
