"""The candidates of runs: workflows proposed by optimizers."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from workbench.base.type_guards import is_dict
from workbench.store.content import check_sum, checksum, parse_json
from workbench.store.database import Store

#: Columns of a candidate that its checksum covers.
_SUMMED = ("hash", "seq", "parent", "optimizer", "note", "patch", "tree")


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of one run. The first is the workflow of the file."""

    store: Store
    run_id: int

    def add(
        self, hash_: str, seq: int, parent: str | None, optimizer: str, note: str, patch: str | None, tree: str
    ) -> None:
        """Queue a candidate. An existing one does not change."""
        values = (hash_, seq, parent, optimizer, note, patch, tree)
        sql = "insert or ignore into candidates values (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        self.store.write(sql, self.run_id, *values, checksum(*values))

    def count(self) -> int:
        """Count the candidates."""
        return self.store.number("select count(*) from candidates where run_id = ?", self.run_id)

    def unreached(self, reached: int, run: str) -> list[str]:
        """Warn about candidates of earlier processes that a replay did not reach; an empty list if there are none."""
        self.store.flush()
        if (left := self.count() - reached) <= 0:
            return []
        return [
            f"{left} earlier candidates are not in this report, since the resumed run did not reach them; "
            f"`workbench show {run}` lists them"
        ]

    def find_baseline(self) -> str | None:
        """Return the hash of the baseline: the workflow of the file, or its successor after its nodes were observed."""
        sql = "select hash from candidates where run_id = ? and optimizer = 'baseline' order by seq desc limit 1"
        row = self.store.row(sql, self.run_id)
        return self.find_first() if row is None else row["hash"]

    def find_first(self) -> str | None:
        """Return the hash of the first candidate."""
        row = self.store.row("select hash from candidates where run_id = ? order by seq limit 1", self.run_id)
        return None if row is None else row["hash"]

    def find_tree(self, hash_: str | None) -> dict[str, Any] | None:
        """Return the tree of a candidate by its hash or a prefix; None returns the first one."""
        if hash_ is None:
            row = self.store.row("select * from candidates where run_id = ? order by seq limit 1", self.run_id)
        else:
            sql = "select * from candidates where run_id = ? and hash like ? || '%' order by seq"
            row = self.store.row(sql, self.run_id, hash_)
        if row is None:
            return None
        place = self._check(row)
        return parse_json(row["tree"], place, dict)

    def read_all(self) -> list[dict[str, Any]]:
        """Return every candidate in order, with its score on val (None if its evaluation never finished) and its
        changes to its parent, by address. Raises StoreError for a damaged one."""
        sql = (
            "select c.*, e.score, e.failed, e.objectives from candidates c "  # under names whose types are checked
            "left join evaluations e on e.run_id = c.run_id and e.candidate = c.hash and e.split = 'val' "
            "and e.complete = 1 and e.replica = 0 where c.run_id = ? order by c.seq"
        )
        shown = ("hash", "parent", "optimizer", "note", "score", "failed", "objectives")
        found: list[dict[str, Any]] = []
        for row in self.store.rows(sql, self.run_id):
            self._check(row)
            patch = (
                parse_json(row["patch"], f"the candidate {row['hash'][:16]} (table candidates)", dict)
                if row["patch"]
                else {}
            )
            changes = patch.get("set") if is_dict(patch.get("set")) else {}
            found.append({**{"val" if name == "score" else name: row[name] for name in shown}, "changes": changes})
        return found

    def _check(self, row: sqlite3.Row) -> str:
        """Raise StoreError if a candidate differs from what was written. Returns its location, for other errors."""
        place = f"the workflow {row['hash'][:16]} of {self.store.path} (table candidates)"
        check_sum(row, place, *(row[name] for name in _SUMMED))
        return place


def find_choices(store: Store, hash_: str, data_hash: str | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the val and train rows of the runs of `optimize` that proposed a workflow, each with the run's name: their
    scores helped to make and choose it. Runs that started with it do not count. First the rows of runs on this data, by
    id; then those of runs on other data, by key (`SeenRows`)."""
    of = (
        "with of as (select distinct u.id, u.run, u.data_hash from candidates c join runs u on u.id = c.run_id "
        "where c.hash = ? and coalesce(c.optimizer, '') != 'baseline' and coalesce(u.kind, 'optimize') = 'optimize') "
    )
    here = store.rows(  # of val only the largest evaluation, which has all rows
        f"{of}, scored as (select of.id as run_id, (select e.id from evaluations e where e.run_id = of.id and "
        "e.split = 'val' order by e.n desc limit 1) as id from of union select of.id, e.id from of join "
        "evaluations e on e.run_id = of.id where e.split = 'train') "
        "select distinct of.run, r.example from scored join of on of.id = scored.run_id "
        "join results r on r.evaluation_id = scored.id where of.data_hash is ?",
        hash_,
        data_hash,
    )
    elsewhere = store.rows(
        f"{of} select distinct of.run, s.row from scored_rows s join of on of.id = s.run_id "
        "where of.data_hash is not ?",
        hash_,
        data_hash,
    )
    return {r["example"]: r["run"] for r in here}, {r["row"]: r["run"] for r in elsewhere}
