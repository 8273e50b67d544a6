"""The whole of `workbench agent init`: from the user's words to a workflow file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.base.concurrency import run_in_loop
from workbench.base.files import check_output
from workbench.base.text import one_line
from workbench.errors import SpecError
from workbench.task import read_rows
from workbench_external.init.columns import choose_columns, find_row_in_header
from workbench_external.init.hints import read_hints
from workbench_external.init.program import read_program
from workbench_external.init.trying import Trying
from workbench_external.init.written import Written

#: One each of train and val, and two of test.
_MIN_ROWS = 4


@dataclass(frozen=True)
class Begun:
    """The file that was written. starts: of the agent. warnings: on things that were not found, or are missing here."""

    file: Path
    starts: int
    warnings: Sequence[str]


def begin(
    agent: Sequence[str],
    data: Path,
    label: str | None,
    out: Path | None,
    timeout: float,
    overwrite: bool,
    tell: Callable[[str], None],
) -> Begun:
    """Start an agent in one way after the other, and write its workflow file. tell: takes a line for each start.

    Raises SpecError with what was observed, and what to write by hand.
    """
    rows = read_rows(str(data), Path.cwd(), {})
    columns = choose_columns(rows, label)
    if len(rows) < _MIN_ROWS:
        raise SpecError(
            f"{one_line(data)} has {len(rows)} rows", hint=f"train, val and test need {_MIN_ROWS} at least."
        )
    if out is not None and not out.parent.is_dir():
        raise SpecError(f"there is no folder {one_line(out.parent)}", hint="Make it, or name another file with --out.")
    program = read_program(agent, Path.cwd(), out)
    file = Path(os.path.relpath(program.base / "workflow.yaml")) if out is None else out
    check_output(file, inputs=[data, *([program.file] if program.file else [])], overwrite=overwrite)
    other = "".join(f"; '{name}' has few values, too (--label {shlex.quote(name)})" for name in columns.closed[:3])
    if columns.is_long:
        other = "; its texts are the longest, as of an input: --label names the column with the right answers" + other
    doubt = other if columns.is_long or not label else ""
    tell(one_line(f"the right answers: '{columns.label}', {columns.found_by}{doubt}"))
    hints = read_hints(program.file, program.file.parent if program.file else program.base)
    for address in hints.addresses[:3]:
        tell(one_line(f"{address} is an address of its own: requests to it bypass the gateway, and may be paid"))
    trying = Trying(program, columns, rows, hints, timeout, tell, data)
    found = run_in_loop(trying.find())
    options = ["--data", str(data), *(["--label", label] if label else []), *(["--out", str(out)] if out else [])]
    words = [*options, "--", *agent] if len(agent) > 1 else [*agent, *options]
    shown = f"workbench agent init {shlex.join(words)}"
    written = Written(found, trying, data.resolve(), len(rows), f"Written by `{one_line(shown)}`.")
    written.write(file)
    warnings = list[str]()
    if first := find_row_in_header(rows):
        told = f"{data} seems to have no header, since '{first}' is the name of a column and a value in it"
        warnings.append(f"{told}: write the columns' names into its first line, and run this again with --overwrite.")
    warnings += [] if written.key in os.environ else [f"Set {written.key} first: the search asks the model."]
    if not found.is_answer_found:
        warnings.append(f"Look at `output:` in {one_line(file)}: {found.output_by}")
    return Begun(file, found.starts, warnings)
