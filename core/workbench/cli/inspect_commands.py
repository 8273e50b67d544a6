"""Commands that inspect one run: show, diff, export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from workbench.base.text import indented, one_line, short, visible_json
from workbench.cli import echo_json, fail, say
from workbench.cli.options import DB, JSON, OVERWRITE, open_store


@click.command("show")
@click.argument("run", default="last")
@click.option(
    "--failures",
    is_flag=True,
    help="Show the rows that score below 1: all rows of an eval, else the winner's test rows (val if untested).",
)
@click.option("--row", "example", metavar="ROW", help="Show one row with prompts and answers: file:line, or its id.")
@click.option("--candidate", help="Candidate hash for --row. [default: the winner]")
@click.option("--calls", type=click.IntRange(min=0), default=0, help="Number of calls to show in full.")
@click.option("--role", help="Show only calls of this role, e.g. proposer: 20, or as many as --calls.")
@click.option("--tree", is_flag=True, help="Show the candidates as a tree.")
@click.option("--mermaid", is_flag=True, help="Print the winner, or a workflow file, as a Mermaid flowchart.")
@DB
@JSON
def show_command(
    run: str,
    failures: bool,
    example: str | None,
    candidate: str | None,
    calls: int,
    role: str | None,
    tree: bool,
    mermaid: bool,
    db: str,
    as_json: bool,
) -> None:
    """Show a run: its report and candidates, failed rows, or calls.

    With --failures, --row, --calls or --role, only these parts are shown. RUN may also be a run of
    `workbench agent attribute`, whose diagnoses are shown. With --mermaid, RUN may be a workflow file.
    """
    from workbench.evaluation import failed_rows, read_calls, row_details
    from workbench.run import candidates, origin_of, status_of
    from workbench.store import Journal, kind_of, read_report, typed

    if mermaid:
        return say(_drawing(run, db), nl=False, verbatim=True)
    if Path(run).suffix in (".yaml", ".yml"):
        return fail(f"{run} is a workflow file, not a run; draw it with: workbench show --mermaid {run}", 2)
    store = open_store(db)
    row = store.find_run(run)
    report, calls = read_report(row), calls or (20 if role else 0)
    if kind_of(row) == "attribute" and (failures or example):
        of = report["examined"] if report else []
        hint = f"; its rows are in: {typed(f'workbench show {of[0]}', db)}" if of else ""
        return fail(f"run {row['run']} is an attribution: it has diagnoses, but no rows{one_line(hint)}", 2)
    if role and role not in (known := Journal(store, row["id"]).count_by_role()):
        return fail(f"run {row['run']} has no calls of the role '{role}'; it has: {', '.join(known) or 'none'}", 2)
    found = {
        "run": row["run"],
        "kind": kind_of(row),
        "name": row["name"],
        "status": status_of(store, row),
        "branched_from": origin_of(row),
        "report": report,
        "candidates": candidates(store, row["id"]),
        "failures": failed_rows(store, row, report) if failures else [],
        "row": row_details(store, row, report, example, candidate) if example else [],
        "calls": read_calls(store, row["id"], calls, [role] if role else ()) if calls else [],
    }
    if as_json:
        return echo_json(found)
    if failures or example or calls:
        return _say_parts(found, failures)
    _say_run(found, row, db, tree)


def _say_run(found: dict[str, Any], row: Any, db: str, tree: bool) -> None:
    """Print a run, its report and candidates. All of it may come from a stranger's database."""
    from workbench.run import lineage
    from workbench.store import typed

    run, report = one_line(row["run"]), found["report"]
    said = f"{one_line(found['kind'])} of {one_line(row['name'])}: {one_line(found['status'])}"
    say(f"run {run}, {said}, started {one_line(row['started'])}")
    if origin := found["branched_from"]:
        say(f"It starts from candidate {one_line(origin['candidate'][:8])} of run {one_line(origin['run'])}.")
    if found["status"] == "ready":
        say(f"Nothing has been called yet. Start it with: {typed(f'workbench resume {run}', db)}")
    if found["status"] == "killed":
        say(f"Nothing paid for is lost. Resume it with: {typed(f'workbench resume {run}', db)}")
    if report and found["status"] in ("killed", "running"):
        say("It ended once before with this report:")
    for line in report.get("lines", []) if report and not tree else ():
        say(indented(line))
    if row["file"] is None and not report:
        say(f"Only its calls are stored. To see three of them: {typed(f'workbench show {run} --calls 3', db)}")
    elif found["kind"] == "optimize" and found["candidates"]:
        say("candidates:")
        for depth, c in lineage(found["candidates"]) if tree else ((0, c) for c in found["candidates"]):
            val = "-" if c["val"] is None else f"{c['val']:.3f}"
            origin = "" if tree else f" <- {(c['parent'] or '-')[:8]:<8}"
            said = f"{c['hash'][:8]}{origin}  val {val}  {c['optimizer']}: {c['note']}{_changes(c['changes'])}"
            say(f"  {'  ' * depth}{one_line(said)}")


