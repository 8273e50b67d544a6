"""Texts of an agent are written back where they stand in its source, and nowhere else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
from click.testing import CliRunner
from tests.helpers.forking import run_module

from workbench.cli import cli
from workbench.errors import StoreError
from workbench_external.apply import Edit, Finding, describe_changes, find_changed, find_text, write_edits
from workbench_external.commands import _write_files
from workbench_external.config import Slot


def slot(match: str, text: str, place: str = "system", **more: Any) -> Slot:
    return Slot.model_validate({"in": place, "match": match, "text": text, **more})


def value_of(source: str, **names: Any) -> Any:
    """What the name `prompt` has after a source was run."""
    space = dict(names)
    exec(compile(source, "agent.py", "exec"), space)
    return space["prompt"]


def finding(folder: Path, match: str, text: str, place: str = "system", **more: Any) -> Finding:
    return find_text(slot(match, text, place, **more), [folder])


def written(folder: Path, match: str, text: str, place: str = "system", **more: Any) -> dict[Path, str]:
    return write_edits(finding(folder, match, text, place, **more).edits[:1])


def test_each_reason_why_a_text_is_not_written_is_told(tmp_path: Path) -> None:
    """Not found; found and cannot be written; found several times: where (issue 34 point 5)."""
    assert finding(tmp_path, "You sort the post.", "x").why == f"is not in {tmp_path}"
    (tmp_path / "a.rb").write_text('\nP = "You sort the post."\n')
    told = "was found, but cannot be written: a.rb:2, texts in Ruby are not written"
    assert finding(tmp_path, "You sort the post.", "x").why == told
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("\n\nP = 'You sort the post.'\n")
    assert finding(tmp_path, "You sort the post.", "x").why == "is in several places: a.py:3, b.py:3"
    assert finding(tmp_path, "query", "x", "parameter").why == "is too short to be found for certain: 'query'"


def test_what_others_made_and_what_is_hidden_is_never_written(tmp_path: Path) -> None:
    folder = tmp_path / "src"
    for name in ("node_modules/a.js", ".git/a.js", ".hidden/a.py", ".secret.py", "venv/a.py", "dist/a.js"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("p = 'You sort the post.'")
    (folder / "optimized.yaml").write_text("nodes: {a: {external: x -> y}}\nmatch: You sort the post.\n")
    (folder / "picture.md").write_bytes(b"\xff\xfe You sort the post.")
    assert finding(folder, "You sort the post.", "x").why == f"is not in {folder}"


@pytest.mark.parametrize(
    "name", [".git/config", ".claude/SKILL.md", "run.sh", "../CLAUDE.md", "link/CLAUDE.md", "AGENTS.md/x"]
)
def test_security_11_a_slot_of_a_file_writes_no_other_file(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "src"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "CLAUDE.md").write_text("old")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/CLAUDE.md").write_text("old")
    if name.startswith("link"):
        (folder / "link").rmdir()
        (folder / "link").symlink_to(tmp_path / "elsewhere")
    else:
        (folder / name).write_text("old")
    for match in ("old", ""):
        found = finding(folder, match, "[core]\n\tfsmonitor = touch PWN\n", "file", name=name)
        assert not found.edits and "is never written" in found.why


def test_security_11_a_file_is_replaced_only_where_it_is_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("mine")
    for match in ("", "old"):
        assert (
            finding(tmp_path, match, "new", "file", name="CLAUDE.md").why
            == "is another text in CLAUDE.md than was found"
        )
    assert "does not keep" in finding(tmp_path, "mine", "a\0b", "file", name="CLAUDE.md").why


def test_a_file_is_replaced_whole_and_a_text_that_is_not_there_has_no_place(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text("old")
    assert written(tmp_path, "old", "new", "file", name="SKILL.md") == {tmp_path / "SKILL.md": "new"}
    assert finding(tmp_path, "old", "new", "file", name="AGENTS.md").why == "has no place: there is no file AGENTS.md"


def test_a_file_that_was_changed_since_has_no_place_and_newlines_stay_what_they_are(tmp_path: Path) -> None:
    found = slot("line\nold", "line\nnew", "file", name="SKILL.md")
    (tmp_path / "SKILL.md").write_bytes(b"line\r\nold")
    assert write_edits(find_text(found, [tmp_path]).edits) == {tmp_path / "SKILL.md": "line\r\nnew"}
    (tmp_path / "SKILL.md").write_bytes(b"line\r\nmine")
    assert not find_text(found, [tmp_path]).edits


def test_of_places_that_overlap_one_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Be short and kind.")
    held = path.read_text()
    first, second = Edit(path, 0, 8, "Be brief", held), Edit(path, 0, 8, "Be terse", held)
    assert write_edits([first, second]) == {path: "Be brief and kind."}, "of two slots with one text the first"
    apart, beside = Edit(path, 13, 17, "warm", held), Edit(path, 8, 13, ", yet ", held)
    assert write_edits([first, apart, beside]) == {path: "Be brief, yet warm."}, "places that touch do not overlap"
    across = Edit(path, 3, 12, "curt but", held)
    by_one = Edit(path, 3, 9, "curt, ", held)
    for places in ([first, across], [across, first], [across, beside], [beside, across], [by_one, beside]):
        (text,) = write_edits(places).values()
        assert text in [write_edits([one])[path] for one in places], text


def test_a_file_that_was_saved_while_it_was_tried_is_not_written(tmp_path: Path) -> None:
    """Places were found in it as it was."""
    path, other = tmp_path / "a.py", tmp_path / "b.py"
    path.write_text('P = "You sort the post."\n')
    other.write_text('Q = "You label the mail."\n')
    edits = finding(tmp_path, "You sort the post.", "Be brief.").edits
    edits += finding(tmp_path, "You label the mail.", "Be kind.").edits
    path.write_text(saved := f"# by its author\n{path.read_text()}")
    assert write_edits(edits)[path] == 'P = "Be brief."\n' and find_changed(edits) == [path]
    with pytest.raises(StoreError, match=r"a\.py was changed after it was read, so nothing was written: run"):
        _write_files(write_edits(edits), find_changed(edits))
    assert path.read_text() == saved and "label" in other.read_text()


def test_a_tuple_of_one_stays_a_tuple(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('prompt = " ".join(("You sort the post.", "Be brief and kind."))\n')
    for text in ("Be kind.", "You sort the post.", "Be kind. " * 20):
        (source,) = written(tmp_path, "You sort the post. Be brief and kind.", text).values()
        assert value_of(source).strip() == text.strip()


def test_what_stands_between_tags_of_jinja_is_written_by_itself(tmp_path: Path) -> None:
    template = "You sort the post.{% if late %} Hurry, {{ name }}, it is late.{% endif %} Be brief and kind."
    (tmp_path / "a.py").write_text(f"prompt = {template!r}\n")
    new = "You label mail {% raw %} for {{ all }}."
    edits = finding(tmp_path, "You sort the post.", new).edits[:1]
    edits += finding(tmp_path, "Hurry, {{1}}, it is late.", "{{1}}, hurry up!").edits[:1]
    edits += finding(tmp_path, "Be brief and kind.", "Be kind.").edits[:1]
    (source,) = write_edits(edits).values()
    shown = jinja2.Template(value_of(source))
    assert (
        shown.render(late=False) == f"{new} Be kind."
        and shown.render(late=True, name="Al") == f"{new} Al, hurry up! Be kind."
    )
    assert not finding(tmp_path, "You sort the post.{{1}}Be brief and kind.", new).edits, "a tag is no field"


def test_a_string_of_json_holds_nothing_that_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "You sort the pöst."}\n{"prompt": "other"}\n')
    text = "One.\u2028Two.\x85Three.\ufeff"
    (found,) = written(tmp_path, "You sort the pöst.", text).values()
    assert json.loads(found.splitlines()[0])["prompt"] == text and len(found.splitlines()) == 2


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
    found = finding(inside, "Be short.", "Be kind.")
    assert [edit.path for edit in found.edits] == [inside / "own.txt"]


def test_the_diff_is_one_that_git_applies(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/agent.py").write_text("import os\n\nprompt = 'Be short.'")
    # What Python takes for the end of a line, git does not.
    (tmp_path / "a/b.txt").write_bytes("One\u2028two\x85\x0c\x1c\n\nBe short now.\r\n\r\nEnd\n".encode())
    edits = [
        *finding(tmp_path, "Be short.", "Be kind.").edits,
        *finding(tmp_path, "Be short now.", "Be kind now.").edits,
    ]
    changed = write_edits(edits)
    diff = describe_changes(changed, tmp_path)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=diff.encode(), check=True)
    assert {path: path.read_bytes().decode() for path in changed} == changed
    assert len(changed) == 2 and diff.count("No newline") == 2


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
        words = ("agent", "apply", "out.yaml", "--to", "src", *flags)
        return run_module("workbench", *words, cwd=tmp_path, timeout=100)

    shown = apply()
    assert '+prompt = "Be kind."' in shown.stdout and shown.returncode == 1
    assert "nodes.agent.slots.lost is not in" in shown.stderr
    assert "Be short" in (tmp_path / "src/agent.py").read_text()
    assert "not started from" in apply("--write").stderr and "Be short" in (tmp_path / "src/agent.py").read_text()
    apply("--write", "--unchecked")
    assert value_of((tmp_path / "src/agent.py").read_text()) == "Be kind."
    again = apply("--write", "--unchecked")
    assert "nodes.agent.slots.system is already there." in again.stderr and "system is not in" not in again.stderr


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
    found = CliRunner().invoke(cli, ["agent", "apply", str(tmp_path / "out.yaml"), "--to", str(tmp_path)])
    assert f"{told} is not a text of the agent" in found.stderr and found.exit_code == 1


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"gone/agent.py cannot be written: No such file"):
        _write_files({tmp_path / "gone/agent.py": "x"}, [])
