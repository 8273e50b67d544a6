"""Stored runs of commit 80e7844 stay what they are: keys of the journal, hashes of workflows, winners, scores."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.stored_runs import RUNS, StoredLM, restore

from workbench.ledger import CallInfo
from workbench.lm import Request
from workbench.run import Options, resume
from workbench.workflow import Workflow

#: What depends on the clock or on the folder, or was not there yet; all else in a report must be equal.
_CHANGING = ("seconds", "database", "workflow", "cached", "latency", "p95_latency", "reused")


def tables(path: Path) -> dict[str, list[Any]]:
    """The rows of each table that says what was paid for, what was tried and how good it was."""
    asked = {
        "calls": "select key, kind, role, lm, request, response, outcome from calls order by key",
        "candidates": "select hash, seq, parent, optimizer, note, patch, tree from candidates order by seq",
        "evaluations": "select id, candidate, split, replica, n, score, failed, complete from evaluations order by id",
        "results": "select evaluation_id, position, example, score, failure, prediction from results",
        "texts": "select hash, text from texts",
    }
    reader = sqlite3.connect(path)
    try:
        return {name: reader.execute(sql).fetchall() for name, sql in asked.items()}
    finally:
        reader.close()


def report_of(path: Path) -> dict[str, Any]:
    reader = sqlite3.connect(path)
    try:
        return json.loads(reader.execute("select report from runs").fetchone()[0])
    finally:
        reader.close()


def lasting(report: Any) -> Any:
    """A report without what changes whenever a run is replayed."""
    if isinstance(report, dict):
        return {k: lasting(v) for k, v in report.items() if k not in (*_CHANGING, "lines")}
    return [lasting(v) for v in report] if isinstance(report, list) else report


@pytest.mark.parametrize("name", RUNS)
def test_a_stored_run_is_replayed_without_a_call(name: str, tmp_path: Path) -> None:
    """Every call that the replay makes is in the journal, and every call of the journal is made again."""
    database = restore(name, tmp_path)
    before, told = tables(database), report_of(database)
    lm, keys = StoredLM(dead=True), set[str]()

    def listen(event: str, data: dict[str, Any]) -> None:
        if event == "call_settled":
            call: CallInfo = data["call"]
            keys.add(call.key)

    report = resume(
        "last", database=database, pool=lm, listener=listen, options=Options(out=str(tmp_path / "out.yaml"))
    )
    assert report.status == "finished" and not lm.asked
    assert tables(database) == before
    assert keys == {row[0] for row in before["calls"] if row[1] == "lm"}
    now = json.loads(json.dumps(report.as_dict()))
    # These runs were stored before the proof got its intervals of today (Tango, not bootstrap): all else is as it was.
    # Nor does their order of the sides change, which is said.
    then = {key: value for key, value in told.items() if key != "lines"}
    assert "ran in one order on each sealed row" in now["warnings"].pop(0)
    assert lasting({key: now[key] for key in then if key != "gain"}) == lasting(
        {k: v for k, v in then.items() if k != "gain"}
    )
    unmoved = ("diff", "shown", "n", "excluded")
    assert {key: now["gain"][key] for key in unmoved} == {key: then["gain"][key] for key in unmoved}
    stored = {row[0]: json.loads(row[6]) for row in before["candidates"]}
    assert stored[report.winner.hash] == report.winner.tree


@pytest.mark.parametrize("name", RUNS)
def test_hashes_and_keys_are_made_as_they_were(name: str, tmp_path: Path) -> None:
    """From what is stored alone, without the course of a run."""
    database = restore(name, tmp_path)
    found = tables(database)
    texts = dict(found["texts"])
    for hash_, *_, tree in found["candidates"]:
        assert Workflow(json.loads(tree), tmp_path).hash == hash_
    for key, kind, _, lm, request, *_ in found["calls"]:
        if kind == "lm":
            body = json.loads(request)
            for message in body["messages"]:
                if isinstance(message["content"], dict):
                    message["content"] = texts[message["content"]["text"]]
            body = {k: tuple(v) if isinstance(v, list) else v for k, v in body.items()}
            assert Request(**body).key(lm) == key
    if name == "tools":
        assert {row[1] for row in found["calls"]} == {"lm", "tool"}
    if name == "structure":
        kinds = {kind for *_, tree in found["candidates"] for kind in re.findall(r'"kind":\s*"(\w+)"', tree)}
        assert {"predict", "ensemble"} <= kinds
