"""The gallery's machine for SQL: its transitions, its tool, its metric, and what scripted policies reach with it.

No model is behind these tests: the policies are simulations.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.intercode import BOOKS, FOLDER, NODE, ROOT, ROWS, ideal, play, said_before, scores, sql, state_of

from workbench.lm import Request

#: From each state: what follows a failure, a query, another statement, and submit. Source: StateFlow's machine for SQL.
TABLE = {
    "observe": {"failure": "error", "query": "select", "other": "select", "submit": "select"},
    "select": {"failure": "error", "query": "verify", "other": "select", "submit": "select"},
    "verify": {"failure": "error", "query": "verify", "other": "select", "submit": None},
    "error": {"failure": "error", "query": "verify", "other": "select", "submit": "select"},
}
WAYS = {"observe": [], "select": ["DESC books"], "verify": ["DESC books", "SELECT 1"], "error": ["SELECT x FROM books"]}
SAYINGS = {
    "failure": ["SELECT x FROM books", "please help", "DROP TABLE books", "DESCRIBE nothing"],
    "query": [
        "SELECT 1",
        "select title from books;",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "```sql\nSELECT 1\n```",
        "-- the titles\nselect 1",
        "sql: SELECT 1",
        "/* all */ VALUES (1)",
    ],
    "other": ["SHOW TABLES", "describe books", "desc Books;"],
    "submit": ["submit", "Submit.", "SUBMIT"],
}


@pytest.mark.parametrize("state", TABLE)
def test_the_machine_takes_the_transitions_of_the_paper(state: str, tmp_path: Path) -> None:
    for event, target in TABLE[state].items():
        for saying in SAYINGS[event]:
            sayings = [*WAYS[state], saying]
            node = {**NODE, "max_steps": len(sayings) + 1}
            outcome = play(node, BOOKS[:1], lambda r, _, s=sayings: [*s, "SHOW TABLES"][len(said_before(r))], tmp_path)[
                0
            ]
            path = outcome.trace.spans[0].notes["path"]
            assert path[len(sayings) - 1] == state
            assert path[len(sayings) :] == ([target] if target else []), (state, saying, path)
            if event == "query" and state != "observe":
                assert sql.keyword(outcome.prediction["sql"]) in ("select", "values")


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("select 1", "select"),
        ("  SELECT 1", "select"),
        ("WITH a AS (SELECT ')' ) SELECT * FROM a", "select"),
        ("with recursive a(x) as (values (1)) select x from a", "select"),
        ("WITH a AS (SELECT 1) DELETE FROM b", "delete"),
        ('with "select" as (select 1) update b set c = 1', "update"),
        ("-- x\n/* y */ ( select 1)", "select"),
        ("Selection of books", "selection"),
        ("", ""),
        ("42", ""),
        ("with nothing", "with"),
        ("submit", "submit"),
    ],
)
def test_a_statement_is_known_by_its_main_keyword(statement: str, word: str) -> None:
    assert sql.keyword(statement) == word


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM books",
        "WITH a AS (SELECT 1) DELETE FROM books",
        "ATTACH 'x.db' AS x",
        "VACUUM INTO 'x.db'",
        "PRAGMA user_version = 3",
        "SELECT load_extension('x')",
        "SELECT 1; DROP TABLE books",
        "CREATE TABLE x (y)",
        "SELECT zeroblob(1000000000)",
    ],
)
def test_nothing_can_be_written_loaded_or_blown_up(
    statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for run in (sql.execute, sql.query):
        with pytest.raises(ValueError):  # noqa: PT011 - each statement is refused in its own words
            run(statement, "library")
    assert not list(tmp_path.iterdir()) and sql.query("SELECT COUNT(*) FROM books", "library") == [(24,)]


def test_a_query_without_end_is_stopped() -> None:
    with pytest.raises(ValueError, match="too long"):
        sql.query("WITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM a) SELECT COUNT(*) FROM a", "library")


def test_the_tool_says_what_a_model_needs() -> None:
    assert sql.execute("show tables", "library")["rows"] == [["authors"], ["books"], ["members"], ["loans"]]
    assert sql.execute("DESC Books", "library")["rows"][1] == ["title", "TEXT", False]
    found = sql.execute("SELECT book_id FROM books", "library")
    assert len(found["rows"]) == 20 and found["more_rows"] == 4
    for db in ("../library", "nothing", ""):
        with pytest.raises(ValueError, match="there is no database"):
            sql.execute("SELECT 1", db)


@pytest.mark.parametrize(
    ("gold", "query", "right"),
    [
        ("SELECT title FROM books", "SELECT title FROM books ORDER BY title", 1),
        ("SELECT title FROM books ORDER BY title", "SELECT title FROM books ORDER BY title DESC", 0),
        ("SELECT DISTINCT country FROM authors", "SELECT country FROM authors", 0),
        ("SELECT name, born FROM authors", "SELECT born, name FROM authors", 0),
        ("SELECT AVG(pages) FROM books", "SELECT SUM(pages) * 1.0 / COUNT(*) FROM books", 1),
        ("SELECT COUNT(*) FROM books", "SELECT '24'", 0),
        ("SELECT COUNT(*) FROM books", "", 0),
        ("SELECT COUNT(*) FROM books", "SELECT nothing", 0),
        ("SELECT NULL", "SELECT NULL", 1),
    ],
)
def test_the_metric_compares_rows(gold: str, query: str, right: int) -> None:
    value, words = sql.score({"gold_sql": gold, "db": "library"}, {"sql": query})
    assert value == right and words


def test_the_committed_data_are_what_their_script_writes(tmp_path: Path) -> None:
    script = ROOT / "contrib/databases/generate.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)
    committed = FOLDER / "data/intercode_sql"
    names = sorted(str(p.relative_to(committed)) for p in committed.rglob("*.*"))
    assert len(ROWS) == 20 and names == sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.*"))
    assert all((tmp_path / name).read_bytes() == (committed / name).read_bytes() for name in names)


def test_every_gold_query_of_the_committed_rows_scores_1_through_the_machine(tmp_path: Path) -> None:
    outcomes = play(NODE, ROWS, ideal, tmp_path)
    assert scores(ROWS, outcomes) == [1.0] * 20
    assert all(o.trace.spans[0].notes["path"] == ["observe", "select", "verify"] for o in outcomes)


def without(state: str) -> dict[str, Any]:
    """The machine less a state: what led to verify leads to the end, and what led to error stays where it was."""
    node = copy.deepcopy(NODE)
    del node["states"][state]
    for steps in (s["next"] for s in node["states"].values()):
        for step in [s for s in steps if isinstance(s, dict) and s["to"] == state]:
            if state == "verify":
                step["to"] = "end"
            else:
                steps.remove(step)
    return node


def careless(request: Request, row: dict[str, Any]) -> str:
    """A simulation of a fallible model: it errs in its first query, and mends it only where a state asks for that.

    Every third question has a query of a column too many (which verify would find), every third a query that fails.
    """
    kind, gold = ROWS.index(row) % 3, row["gold_sql"]
    first = {0: gold, 1: f"SELECT 1, t.* FROM ({gold}) AS t", 2: gold.replace("FROM", "FORM", 1)}[kind]
    state = state_of(request)
    if state == "verify":
        return gold if said_before(request)[-1] == first != gold else "submit"
    return {"observe": "SHOW TABLES", "select": first, "error": gold}[state]


@pytest.mark.parametrize(("dropped", "failing"), [(None, ()), ("verify", (1,)), ("error", (2,))])
def test_dropping_verify_or_error_brings_planted_failures_back(
    dropped: str | None, failing: tuple[int, ...], tmp_path: Path
) -> None:
    outcomes = play(without(dropped) if dropped else NODE, ROWS, careless, tmp_path)
    assert scores(ROWS, outcomes) == [0.0 if i % 3 in failing else 1.0 for i in range(len(ROWS))]
    if dropped == "error":
        assert {o.failure for i, o in enumerate(outcomes) if i % 3 == 2} == {"steps"}