def _changes(changes: dict[str, Any]) -> str:
    """Summarize the settings of a candidate."""
    if not changes:
        return ""
    shown = [f"{address.rpartition('nodes.')[2]}={short(value, 40)}" for address, value in list(changes.items())[:3]]
    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    return f"  [{', '.join(shown)}{more}]"


def _say_parts(found: dict[str, Any], failures: bool) -> None:
    """Print the requested parts only."""
    from workbench.cli.run_commands import say_spans, say_values
    from workbench.evaluation import describe_diagnosis
    from workbench.lm import content_text

    for f in found["failures"]:
        score = "-" if f["score"] is None else f"{f['score']:.3f}"
        why = ": ".join(part for part in (f["failure"], f["feedback"] or f["message"]) if part)
        say(f"{one_line(f['handle'])}  score {score}  {indented(why)}")
        for name, value in (f["inputs"] or {}).items():
            say(f"    {one_line(name)}: {short(value, 200)}")
        say(f"    -> {short(f['prediction'], 200)}")
        for name, value in f["further"].items():
            say(f"    the row's {one_line(name)}: {short(value, 200)}")
    if failures and not found["failures"]:
        say("No stored row scores below 1." if found["status"] == "finished" else "No row with a score is stored.")
    for r in found["row"]:
        times = f", repeat {r['replica'] + 1}" if r["replica"] else ""
        name = one_line(r["handle"].removeprefix("row "))
        say(f"row {name} of {one_line(r['split'])}{times}, by {r['candidate'][:8]}", bold=True)
        say_values(r["inputs"] or {})
        if r["further"]:
            say("not read by the workflow:")
        say_values(r["further"])
        if r["spans"] is None:
            say("  (the steps of this row are not stored; those of test rows and of evaluations are)")
        say_spans(r["spans"] or (), prompts=True)
        score = "-" if r["score"] is None else f"{r['score']:.3f}"
        say(f"prediction: {visible_json(r['prediction'])}")
        say(f"score {score}" + "".join(f"; {indented(r[k])}" for k in ("failure", "message", "feedback") if r[k]))
        say_values(r["scores"] or {})
        if cost := r["cost"]:
            say(f"{cost['calls']} calls, {cost['tokens']} tokens, ${cost['usd']:.6f}, {cost['seconds']:.2f} s")
        for diagnosis in r["diagnoses"]:
            say(one_line(describe_diagnosis(diagnosis)))
    for c in found["calls"]:
        say(one_line(f"call {c['key'][:8]} {c['role']} {c['outcome']}"), bold=True)
        for message in c["messages"]:
            say(f"  {one_line(message['role'])}: {indented(content_text(message['content']))}")
        say(f"  -> {indented(c['answer'])}")


def _drawing(run: str, db: str) -> str:
    """Return the flowchart of a workflow file, or of the winner of a run (of its baseline before there is one)."""
    from workbench.run import draw_winner
    from workbench.spec import check_nodes, load_yaml_file
    from workbench.task import load_workflow
    from workbench.workflow import mermaid

    if Path(run).suffix in (".yaml", ".yml"):
        source = load_yaml_file(Path(run))
        spec = check_nodes(source)
        with source.locating():
            return mermaid(load_workflow(spec, Path(run).resolve().parent, code="unread"))
    return draw_winner(open_store(db), run)


