"""Tools that ask live services: retried with pauses, asked once for one query, and read again from the journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script, make_workflow, run_node, run_rows

from workbench.errors import SpecError
from workbench_tools import live_calls

SERVICE = '''
import json
import pathlib
import time

ASKED = pathlib.Path(__file__).with_name("asked.json")

def web(query: str) -> str:
    """Searches the web."""
    asked = json.loads(ASKED.read_text()) if ASKED.exists() else []
    ASKED.write_text(json.dumps([*asked, query]))
    time.sleep(0.5 if query.startswith("same") else 0)
    if asked.count(query) < int(query.rpartition("-")[2] or 0):
        raise ConnectionError("busy")
    return f"answer {len(asked)} to {query}"
'''


@pytest.fixture
def pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which take no time."""
    (tmp_path / "service.py").write_text(SERVICE)
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(live_calls.asyncio, "sleep", sleep)
    return waited


def asked(folder: Path) -> list[str]:
    return json.loads((folder / "asked.json").read_text())


def tool(**live: Any) -> dict[str, Any]:
    return {"tool": "python:service.py:web", "live": live}


def results(folder: Path, node: dict[str, Any], queries: list[str], database: str = "run.db") -> list[Any]:
    script = Script(lambda request: "")
    found = run_rows(make_workflow({"n": node}, folder), [{"query": q} for q in queries], script, folder / database)
    return [o.prediction.get("result") or o.message for o in found]


def test_a_failing_service_is_asked_again_after_growing_pauses(tmp_path: Path, pauses: list[float]) -> None:
    assert results(tmp_path, tool(attempts=4), ["x-3"]) == ["answer 3 to x-3"]
    assert asked(tmp_path) == ["x-3"] * 4
    assert [0.5 <= pauses[0] <= 0.625, 1.0 <= pauses[1] <= 1.25, 2.0 <= pauses[2] <= 2.5] == [True] * 3


def test_after_the_last_attempt_it_fails_and_a_later_row_may_ask_again(tmp_path: Path, pauses: list[float]) -> None:
    first, second = results(tmp_path, tool(attempts=2), ["x-3", "x-3"])
    assert "ConnectionError: busy" in first and second == "answer 3 to x-3"
    assert len(pauses) == 2
    assert results(tmp_path, tool(attempts=2), ["x-3", "x-3"]) == [first, second], "a resumed run reads what was read"
    assert len(asked(tmp_path)) == 4


def test_one_query_is_asked_once_in_a_run_and_only_where_that_is_wanted(tmp_path: Path, pauses: list[float]) -> None:
    queries = ["a-0", "b-0", "a-0", "a-0"]
    found = results(tmp_path, tool(), queries)
    assert asked(tmp_path) == ["a-0", "b-0"] and found == [found[0], found[1], found[0], found[0]]
    assert results(tmp_path, tool(), queries) == found and len(asked(tmp_path)) == 2
    results(tmp_path, tool(cached=False), queries, "other.db")
    assert len(asked(tmp_path)) == 6


def test_rollouts_that_ask_at_the_same_time_ask_once(tmp_path: Path, pauses: list[float]) -> None:
    """Eight agents ask at once, and the first attempt fails."""
    call = 'call: {"tool": "web", "arguments": {"query": "same-1"}}'
    agent = {
        "agent": "question -> reply",
        "tools": ["python:service.py:web"],
        "live": {"web": {"attempts": 2}},
        "temperature": 1.0,
    }
    trees = {f"n{i}": {**agent, "agent": f"question -> reply{i}"} for i in range(8)}

    def say(request: Any) -> str:
        last = str(request.messages[-1]["content"])
        if not last.startswith("result:"):
            return call
        number = str(request.messages[0]["content"]).partition("reply")[2][0]
        return f"reply{number}: {last}"

    script = Script(say)
    (found,) = run_rows(make_workflow(trees, tmp_path), [{"question": "?"}], script, tmp_path / "run.db")
    assert set(found.prediction.values()) == {"result: answer 1 to same-1"}
    assert asked(tmp_path) == ["same-1"] * 2 and len(pauses) == 1


def test_wrong_arguments_are_not_retried(tmp_path: Path, pauses: list[float]) -> None:
    agent = {
        "agent": "question -> reply",
        "tools": ["python:service.py:web"],
        "live": {"web": {}},
    }

    def say(request: Any) -> str:
        if "error" in str(request.messages[-1]["content"]):
            return "reply: done"
        return 'call: {"tool": "web", "arguments": {"words": "x"}}'

    outcome, script = run_node(agent, {"question": "?"}, tmp_path, say)
    assert outcome.prediction == {"reply": "done"} and not pauses and not (tmp_path / "asked.json").exists()
    assert "takes no argument 'words'" in str(script.requests[-1].messages[-1])
    with pytest.raises(SpecError, match="there is no tool 'wbe'"):
        make_workflow({"n": {**agent, "live": {"wbe": {}}}}, tmp_path)
