"""Each ordinary way to hold a prompt is read by its value, and another text is written there so that a program reads it
(issue 34 point 5; existing-agents.md finding 4: its 36 ways, and siblings)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import tomllib
from configparser import ConfigParser, RawConfigParser
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import jinja2
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench_external.apply import Finding, check_written, find_text, write_edits
from workbench_external.config import Slot
from workbench_external.sources import CannotWrite
from workbench_external.sources.folder import Sources

ROOM, KIND = "You sort the post of an office.", "Name the kind."
OLD = f"{ROOM}\n{KIND}"
#: What a model writes: quotes of all kinds, letters, JSON, marks of templates, a backslash, several lines.
NEW = 'It\'s "new", `now`: sort for ü \\ 日本.\n\n  As {"label": "a"} or ${x}, 100% #{y} {{z}} {% raw %}.'


class Way(NamedTuple):
    """A file that holds a prompt. how: of the ways in which it may be written, the number of the right one."""

    file: str
    source: str
    match: str
    new: str = NEW
    how: int = 0


def js(expression: str) -> str:
    return f"export const prompt = {expression};\n"


def notebook(*lines: str) -> str:
    cells = [{"cell_type": "markdown", "source": ["# Post\n"]}, {"cell_type": "code", "source": [*lines]}]
    return json.dumps({"cells": cells, "nbformat": 4}, indent=1, ensure_ascii=False)


FIELD = 'Kind of {{text}}?\nAs {"a": {"b": 1}}, it\'s `{{text}}`.'
PYTHON = {
    "double quotes": Way("a.py", f"prompt = {json.dumps(OLD)}\n", OLD),
    "single quotes": Way("a.py", f"prompt = '{ROOM}'\n", ROOM),
    "three quotes": Way("a.py", f'prompt = """{OLD}"""\n', OLD),
    "raw string": Way("a.py", f"prompt = r'''{OLD}'''\n", OLD),
    "literals that meet": Way("a.py", f"x = 'é'; prompt = ('{ROOM}\\n'\n   '{KIND}')\n", OLD),
    "continued line": Way("a.py", f'prompt = "{ROOM}\\n\\\n{KIND}"\n', OLD),
    "f-string": Way("a.py", "prompt = f'Sort this: {text!s:>3}. Kind?'\n", "Sort this: {{text}}. Kind?", FIELD),
    "f-string with quotes": Way("a.py", "prompt = f\"Sort: {row['text']}. Kind?\"\n", "Sort: {{text}}. Kind?", FIELD),
    "f-string with braces": Way("a.py", 'prompt = f"Sort {text} as {{a}}"\n', "Sort {{text}} as {a}", FIELD),
    "str.format": Way("a.py", "prompt = 'Sort {text} as {{a}}'.format(text=text)\n", "Sort {{text}} as {a}", FIELD),
    "str.format by place": Way(
        "a.py", "prompt = 'Sort this: {}'.format(text)\n", "Sort this: {{text}}", "As {a}: {{text}}"
    ),
    "percent": Way("a.py", "prompt = 'Sort %s, 100%% sure' % text\n", "Sort {{text}}, 100% sure", "50%: {{text}}\n{a}"),
    "percent by name": Way("a.py", "prompt = 'Sort %(t)s now' % {'t': text}\n", "Sort {{text}} now", FIELD),
    "sum": Way("a.py", "prompt = 'Sort this: ' + row['text'] + '. Kind?'\n", "Sort this: {{text}}. Kind?", FIELD),
    "sum of constants": Way("a.py", f"prompt = '{ROOM}\\n' + (\n  '{KIND}')\n", OLD),
    "f-string of constants": Way("a.py", f"prompt = f'{ROOM}' f'\\n{KIND}'\n", OLD),
    "joined list": Way("a.py", f'prompt = "\\n".join([\n    "{ROOM}",\n    "{KIND}",\n])\n', OLD),
    "joined with fields": Way(
        "a.py", 'prompt = "\\n".join(("Sort:", f"> {text}", "Kind?"))\n', "Sort:\n> {{text}}\nKind?", FIELD
    ),
    "lines joined elsewhere": Way(
        "a.py",
        'lines = ["Sort:", f"> {text}", "Kind?"]\nprompt = "\\n".join(lines)\n',
        "Sort:\n> {{text}}\nKind?",
        FIELD,
    ),
    "lines that become one": Way("a.py", f'prompt = str.join("\\n", ["{ROOM}", "{KIND}"])\n', OLD, 'Say "a" or {b}.'),
    "dedent": Way(
        "a.py",
        f'import textwrap\nprompt = textwrap.dedent("""\n        {ROOM}\n        {KIND}\n    """).strip()\n',
        OLD,
    ),
    "cleandoc": Way("a.py", f'import inspect\nprompt = inspect.cleandoc("""{ROOM}\n    {KIND}\n    """)\n', OLD),
    "Jinja in Python": Way(
        "a.py",
        "import jinja2\nprompt = jinja2.Template('Sort {{ text }} now.').render(text=text)\n",
        "Sort {{text}} now.",
        "{{text}}? {% raw %} {# {a}",
    ),
    "dollar": Way(
        "a.py",
        "import string\nprompt = string.Template('Sort $text now').substitute(text=text)\n",
        "Sort {{text}} now",
        "5 $ for {{text}} {a}",
    ),
    **{
        f"replaced {mark}": Way(
            "a.py", f"prompt = 'Sort {mark} now'.replace('{mark}', text)\n", "Sort {{text}} now", FIELD
        )
        for mark in ("[[TEXT]]", "@text@", "%%TEXT%%", "#text#", "${text}")
    },
    "Windows": Way("a.py", f'x = 1\r\nprompt = """{ROOM}\r\n{KIND}"""\r\n', OLD),
    "byte order mark": Way("a.py", f'\ufeffprompt = "{ROOM}"\n', ROOM),
}
SCRIPT = {
    "single quotes": Way("a.js", js(f"'{ROOM}'"), ROOM),
    "double quotes": Way("a.ts", js(f'"{ROOM} Für alle."'), f"{ROOM} Für alle."),
    "escapes": Way("a.js", js(r"'Sort f\u00fcr \u{1F600} \x41\'s.'"), "Sort für 😀 A's."),
    "template": Way("a.js", js(f"`{OLD}`"), OLD),
    "template with field": Way(
        "a.mjs", "const text='T';\n" + js("`Sort ${ text.trim() } now`"), "Sort {{text}} now", FIELD
    ),
    "field with template": Way(
        "a.js", "const text='T';\n" + js("`Sort ${text ? `${text}` : '}'} now`"), "Sort {{text}} now", FIELD
    ),
    "sum": Way("a.js", js(f'"{ROOM}\\n" +\n  "{KIND}"'), OLD),
    "sum with fields": Way(
        "a.js", "const row={text: 'T'};\n" + js("'Sort ' + row.text.slice(0, 9) + ' now'"), "Sort {{text}} now", FIELD
    ),
    "joined list": Way("a.tsx", js(f'[\n  "{ROOM}",\n  `{KIND}`,\n].join("\\n")'), OLD),
    "lines joined elsewhere": Way("a.js", f'const lines = ["{ROOM}", "{KIND}"];\n' + js('lines.join("\\n")'), OLD),
    "lines that become one": Way(
        "a.js", f'const lines = ["{ROOM}", "{KIND}"];\n' + js('lines.join("\\n")'), OLD, "Say `a` or ${b}."
    ),
    "after a pattern": Way("a.js", "const p = /[\"'`]/.test('`') ? 1 : 4 / 2; // it's\n" + js(f"'{ROOM}'"), ROOM),
    "after a pattern behind a condition": Way(
        "a.js", "if ('x') /[\"'`]/.test('`');\nconst n = (4) / 2 / 1;\n" + js(f"'{ROOM}'"), ROOM
    ),
    "Windows": Way("a.js", js(f"`{ROOM}\r\n{KIND}`"), OLD),
    "begins with a field": Way(
        "a.js", "const text='T';\n" + js("`${text} is which kind?`"), "{{text}} is which kind?", FIELD
    ),
    "trimmed": Way("a.js", js(f"`\n{OLD}\n`.trim()"), OLD),
    "concatenated": Way("a.js", js(f"'{ROOM}'.concat('')"), ROOM),
    "String.raw": Way("a.js", js("String.raw`Sort C:\\new.`"), "Sort C:\\new."),
    "replaced marks": Way(
        "a.js",
        "const text='T';\n" + js("'Sort ${text} now'.replaceAll('${text}', text)"),
        "Sort {{text}} now",
        FIELD,
    ),
    "in an object": Way("a.js", js(f'({{role: "system", content: "{ROOM}"}}).content'), ROOM),
}
DATA = {
    "JSON": Way("a.json", json.dumps({"prompt": f"{ROOM} Für alle."}, ensure_ascii=False), f"{ROOM} Für alle."),
    "JSON with escapes": Way("a.json", json.dumps({"prompt": f"{ROOM} Für alle."}), f"{ROOM} Für alle."),
    "JSON lines": Way("a.json", json.dumps({"prompt": [ROOM, KIND], "next": 1}, indent=2), OLD),
    "JSON lines that become one": Way("a.json", json.dumps({"prompt": [ROOM, KIND], "next": 1}), OLD, "Say a."),
    "YAML plain": Way("a.yaml", f"prompt: {ROOM}\nnext: 1\n", ROOM),
    "YAML over lines": Way("a.yml", "prompt: You sort the post\n  of an office.\nnext: 1\n", ROOM),
    "YAML in quotes": Way("a.yaml", f"prompt: '{ROOM}' # why\nnext: 1\n", ROOM),
    "YAML block": Way("a.yaml", f"prompt: |\n    {ROOM}\n    {KIND}\nnext: 1\n", OLD),
    "YAML folded": Way("a.yaml", "prompt: >-\n  You sort the post\n  of an office.\nnext: 1\n", ROOM),
    "YAML flow": Way("a.yaml", f"{{prompt: '{ROOM}', next: 1}}\n", ROOM),
    "YAML anchor": Way("a.yaml", f"one: &p |-\n  {ROOM}\n  {KIND}\nprompt: *p\n", OLD),
    "TOML": Way("a.toml", f'x = 1\nprompt = """\n{OLD}"""\ny = "z"\n', OLD),
    "TOML of one line": Way("a.toml", f"prompt = '{ROOM}' # why\n", ROOM),
    "JSON5": Way("a.json5", f"{{prompt: '{ROOM} It\\'s \"so\".', next: 1}}", f'{ROOM} It\'s "so".'),
    "notebook": Way(
        "a.ipynb", notebook("%pip install x\n", f"prompt = ('{ROOM}\\n'\n", f"  '{KIND}')\n", "y = 'ü'"), OLD
    ),
}
PROSE = {
    "text": Way("p.txt", f"{OLD}\n", OLD),
    "Markdown of Windows": Way("p.md", f"{ROOM}\r\n{KIND}\r\n", OLD),
    "section": Way("p.md", f"# System\n\n{OLD}\n\n# User\n\nGo.\n", OLD, "It's new.\nNow."),
    "roles": Way("p.prompty", f"---\nname: p\n---\nsystem:\n{OLD}\n\nuser:\nGo.\n", OLD, "It's new.\nNow."),
    "between marks of Jinja": Way(
        "p.j2", f"{{# why #}}\n{OLD}\n  {{%- if x -%}} {{# a #}}\nBe kind.\n{{% endif %}}\n", OLD, "It's new.\nNow."
    ),
    "below a head": Way("p.prompt", f"---\nmodel: m\n---\n{OLD}\n", OLD, "It's new.\nNow."),
}
TEMPLATES = {
    "text with a field": Way("p.txt", "Sort {text}.\nKind?\n", "Sort {{text}}.\nKind?", FIELD),
    "Jinja": Way("p.j2", "Sort {{ text }}.\nKind?\n", "Sort {{text}}.\nKind?", "{{text}}? {% raw %} {a} {{b}}"),
}


def finding_of(way: Way, folder: Path) -> Finding:
    (folder / way.file).write_bytes(way.source.encode())
    slot = Slot.model_validate({"in": "system", "match": way.match, "text": way.new})
    return find_text(slot, [folder])


def changed(way: Way, folder: Path) -> list[str]:
    """The file in all ways in which it may be written."""
    finding = finding_of(way, folder)
    assert finding.edits, finding.why
    return [write_edits([edit])[folder / way.file] for edit in finding.edits]


def wanted(way: Way, text: str = "T") -> str:
    """The new text as an agent sends it; holes of no name that is known are nothing."""
    names = {"text"} if "{{text}}" in way.match else set()
    new = way.new.replace("{{text}}", text) if names else way.new
    return new.replace("{{z}}", "").replace("{{b}}", "")


def python_value(source: str) -> str:
    space: dict[str, Any] = {"text": "T", "row": {"text": "T"}}
    exec(compile(source.removeprefix("\ufeff"), "a.py", "exec"), space)
    return space["prompt"]


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


def data_value(file: str, source: str) -> str:
    if file.endswith(".json"):
        prompt = json.loads(source)["prompt"]
        return prompt if isinstance(prompt, str) else "\n".join(prompt)
    if file.endswith(".json5"):
        return json.JSONDecoder().raw_decode(source, source.index('"'))[0]
    if file.endswith(".toml"):
        return tomllib.loads(source)["prompt"]
    if file.endswith(".ipynb"):
        lines = json.loads(source)["cells"][1]["source"]
        return python_value("".join(line for line in lines if not line.startswith("%")))
    return yaml.safe_load(source)["prompt"]


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
    assert source == way.source.replace("\r\n", "\n").replace(OLD, wanted(way)).replace(
        "\n", "\r\n" if "\r\n" in way.source else "\n"
    )


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
    texts = {"Find the pages.\n\nBy words.": 'Find "pages"\nfast.', "How many pages.": "A number\\of pages."}
    edits = []
    for match, text in texts.items():
        finding = find_text(Slot.model_validate({"in": "tool", "match": match, "text": text}), [tmp_path])
        assert finding.edits, finding.why
        edits.append(finding.edits[0])
    space: dict[str, Any] = {}
    exec(write_edits(edits)[tmp_path / "a.py"], space)
    import inspect

    told = inspect.getdoc(space["find"]) or ""
    assert told.startswith('Find "pages"\nfast.\n\n') and "A number\\of pages." in told and "look for." in told


@pytest.mark.parametrize(
    ("file", "source", "told"),
    [
        ("A.java", f'String p = """\n  {ROOM}\n  {KIND}\n  """;\n', "a.java:2, texts in Java are not written"),
        ("run.sh", f'PROMPT="{OLD}"\n', "run.sh:1, texts in shell are not written"),
        ("agent.rb", f'PROMPT = "{ROOM}\\n{KIND}"\n', "agent.rb:1, texts in Ruby are not written"),
        ("agent.php", f'<?php $p = "{OLD}";\n', "agent.php:1, texts in PHP are not written"),
        ("page.mdx", f"{OLD}\n", "page.mdx:1, texts in MDX are not written"),
        (
            "package.json",
            json.dumps({"scripts": {"ask": OLD}}),
            "package.json:1, the text there may be a command, and is not written",
        ),
        (
            "compose.dev.yaml",
            f"command: |\n  {ROOM}\n  {KIND}\n",
            "compose.dev.yaml:2, the text there may be a command, and is not written",
        ),
        (
            "tox.ini",
            f"[t]\ncommands = {ROOM}\n  {KIND}\n",
            "tox.ini:2, the text there may be a command, and is not written",
        ),
        ("p.env", f"P='{ROOM} {KIND}'\n", "p.env:1, texts in files of variables are not written"),
        ("Makefile", f"# {ROOM}\n# {KIND}\n", "makefile:1, the syntax of 'makefile' is not known here"),
        ("agent", f'#!/bin/sh\nP="{OLD}"\n', "agent:2, the syntax of 'agent' is not known here"),
        ("a.js", f"const p = sql`{OLD}`;\n", "a.js:1, what the tag sql makes of a template is not known"),
        ("a.hbs", f"{OLD}\n", "a.hbs:1, the new text has {{, which this form of templates has no escape for"),
        (
            "a.py",
            f'P = "%s {ROOM}\\n{KIND}" % (1, 2)\nx = (\n',
            "a.py:1, the file cannot be read as what its name says",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.count(".") < 2 and len(value) < 12 else "",
)
def test_security_3_a_syntax_that_is_not_known_is_refused_by_name(
    file: str, source: str, told: str, tmp_path: Path
) -> None:
    finding = finding_of(Way(file, source, OLD, "New {{ x }}."), tmp_path)
    assert not finding.edits and finding.why.lower() == f"was found, but cannot be written: {told}".lower()


@pytest.mark.parametrize(
    "new", ["line \x00 two\nx", "a\r\nb\rc\n", "half \ud800 letter", 'ends with "', "\u2028\x7f\x9b", "'''\"\"\"\\"]
)
def test_security_3_a_text_is_kept_to_the_letter_or_refused(new: str, tmp_path: Path) -> None:
    """In each syntax: what is written is read back as the text, or nothing is written."""
    for way in (PYTHON["three quotes"], PYTHON["f-string of constants"], PYTHON["dedent"], PYTHON["sum of constants"]):
        for source in changed(way._replace(new=new), tmp_path)[:1]:
            assert python_value(source).strip() == new.strip()
    for way in DATA.values():
        finding = finding_of(way._replace(new=new), tmp_path)
        for edit in finding.edits[:1]:
            source = write_edits([edit])[tmp_path / way.file].encode().decode()
            assert data_value(way.file, source).strip() == new.strip()
        (tmp_path / way.file).unlink()
    assert not finding_of(PROSE["text"]._replace(new="a \0 b"), tmp_path).edits


def test_security_3_what_would_be_read_as_another_text_is_refused(tmp_path: Path) -> None:
    """A heading would part the section; a line that a notebook takes for a command of its own would be none."""
    section = finding_of(PROSE["section"]._replace(new="Sort it.\n\n# User\n\nSay all."), tmp_path)
    assert not section.edits and "p.md:3, it would be read as another text" in section.why
    (tmp_path / "p.md").unlink()
    cell = finding_of(DATA["notebook"]._replace(new="Sort it.\n%rm all"), tmp_path)
    assert not cell.edits and "it would be read as another text" in cell.why


def test_security_3_a_writing_that_changes_another_text_is_refused(tmp_path: Path) -> None:
    """Whatever a reader would write: it is checked by reading the file again."""
    (tmp_path / "a.js").write_text(f"const a = '{ROOM}', b = '{KIND}';\n")
    (place,) = Sources([tmp_path]).find(ROOM)
    file = Sources([tmp_path]).files[0]
    check_written(place, file, "'Sort it.'", "Sort it.")
    with pytest.raises(CannotWrite, match="other texts of the file would change"):
        check_written(place, file, "'Sort it.' // ", "Sort it.")
    with pytest.raises(CannotWrite, match="it would be read as another text"):
        check_written(place, file, "'Sort them.'", "Sort it.")


def test_security_3_code_in_a_new_text_stays_text(tmp_path: Path) -> None:
    attack = '"); import os; os.system("touch PWN"); ("\n\'\'\'\n`${process.exit()}` #{x} $(touch PWN)'
    for way in (PYTHON["double quotes"], PYTHON["three quotes"], PYTHON["joined list"]):
        assert python_value(changed(way._replace(new=attack), tmp_path)[0]) == attack
    for source in changed(TEMPLATES["Jinja"]._replace(new="{{text}} {{ cycler.__init__ }}"), tmp_path):
        assert jinja2.Template(source).render(text="T").strip() == "T {{ cycler.__init__ }}"
    (tmp_path / "a.txt").write_text("Sort $text now.")
    dollar = changed(Way("a.txt", "Sort $text now.", "Sort {{text}} now.", "5 $ {{text}}"), tmp_path)
    assert "5 $ T" in [Template(source).substitute(text="T") for source in dollar if "$$" in source]


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
            sent = re.sub(r"\{\{(\w+)\}\}", lambda hole, value=value: value * (hole[1] == "text"), new)
            values = list[str]()
            for source in changed(way, Path(made)) if "{{" in way.match else ():
                with suppress(KeyError, ValueError, IndexError, TypeError, jinja2.TemplateError):  # not the right way
                    values.append(python_value(source).strip())
            if "{{" not in way.match:
                plain = re.sub(r"\{\{\w+\}\}", "", new)
                assert data_value(way.file, changed(way, Path(made))[0]).strip() == plain.strip()
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