@click.command("diff")
@click.argument("run", default="last")
@click.argument("candidate", required=False)
@DB
@JSON
def diff_command(run: str, candidate: str | None, db: str, as_json: bool) -> None:
    """Show the changes that a candidate makes to the workflow.

    CANDIDATE is a hash. The default is the winner.
    """
    from workbench.run import candidate_workflow, changes_between, winner_of
    from workbench.store import Candidates, read_report, typed

    store = open_store(db)
    row = store.find_run(run, kinds=("optimize",))
    first = candidate_workflow(store, row["id"], Candidates(store, row["id"]).find_baseline())
    chosen = candidate or winner_of(read_report(row))
    if first is None or chosen is None:
        fail(f"run {row['run']} has no candidates yet", 2)
        return None
    other = candidate_workflow(store, row["id"], chosen)
    if other is None:
        listed = typed(f"workbench show {row['run']}", db)
        fail(f"run {row['run']} has no candidate '{chosen}' (two runs: `workbench compare`); to list them: {listed}", 2)
        return None
    changes = changes_between(row, first, other)
    if as_json:
        return echo_json([{"address": a, "old": o, "new": n} for a, o, n in changes])
    for address, old, new in changes:
        say(one_line(address), bold=True)
        for sign, value, color in (("-", old, "red"), ("+", new, "green")):
            for line in _lines(value):
                say(f"{sign} {line}", fg=color)
    if not changes:
        say("Nothing was changed.")


def _lines(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list):
        return [json.dumps(item, ensure_ascii=False) for item in value]
    return str(value).split("\n")


def _bundle(run: str, candidate: str | None, out: Path | None, db: str) -> None:
    from workbench.cli.trust import require_trust, require_trust_in_run
    from workbench.inference import LOCK, bundle_file
    from workbench.run import bundle_candidate

    if out is None:
        raise click.UsageError("--format bundle writes a folder: name it with --out")
    if Path(run).suffix in (".yaml", ".yml"):
        if candidate is not None:
            raise click.UsageError("--candidate needs a run, and this is a workflow file")
        made = bundle_file(require_trust(Path(run), called=True), out)
    else:
        made = bundle_candidate(open_store(db), require_trust_in_run(run, db), candidate, out)
    files = sum(path.is_file() for path in out.rglob("*"))
    say(f"wrote {files} files to {one_line(out)}; the workflow is {one_line(made)}, its packages are in {LOCK}")


@click.command("export")
@click.argument("run", default="last")
@click.option("--candidate", help="Candidate hash. [default: the winner]")
@click.option(
    "--format",
    "form",
    default="yaml",
    show_default=True,
    help="Format: yaml, atif (rows as trajectories), bundle (a folder), or one of a plugin, e.g. dspy.",
)
@click.option("--split", help="Split of the rows, for --format atif. [default: all stored rows]")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Output file or folder. [default: stdout, where the format allows]"
)
@OVERWRITE
@click.option("--run-code", is_flag=True, help="Load the Python that the run names, if the format needs it.")
@DB
def export_command(
    run: str,
    candidate: str | None,
    form: str,
    split: str | None,
    out: Path | None,
    overwrite: bool,
    run_code: bool,
    db: str,
) -> None:
    """Export the winner as a workflow file or another format.

    With --format bundle, a folder that runs on another machine: what git tracks (or else the folder of the workflow
    file), the files that the workflow names, and the lock of the installed packages. RUN may also be a workflow file.

    With --format atif, the rows as trajectories in the Agent Trajectory Interchange Format. --out names a .jsonl file,
    or a folder for one file per row. RUN may also be an evaluation.
    """
    from workbench.run import export_candidate

    if form == "bundle":
        return _bundle(run, candidate, out, db)
    given = {"split": split, "run_code": run_code, "overwrite": overwrite}
    text = export_candidate(open_store(db), run, candidate, form, out, **given)
    if text is not None:
        return say(text, nl=False, verbatim=True)
    files = sorted(p.name for p in out.iterdir()) if out is not None and out.is_dir() else []
    if out is not None:
        say(f"wrote {out}{': ' + ', '.join(files) if files else ''}")
