"""Checks of an exporter's contract. Each exports a workflow to an empty folder, and raises AssertionError with a
remedy."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.spec import Spec
from workbench.task import Task
from workbench.workflow import Workflow
from workbench_testing.case import assert_documented, checks_in, name_of, run_all, seeded, unchanged


@dataclass(frozen=True)
class ExporterCase:
    """An exporter and a workflow that it can export.

    Args:
        export: called as export(workflow, path), with task= or spec= if it asks for one.
        workflow: to export.
        more: `task` or `spec`, for an exporter with `needs_task` or `needs_spec`.
        name: of the path, e.g. "program" for a folder or "prompts.md" for a file.
    """

    export: Callable[..., Any]
    workflow: Workflow
    more: Mapping[str, Task | Spec] = field(default_factory=dict)
    name: str = "exported"

    def files(self) -> dict[str, bytes]:
        """Return the files of an export, by path below the folder that holds it."""
        with tempfile.TemporaryDirectory() as folder:
            self.export(self.workflow, Path(folder) / self.name, **self.more)
            return _files(Path(folder))


def check_exporter(export: Callable[..., Any], workflow: Workflow, **more: Any) -> None:
    """Run all checks on an exporter; the arguments are those of ExporterCase. Raises AssertionError that says what to
    fix."""
    run_all(exporter_checks(), ExporterCase(export, workflow, **more))


def exporter_checks() -> list[Callable[[ExporterCase], None]]:
    """All checks, for `pytest.mark.parametrize`."""
    return checks_in(__name__)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def check_exporter_is_documented(case: ExporterCase) -> None:
    """It says what it writes."""
    assert_documented(case.export, name_of(case.export))


def check_exporter_writes_where_it_is_told(case: ExporterCase) -> None:
    """It writes something, below the given path alone, and nothing to the current folder."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as here:
        os.chdir(here)
        try:
            written = case.files()
            strays = list(_files(Path(here)))
        finally:
            os.chdir(before)
    assert not strays, f"{name_of(case.export)} writes {strays[0]} to the current folder: write below `path`"
    assert written, f"{name_of(case.export)} writes nothing"
    beside = [name for name in written if Path(name).parts[0] != case.name]
    assert not beside, f"{name_of(case.export)} writes {beside[0]} beside `path`: write to it or below it"


def check_exporter_is_deterministic(case: ExporterCase) -> None:
    """The same workflow gives the same bytes: users keep exports under version control."""
    found = []
    for seed in (1, 2):
        with seeded(seed):
            found.append(case.files())
    differ = sorted(name for name in found[0].keys() | found[1].keys() if found[0].get(name) != found[1].get(name))
    assert not differ, f"{name_of(case.export)} writes another {differ[0]} the second time: write no times and no sets"


def check_exporter_leaves_the_workflow_unchanged(case: ExporterCase) -> None:
    """A workflow is a value."""
    with unchanged("copy the tree before you change it", the_workflow=case.workflow.tree):
        case.files()
