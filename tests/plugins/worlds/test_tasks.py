"""Readers of benchmarks: `intercode:FILE` needs no package; the others are tried by test_real_worlds.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.strangers import passed_by

from workbench.errors import SpecError
from workbench.task import read_rows
from workbench_worlds import tasks

#: In the form of InterCode's data/nl2bash/nl2bash_fs_2.json.
ROWS = [{"query": "Count files", "gold": "ls | wc -l"}, {"query": "Say hi", "gold": "echo hi"}]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "nl2bash_fs_2.json"
    path.write_text(json.dumps(ROWS))
    return path


def test_a_file_of_intercode_names_its_file_system(file: Path) -> None:
    assert tasks.intercode(str(file), {}) == [{**row, "file_system": 2} for row in ROWS]
    assert not tasks.intercode.runs_code(str(file), {}), "they were listed: nothing runs"
    assert len(read_rows(f"intercode:{file}", Path.cwd(), {}, code="outlined")) == 2
    file.write_text(json.dumps(ROWS[:1]))
    assert len(tasks.intercode(str(file), {})) == 1


def test_tasks_that_were_not_listed_run_no_package_where_code_may_not_run(file: Path) -> None:
    with pytest.raises(SpecError, match="runs the package that has them"):
        read_rows(f"intercode:{file}", Path.cwd(), {}, code="outlined")
    assert tasks.intercode.runs_code(str(file), {}), "still not listed"


@pytest.mark.parametrize(
    ("place", "options", "said"),
    [("none_1.json", {}, "No such file"), ("nl2bash_fs_2.json", {"split": "dev"}, "unexpected keyword argument")],
)
def test_what_cannot_be_listed_is_told(
    place: str, options: dict[str, Any], said: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    with pytest.raises(SpecError, match=said):
        tasks.intercode(place, options)


def test_a_reader_says_its_package_and_its_file(tmp_path: Path) -> None:
    said = [one.text for one in passed_by(tmp_path, data="tau2:retail")]
    assert said == ["tau2:retail", "the world tau2", "pip install -r tau2.txt"]
    said = [one.text for one in passed_by(tmp_path, data="intercode:/elsewhere/rows.json")]
    assert said == ["intercode:/elsewhere/rows.json", "the world intercode_bash"]
