"""Each ordinary way to hold a prompt is read by its value, and another text is written there so that a program reads it
(issue 34 point 5; existing-agents.md finding 4: its 36 ways, and siblings)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from configparser import ConfigParser, RawConfigParser
from contextlib import suppress
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from hypothesis import given, settings, strategies as st
from tests.helpers.prompt_sources import (
    DATA,
    KIND,
    OLD,
    PROSE,
    PYTHON,
    ROOM,
    SCRIPT,
    TEMPLATES,
    Way,
    changed,
    data_value,
    finding_of,
    python_value,
    wanted,
)

from workbench_external.apply import find_text, write_edits
from workbench_external.config import Slot


def test_4_a_text_in_python_is_written_as_the_program_reads_it(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, name in enumerate(PYTHON):
        with subtests.test(name=name):
            folder = tmp_path / str(number)
            folder.mkdir()
            way = PYTHON[name]
            values = list[str]()
            for source in changed(way, folder):
                try:
                    values.append(python_value(source).strip())
                except (KeyError, ValueError, jinja2.TemplateError) as error:  # a way that is not this program's
                    values.append(type(error).__name__)
            spread = "  T" if "!s:>3" in way.source else "T"
            assert wanted(way, spread) in values
            if way.source.count("\r\n"):
                assert "\n" not in changed(way, folder)[0].replace("\r\n", "")


def test_4_texts_in_javascript_are_written_as_the_program_reads_them(tmp_path: Path) -> None:
    """All of them in one process of Node: 12 of 12, of the seven that were found 7."""
    if (node := shutil.which("node")) is None:
        pytest.skip("there is no Node here")
    files = dict[str, list[str]]()
    for number, (name, way) in enumerate(SCRIPT.items()):
        (tmp_path / str(number)).mkdir()
        for which, source in enumerate(changed(way, tmp_path / str(number))):
            file = tmp_path / f"{number}-{which}.mjs"
            file.write_bytes(source.encode())
            files.setdefault(name, []).append(file.as_uri())
    program = (
        "const found = {}; for (const [name, files] of Object.entries(JSON.parse(process.argv[1]))) { found[name] = [];"
        "for (const file of files) found[name].push((await import(file)).prompt) } console.log(JSON.stringify(found))"
    )
    command = [node, "--input-type=module", "-e", program, json.dumps(files)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    values = json.loads(told.stdout)
    assert {name for name, way in SCRIPT.items() if wanted(way) not in values[name]} == set()


def test_4_a_text_in_data_is_written_as_a_parser_reads_it(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, name in enumerate(DATA):
        with subtests.test(name=name):
            folder = tmp_path / str(number)
            folder.mkdir()
            way = DATA[name]
            sources = changed(way, folder)
            assert data_value(way.file, sources[0]).rstrip("\n") == wanted(way)
            if name == "JSON with escapes":
                assert sources[0].isascii()
            if "next" in way.source and not way.file.endswith(".json5"):
                assert yaml.safe_load(sources[0])["next"] == 1


@pytest.mark.parametrize("value", [f" {ROOM}\n  {KIND}\n", f"\n  {ROOM}\n\n\t{KIND}\n\n"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_4_a_value_of_an_ini_file_is_written_as_configparser_reads_it(value: str, newline: str, tmp_path: Path) -> None:
    """With its interpolation and without; what it does not keep, as a comment between lines, is refused."""
    new, old = "It's 100% new: {a}.\n\nNow; # too.", f"{ROOM}\n\n{KIND}" if "\n\n" in value else OLD
    way = Way("a.ini", f"# why\n[p]\nprompt ={value}next: 1\n".replace("\n", newline), old, new)
    read = list[str]()
    for source, kind in zip(changed(way, tmp_path), (RawConfigParser, ConfigParser), strict=False):
        values = kind()
        values.read_string(source)
        assert values["p"]["next"] == "1" and source.count("\n") == source.count(newline)
        read.append(values["p"]["prompt"].strip())
    assert read == [new, new]
    for refused in ("Sort.\n# them", "Sort.\n  them", "Sort\x85it."):
        assert not finding_of(way._replace(new=refused), tmp_path).edits


@pytest.mark.parametrize("name", PROSE)
def test_4_a_text_in_a_file_of_words_is_written_as_it_is(name: str, tmp_path: Path) -> None:
    way = PROSE[name]
    source = changed(way, tmp_path)[0]
    assert source == way.source.replace("\r\n", "\n").replace(way.match, wanted(way)).replace(
        "\n", "\r\n" if "\r\n" in way.source else "\n"
    )


def test_4_a_text_that_is_sent_with_the_line_ends_of_windows_is_written_as_it_is(tmp_path: Path) -> None:
    """A program that reads bytes sends them: in the new text those are that were proved."""
    source = f"# A\r\n{ROOM}\r\n{KIND}\r\n# B\r\nGo.\r\n"
    for new in (f"{ROOM}\r\nNow.", f"{ROOM}\nNow.", f"{ROOM}\r\n{KIND}\nNow."):
        way = Way("p.md", source, f"{ROOM}\r\n{KIND}", new)
        assert changed(way, tmp_path) == [source.replace(way.match, new)]
    assert not finding_of(Way("p.md", source, f"{ROOM}\r\n{KIND}", "A lone \r."), tmp_path).edits


def test_4_a_message_in_a_file_of_windows_is_written(tmp_path: Path) -> None:
    source = f'{{% message role="system" %}}\n{OLD}\n{{% endmessage %}}\nGo on.\n'.replace("\n", "\r\n")
    after = changed(Way("p.txt", source, OLD, "New.\nNow."), tmp_path)
    assert after == [source.replace(OLD.replace("\n", "\r\n"), "New.\r\nNow.")]


def test_4_a_file_of_templates_keeps_its_fields_and_escapes_what_is_new(tmp_path: Path) -> None:
    text, jinja = TEMPLATES.values()
    assert wanted(text) in [source.format(text="T").strip() for source in changed(text, tmp_path)[:1]]
    (tmp_path / text.file).unlink()
    assert wanted(jinja).strip() == jinja2.Template(changed(jinja, tmp_path)[0]).render(text="T").strip()


DOCSTRINGS = {
    "google": """Args:
        words (list[str]): What to
            look for.
        n: How many pages.

    Returns:
        Pages.""",
    "sphinx": """:param words: What to
        look for.
    :param n: How many pages.
    :returns: Pages.""",
    "numpy": """Parameters
    ----------
    words : list
        What to
        look for.
    n : int
        How many pages.""",
}


@pytest.mark.parametrize("form", DOCSTRINGS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_4_the_descriptions_in_a_docstring_are_written_each_on_its_own(form: str, newline: str, tmp_path: Path) -> None:
    """As Strands, agno and LangChain's `parse_docstring` take them: what stands before `Args:`, and the parameters."""
    source = f'def find(words, n):\n    """Find the pages.\n\n    By words.\n\n    {DOCSTRINGS[form]}\n    """\n'
    (tmp_path / "a.py").write_bytes(source.replace("\n", newline).encode())
    texts = {"Find the pages.\n\nBy words.": 'Find "pages"\nfast.', "How many pages.": 'A number\\of """pages"""'}
    edits = []
    for match, text in texts.items():
        finding = find_text(Slot.model_validate({"in": "tool", "match": match, "text": text}), [tmp_path])
        assert finding.edits, finding.why
        edits.append(finding.edits[0])
    space: dict[str, Any] = {}
    exec(write_edits(edits)[tmp_path / "a.py"], space)
    import inspect

    told = inspect.getdoc(space["find"]) or ""
    assert told.startswith('Find "pages"\nfast.\n\n') and 'A number\\of """pages"""' in told and "look for." in told


