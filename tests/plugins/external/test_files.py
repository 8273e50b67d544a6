"""Files of an agent's folder that are slots."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from tests.helpers.sqlite import connect

from workbench.store import Store
from workbench_external.config import ExternalConfig, Slot
from workbench_external.exchange import write_inputs
from workbench_external.process import last_words, read_ends
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
    with closing(connect(home / "knowledge.db")) as known:
        known.execute("create table facts (fact)")
    (home / "note.db").write_text("no database")
    os.mkfifo(home / "pipe")
    store = Store(home / "runs.db")  # open, as it is while a run goes on
    try:
        assert (home / "runs.db-wal").exists()

        async def main() -> list[str]:
            workspaces = Workspaces()
            try:
                async with workspaces.fresh(home) as place:
                    return sorted(path.name for path in place.iterdir())
            finally:
                workspaces.remove()

        assert asyncio.run(main()) == ["knowledge.db", "note.db"]
    finally:
        store.close()


def write_project(root: Path) -> Path:
    """A project of Node whose agent lies in `src`, with a package there and one above, and files that it reads."""
    for name, said in (("src/node_modules/near", "near"), ("node_modules/above", "above")):
        (root / name).mkdir(parents=True)
        (root / name / "package.json").write_text('{"type": "module", "exports": "./index.js"}')
        (root / name / "index.js").write_text(f"export default '{said}'")
    (root / "package.json").write_text('{"type": "module"}')
    (root / "src" / "prompts").mkdir()
    (root / "src" / "prompts" / "x.md").write_text("Sort it.")
    (root / "src" / "agent.js").write_text(
        "import near from 'near'; import above from 'above'; import { readFileSync } from 'fs'\n"
        "console.log([near, above, readFileSync('prompts/x.md')].join(' '))\n"
    )
    return root / "src"


def test_4_dependencies_are_linked_and_what_node_finds_above_the_folder_too(tmp_path: Path) -> None:
    folder, places = write_project(tmp_path), Workspaces()
    (folder / ".git").mkdir()

    async def main() -> None:
        async with places.fresh(folder) as place:
            assert (place / "node_modules").resolve() == folder / "node_modules" and not (place / ".git").exists()
            assert (place.parent / "node_modules").resolve() == tmp_path / "node_modules"
            assert (place.parent / "package.json").samefile(tmp_path / "package.json")
            if (node := shutil.which("node")) is not None:
                said = subprocess.check_output([node, "agent.js"], cwd=place, text=True)
                assert said == "near above Sort it.\n"
        assert (folder / "node_modules" / "near" / "index.js").exists(), "links go, and what they lead to stays"
        async with places.fresh(folder, links=False) as place:
            assert not (place / "node_modules").exists()

    try:
        asyncio.run(main())
    finally:
        places.remove()


def test_4_the_beginning_of_what_a_program_said_is_told_beside_the_end() -> None:
    frames = "".join(f"    at resolve (node:internal/modules/esm/resolve:{n}:9)\n" for n in range(40))
    said = "node:internal/modules/esm/resolve:873\n  throw new ERR()\n        ^\n\n"
    said += f"Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'openai'\n{frames}  code: 'ERR_MODULE_NOT_FOUND'\n"
    assert "Cannot find package 'openai' code: 'ERR_MODULE_NOT_FOUND'" in last_words(said)
    told = last_words("first: no such model\n" + "noise and noise\n" * 2000 + "gave up\n")
    assert told.startswith("; it said: first: no such model") and told.endswith("gave up") and len(told) < 700


@pytest.mark.parametrize("size", [0, 100, 5000, 8000, 8001, 50_000])
def test_4_both_ends_of_what_a_program_wrote_are_kept(size: int, tmp_path: Path) -> None:
    written = "".join(chr(97 + n % 26) for n in range(size))
    with (tmp_path / "err").open("w+b") as file:
        file.write(written.encode())
        file.flush()
        kept = read_ends(file)
    assert kept == (written if size <= 8000 else f"{written[:4000]}\n...\n{written[-4000:]}")


@pytest.mark.parametrize("stdin", ["text", "json"])
def test_5_what_an_agent_reads_from_stdin_ends_with_a_newline(stdin: str) -> None:
    config = ExternalConfig.model_validate({"signature": "text -> label", "command": ["x"], "stdin": stdin})
    for text in ("hi", "hi\n", ""):
        given = write_inputs(config, {"text": text})
        assert given.endswith(b"\n") and not given.endswith(b"\n\n")
