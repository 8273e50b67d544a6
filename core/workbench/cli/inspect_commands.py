"""Commands that inspect runs: runs, show, diff, compare, export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from workbench.cli import echo_json, fail, say
from workbench.text import indented, one_line, short

_DB = click.option("--db", default="workbench.db", envvar="WORKBENCH_DB", show_default=True, help="Run database.")
_JSON = click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")


def _store(db: str) -> Any:
    from workbench.store import ReadOnlyStore

    store = ReadOnlyStore(db)
    click.get_current_context().call_on_close(store.close)
    return store


@click.command("runs")
@_DB
@_JSON
def runs_command(db: str, as_json: bool) -> None:
    """List the runs, newest first."""
    from workbench.run import status_of
    from workbench.store import list_runs, read_report

    store = _store(db)
    rows = []
    for r in list_runs(store):
        report = read_report(r) or {}
        tested = r["status"] in ("finished", "budget")  # an interrupted run has a report, but no test yet
        rows.append(
            {
                "run": r["run"],
                "status": status_of(store, r),
                "name": r["name"],
                "started": r["started"],
                "finished": r["finished"],
                "gain": report.get("gain") if tested else None,
            }
        )
    if as_json:
        return echo_json(rows)
    for row in rows:
        gain = row["gain"]
        shown = (
            ""
            if not gain
            else f"gain {gain['diff']:+.3f} (p={gain['p']:.2g})" + ("" if gain["shown"] else ", not shown")
        )
        words = (row["run"], f"{row['status']:<11}", row["started"], row["name"], shown)
        say("  ".join(one_line(word) for word in words).rstrip())
    if not rows:
        say("No runs yet.")


@click.command("show")
@click.argument("run", default="last")
@click.option("--failures", is_flag=True, help="Show the test rows that the winner gets wrong.")
@click.option("--calls", type=click.IntRange(min=0), default=0, help="Show N of its calls with their texts.")
@click.option("--tree", is_flag=True, help="Show the candidates as a tree, each under its parent.")
@click.option("--mermaid", is_flag=True, help="Print the winner, or a workflow file, as a Mermaid flowchart.")
@_DB
@_JSON
def show_command(run: str, failures: bool, calls: int, tree: bool, mermaid: bool, db: str, as_json: bool) -> None:
    """Show a run: its report and candidates, and on request its failures and calls.

    With --mermaid, RUN may also be a workflow file.
    """
    from workbench.run import call_texts, candidates, status_of, worst_rows
    from workbench.store import read_report

    if mermaid:
        return say(_drawing(run, db), nl=False)
    if Path(run).suffix in (".yaml", ".yml"):
        return fail(f"{run} is a workflow file, not a run; draw it with: workbench show --mermaid {run}", 2)
    store = _store(db)
    row = store.find_run(run)
    report = read_report(row)
    found = {
        "run": row["run"],
        "name": row["name"],
        "status": status_of(store, row),
        "report": report,
        "candidates": candidates(store, row["id"]),
        "failures": worst_rows(store, row, report) if failures else [],
        "calls": call_texts(store, row["id"], calls) if calls else [],
    }
    if as_json:
        return echo_json(found)
    _say_run(found, row, db, tree)


def _say_run(found: dict[str, Any], row: Any, db: str, tree: bool) -> None:
    """Print a run, its report, and what was asked for besides. All of it may come from a stranger's database."""
    from workbench.run import lineage

    run, report = one_line(row["run"]), found["report"]
    say(f"run {run} of {one_line(row['name'])}: {one_line(found['status'])}, started {one_line(row['started'])}")
    if found["status"] == "killed":
        say(f"Nothing paid for is lost. Resume it with: workbench resume {run} --db {db}")
    if report and found["status"] in ("killed", "running"):
        say("It ended once before, with this report:")
    for line in report.get("lines", []) if report else ():
        say(indented(line))
    if row["file"] is None and not found["calls"]:
        say(f"Only its calls are stored. To see three of them: workbench show {run} --calls 3")
    elif found["candidates"]:
        say("candidates:")
    for depth, c in lineage(found["candidates"]) if tree else ((0, c) for c in found["candidates"]):
        val = "-" if c["val"] is None else f"{c['val']:.3f}"
        origin = "" if tree else f" <- {(c['parent'] or '-')[:8]:<8}"
        said = f"{c['hash'][:8]}{origin}  val {val}  {c['optimizer']}: {c['note']}"
        say(f"  {'  ' * depth}{one_line(said)}")
    for f in found["failures"]:
        say(f"  {one_line(f['example'])}: {indented(f['failure'] or f['feedback'] or '')}")
        for name, value in (f["inputs"] or {}).items():
            say(f"    {one_line(name)}: {short(value, 200)}")
    for c in found["calls"]:
        say(one_line(f"call {c['key'][:8]} {c['role']} {c['outcome']}"), bold=True)
        for message in c["messages"]:
            say(f"  {one_line(message['role'])}: {indented(message['content'])}")
        say(f"  -> {indented(c['answer'])}")


