"""Each ordinary way to keep a prompt is written so that the program sends the new text, or refused with the reason
(existing-agents.md finding 9)."""

from __future__ import annotations

import configparser
import shutil
from pathlib import Path
from subprocess import CalledProcessError

import jinja2
import pytest
from tests.helpers.prompt_idioms import HEADED, HOSTILE, IDIOMS, LETTER, LISTED, PLAIN, SEVERAL, SPACED, Idiom, sent_by

from workbench_external.apply import Edit, Finding, find_text, write_edits
from workbench_external.config import Slot


def write_all(idiom: Idiom, folder: Path) -> None:
    for name, text in idiom.files.items():
        (folder / name).write_bytes(text.encode())


def found_for(idiom: Idiom, addition: str, folder: Path) -> tuple[Finding, str]:
    """(what is found, the new text as it is to be sent)."""
    write_all(idiom, folder)
    sent = sent_by(idiom, folder)
    match = sent.replace(LETTER, "{{text}}")
    slot = Slot.model_validate({"in": "system", "match": match, "text": match + addition})
    return find_text(slot, [folder]), sent + addition


def value_after(idiom: Idiom, way: tuple[Edit, ...], folder: Path) -> str:
    """What the program sends with a way written; "" where it fails, as in a trial."""
    write_all(idiom, folder)
    for path, text in write_edits(way).items():
        path.write_bytes(text.encode())
    try:
        return sent_by(idiom, folder).strip()
    except (
        KeyError,
        ValueError,
        IndexError,
        TypeError,
        SyntaxError,
        jinja2.TemplateError,
        configparser.Error,
        CalledProcessError,
    ):
        return ""
    finally:
        write_all(idiom, folder)


@pytest.mark.parametrize("name", IDIOMS)
def test_9_a_prompt_is_written_in_its_idiom_or_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    idiom = IDIOMS[name]
    if "Makefile" in idiom.files and shutil.which("make") is None:
        pytest.skip("there is no make here")
    for number, addition in enumerate((PLAIN, SEVERAL, HOSTILE)):
        found, wanted = found_for(idiom, addition, tmp_path)
        why, values = found.why, [value_after(idiom, way, tmp_path) for way in found.ways]
        refused = idiom.refused[number]
        if refused:
            assert refused in why or wanted.strip() not in values, (addition, values)
        else:
            assert wanted.strip() in values, (addition, why, values)


@pytest.mark.parametrize("name", IDIOMS)
def test_9_what_is_certain_without_a_trial_is_right(name: str, tmp_path: Path) -> None:
    """What the program does to a new text and not to the old one is in doubt, and no other text is."""
    idiom = IDIOMS[name]
    if "Makefile" in idiom.files and shutil.which("make") is None:
        pytest.skip("there is no make here")
    for addition in (PLAIN, LISTED, HEADED, SEVERAL, HOSTILE, SPACED):
        found, wanted = found_for(idiom, addition, tmp_path)
        if found.is_certain:
            assert value_after(idiom, found.ways[0], tmp_path) == wanted.strip(), addition


@pytest.mark.parametrize("name", IDIOMS)
def test_9_all_else_in_the_file_stays_to_the_letter(name: str, tmp_path: Path) -> None:
    """What stands before and behind a place is no part of an edit, and a text with no change is not rewritten."""
    idiom = IDIOMS[name]
    if "Makefile" in idiom.files and shutil.which("make") is None:
        pytest.skip("there is no make here")
    for way in found_for(idiom, PLAIN, tmp_path)[0].ways:
        for path, text in write_edits(way).items():
            before = idiom.files[path.name]
            lines = [line for line in before.splitlines() if "why" in line or "secret" in line or line.startswith("n")]
            assert all(line in text.splitlines() for line in lines), (before, text)


#: What a shell, or make, would run.
RUNS = (
    "'; touch pwn; ' \" ; touch pwn; \" $(touch pwn) `touch pwn` \\$(touch pwn) $(shell touch pwn) ${x:=$(touch pwn)}"
    "\nEOF\nEND\ntouch pwn"
)
LINES = [
    RUNS,
    RUNS.partition("\n")[0],
    RUNS.partition("\n")[0].replace("$(shell touch pwn)", ""),  # which no .env holds, lest a makefile includes it
    "\\'; touch pwn #",
    '\\"; touch pwn #',
    "\\$(touch pwn)",
    "x\\\n$(touch pwn)",
    "!! \n\ttouch pwn",
]


@pytest.mark.parametrize(
    "name", [name for name, one in IDIOMS.items() if {"agent.sh", "Makefile", ".env"} & {*one.files}]
)
def test_security_9_no_text_becomes_a_command(name: str, tmp_path: Path) -> None:
    """In any way in which it may be written, also one that a trial then finds wrong, since the trial starts it."""
    if "Makefile" in IDIOMS[name].files and shutil.which("make") is None:
        pytest.skip("there is no make here")
    idiom = IDIOMS[name]
    if ".env" in idiom.files and "Makefile" not in idiom.files:  # whatever else reads it, a shell may
        idiom = idiom._replace(files={**idiom.files, "agent.sh": '. ./.env\nprintf %s "$SORT"\n'})
        if name == ".env bare":  # which no shell reads as a value
            return
    for line in LINES:
        for addition in (f" {line}", f"\n{line}\n"):
            found, wanted = found_for(idiom, addition, tmp_path)
            ways, values = found.ways, [value_after(idiom, way, tmp_path) for way in found.ways]
            assert not [*tmp_path.rglob("pwn")], (addition, ways)
            is_refused = name.startswith("make") or (".env" in name and "$(shell" in line)
            is_refused = is_refused or name == "run by another shell"
            assert ways or is_refused or line in (LINES[0], LINES[-1]), "no here-document keeps its end"
            is_refused = is_refused or name in ("without quotes", "read by line")
            assert not ways or wanted.strip() in values or is_refused, (addition, values)


def test_security_9_a_bare_word_of_a_shell_stays_one(tmp_path: Path) -> None:
    """A shell reads `SORT=word`, and would run what stands behind a mark of its own."""
    word, source = "You-sort-the-post-of-an-office", '. ./.env\nprintf %s "$SORT"\n'
    idiom = Idiom({"agent.sh": source, ".env": f"SORT={word}\n"})
    for line in LINES[1:]:
        found, wanted = found_for(idiom, line, tmp_path)
        values = [value_after(idiom, way, tmp_path) for way in found.ways]
        assert wanted.strip() in values or "make would run" in found.why, (line, values)
        assert not [*tmp_path.rglob("pwn")], line
