"""Texts of an agent are written back where they stand in its source, and nowhere else."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from workbench.cli import cli
from workbench.errors import StoreError
from workbench_external.apply import Place, describe_changes, find_places, write_places
from workbench_external.commands import _write_files
from workbench_external.config import Slot

NEW = 'Be "kind" and brief.\nDay: {{1}}, {not a field}'


def slot(match: str, text: str, place: str = "system", **more: Any) -> Slot:
    return Slot.model_validate({"in": place, "match": match, "text": text, **more})


def value_of(source: str, **names: Any) -> Any:
    """What the name `prompt` has after a source was run."""
    space = dict(names)
    exec(compile(source, "agent.py", "exec"), space)
    return space["prompt"]


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ('prompt = "Be short."\n', "Be short."),
        ("prompt = 'Be ' 'short.'\n", "Be short."),
        ('prompt = """Be\nshort."""\n', "Be\nshort."),
        ("x = ('é', 1); prompt = ('Be '\n  'short.')\n", "Be short."),
    ],
)
def test_a_string_is_replaced_however_it_is_written(source: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(source, encoding="utf-8")
    text = 'Be "kind" \\ {here}.\nAnd brief.'
    changed = write_places(find_places(slot(match, text), tmp_path))
    assert value_of(changed[tmp_path / "agent.py"]) == text


def test_fields_of_an_f_string_and_of_a_format_stay_what_they_were(tmp_path: Path) -> None:
    for source, names in (
        ("prompt = f'Be short on {day:%A} please.'\n", {"day": __import__("datetime").date(2026, 11, 23)}),
        ("prompt = 'Be short on {} please.'.format('Monday')\n", {}),
        ("prompt = 'Be short on {day} please.'.format(day='Monday')\n", {}),
    ):
        (tmp_path / "agent.py").write_text(source)
        changed = write_places(find_places(slot("Be short on {{1}} please.", NEW), tmp_path))
        found = value_of(changed[tmp_path / "agent.py"], **names)
        assert found == 'Be "kind" and brief.\nDay: Monday, {not a field}'


@pytest.mark.parametrize(
    "source",
    [
        "prompt = f\"The text: {row['text']}. Which kind?\"\n",
        "prompt = f'The text: {row[\"text\"]}. Which kind?'\n",
        "prompt = ('The text: '\n  f\"{row['text']}. \"\n  'Which kind?')\n",
        "prompt = 'The text: ' + row['text'] + '. Which kind?'\n",
        "prompt = ('The text: ' + (row['text'] or '') + '. ' +\n  'Which kind?')\n",
    ],
)
def test_an_input_stays_what_it_was_in_the_new_text(source: str, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(source)
    found = slot("The text: {{text}}. Which kind?", 'Kind of "{{text}}"?\n{no field}', "user")
    changed = write_places(find_places(found, tmp_path))[tmp_path / "agent.py"]
    assert value_of(changed, row={"text": "a b"}) == 'Kind of "a b"?\n{no field}'


def test_a_part_of_a_sum_is_not_its_text(tmp_path: Path) -> None:
    for source in ("p = 'The text: ' + text + '.' + more", "p = more + 'The text: ' + text", "p = 'Go' + f'{text}.'"):
        (tmp_path / "agent.py").write_text(source)
        assert find_places(slot("The text: {{1}}.", "Kind of {{1}}", "user"), tmp_path) == []
        assert find_places(slot("The text: {{1}}", "Kind of {{1}}", "user"), tmp_path) == []


def test_the_description_in_a_docstring_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        'def search(words):\n    """Find pages.\n\n    By words.\n    """\n    return 1\n'
    )
    places = find_places(slot("Find pages.\n\nBy words.", "Find pages by nouns.", "tool", name="search"), tmp_path)
    tree = ast.parse(write_places(places)[tmp_path / "agent.py"])
    assert ast.get_docstring(tree.body[0]) == "Find pages by nouns."  # type: ignore[arg-type]


def test_other_files_are_searched_as_they_are_and_as_json(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("Be short.\n\nUse\ttools.\n")
    (tmp_path / "agent.json").write_text(json.dumps({"prompt": "Be short.\n\nUse\ttools."}))
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules/x.txt").write_text("Be short.\n\nUse\ttools.\n")
    (tmp_path / "picture.bin").write_bytes(b"\xff\xfe Be short.")
    changed = write_places(find_places(slot("Be short.\n\nUse\ttools.", 'Be "kind".\nNow.'), tmp_path))
    assert changed == {
        tmp_path / "prompt.txt": 'Be "kind".\nNow.\n',
        tmp_path / "agent.json": '{"prompt": "Be \\"kind\\".\\nNow."}',
    }


def test_what_would_break_a_file_or_leave_the_folder_has_no_place(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "victim").write_text("old")
    (tmp_path / "src/agent.js").write_text("const p = 'Guess.'; // Guess.\n")
    (tmp_path / "src/package.json").write_text('{"name": "x"}')
    (tmp_path / "src/optimized.yaml").write_text("external: x\nmatch: Guess.\n")
    for name in ("../victim", str(tmp_path / "victim")):
        assert find_places(slot("old", "new", "file", name=name), tmp_path / "src") == []
    assert find_places(slot("Guess.", "Don't guess.\nLook."), tmp_path / "src") == []
    assert find_places(slot("name", "the name", "parameter"), tmp_path / "src") == []
    (changed,) = write_places(find_places(slot("Guess.", "Look."), tmp_path / "src")).values()
    assert changed == "const p = 'Look.'; // Guess.\n"


def test_a_file_is_replaced_whole_and_a_text_that_is_not_there_has_no_place(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text("old")
    assert write_places(find_places(slot("old", "new", "file", name="SKILL.md"), tmp_path)) == {
        tmp_path / "SKILL.md": "new"
    }
    assert find_places(slot("nowhere to be found", "new"), tmp_path) == []
    assert find_places(slot("old", "old", "file", name="SKILL.md"), tmp_path) == []


def test_a_file_that_was_changed_since_has_no_place_and_newlines_stay_what_they_are(tmp_path: Path) -> None:
    found = slot("line\nold", "line\nnew", "file", name="SKILL.md")
    (tmp_path / "SKILL.md").write_bytes(b"line\r\nold")
    assert write_places(find_places(found, tmp_path)) == {tmp_path / "SKILL.md": "line\r\nnew"}
    (tmp_path / "SKILL.md").write_bytes(b"line\r\nmine")
    assert find_places(found, tmp_path) == []


def test_of_places_that_overlap_one_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Be short and kind.")
    first, second = Place(path, 0, 8, "Be brief"), Place(path, 0, 8, "Be terse")
    assert write_places([first, second]) == {path: "Be brief and kind."}, "of two slots with one text the first"
    apart, beside = Place(path, 13, 17, "warm"), Place(path, 8, 13, ", yet ")
    assert write_places([first, apart, beside]) == {path: "Be brief, yet warm."}, "places that touch do not overlap"
    across = Place(path, 3, 12, "curt but")
    by_one = Place(path, 3, 9, "curt, ")
    for places in ([first, across], [across, first], [across, beside], [beside, across], [by_one, beside]):
        (text,) = write_places(places).values()
        assert text in [write_places([one])[path] for one in places], text


def test_a_link_is_no_file_of_the_folder(tmp_path: Path) -> None:
    """Through it a file elsewhere would be written, or one file twice."""
    inside, elsewhere = tmp_path / "agent", tmp_path / "elsewhere"
    for folder in (inside, elsewhere):
        folder.mkdir()
    for path in (elsewhere / "theirs.txt", inside / "own.txt"):
        path.write_text("Be short.")
    (inside / "link.txt").symlink_to(elsewhere / "theirs.txt")
    (inside / "again.txt").symlink_to(inside / "own.txt")
    (inside / "folder").symlink_to(elsewhere)
    found = find_places(slot("Be short.", "Be kind."), inside)
    assert [place.path for place in found] == [inside / "own.txt"]


def test_the_diff_is_one_that_git_applies(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/agent.py").write_text("import os\n\nprompt = 'Be short.'")
    (tmp_path / "a/b.txt").write_text("Be short.\nEnd\n")
    changed = write_places(find_places(slot("Be short.", "Be kind."), tmp_path))
    diff = describe_changes(changed, tmp_path)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=diff, text=True, check=True)
    assert {path: path.read_text() for path in changed} == changed


@pytest.mark.slow
def test_the_command_shows_then_writes_and_says_what_has_no_place(tmp_path: Path) -> None:
    node = {
        "external": "text -> label",
        "command": ["python", "agent.py"],
        "slots": {
            "system": {"in": "system", "match": "Be short.", "text": "Be kind."},
            "lost": {"in": "system", "match": "Nowhere.", "text": "x"},
        },
    }
    (tmp_path / "out.yaml").write_text(json.dumps({"name": "t", "lm": "openai/m", "nodes": {"agent": node}}))
    (tmp_path / "src").mkdir()
    (tmp_path / "src/agent.py").write_text("prompt = 'Be short.'\n")

    def apply(*flags: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "workbench", "apply", "out.yaml", "--to", "src", *flags]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    shown = apply()
    assert '+prompt = "Be kind."' in shown.stdout and shown.returncode == 1
    assert "nodes.agent.slots.lost stands nowhere" in shown.stderr
    assert "Be short" in (tmp_path / "src/agent.py").read_text()
    apply("--write")
    assert value_of((tmp_path / "src/agent.py").read_text()) == "Be kind."
    again = apply("--write")
    assert (
        "nodes.agent.slots.system stands there already." in again.stderr and "system stands nowhere" not in again.stderr
    )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"temperature": 0.0}, "nodes.agent.temperature"),
        ({"lm": "openai/small"}, "nodes.agent.lm"),
        ({"slots": {"s": {"in": "system", "match": "Be short.", "lm": "openai/small"}}}, "nodes.agent.slots.s.lm"),
        (
            {"slots": {"s": {"in": "system", "match": "Be short.", "temperature": 0.0}}},
            "nodes.agent.slots.s.temperature",
        ),
    ],
)
def test_what_is_no_text_is_told_since_the_source_lacks_it(settings: Any, told: str, tmp_path: Path) -> None:
    node = {"external": "text -> label", "command": ["x"], **settings}
    (tmp_path / "out.yaml").write_text(json.dumps({"name": "t", "lm": "openai/m", "nodes": {"agent": node}}))
    found = CliRunner().invoke(cli, ["apply", str(tmp_path / "out.yaml"), "--to", str(tmp_path)])
    assert f"{told} stands nowhere in" in found.stderr and found.exit_code == 1


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"gone/agent.py cannot be written: No such file"):
        _write_files({tmp_path / "gone/agent.py": "x"})
