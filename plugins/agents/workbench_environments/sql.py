"""A SQLite database that statements may change; every episode begins with a fresh copy.

Scripts and statements run in a separate, confined process (`confined_sql`). For read-only questions,
workflows/intercode_sql.py has a tool that runs queries, and its own metric.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import Field, PrivateAttr, model_validator

from workbench.spec import read_outside
from workbench_environments.confined_sql import Database, bare
from workbench_kit.acting import Environment, Step
from workbench_kit.answers import find_code


class Sql(Environment):
    """A database that SQL statements read and change. `submit` ends the episode.

    Task: `db`, the name of a script NAME.sql in `folder`, or `schema`, the script itself; and `gold_sql`. If that is a
    query, the agent's last query must return the same rows (in any order, unless it has one); else the database must
    end in the state after that statement.
    """

    help: ClassVar[str] = "one SQL statement, or submit to hand in what the last query gave and how the database is"

    folder: str = Field(".", description="folder of the database scripts, relative to the workflow file")
    rows: int = Field(20, ge=1, le=1000, description="rows of a result shown")
    limit: int = Field(20, ge=1, le=1000, description="statements at most")
    chars: int = Field(4000, ge=100, le=100_000, description="maximum length of an observation in characters")
    _script: str = PrivateAttr("")
    _gold: str = PrivateAttr("")
    _database: Database | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _enter(self) -> Self:
        read_outside(self.folder, self.base, "folder")
        return self

    def reset(self, task: Mapping[str, Any]) -> str:
        self._script, self._gold = self._source(task), str(task.get("gold_sql") or "").strip()
        if not self._gold:
            raise ValueError("the field 'gold_sql' must hold the statement with the wanted result or effect")
        self.state = {"changes": [], "last": None, "steps": 0}
        self._open([])
        tables = self._db.run("select name, sql from sqlite_master where type = 'table' order by name")
        return "\n".join(["Tables:", *(str(sql) for _, sql in tables)])

    def _source(self, task: Mapping[str, Any]) -> str:
        if task.get("schema"):
            return str(task["schema"])
        name = str(task.get("db") or "")
        if not re.fullmatch(r"\w+", name):
            raise ValueError(f"the field 'db' must name a database, not {name!r}")
        folder = (self.base / self.folder).resolve()
        path = (folder / f"{name}.sql").resolve()
        if not path.is_relative_to(folder):
            raise ValueError(f"{name}.sql leads out of the folder of scripts, to {path}")
        if not path.is_file():
            raise ValueError(f"there is no file {path}")
        return path.read_text(encoding="utf-8")

    def restore(self, snapshot: Any) -> None:
        super().restore(snapshot)
        self._open(self.state["changes"])

    def step(self, action: str) -> Step:
        state, statement = self.state, _statement(action)
        state["steps"] += 1
        over = state["steps"] >= self.limit
        if statement.lower() == "submit":
            return Step("Handed in.", True)
        before = self._db.changes
        try:
            found = self._db.run(statement)
        except ValueError as error:
            self._open(state["changes"])  # it may have changed something, or rolled back a transaction
            return Step(self._cut(f"error: {error}"), over)
        changed = self._db.changes - before
        if changed or not _reads(statement):
            state["changes"].append(statement)
            return Step(f"done, {changed} rows changed", over)
        state["last"] = statement
        more = f"\n... and {len(found) - self.rows} more rows" if len(found) > self.rows else ""
        return Step(self._cut("\n".join(map(repr, found[: self.rows]))) + more or "no rows", over)

    @classmethod
    def call(cls, action: str) -> Mapping[str, Any]:
        """Return the statement without a code fence and text that SQLite skips before it, and its first word."""
        statement = bare(_statement(action))
        return {"action": statement, "verb": (re.findall(r"\A\w+", statement) or [""])[0].lower()}

    def calls(self, action: str) -> Sequence[Mapping[str, Any]]:
        """Return a call for each action of the statement according to SQLite: `with a as (...) delete from t` is a
        `delete`, and a `select` if it reads. For a statement that fails, return its first word."""
        first = self.call(action)
        verbs = [] if first["verb"] in ("submit", "explain") else self._db.verbs(first["action"])
        return [{**first, "verb": verb} for verb in verbs] or [first]

    def _cut(self, text: str) -> str:
        return text if len(text) <= self.chars else text[: self.chars - 1] + "…"

    def score(self) -> float:
        """Return 1 if the last query gives the gold query's rows, or the database equals the gold one; else 0."""
        if not _reads(self._gold):
            with Database.make(self._script) as wanted:
                wanted.run(self._gold)
                return float(wanted.digest() == self._db.digest())
        if self.state["last"] is None:
            return 0.0
        with Database.make(self._script, reads=True) as fresh:  # in its initial state, which neither query changes
            gold = fresh.run(self._gold)
            try:
                found = fresh.run(self.state["last"])
            except ValueError:  # it reads a table that an earlier statement made, or changes something
                return 0.0
        ordered = re.search(r"(?i)\border\s+by\b", self._gold) is not None
        return float(found == gold if ordered else sorted(map(repr, found)) == sorted(map(repr, gold)))

    def identity(self) -> Any:
        return [self.state["changes"], self.state["last"]]

    @property
    def _db(self) -> Database:
        assert self._database is not None, "reset comes first"
        return self._database

    def _open(self, changes: list[str]) -> None:
        self.close()
        self._database = Database.make(self._script)
        for statement in changes:
            self._db.run(statement)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def _statement(action: str) -> str:
    """Return the statement in an action, without code fence and semicolon."""
    return next(iter(find_code(action)), action).strip().rstrip(";").strip()


def _reads(statement: str) -> bool:
    return re.match(r"(?is)\s*(select|values|with|explain)\b", statement) is not None