def _drawing(run: str, db: str) -> str:
    """The flowchart of a workflow file, or of the winner of a run (of its baseline before there is one)."""
    from workbench.run import draw_winner
    from workbench.spec import check_nodes, load_yaml_file
    from workbench.task import load_workflow
    from workbench.user_code import without_user_code
    from workbench.workflow import mermaid

    if Path(run).suffix in (".yaml", ".yml"):
        source = load_yaml_file(Path(run))
        spec = check_nodes(source)
        with source.locating(), without_user_code("names"):
            return mermaid(load_workflow(spec, Path(run).resolve().parent))
    return draw_winner(_store(db), run)


@click.command("diff")
@click.argument("run", default="last")
@click.argument("candidate", required=False)
@_DB
@_JSON
def diff_command(run: str, candidate: str | None, db: str, as_json: bool) -> None:
    """Show what a candidate (default: the winner) changes in the starting workflow."""
    from workbench.run import candidate_workflow
    from workbench.store import read_report

    store = _store(db)
    row = store.find_run(run)
    report = read_report(row)
    first = candidate_workflow(store, row["id"], None)
    chosen = candidate or (report["best"]["workflow"] if report else None)
    if first is None or chosen is None:
        fail(f"run {row['run']} has no candidates yet", 2)
        return None
    other = candidate_workflow(store, row["id"], chosen)
    if other is None:
        fail(f"run {row['run']} has no candidate '{chosen}'; see workbench show {row['run']}", 2)
        return None
    changes = first.diff(other)
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


@click.command("compare")
@click.argument("runs", nargs=-1, required=True)
@_DB
@_JSON
def compare_command(runs: tuple[str, ...], db: str, as_json: bool) -> None:
    """Runs side by side: scores on the sealed test, gain, and bill."""
    from workbench.store import read_report

    store = _store(db)
    rows = []
    for name in runs:
        row = store.find_run(name)
        report = read_report(row)
        if row["file"] is None:
            fail(f"run {row['run']} ({row['status']}) has no report: it is not a run of workbench optimize", 2)
            return None
        if report is None:
            fail(f"run {row['run']} has no report yet; resume it with: workbench resume {row['run']} --db {db}", 2)
            return None
        rows.append(
            {
                "run": row["run"],
                "name": row["name"],
                "baseline": report["baseline"]["test"]["score"],
                "best": report["best"]["test"]["score"],
                "gain": report["gain"],
                "calls": report["spent"]["calls"],
                "usd": report["spent"]["usd"],
            }
        )
    if as_json:
        return echo_json(rows)
    for r in rows:
        gain, tested = r["gain"], r["best"] is not None
        scores = " -> ".join("-" if s is None else f"{s:.3f}" for s in (r["baseline"], r["best"]))
        shown = f"gain {gain['diff']:+.3f} [{gain['ci95'][0]:+.3f}, {gain['ci95'][1]:+.3f}]  p={gain['p']:.2g}"
        say(
            f"{one_line(r['run'])}  {one_line(r['name']):<20}  {scores}  {shown if tested else 'no test'}  "
            f"{r['calls']} calls  ${r['usd']:.4f}"
        )


def _bundle(run: str, candidate: str | None, out: Path | None, db: str) -> None:
    from workbench.cli.trust import require_trust_in_run
    from workbench.inference import bundle_file
    from workbench.run import bundle_candidate

    if out is None:
        raise click.UsageError("a bundle is a folder: name it with --bundle DIR")
    if Path(run).suffix in (".yaml", ".yml"):
        if candidate is not None:
            raise click.UsageError("--candidate is of a run, and this is a workflow file")
        made = bundle_file(Path(run), out)
    else:
        require_trust_in_run(run, db)  # the files that are copied are those that the database names
        made = bundle_candidate(_store(db), run, candidate, out)
    say(f"wrote {one_line(out)}: {one_line(', '.join(made.files))}")
    if made.variables:
        say(f"It needs these variables of the environment: {one_line(', '.join(made.variables))}")
    for note in made.notes:
        say(f"Note: {indented(note)}")
    say(f"See {one_line(out / 'README.md')}.")


@click.command("export")
@click.argument("run", default="last")
@click.option("--candidate", help="Hash of a candidate (default: the winner).")
@click.option("--format", "form", default="yaml", show_default=True, help="yaml, or what a plugin adds (e.g. dspy).")
@click.option("--out", type=click.Path(path_type=Path), help="Where to write it (default: stdout for yaml).")
@click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write a folder that runs on another machine: the workflow and all that it names. Short for --format bundle.",
)
@click.option("--run-code", is_flag=True, help="Let a format that needs it load the Python that the run names.")
@_DB
def export_command(
    run: str, candidate: str | None, form: str, out: Path | None, bundle: Path | None, run_code: bool, db: str
) -> None:
    """Write a candidate of a run as a workflow file, or in another format.

    With --bundle, RUN may also be a workflow file. A bundle has no data, metric or budget; what it cannot carry is
    listed, and what would break elsewhere is refused.
    """
    from workbench.run import export_candidate

    if bundle is not None or form == "bundle":
        if bundle is not None and (out is not None or form not in ("yaml", "bundle")):
            raise click.UsageError("--bundle DIR stands for --format bundle --out DIR; give one of the two forms")
        return _bundle(run, candidate, bundle or out, db)
    text = export_candidate(_store(db), run, candidate, form, out, run_code=run_code)
    if text is not None:
        return say(text, nl=False)
    files = sorted(p.name for p in out.iterdir()) if out is not None and out.is_dir() else []
    if out is not None:
        say(f"wrote {out}{': ' + ', '.join(files) if files else ''}")
