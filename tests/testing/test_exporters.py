"""`check_exporter`: each check finds the fault that it is about, and no other check does (friction 30)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.conformance import broken

from workbench.workflow import Workflow, node_tree
from workbench_testing import ExporterCase, check_exporter, exporter_checks


def export(workflow: Workflow, path: Path) -> None:
    """Writes the tree as JSON."""
    path.mkdir()
    (path / "tree.json").write_text(json.dumps(workflow.tree, sort_keys=True, default=str))


def undocumented(workflow, path):
    export(workflow, path)


def writes_here(workflow, path):
    """Leaves a log in the current folder."""
    export(workflow, path)
    Path("export.log").write_text("done")


def writes_beside(workflow, path):
    """Leaves a file beside the path."""
    export(workflow, path)
    path.with_suffix(".log").write_text("done")


def writes_nothing(workflow, path):
    """Forgets to write."""


def adds_a_number(workflow, path):
    """Names each export by a random number."""
    export(workflow, path)
    (path / "id.txt").write_text(str(random.random()))


def changes_the_tree(workflow, path):
    """Removes the demos from the workflow itself."""
    export(workflow, path)
    workflow.tree["nodes"]["n"].pop("signature", None)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def workflow(folder: Path) -> Workflow:
    return Workflow({"nodes": {"n": node_tree({"predict": "q -> a"})}}, folder)


def test_an_exporter_that_keeps_its_contract_passes(tmp_path: Path) -> None:
    check_exporter(export, workflow(tmp_path))


@pytest.mark.parametrize(
    ("exporter", "check", "said"),
    [
        (undocumented, "is_documented", "docstring"),
        (writes_here, "writes_where_it_is_told", "export.log to the current folder"),
        (writes_beside, "writes_where_it_is_told", "beside `path`"),
        (writes_nothing, "writes_where_it_is_told", "writes nothing"),
        (adds_a_number, "is_deterministic", "another exported/id.txt the second time"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_is_found_by_its_check_alone(exporter: Any, check: str, said: str, tmp_path: Path) -> None:
    found = broken(exporter_checks(), ExporterCase(exporter, workflow(tmp_path)))
    assert list(found) == [f"check_exporter_{check}"], found
    assert said in found[f"check_exporter_{check}"]


def test_an_exporter_that_changes_the_workflow_is_found(tmp_path: Path) -> None:
    """Its second export differs, so the check of determinism may see it, too."""
    case = ExporterCase(changes_the_tree, workflow(tmp_path))
    found = broken(exporter_checks()[-1:], case)
    assert "copy the tree" in found["check_exporter_leaves_the_workflow_unchanged"]
