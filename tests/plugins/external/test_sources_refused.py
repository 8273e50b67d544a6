"""Text of a model stays text in a source: each syntax keeps it to the letter, or is refused by name (security.md 3)."""

from __future__ import annotations

import json
from pathlib import Path
from string import Template

import jinja2
import pytest
from tests.helpers.prompt_sources import (
    DATA,
    KIND,
    OLD,
    PROSE,
    PYTHON,
    ROOM,
    TEMPLATES,
    Way,
    changed,
    data_value,
    finding_of,
    notebook,
    python_value,
)

from workbench_external.apply import check_written, write_edits
from workbench_external.sources import CannotWrite, read_texts
from workbench_external.sources.folder import Sources
from workbench_external.sources.treatments import Program


@pytest.mark.parametrize(
    ("file", "source", "told"),
    [
        ("A.java", f'String p = """\n  {ROOM}\n  {KIND}\n  """;\n', "a.java:2, texts in Java are not written"),
        ("run.sh", f"echo \"\nPROMPT='{OLD}'\n", "run.sh:2, the file cannot be read as what its name says"),
        ("run.sh", f"echo $'it\\'s'\nPROMPT='{OLD}'\n", "run.sh:2, the file cannot be read as what its name says"),
        (
            "p.sh",
            f"x=$(case y in z) echo;; )\nP='{OLD}'\n",
            "p.sh:2, the file cannot be read as what its name says",
        ),
        ("p.xml", f"<!DOCTYPE p>\n<p>{OLD}</p>\n", "p.xml:2, the file cannot be read as what its name says"),
        (
            "pyproject.toml",
            f'[tool.poe.tasks]\nask = """\n{OLD}"""\n',
            "pyproject.toml:2, the text there may be a command, and is not written",
        ),
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
        (
            "supervisord.conf",
            f"[program:a]\ncommand = {ROOM}\n  {KIND}\n",
            "supervisord.conf:2, the text there may be a command, and is not written",
        ),
        ("Dockerfile", f"RUN ask '{OLD}'\n", "dockerfile:1, the text there may be a command, and is not written"),
        ("agent", f'#!/usr/bin/perl\n$p = "{OLD}"\n', "agent:2, the syntax of 'agent' is not known here"),
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


@pytest.mark.parametrize("new", ["{{{x}}}", "{{x}}", "{{0}} {{{{y}}}}"])
def test_security_3_what_looks_like_a_mark_of_ours_is_text(new: str, tmp_path: Path) -> None:
    """It was dropped, and `{{{x}}}` became `{}`. A template that would fill it is not written."""
    assert changed(Way("a.md", f"{OLD}\n", OLD, new), tmp_path)[0] == f"{new}\n"
    (tmp_path / "a.md").unlink()
    finding = finding_of(Way("a.mustache", f"{OLD}\n", OLD, new), tmp_path)
    assert not finding.edits and "which this form of templates has no escape for" in finding.why


@pytest.mark.parametrize(
    "new",
    [
        "line \x00 two\nx",
        "a\r\nb\rc\n",
        "half \ud800 letter",
        'ends with "',
        'Say """so"""',
        "\u2028\x7f\x9b",
        "'''\"\"\"\\",
    ],
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
    assert not section.edits and "p.md:3, its line '# User' would begin another part of the file" in section.why
    (tmp_path / "p.md").unlink()
    lines = (f'prompt = """{ROOM}\n', f'{KIND}"""\n')
    cell = finding_of(Way("a.ipynb", notebook(*lines), OLD, "Sort it.\n%rm all"), tmp_path)
    assert not cell.edits and "it would be read as another text" in cell.why


def test_security_3_a_writing_that_changes_another_text_is_refused(tmp_path: Path) -> None:
    """Whatever a reader would write: it is checked by reading the file again."""
    (tmp_path / "a.js").write_text(f"const a = '{ROOM}', b = '{KIND}';\n")
    (place,) = Sources([tmp_path]).find(ROOM)
    file = Sources([tmp_path]).files[0]
    check_written(place, file, "'Sort it.'", "Sort it.", Program())
    with pytest.raises(CannotWrite, match="other texts of the file would change"):
        check_written(place, file, "'Sort it.' // ", "Sort it.", Program())
    with pytest.raises(CannotWrite, match="it would be read as another text"):
        check_written(place, file, "'Sort them.'", "Sort it.", Program())


def test_security_3_code_in_a_new_text_stays_text(tmp_path: Path) -> None:
    attack = '"); import os; os.system("touch PWN"); ("\n\'\'\'\n`${process.exit()}` #{x} $(touch PWN)'
    for way in (PYTHON["double quotes"], PYTHON["three quotes"], PYTHON["joined list"]):
        assert python_value(changed(way._replace(new=attack), tmp_path)[0]) == attack
    for source in changed(TEMPLATES["Jinja"]._replace(new="{{text}} {{ cycler.__init__ }}"), tmp_path):
        assert jinja2.Template(source).render(text="T").strip() == "T {{ cycler.__init__ }}"
    (tmp_path / "a.txt").write_text("Sort $text now.")
    dollar = changed(Way("a.txt", "Sort $text now.", "Sort {{text}} now.", "5 $ {{text}}"), tmp_path)
    assert "5 $ T" in [Template(source).substitute(text="T") for source in dollar if "$$" in source]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("p.md", "Old text of a prompt.\n"),
        ("p.csv", "name,prompt\na,Old text of a prompt.\n"),
        ("run.sh", "P='Old text of a prompt.'\n"),
        (".env", 'P="Old text of a prompt."\n'),
        ("Makefile", "export P = Old text of a prompt.\n"),
    ],
)
@pytest.mark.parametrize("lost", ["\0", "\ud800"])
def test_security_a_character_that_a_file_does_not_keep_is_refused(name: str, source: str, lost: str) -> None:
    passages = [one for one in read_texts(Path(name), source) or () if one.parts == ("Old text of a prompt.",)]
    assert passages
    for passage in passages:
        assert "New" in passage.write(("New text.",))
        with pytest.raises(CannotWrite, match="does not keep"):
            passage.write((f"New {lost} text.",))
