"""The rows of runs: their start and end, events, orders of users, and the files that they wrote."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from workbench.errors import StoreError
from workbench.store.content import checksum, parse_json
from workbench.store.database import LISTED, REMOVED, Store, dumps, insertion, kind_of, now


def new_run_name() -> str:
    """Return a random name for a run: eight hexadecimal digits."""
    return secrets.token_hex(4)


def add_run(
    store: Store, *, run: str, name: str, spec: str, file: str | None = None, **others: str | int | None
) -> int:
    """Add a run that starts now. Returns its number. others: status and options; and, if known, seed, data_hash, host,
    pid, version and kind (for listed runs, the command)."""
    row = {"run": run, "name": name, "spec": spec, "file": file, "started": now(), **others}
    row["spec_checksum"] = checksum(run, name, file, spec)
    number = store.execute(*insertion("insert into runs", row)).lastrowid
    assert number is not None
    return number


def find_or_add_run(
    store: Store, statuses: Sequence[str], *, spec: str, options: str, **others: Any
) -> tuple[int, str, float]:
    """Return (id, name, seconds so far) of the newest run that started with exactly this file and these options and has
    one of the statuses, earlier statuses first; otherwise of a new run with the first status."""
    sql = "select id, run, seconds from runs where status = ? and spec = ? and options = ? order by id desc"
    for status in statuses:
        if (row := store.row(sql, status, spec, options)) is not None:
            return row["id"], row["run"], row["seconds"] or 0.0
    run = new_run_name()
    return add_run(store, run=run, status=statuses[0], spec=spec, options=options, **others), run, 0.0


def list_attributions(store: Store) -> list[sqlite3.Row]:
    """List the runs of `workbench agent attribute` that have a report, the oldest first."""
    rows = store.rows("select * from runs where file is null and report is not null order by id")
    return [row for row in rows if kind_of(row) == "attribute" and row["status"] != REMOVED]


#: The short columns of a run, for lists of many.
_SHORT = "id, run, name, status, started, finished, file, seconds, host, pid, kind, tags, note"


def list_run_heads(store: Store, kinds: Collection[str] = LISTED) -> list[sqlite3.Row]:
    """List the runs of `Store.list_runs` without their files, options and reports."""
    rows = store.rows(f"select {_SHORT} from runs where file is not null or status = 'eval' order by id desc")
    return [row for row in rows if kind_of(row) in kinds and row["status"] != REMOVED]


def find_exact_run(store: Store, run: str) -> sqlite3.Row | None:
    """Return the run with exactly this name, unless it was removed."""
    row = store.row("select * from runs where run = ?", run)
    return None if row is None or row["status"] == REMOVED else row


def find_runs(store: Store, ids: Collection[int]) -> list[sqlite3.Row]:
    """Return the full rows of some runs, newest first."""
    sql = "select * from runs where id in (select value from json_each(?)) order by id desc"
    return list(store.rows(sql, dumps([*ids])))


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The row of one run, its events and its artifacts."""

    store: Store
    run_id: int

    def tag(self, tags: Collection[str], note: str | None) -> None:
        """Replace the tags and the note of the run immediately."""
        sql = "update runs set tags = ?, note = ? where id = ?"
        self.store.execute(sql, dumps(sorted(tags)), note, self.run_id)

    def remove(self) -> None:
        """Remove immediately everything stored for the run, except its tests on sealed rows: those rows were seen."""
        for table in ("evaluations", "candidates", "calls", "attempts", "events", "artifacts", "orders"):
            self.store.execute(f"delete from {table} where run_id = ?", self.run_id)
        sql = "update runs set status = ?, spec = '', options = '{}', report = null, checksum = null, note = null, "
        self.store.execute(f"{sql} spec_checksum = null, tags = null where id = ?", REMOVED, self.run_id)

    def remove_losers(self, keep: Collection[str]) -> int:
        """Remove immediately the results of all candidates but these. Scores and the candidates themselves stay.
        Returns the number of removed results."""
        sql = (
            "delete from results where evaluation_id in (select id from evaluations where run_id = ? and candidate "
            "not in (select value from json_each(?)))"
        )
        return self.store.execute(sql, self.run_id, dumps(sorted(keep))).rowcount

    def find_name(self) -> str:
        """Return the name of the run."""
        row = self.store.row("select run from runs where id = ?", self.run_id)
        assert row is not None
        return row["run"]

    def mark_running(self, pid: int, host: str, status: str = "running") -> None:
        """Record immediately that a process works on the run."""
        sql = "update runs set status = ?, pid = ?, host = ? where id = ?"
        self.store.execute(sql, status, pid, host, self.run_id)

    def replace_options(self, options: str) -> None:
        """Replace immediately the options with which the run continues."""
        self.store.execute("update runs set options = ? where id = ?", options, self.run_id)

    def save_seconds(self, seconds: float) -> None:
        """Queue the seconds that the run has taken so far."""
        self.store.write("update runs set seconds = ? where id = ?", seconds, self.run_id)

    def read_events(self, kind: str) -> list[dict[str, Any]]:
        """Return the data of the events of a kind, oldest first. Raises StoreError for damaged events."""
        sql = "select data from events where run_id = ? and kind = ? order by id"
        place = f"an event of {self.store.path} (table events)"
        return [parse_json(row["data"], place, dict) for row in self.store.rows(sql, self.run_id, kind)]

    def name_rows(self, handles: Mapping[str, str]) -> None:
        """Queue the handles of rows, by id, unless they are stored."""
        known = self.read_handles()
        if new := {id_: handle for id_, handle in handles.items() if known.get(id_, id_) != handle}:
            self.store.event(self.run_id, "rows_named", handles=new)

    def read_handles(self) -> dict[str, str]:
        """Return the names of rows for people, by id. Runs of earlier versions have none."""
        return {str(k): str(v) for one in self.read_events("rows_named") for k, v in one["handles"].items()}

    def read_last_events(self, most: int) -> list[dict[str, Any]]:
        """Return the newest events, newest first: at, kind, data. Raises StoreError for damaged events."""
        rows = self.store.rows("select * from events where run_id = ? order by id desc limit ?", self.run_id, most)
        place = f"an event of {self.store.path} (table events)"
        return [{"at": r["at"], "kind": r["kind"], "data": parse_json(r["data"], place, dict)} for r in rows]

    def count_calls(self) -> int:
        """Count the settled model calls, including those that other runs paid for."""
        return self.store.number("select count(*) from calls where run_id = ? and kind = 'lm'", self.run_id)

    def list_calls(self, role: str, after: str, most: int) -> list[sqlite3.Row]:
        """List model calls in the order of their keys, without their texts. role: only this one; "" for all. after:
        only calls with a larger key."""
        sql = (
            "select key, role, lm, outcome, attempts, prompt_tokens, completion_tokens, usd, seconds, queued, reused "
            "from calls where run_id = ? and key > ? and kind = 'lm' and (? = '' or role = ?) order by key limit ?"
        )
        return list(self.store.rows(sql, self.run_id, after, role, role, most))

    def end(self, status: str) -> None:
        """Record immediately that the run has ended without a report."""
        sql = "update runs set status = ?, finished = ? where id = ?"
        self.store.execute(sql, status, now(), self.run_id)

    def end_with_report(self, status: str, report: dict[str, Any], seconds: float) -> None:
        """Queue the end of the run and its report."""
        sql = "update runs set status = ?, finished = ?, report = ?, checksum = ?, seconds = ? where id = ?"
        text = dumps(report)
        self.store.write(sql, status, now(), text, checksum(self.find_name(), text), seconds, self.run_id)

    def add_artifact(self, path: str, hash_: str, content: str) -> None:
        """Record immediately that the run writes a file. hash_: of the workflow; content: SHA-256 of the file."""
        sql = "insert into artifacts (run_id, name, path, sha256, content) values (?, 'workflow', ?, ?, ?)"
        self.store.execute(sql, self.run_id, path, hash_, content)

    def find_rate_limits(self) -> dict[str, tuple[int, int]]:
        """Return, by identity of a model, its most concurrent requests before its rate limits, and its fewest after."""
        found: dict[str, tuple[int, int]] = {}
        sql = "select data from events where run_id = ? and kind = 'rate_limited' order by id"
        for row in self.store.rows(sql, self.run_id):
            event = parse_json(row["data"], "a rate limit of the run (table events)", dict)
            lm, before, after = str(event.get("lm")), event.get("before"), event.get("after")
            if isinstance(before, int) and isinstance(after, int):
                most, least = found.get(lm, (before, after))
                found[lm] = (max(most, before), min(least, after))
        return found

    def find_sandbox(self) -> dict[str, str] | None:
        """Return name and level of the sandbox in which the run started, or None if it opened none."""
        sql = "select data from events where run_id = ? and kind = 'sandbox' order by id"
        row = self.store.row(sql, self.run_id)
        return parse_json(row["data"], "the sandbox of the run (table events)", dict) if row else None