#: Marks that some language or template reads.
MARKS = [*"'`\"\\${}\n\té😀a #%", "${", "{{", "}}", "{%", "%s", '"""', "- "]


@given(st.lists(st.sampled_from(MARKS), min_size=1, max_size=12), st.lists(st.sampled_from(MARKS), max_size=6))
@settings(max_examples=8)
def test_4_whatever_is_written_is_read_as_the_text(before: list[str], behind: list[str]) -> None:
    """In one of the ways at least, also where marks of a template meet a field."""
    new = f"x{''.join(before)}{{{{text}}}}{''.join(behind)}z"
    names = ("f-string", "str.format", "percent by name", "sum", "Jinja in Python", "dollar")
    fields = [PYTHON[name] for name in names]
    with tempfile.TemporaryDirectory() as made:
        for way in (*fields, DATA["YAML block"], DATA["TOML"], DATA["JSON"]):
            way = way._replace(new=new)
            value = "  T" if "!s:>3" in way.source else "T"
            sent = re.sub(r"\{\{(\w+)\}\}", lambda hole, value=value: value if hole[1] == "text" else hole[0], new)
            values = list[str]()
            for source in changed(way, Path(made)) if "{{" in way.match else ():
                with suppress(KeyError, ValueError, IndexError, TypeError, jinja2.TemplateError):  # not the right way
                    values.append(python_value(source).strip())
            if "{{" not in way.match:
                assert data_value(way.file, changed(way, Path(made))[0]).strip() == new.strip()
            else:
                assert sent.strip() in values, (way.source, values)
            (Path(made) / way.file).unlink()


def test_4_parts_of_other_texts_are_no_texts(tmp_path: Path) -> None:
    for source in ("p = more + 'The text: ' + text", "p = 'Go' + f'{text}.'", "p = {'The text: ': 1}['x' + '.']"):
        assert not finding_of(Way("a.py", source, "The text: {{1}}.", "Kind of {{1}}"), tmp_path).edits


def test_4_attributes_of_jsx_keys_and_modules_stay_what_they_are(tmp_path: Path) -> None:
    tag = f'const a = <Agent prompt="{ROOM}" name="x">Don\'t stop</Agent>;\n'
    assert changed(Way("a.tsx", tag, ROOM, "It's\nnew"), tmp_path)[0] == tag.replace(f'"{ROOM}"', "{`It's\nnew`}")
    for source in (f"const o = {{'{ROOM}': 1}};\n", f"import x from '{ROOM}';\n", f"import '{ROOM}';\n"):
        assert not finding_of(Way("a.tsx", source, ROOM), tmp_path).edits


def test_4_a_field_that_a_new_text_leaves_out_is_appended_as_on_the_wire(tmp_path: Path) -> None:
    way = PYTHON["f-string with braces"]._replace(new="Sort as {b}.")
    assert python_value(changed(way, tmp_path)[0]) == "Sort as {b}.\nT"
    moved = finding_of(
        Way("a.py", "p = 'Of %s and %s now' % (a, b)", "Of {{1}} and {{2}} now", "{{2}} {{1}}"), tmp_path
    )
    assert not moved.edits and "filled by their places, which the new text changes" in moved.why
