"""Helpers for tests of the run database."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.sqlite import connect

NEW_RUN = "insert into runs (run, status, started, spec, options) values (?, '', '', '', '')"
EVENT = "insert into events (run_id, at, kind, data) values (1, '', ?, ?)"


def kinds(path: Path) -> list[str]:
    """The events in the database, in order, read with plain SQL."""
    reader = connect(path)
    try:
        assert reader.execute("pragma integrity_check").fetchone()[0] == "ok"
        return [row[0] for row in reader.execute("select kind from events order by id")]
    finally:
        reader.close()
