"""Looking at a damaged or crafted run database: what was written, or one error that names the place; and the file stays
as it is."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.helpers.stored_runs import StoredLM, craft, write

from workbench.cli import cli
from workbench.errors import StoreError
from workbench.run import Options, optimize
from workbench.store import Store

LOOKS = [["show", *flags] for flags in ([], ["--tree"], ["--mermaid"], ["--calls", "40"], ["--failures"])]
LOOKS += [["runs", "list"], ["diff"], ["compare", "last"], ["export"]]


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("stored")
    file = write("bootstrap", folder)
    optimize(file, options=Options(out=str(folder / "o.yaml")), database=folder / "run.db", pool=StoredLM())
    return folder


@pytest.fixture
def database(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copyfile(stored / "run.db", tmp_path / "run.db"))


def look(path: Path, *words: str) -> str | StoreError:
    """What a look prints, or its StoreError of one line. Anything else it raises is raised."""
    done = CliRunner().invoke(cli, [*words, "--db", str(path)])
    if isinstance(done.exception, StoreError):
        assert "\n" not in str(done.exception) and len(str(done.exception)) < 600
        return done.exception
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def refused(path: Path, *words: str) -> str:
    found = look(path, *words)
    assert isinstance(found, StoreError), found
    return str(found)


@pytest.mark.fault("damaged-database")
def test_a_statement_that_sqlite_quotes_is_told_on_one_line(database: Path) -> None:
    whole = database.read_bytes()
    damaged = whole.replace(b"seed integer,", b"seed`integer,")  # one bit, which opens a quotation
    assert damaged != whole
    database.write_bytes(damaged)
    for words in LOOKS:
        assert "`integer, report text," in refused(database, *words)


# Contents that a fuzzer found (contrib/fuzz)


@pytest.mark.parametrize("report", ["{}", '{"best": {"workflow": "x"}}', '{"best": null}'])
@pytest.mark.parametrize("words", [["show", "--mermaid"], ["show", "--failures"], ["compare", "last"], ["export"]])
def test_a_report_without_its_parts_is_one_error(database: Path, report: str, words: list[str]) -> None:
    craft(database, f"update runs set report = '{report}', checksum = null")
    found = look(database, *words)
    assert "best" in report or f"{database} has content that" in str(found)
    assert click.get_current_context(silent=True) is None, "a later command would find this one's"


def test_a_score_that_is_no_number_is_one_error(database: Path) -> None:
    craft(database, "update evaluations set score = 'high'")
    assert f"{database} has content that" in refused(database, "show")


# Flips


def checked(shown: str) -> list[str]:
    """What `show` prints of report and tree: without its first line, and without the scores beside the tree."""
    report, _, rest = shown.partition("candidates:\n")
    tree = re.findall(r"^ +[0-9a-f]{8} .*", rest, re.M)
    return [*report.split("\n")[1:], *(re.sub(r" val \S+ ", "", line) for line in tree)]


def lines(shown: str | StoreError, inputs: bool = True) -> set[str]:
    """Lines of a look, without the names of rows, which have no checksum. Not inputs: they come from the data, and are
    left out if its hash is flipped."""
    found = {line for line in str(shown).splitlines() if inputs or not re.match(r"    \w+: ", line)}
    return {re.sub(r"^.*(?=  score [\d-])", "", line) for line in found}


@pytest.mark.fault("damaged-database")
@pytest.mark.slow
def test_flipped_bits_never_change_what_is_shown_as_paid_for(database: Path) -> None:
    """Report, tree and answers; numbers and notes beside them have no checksum. What has a damaged key may be missing,
    and others take its place."""
    calls = lines(look(database, "show", "--calls", "10000"))
    failures = lines(look(database, "show", "--failures"), inputs=False)
    without = Path(shutil.copyfile(database, database.with_name("without_test.db")))
    craft(without, "delete from evaluations where split = 'test'")
    failures |= lines(look(without, "show", "--failures"), inputs=False)
    whole, before = {tuple(words): look(database, *words) for words in LOOKS}, database.read_bytes()
    assert not any(isinstance(text, StoreError) for text in whole.values())
    written = [place for place, byte in enumerate(before) if byte]  # half of a small database is empty
    rng, refusals = random.Random(22), 0
    for _ in range(100):
        place = rng.choice(written)
        flipped = bytearray(before)
        flipped[place] ^= 1 << rng.randrange(8)
        database.write_bytes(flipped)
        for words, expected in whole.items():
            found = look(database, *words)
            assert isinstance(expected, str)
            if isinstance(found, StoreError) or found.startswith("Error: run "):  # the latter: it is not found
                refusals += 1
            elif found == expected:
                continue
            elif words == ("show", "--failures"):
                assert lines(found, inputs=False) <= failures, place
            elif words[0] == "show" and "--mermaid" not in words and "--calls" not in words:
                assert checked(found) == checked(expected), place
            elif words in (("show", "--calls", "40"),):
                assert {line for line in lines(found) if re.match(r"  -> |  \w+: ", line)} <= calls, place
            elif words != ("runs",):
                raise AssertionError(f"byte {place}: {words} shows {found[:500]}")
    assert refusals > 50


def test_what_has_no_checksum_is_shown(database: Path) -> None:
    expected = look(database, "show")
    craft(database, *(f"update {table} set checksum = null" for table in ("runs", "candidates", "calls")))
    assert look(database, "show") == expected


@pytest.mark.parametrize(
    ("change", "words", "named"),
    [
        ("update runs set report = replace(report, '0', '1')", ["show"], r"report of run \w+ \(table runs\).*checksum"),
        ("update candidates set tree = replace(tree, 'Sort', 'Sore')", ["export"], r"\(table candidates\).*checksum"),
        ("update runs set spec = replace(spec, 'Sort', 'Sore')", ["export"], r"workflow file of run \w+ .*checksum"),
        ("update candidates set note = 'other'", ["diff"], r"\(table candidates\).*checksum"),
        (
            "update calls set response = replace(response, 'text', 'test')",
            ["show", "--calls", "9"],
            r"calls.*checksum",
        ),
        ("update texts set text = 'other'", ["show", "--calls", "9"], r"texts\) does not match its hash"),
    ],
)
def test_changed_content_is_named(database: Path, change: str, words: list[str], named: str) -> None:
    if "texts" in change:
        craft(
            database,
            "insert into texts select 'abc', 'long' where not exists (select 1 from texts)",
            "update calls set checksum = null, request = json_set(request, '$.messages[0].content', "
            "json_object('text', (select hash from texts limit 1)))",
        )
    craft(database, change)
    assert re.search(named, refused(database, *words))


def test_a_damaged_answer_is_not_replayed(database: Path) -> None:
    from workbench.store import Journal

    store = Store(database)
    try:
        row = store.row("select key from calls where kind = 'lm'")
        assert row is not None and Journal(store, 1).find_call(row["key"]) is not None
        store.execute("update calls set response = replace(response, 'text', 'test')")
        with pytest.raises(StoreError, match="table calls.*checksum"):
            Journal(store, 1).find_call(row["key"])
    finally:
        store.close()


# Crafted files

NO_SUMS = "update runs set checksum = null"
FORMS = {
    "not JSON": "update runs set report = '{'",
    "a list": "update runs set report = '[]'",
    "deep": "update runs set report = printf('%.*c', 200000, '[')",
    "a number too long": "update runs set report = '{\"gain\": ' || printf('%.*c', 20000, '9') || '}'",
    "gain of a wrong type": "update runs set report = json_set(report, '$.gain', 'big')",
    "p of a wrong type": "update runs set report = json_set(report, '$.gain.p', 'big')",
    "lines of a wrong type": "update runs set report = json_set(report, '$.lines', 7)",
    "best of a wrong type": "update runs set report = json_set(report, '$.best', 7)",
    "bad UTF-8": "update runs set report = cast(x'ff80fe' as text)",
    "a blob": "update runs set report = x'7b7d'",
    "a blob as a name": "update runs set name = x'00ff'",
    "a text for a number": "update runs set seconds = 'long'",
    "a path as a name": "update runs set run = '../../x/y', status = 'running'",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_run_of_another_form_is_one_error(database: Path, form: str) -> None:
    craft(database, NO_SUMS, FORMS[form])
    for words in (["show"], ["runs", "list"]):
        found = look(database, *words)
        assert isinstance(found, str) or str(database) in str(found) or "(table runs)" in str(found)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("tree = '{}'", ["export"]),
        ("tree = '{\"nodes\": []}'", ["diff"]),
        ("tree = x'00'", ["diff"]),
        ("note = cast(x'ff' as text)", ["show"]),
        ("note = 7", ["diff"]),
        ("seq = 'first'", ["show", "--mermaid"]),
    ],
)
def test_a_candidate_of_another_form_is_one_error(database: Path, change: str, words: list[str]) -> None:
    craft(database, f"update candidates set checksum = null, {change}")
    found = look(database, *words)
    assert isinstance(found, str) or str(database) in str(found) or "(table candidates)" in str(found)


@pytest.mark.parametrize("column", ["request", "response"])
@pytest.mark.parametrize("value", ["'{'", "'[]'", "'{}'", "'{\"messages\": [7]}'", "x'00'", "cast(x'ff' as text)"])
def test_a_call_of_another_form_is_one_error(database: Path, column: str, value: str) -> None:
    craft(database, f"update calls set checksum = null, {column} = {value}")
    found = refused(database, "show", "--calls", "3")
    assert str(database) in found or "(table calls)" in found


@pytest.mark.parametrize("options", ["'{'", "'[]'", "'{\"sets\": 7}'", "'{\"sets\": [1]}'"])
def test_options_of_another_form_are_one_error(database: Path, options: str) -> None:
    craft(database, f"update runs set options = {options}")
    for words in (["export"], ["resume"]):
        assert "options" in refused(database, *words)


# What a look leaves


def listing(folder: Path) -> dict[str, Any]:
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()}


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_look_changes_nothing(database: Path, words: list[str]) -> None:
    before = listing(database.parent)
    assert isinstance(look(database, *words), str)
    assert listing(database.parent) == before


@pytest.mark.fault("no-rights")
def test_a_read_only_database_can_be_looked_at(database: Path) -> None:
    folder = database.parent
    expected = look(database, "show")
    database.chmod(0o400)
    folder.chmod(0o500)
    try:
        assert look(database, "show") == expected
    finally:
        folder.chmod(0o700)


@pytest.fixture
def unfinished(database: Path) -> Iterator[Path]:
    """A database whose writer lives, and has written what is in the WAL alone."""
    store = Store(database)
    store.execute("update runs set status = 'in the log'")
    yield database
    store.close()


def test_a_living_writer_is_read_beside(unfinished: Path) -> None:
    before = {p.name: p.read_bytes() for p in unfinished.parent.iterdir() if not p.name.endswith("-shm")}
    assert ": in the log," in str(look(unfinished, "show"))
    assert {p.name: p.read_bytes() for p in unfinished.parent.iterdir() if not p.name.endswith("-shm")} == before


def test_what_a_killed_writer_left_is_read_and_left(unfinished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copied"
    folder.mkdir()
    for end in ("", "-wal"):
        shutil.copyfile(f"{unfinished}{end}", folder / f"run.db{end}")
    before = listing(folder)
    assert ": in the log," in str(look(folder / "run.db", "show"))
    assert listing(folder) == before