def is_result(store: Store, name: str, path: str, content: str) -> bool:
    """Return True if a run of a workflow of this name wrote the file with this content."""
    sql = (
        "select 1 from artifacts join runs on runs.id = artifacts.run_id "
        "where artifacts.path = ? and content = ? and runs.name = ?"
    )
    return store.row(sql, path, content, name) is not None


@dataclass(frozen=True, slots=True)
class Orders:
    """Orders of users to a running run, oldest first. All writes are immediate, for other processes to read."""

    store: Store
    run_id: int

    def add(self, kind: str, data: dict[str, Any], outcome: str | None = None) -> int:
        """Add an order and return its number. outcome: for an order that was carried out before it is written."""
        sql = "insert into orders (run_id, at, kind, data, outcome) values (?, ?, ?, ?, ?)"
        number = self.store.execute(sql, self.run_id, now(), kind, dumps(data), outcome).lastrowid
        assert number is not None
        return number

    def read_all(self) -> list[dict[str, Any]]:
        """Return all orders: id, at, kind, data, candidate, outcome. Raises StoreError for damaged orders."""
        return self._read("")

    def read_open(self) -> list[dict[str, Any]]:
        """Read the orders that no process has taken up."""
        return self._read("and candidate is null and outcome is null")

    def read_taken(self, candidate: str) -> list[dict[str, Any]]:
        """Read the orders that took effect after the evaluation of a candidate."""
        return self._read("and candidate = ?", candidate)

    def take(self, number: int, candidate: str) -> None:
        """Record, before an order takes effect, the candidate after whose evaluation it does."""
        self.store.execute("update orders set candidate = ? where id = ?", candidate, number)

    def settle(self, number: int, outcome: str) -> None:
        """Record the outcome of an order: `done`, or the reason for a refusal."""
        self.store.execute("update orders set outcome = ? where id = ?", outcome, number)

    def _read(self, where: str, *values: Any) -> list[dict[str, Any]]:
        sql = f"select id, at, kind, data, candidate, outcome from orders where run_id = ? {where} order by id"
        place = f"an order in {self.store.path} (table orders)"
        rows = self.store.rows(sql, self.run_id, *values)
        return [{**dict(row), "data": parse_json(row["data"], place, dict)} for row in rows]


