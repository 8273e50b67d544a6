"""Errors for agents without a possible workflow file, each with what to change."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.base.text import one_line
from workbench.errors import SpecError
from workbench_external.init.columns import Columns
from workbench_external.init.hints import Hints
from workbench_external.init.program import Program
from workbench_external.init.ways import Way
from workbench_external.init.witness import Outcome

Tried = Sequence[tuple[Way, Outcome]]


def never_read(program: Program, columns: Columns, tried: Tried) -> SpecError:
    """Return the error for an agent that calls its model, but never with the row's text."""
    ways = ", ".join(dict.fromkeys(way.told for way, _ in tried))
    named = program.file.name if program.file is not None else program.shown
    failed = next((str(one.failure) for _, one in tried if not one.ended_well), "")
    return SpecError(
        f"{one_line(named)} asked its model, but never with the text of the row, its '{one_line(columns.main)}', which "
        f"was given as {ways}" + (f". One start failed: {one_line(failed)}" if failed else ""),
        hint=f"--label names the column with the right answers. If the agent reads '{one_line(columns.label)}', name "
        f"another one: {one_line(', '.join(columns.others))}."
        if columns.is_long
        else "If its input is a constant, or a file of rows: make it read stdin or sys.argv[1] "
        "(process.argv[2]). If it reads it elsewhere, show where: -- python agent.py --text {text}, or "
        "agent.py:function.",
    )


def never_asked(program: Program, hints: Hints, tried: Tried, rows: str) -> SpecError:
    """Return the error for an agent none of whose requests reached the gateway. rows: the name of their file."""
    failures = [one.failure for _, one in tried if one.failure is not None and not one.ended_well]
    shown = one_line(program.shown)
    if any(failure.kind == "deadline" for failure in failures):
        return SpecError(
            f"{shown} asked no model: {one_line(str(failures[0]))}",
            hint="If it waits for somebody to type, make it read all of stdin. If it is a service, write `url:` by "
            "hand: README of the node external, 'How it is started'. --timeout gives it longer.",
        )
    if len(failures) == len(tried) and failures:
        distinct = [*dict.fromkeys(one_line(str(failure)) for failure in failures)]
        others = f" (and {len(distinct) - 1} other errors, started otherwise)" if len(distinct) > 1 else ""
        told = "; ".join(distinct)
        reads = f"It reads {one_line(rows)} itself, which no row sees, since it holds the right answers: make it read "
        reads += "one row from stdin or sys.argv[1] (process.argv[2])."
        return SpecError(
            f"{shown} failed before it asked a model: {distinct[0]}{others}",
            hint=reads
            if rows in told
            else "It has a home of its own, and of your variables those that its source names. Start it in this "
            "environment by hand. If it needs another command, write that one behind `--`.",
        )
    where = f" {', '.join(hints.addresses[:3])} names one: take it out." if hints.addresses else ""
    printed = next((one.printed.strip() for _, one in tried if one.printed.strip()), "")
    return SpecError(
        f"{shown} ended, but no request reached the gateway"
        + (f". It printed: {one_line(printed[:100])}" if printed else ""),
        hint="It must take the address of its model from OPENAI_BASE_URL or ANTHROPIC_BASE_URL, as vendors' clients do "
        f"unless the code gives them one.{where}",
    )
