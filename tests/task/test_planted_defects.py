"""`validate --deep` finds each planted defect at its place, and nothing in the same file without it, nor in ours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.helpers.planted_defects import check_deeply, planted_cases, shipped_files, starter_workflows, write_case

from workbench.cli import cli
from workbench.errors import PAPER_CODES, DefectKind
from workbench.spec import load_yaml_file

CASES = planted_cases()


def test_a_planted_defect_is_found_at_its_place(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, case in enumerate(CASES):
        with subtests.test(case["plant"]):
            folder = tmp_path / str(number)
            folder.mkdir()
            file = write_case(folder, case["file"])
            told = check_deeply(file)
            found = {defect["kind"]: defect for defect in told["defects"]}
            assert sorted(found) == sorted([case["kind"], *case.get("also", [])]), told["defects"]
            assert len(told["defects"]) == len(found), "each once"
            path = tuple(int(part) if part.isdigit() else part for part in case["at"].split("."))
            defect, source = found[case["kind"]], load_yaml_file(file)
            assert (defect["line"], defect["column"]) == source.position(path)
            assert source.position(path) != (1, 1) and defect["file"] == str(file)
            assert defect["message"] and defect["hint"], "what is wrong, and what to write instead"
            assert (told["ok"], told["exit_code"]) == (False, 2)


def test_the_same_without_the_defect_has_no_finding(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, case in enumerate(CASES):
        with subtests.test(case["plant"]):
            folder = tmp_path / str(number)
            folder.mkdir()
            told = check_deeply(write_case(folder, case["near"]))
            assert (told["defects"], told["ok"], told["exit_code"]) == ([], True, 0)


def test_each_kind_is_planted() -> None:
    assert {case["kind"] for case in planted_cases()} == {kind.value for kind in DefectKind}
    assert set(PAPER_CODES) < {*DefectKind}


def test_no_workflow_of_ours_has_a_finding(subtests: pytest.Subtests) -> None:
    for file in shipped_files():
        with subtests.test(file.name):
            assert check_deeply(file)["defects"] == []


def test_no_starter_has_a_finding(tmp_path: Path) -> None:
    files = starter_workflows(tmp_path)
    assert len(files) == 4
    for file in files:
        assert check_deeply(file)["defects"] == [], file


def test_loading_the_code_changes_no_finding(tmp_path: Path) -> None:
    for case in planted_cases():
        if case["kind"] in ("undescribed_tool", "undescribed_argument", "empty_result"):
            file = write_case(tmp_path, case["file"])
            assert check_deeply(file)["defects"] == check_deeply(file, "--run-code")["defects"], case["plant"]


def test_neither_tools_nor_servers_are_started(tmp_path: Path) -> None:
    keys = {"nodes": {"solve": {"agent": "text -> label", "tools": ["python:evil.py:f", "mcp:python evil.py#g"]}}}
    file = write_case(tmp_path, keys)
    (tmp_path / "evil.py").write_text("import pathlib\npathlib.Path('ran').touch()\ndef f(query): return 1\n")
    before = {name for name in sys.modules if "evil" in name}
    assert {d["kind"] for d in check_deeply(file)["defects"]} == {"undescribed_tool", "undescribed_argument"}
    assert not (tmp_path / "ran").exists() and {name for name in sys.modules if "evil" in name} == before


def test_a_label_that_is_read_is_refused_before(tmp_path: Path) -> None:
    file = write_case(tmp_path, {"nodes": {"sort": {"predict": "text, label -> label"}}})
    told = check_deeply(file)
    assert told["exit_code"] != 0 and "would be shown the right answer" in told["errors"][0]["message"]


def test_a_finding_is_a_line_with_its_place_and_a_remedy(tmp_path: Path) -> None:
    keys = {"nodes": {"solve": {"agent": "text -> label", "tools": ["python:tools.py:search"], "max_steps": 1}}}
    file = write_case(tmp_path, keys)
    done = CliRunner().invoke(cli, ["validate", str(file), "--deep"])
    assert done.exit_code == 2
    line = next(i for i, text in enumerate(file.read_text().split("\n"), 1) if "max_steps" in text)
    assert f"{file}:{line}:4: few_steps (MNFT): max_steps is 1, and a call and an answer take 2\n  Write" in done.stdout
    assert done.stdout.endswith("1 defect found.\n")
    assert CliRunner().invoke(cli, ["validate", str(file)]).exit_code == 0, "without --deep it is valid"


def test_a_file_with_other_faults_is_refused_as_without_deep(tmp_path: Path) -> None:
    file = write_case(tmp_path, {"nodes": {"sort": {"predict": "text -> label", "sampels": 3}}})
    plain = CliRunner().invoke(cli, ["validate", str(file), "--json"])
    assert CliRunner().invoke(cli, ["validate", str(file), "--json", "--deep"]).stdout == plain.stdout


def test_unread_fields_are_told_once(tmp_path: Path) -> None:
    keys = {"nodes": {"a": {"predict": "text -> topic, mood"}, "b": {"predict": "text, topic -> label"}}}
    told = check_deeply(write_case(tmp_path, keys))
    assert [d["kind"] for d in told["defects"]] == ["unread_output"]
    assert not [w for w in told["warnings"] if "nothing reads" in w]


def test_a_kind_of_a_plugin_finds_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.errors import Defect
    from workbench_predict.node import Predict

    own = [Defect("too_polite", "it says please", "Leave it out.", ("instructions",))]
    monkeypatch.setattr(Predict, "defects", lambda node, around: own)
    file = write_case(tmp_path, {"nodes": {"sort": {"predict": "text -> label", "instructions": "Please sort."}}})
    (found,) = check_deeply(file)["defects"]
    assert (found["kind"], found["code"], found["hint"]) == ("too_polite", "", "Leave it out.")
