"""The methods that need runs of workbench: `replay`, which repeats failed rows with steps repaired, and `spectrum`,
which compares failed rows with passed ones. Their algorithms are in `workbench_kit.credit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.base.text import one_line
from workbench.cli import echo_json, say
from workbench.errors import SpecError

if TYPE_CHECKING:
    from workbench_attribute.replay_report import ReplayReport
    from workbench_attribute.replays import ReplayOptions
    from workbench_kit.credit import Suspect

SEALED_ROWS = "These rows are sealed: changes based on reading them cannot be proved on them."

#: Maximum suspects and nodes to print.
MAX_SHOWN = 10


def replay_run(run: str, options: ReplayOptions, db: str, as_json: bool) -> bool:
    """Repeat the failed rows of a run, and print the findings. Returns True if the budget lasted and found a step."""
    from workbench.cli.trust import require_trust_in_run
    from workbench.task import check_lms
    from workbench_attribute.replays import replay_failures

    run = require_trust_in_run(run, db)
    if options.lm is not None:
        check_lms(options.lm)

    def report_progress(done: int, of: int) -> None:
        if not as_json:
            say(f"{done} of {of} rows", err=True)

    found = replay_failures(run, options=options, database=db, on_row=report_progress)
    if as_json:
        echo_json({**found.as_dict(), "left_out": found.left_out, "paid": found.paid.as_dict()})
    else:
        _print_replays(found, db)
    return found.complete and bool(found.by_node)


def _print_replays(found: ReplayReport, db: str) -> None:
    from workbench.store import typed

    for number, line in enumerate(found.lines()):
        say(line, bold=number == 1)
    if found.left_out:
        say(f"{found.left_out} more rows failed; --limit examines more than {len(found.rows)}")
    say(f"Paid now: {found.paid.calls} calls, {found.paid.tokens} tokens, ${found.paid.usd:.4f}")
    say(f"Again: {typed(f'workbench show {found.run}', db)}")
    if any(row.failure.startswith("budget") for row in found.rows):
        say("The budget ran out. To continue, run the same command with a higher --budget-calls.", err=True)
    elif not found.complete:
        say("Some rows were not answered. Run the same command again to retry them; nothing is paid twice.", err=True)


def _short(cell: str) -> str:
    return one_line(cell if len(cell) <= 40 else f"{cell[:39]}…")


def rank_run(run: str, split: str | None, passing: float, formula: str, db: str, as_json: bool) -> bool:
    """Rank the nodes of a run by its stored rows, and print the ranking. Returns True if any is suspicious."""
    from workbench.store import ReadOnlyStore
    from workbench_kit.credit import elements_of_spans, rank_elements, rank_nodes
    from workbench_kit.logs import SEALED, scored_rows

    with ReadOnlyStore(db) as store:
        rows, taken = scored_rows(store, run, split)
    if taken in SEALED:
        say(SEALED_ROWS, err=True)
    sides: tuple[list[Any], list[Any]] = ([], [])
    for row in rows:
        if row["score"] is not None:
            sides[row["score"] >= passing].append(elements_of_spans(row["spans"]))
    failed, passed = sides
    if not failed or not passed:
        raise SpecError(
            f"of {len(rows)} {taken} rows {len(passed)} pass and {len(failed)} fail: there is nothing to compare",
            hint="Take more rows, or another bar with --passing. For failed rows alone: --method replay repeats them, "
            "and --lm MODEL lets a judge read them. Both pay for their calls.",
        )
    order = list(dict.fromkeys(str(span["node"]) for row in rows for span in row["spans"]))
    nodes, elements = rank_nodes(passed, failed, formula, order), rank_elements(passed, failed, formula)
    if as_json:
        shown = [_suspect(s) for s in elements[:MAX_SHOWN]]
        counts = {"failed": len(failed), "passed": len(passed)}
        echo_json({"method": "spectrum", **counts, "nodes": [_suspect(s) for s in nodes], "elements": shown})
    else:
        _print_ranking(nodes, len(failed), len(passed), taken, formula)
    return any(s.suspiciousness > 0 for s in nodes)


def _suspect(found: Suspect) -> Mapping[str, Any]:
    score: float | str = found.suspiciousness if found.suspiciousness != float("inf") else "infinite"
    return {"node": found.node, "suspiciousness": score, "element": str(found.element), **vars(found.counts)}


def _print_ranking(nodes: Sequence[Suspect], failed: int, passed: int, split: str, formula: str) -> None:
    say(f"method: spectrum ({formula}) of {failed} failed and {passed} passed rows of {split}, no model asked")
    width = min(40, max(4, *(len(s.node) for s in nodes)))
    say(f"{'node':<{width}}  suspicious  failed  passed  most by", bold=True)
    for s in nodes[:MAX_SHOWN]:
        counts = f"{s.counts.failed_with:>6}  {s.counts.passed_with:>6}"
        say(f"{_short(s.node):<{width}}  {s.suspiciousness:>10.3f}  {counts}  {one_line(str(s.element)[:80])}")
    equal = [_short(s.node) for s in nodes if s.suspiciousness == nodes[0].suspiciousness > 0]
    if len(equal) > 1:
        later = " and ".join(equal[1:])
        say(f"Look at {equal[0]} first: {later} may be as suspicious only because it runs later, on its output.")
