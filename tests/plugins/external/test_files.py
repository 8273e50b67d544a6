"""Files of an agent's folder that are slots."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from workbench.store import Store
from workbench_external.config import Slot
from workbench_external.slots.files import content_of, replace_files
from workbench_external.workspace import Workspaces

SKILL = "---\nname: sort\ndescription: Sorts post.\n---\n\n# Old\n"


def skill(match: str, text: str | None) -> Slot:
    return Slot.model_validate({"in": "file", "name": "SKILL.md", "match": match, "text": text})


def test_a_file_that_is_another_one_than_was_found_stays_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text("changed since")
    for text in ("new", "old"):
        assert replace_files(tmp_path, [("rules", skill("old", text))]) == ["rules: SKILL.md"]
        assert (tmp_path / "SKILL.md").read_text() == "changed since"
    (tmp_path / "SKILL.md").unlink()
    assert replace_files(tmp_path, [("rules", skill("old", "new"))]) == ["rules: SKILL.md"]


def test_a_file_is_replaced_where_it_is_as_found_and_by_a_slot_that_says_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_bytes(b"line\r\nold")
    assert replace_files(tmp_path, [("rules", skill("line\nold", "new"))]) == []
    assert (tmp_path / "SKILL.md").read_text() == "new"
    assert replace_files(tmp_path, [("rules", skill("", "newer"))]) == []
    assert (tmp_path / "SKILL.md").read_text() == "newer"


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("# New\n", "---\nname: sort\ndescription: Sorts post.\n---\n\n# New\n"),
        ("---\nname: other\n---\n# New\n", "---\nname: other\n---\n# New\n"),
    ],
)
def test_the_head_of_a_skill_stays_where_its_new_text_has_none(text: str, content: str) -> None:
    assert content_of(skill(SKILL, text)) == content
    assert content_of(skill("# Old", "# New")) == "# New"


def test_a_row_gets_the_databases_of_its_agent_and_no_run_database_and_no_pipe(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with closing(sqlite3.connect(home / "knowledge.db")) as known:
        known.execute("create table facts (fact)")
    (home / "note.db").write_text("no database")
    os.mkfifo(home / "pipe")
    store = Store(home / "runs.db")  # open, as it is while a run goes on
    try:
        assert (home / "runs.db-wal").exists()

        async def course() -> list[str]:
            workspaces = Workspaces()
            try:
                async with workspaces.fresh(home) as place:
                    return sorted(path.name for path in place.iterdir())
            finally:
                workspaces.remove()

        assert asyncio.run(course()) == ["knowledge.db", "note.db"]
    finally:
        store.close()