class RunLock:
    """Keeps a second process off a run. The system releases it when the process dies for any reason."""

    def __init__(self, store: Store, run: str):
        self.path = store.path.with_name(f"{store.path.name}-{run}.lock")
        self.run = run

    def __enter__(self) -> RunLock:
        import fcntl

        while True:
            self._file = open(self.path, "a+")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._file.seek(0)
                holder = self._file.read().strip() or "another process"
                self._file.close()
                raise StoreError(f"run {self.run} is in use by {holder}; wait for it, or stop it first") from None
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._file.fileno()), self.path.stat()):
                    break
            self._file.close()  # its holder removed the file between our opening and our locking
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {os.uname().nodename}")
        self._file.flush()
        return self

    def __exit__(self, *exc: object) -> None:
        self.path.unlink(missing_ok=True)
        self._file.close()

    def held(self) -> bool:
        """Return True if a process holds the lock now."""
        import fcntl

        try:
            with open(self.path) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False


def remove_unused_texts(store: Store) -> None:
    """Remove the large texts that no call refers to any more, and return the freed space to the disk."""
    store.execute(
        "delete from texts where hash not in (select t.value from calls c, json_tree(c.request) t "
        "where c.kind = 'lm' and t.key in ('text', 'json') and t.type = 'text')"
    )
    store.execute("vacuum")
