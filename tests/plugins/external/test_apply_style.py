"""`apply` writes as the file is written (existing-agents.md finding 8): quotes, literals, lines and ends of files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.helpers.prompt_idioms import HOSTILE, SEVERAL
from tests.helpers.prompt_sources import KIND, OLD, ROOM, Way, changed, data_value, finding_of, python_value

from workbench_external.apply import describe_changes, find_text, write_edits
from workbench_external.config import Slot
from workbench_external.slots.files import content_of
from workbench_external.sources.folder import Sources

LONG = " Be brief and kind to whoever writes to us, and never say more than what was asked for by the letter."


def written(source: str, match: str, new: str, folder: Path, file: str = "a.py") -> str:
    return changed(Way(file, source, match, new), folder)[0]


def test_8_an_f_string_of_several_lines_stays_one(tmp_path: Path) -> None:
    source = f'prompt = f"""Of {{text}}.\n{OLD}"""\n'
    after = written(source, f"Of {{{{text}}}}.\n{OLD}", f"Of {{{{text}}}}.\n{OLD}{SEVERAL}", tmp_path)
    rules = SEVERAL.replace("{", "{{").replace("}", "}}")
    assert after == f'prompt = f"""Of {{text}}.\n{OLD}{rules}"""\n'
    assert python_value(after) == f"Of T.\n{OLD}{SEVERAL}"


@pytest.mark.parametrize(
    ("source", "match"),
    [
        pytest.param(f'prompt = "{ROOM} " + text + ". {KIND}"\n', f"{ROOM} {{{{text}}}}. {KIND}", id="sum"),
        pytest.param(f'prompt = (\n    "{ROOM}\\n"  # why\n    "{KIND}"\n)\n', OLD, id="literals that meet"),
        pytest.param(
            f'prompt = (\n    "{ROOM} "\n    f"Of {{text}}. "\n    "{KIND}"\n)\n',
            f"{ROOM} Of {{{{text}}}}. {KIND}",
            id="f-strings that meet",
        ),
        pytest.param(
            f'prompt = "\\n".join([\n    "{ROOM}",  # why\n    f"{{text}}",\n    "{KIND}",\n])\n', None, id="list"
        ),
        pytest.param(f'prompt = dict(\n    system="{ROOM}",\n)["system"]\n', ROOM, id="argument"),
    ],
)
@pytest.mark.parametrize("more", [LONG, SEVERAL, HOSTILE], ids=["long", "several", "hostile"])
def test_8_what_did_not_change_is_kept_and_no_line_is_too_long(
    source: str, match: str | None, more: str, tmp_path: Path
) -> None:
    match = match or f"{ROOM}\n{{{{text}}}}\n{KIND}"
    after = written(source, match, match + more, tmp_path)
    assert python_value(after) == match.replace("{{text}}", "T") + more
    last = KIND if KIND in source else ROOM  # it becomes longer if it is an element, or newlines stand behind it
    for literal in re.findall(r'f?"[^"]*[a-z]{4}[^"]*"(?:  # why)?', source):
        assert literal in after or (last in literal and (".join(" in source or more is not LONG)), after
    assert max(map(len, after.splitlines())) <= max(79, *map(len, source.splitlines())), after
    if (ruff := shutil.which("ruff")) is not None:
        command = [ruff, "check", "--isolated", "--select", "E501", "-"]
        assert subprocess.run(command, input=after, text=True, capture_output=True).returncode == 0, after


@pytest.mark.parametrize("source", ['p = ("One. " "Two.")\n', 'p = "One. " + "Two."\n', 'p = "One. Two."\n'])
@pytest.mark.parametrize("new", ["One. \n\nTwo.", "\nOne. Two.", "One. Two.\n\n- a\n\n- b", "\n\nSo: One. Two."])
@pytest.mark.parametrize("file", ["a.py", "a.js"])
def test_8_no_literal_is_of_newlines_alone(source: str, new: str, file: str, tmp_path: Path) -> None:
    """Those that begin what is new end the literal before it, or else begin the next one."""
    if file == "a.js" and '" "' in source:
        source = source.replace('" "', '"\n  + "')
    way = Way(file, source, "One. Two.", new)
    slot = Slot.model_validate({"in": "system", "match": way.match, "text": way.new})
    (tmp_path / file).write_text(source)
    for after in (write_edits([edit])[tmp_path / file] for edit in find_text(slot, [tmp_path]).edits[:1]):
        assert not re.search(r"""(?<![\w.])(["'])(\\n)+\1""", after), after
        if file == "a.py":
            space: dict[str, str] = {}
            exec(after, space)
            assert space["p"] == new


def test_8_a_text_amid_others_is_written_amid_them(tmp_path: Path) -> None:
    source = 'prompt = (\n    "One is this. "\n    "Two is that. "\n    "Three is it."\n)\n'
    text = "One is this. Two is that. Three is it."
    after = written(source, text, text.replace("Two", "2"), tmp_path)
    assert after == source.replace("Two", "2")
    without = written(source, text, text.replace("Two is that. ", ""), tmp_path)
    assert without == source.replace('    "Two is that. "\n', "")


def test_8_a_sum_in_javascript_keeps_its_literals(tmp_path: Path) -> None:
    source = f'const p = "{ROOM} " +\n  text +\n  ". {KIND}";\n'
    match = f"{ROOM} {{{{text}}}}. {KIND}"
    after = written(source, match, match + SEVERAL, tmp_path, "a.js")
    assert after.startswith(f'{source[:-3]}\\n\\n" +\n  "## Rules') and "## Rules\\n" in after and "`" not in after


@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md"])
def test_8_a_file_of_text_keeps_its_last_newline(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("Be kind.\n")
    slot = Slot.model_validate({"in": "file", "name": name, "match": "Be kind.\n", "text": "Be brief."})
    assert write_edits(find_text(slot, [tmp_path]).edits) == {tmp_path / name: "Be brief.\n"}
    assert content_of(slot) == "Be brief.\n", "as the search runs it"
    assert content_of(slot.model_copy(update={"match": "Be kind."})) == "Be brief."


ENDS = {
    "a.yaml": f"prompt: |\n  {ROOM}\n  {KIND}\nnext: 1\n",
    "a.toml": f'prompt = """\n{OLD}\n"""\n',
    "a.py": f'prompt = """\\\n{OLD}\n"""\n',
    "a.json": f'{{"prompt": {json.dumps(OLD)[:-1]}\\n"}}\n',
}


@pytest.mark.parametrize("file", ENDS)
def test_8_a_text_that_ended_with_a_newline_keeps_it(file: str, tmp_path: Path) -> None:
    """A proposal is stripped, and a trial tells no space at the ends of what is sent. In a part of a text it does."""
    (tmp_path / file).write_text(ENDS[file])
    slot = Slot.model_validate({"in": "system", "match": f"{OLD}\n", "text": "Be brief."})
    values = list[str]()
    for one in (slot, slot.model_copy(update={"part": True}), slot.model_copy(update={"text": "Be brief. "})):
        after = write_edits(find_text(one, [tmp_path]).edits[:1])[tmp_path / file]
        values.append(python_value(after) if file == "a.py" else data_value(file, after))
    assert values == ["Be brief.\n", "Be brief.", "Be brief. "]
    if file == "a.yaml":
        after = write_edits(find_text(slot, [tmp_path]).edits)[tmp_path / file]
        assert after == "prompt: |\n  Be brief.\nnext: 1\n"


SECTIONS = {
    "Markdown": ("p.md", f"# System\n\n{OLD}\n\n# User\n\nGo.\n"),
    "Markdown below others": ("p.md", f"# A\n\n# System\n\nFirst.\n\n## Kinds\n\n{OLD}\n\n# User\n\nGo.\n"),
    "Prompty": ("p.prompty", f"---\nname: p\n---\nsystem:\n{OLD}\n\nuser:\nGo.\n"),
    "tags": ("p.txt", f"<system>\n{OLD}\n</system>\n<user>\nGo.\n</user>\n"),
}


@pytest.mark.parametrize("name", SECTIONS)
def test_8_a_heading_is_written_into_a_part_that_holds_it(name: str, tmp_path: Path) -> None:
    file, source = SECTIONS[name]
    new = f"{OLD}\n\n### Rules\n\n- One."
    assert written(source, OLD, new, tmp_path, file) == source.replace(OLD, new)
    border = "user:" if file.endswith("y") else "# Rules" if file.endswith("md") else "<user>"
    finding = finding_of(Way(file, source, OLD, f"{OLD}\n\n{border}\n\nGo."), tmp_path)
    assert not finding.edits and f"its line '{border}' would begin another part of the file" in finding.why


def test_9_the_messages_of_one_text_are_written_together(tmp_path: Path) -> None:
    parts = [("system", OLD), ("user", "Of {{ desks | join(', ') }}: this is it, {{ text }}")]
    template = "".join(f'{{% message role="{role}" %}}{text}{{% endmessage %}}\n' for role, text in parts)
    (tmp_path / "p.json").write_text(json.dumps({"t": template, "n": 1}))
    sources = Sources([tmp_path])
    texts = {OLD: f"{OLD}\nBe brief.", "Of {{1}}: this is it, {{text}}": "Of {{1}}: it is {{text}}, as {b}"}
    slots = [Slot.model_validate({"in": "system", "match": match, "text": text}) for match, text in texts.items()]
    first, second = (find_text(slot, sources).edits[0] for slot in slots)
    assert first.place != second.place
    after = write_edits([first, second])[tmp_path / "p.json"]
    assert json.loads(after)["n"] == 1
    wanted = template.replace(OLD, f"{OLD}\nBe brief.").replace("this is it, {{ text }}", "it is {{ text }}, as {b}")
    assert json.loads(after)["t"] == wanted


def test_9_a_diff_of_a_file_of_variables_shows_no_key(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(f"KEY=secret\nSORT={ROOM}\nTOKEN=secret\n")
    finding = find_text(Slot.model_validate({"in": "system", "match": ROOM, "text": f"{ROOM} Now."}), [tmp_path])
    diff = describe_changes(write_edits(finding.edits[:1]), tmp_path)
    assert f"+SORT={ROOM} Now." in diff and "secret" not in diff
