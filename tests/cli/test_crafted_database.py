"""Attacks by a run database and the files beside it: each is one error, or shows what is there, and harms nothing."""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.helpers.sqlite import connect
from tests.helpers.stored_runs import StoredLM, craft, restore

from workbench.cli import cli
from workbench.errors import StoreError
from workbench.run import Options, resume
from workbench.store import Store

LOOKS = (["runs", "list"], ["show"], ["show", "--calls", "9"], ["compare", "last"], ["diff"])


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = restore("bootstrap", tmp_path)
    Store(path).close()
    return path


def looks(path: Path) -> set[str]:
    """What the looks say that refuse the database. None does more."""
    found = set[str]()
    for words in LOOKS:
        done = CliRunner().invoke(cli, [*words, "--db", str(path)])
        assert done.exception is None or isinstance(done.exception, StoreError), (words, done.output, done.exception)
        found.add(str(done.exception or ""))
    assert not any("\n" in line or len(line) > 600 for line in found)
    return found


def refusal(path: Path) -> str:
    """The line with which a writer refuses the database."""
    with pytest.raises(StoreError) as caught:
        Store(path, create=False)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
    return str(caught.value)


# Files beside it


def journal_that_names(victim: Path, database: Path) -> bytes:
    """A hot journal whose last words are the name of a second one. SQLite deletes such a file after a rollback."""
    data = database.read_bytes()
    page = struct.unpack(">H", data[16:18])[0]
    magic, nonce = bytes.fromhex("d9d505f920a163d7"), 1
    head = (magic + struct.pack(">IIIII", 1, nonce, len(data) // page, 512, page)).ljust(512, b"\0")
    second = data[page : 2 * page]
    check = (nonce + sum(second[n] for n in range(page - 200, 0, -200))) % 2**32
    name = str(victim).encode()
    end = struct.pack(">I", 0x40000000 // page + 1) + name + struct.pack(">II", len(name), sum(name)) + magic
    return head + struct.pack(">I", 2) + second + struct.pack(">I", check) + end


def test_a_journal_that_names_another_file_deletes_nothing(database: Path) -> None:
    victim = database.with_name("precious.txt")
    victim.write_text("precious")
    journal = Path(f"{database}-journal")
    journal.write_bytes(journal_that_names(victim, database))
    assert "names a file that SQLite would delete" in refusal(database)
    looks(database)
    assert victim.exists()
    plain = connect(database)
    plain.execute("select count(*) from runs").fetchone()
    plain.close()
    assert not victim.exists(), "the attack is real: plain SQLite deletes it"


@pytest.mark.fault("foreign-paths")
@pytest.mark.parametrize("end", ["wal", "shm", "journal", "{run}.lock"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
def test_what_is_no_file_beside_a_database_is_neither_followed_nor_opened(end: str, kind: str, database: Path) -> None:
    store = Store(database)
    run = store.find_run("last")["run"]
    store.close()
    beside, victim = Path(f"{database}-{end.format(run=run)}"), database.with_name("bashrc")
    if kind == "link":
        victim.write_text("echo hello\n" * 100)
    if kind == "pipe":
        os.mkfifo(beside)
    elif kind == "folder":
        beside.mkdir()
    else:
        beside.symlink_to(victim)
    begun = time.process_time()
    assert beside.name in (line := refusal(database)) and "remove it" in line
    looks(database)
    assert time.process_time() - begun < 10
    assert victim.exists() == (kind == "link") and (kind != "link" or victim.read_text() == "echo hello\n" * 100)


def test_other_files_beside_a_database_are_none_of_our_business(database: Path) -> None:
    Path(f"{database}-backup").mkdir()
    Path(f"{database}-notes").symlink_to("/nowhere")
    assert CliRunner().invoke(cli, ["show", "--db", str(database)]).exit_code == 0


@pytest.mark.parametrize("kind", ["pipe", "folder", "/dev/zero", "/dev/full"])
def test_a_database_that_is_no_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = Path(kind) if kind.startswith("/") else tmp_path / "run.db"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    found = looks(path)
    assert "" not in found
    for line in (*found, refusal(path)):
        assert str(path) in line and "name another" in line


def test_the_log_of_another_database_is_no_part_of_this_one(database: Path, tmp_path: Path) -> None:
    """SQLite takes a WAL by its name. What comes of it is one error, or rows that are whole."""
    (tmp_path / "other").mkdir()
    other = restore("tools", tmp_path / "other")
    store = Store(other)
    store.execute("update runs set status = 'of another database'")
    shutil.copyfile(f"{other}-wal", f"{database}-wal")
    store.close()
    for words in LOOKS:
        done = CliRunner().invoke(cli, [*words, "--db", str(database)])
        assert done.exception is None or isinstance(done.exception, StoreError | SystemExit), words


def test_a_beside_table_may_compute_nothing_that_hangs_a_look(database: Path) -> None:
    """Optuna's tables may have any columns. Nobody reads them to look at a run."""
    slow = "create table studies (a, b as (hex(zeroblob(100000000))) virtual, c as (a || a) stored)"
    craft(database, slow, "insert into studies (a) values (1)")
    for words in LOOKS:
        begun = time.process_time()
        done = CliRunner().invoke(cli, [*words, "--db", str(database)])
        assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
        assert time.process_time() - begun < 10


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (16, b"\x00\x01"),  # a page size of 64 KB
        (16, b"\x02\x00"),  # of 512 bytes
        (16, b"\xff\xff"),
        (18, b"\x07\x07"),  # the format of a later SQLite
        (20, b"\xff"),  # a page that is all reserve
        (28, b"\xff\xff\xff\xff"),  # four billion pages
        (32, b"\x00\x00\x00\x02"),  # a free page that is none
        (44, b"\x00\x00\x00\x09"),  # the format of a schema
        (52, b"\x00\x00\x00\x05"),  # vacuum by itself
        (56, b"\x00\x00\x00\x02"),  # UTF-16
        (60, b"\xff\xff\xff\xff"),  # the version
        (68, b"\xff\xff\xff\xff"),  # the application
        (100, b"\x05"),  # the kind of the first page
    ],
)
def test_a_header_that_lies_is_one_error_or_changes_nothing(offset: int, value: bytes, database: Path) -> None:
    expected = {" ".join(words): CliRunner().invoke(cli, [*words, "--db", str(database)]).output for words in LOOKS}
    data = bytearray(database.read_bytes())
    data[offset : offset + len(value)] = value
    database.write_bytes(data)
    for words in LOOKS:
        begun = time.process_time()
        done = CliRunner().invoke(cli, [*words, "--db", str(database)])
        if isinstance(done.exception, StoreError):
            assert "\n" not in str(done.exception) and len(str(done.exception)) < 600
        else:
            assert done.output == expected[" ".join(words)], done.exception
        assert time.process_time() - begun < 10


def test_nothing_of_all_this_costs_a_recorded_call(database: Path) -> None:
    """After an attack that was refused, and its file removed, the run is whole."""
    journal = Path(f"{database}-journal")
    journal.write_bytes(journal_that_names(database.with_name("x"), database))
    refusal(database)
    journal.unlink()
    pool, out = StoredLM(dead=True), Options(out=str(database.with_name("again.yaml")))
    assert resume("last", database=database, pool=pool, options=out).status == "finished" and not pool.asked
    assert json.loads(CliRunner().invoke(cli, ["runs", "list", "--json", "--db", str(database)]).output)
