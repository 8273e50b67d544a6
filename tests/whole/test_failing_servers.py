"""A server that fails, through the real client and the ledger."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.journal import ask, journal, reply, scripted, spec
from tests.helpers.lm_faults import ChatServer
from tests.helpers.sqlite import connect

from workbench.cli import cli
from workbench.errors import BudgetSpent, LMError
from workbench.ledger import Settled
from workbench.lm import MAX_TOKENS, make_lm
from workbench.spec import lm_spec

sys.path.insert(0, str(Path(__file__).parents[2] / "contrib" / "bench" / "promises"))

from simulated_server import SimulatedServer


def call_all(
    database: Path, base: str, count: int, look: Callable[[Any], None] = lambda ledger: None, **settings: Any
) -> list[Any]:
    """Send `count` different calls through the openai client, 8 at once; the outcome of each."""
    lm = make_lm(lm_spec({"model": "openai/m", "api_base": base, "concurrency": 8}))

    async def main() -> list[Any]:
        async with contextlib.aclosing(lm):
            with journal(database, pause=0.01, calls=20_000) as ledger:
                jobs = (ledger.call(lm, ask(f"call {n}"), "task", spec(**settings)) for n in range(count))
                found = await asyncio.gather(*jobs, return_exceptions=True)
                look(ledger)
            return found

    return asyncio.run(main())


@pytest.mark.fault("server-errors")
@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_all_calls_end_against_a_server_that_fails_in_four_ways(count: int, tmp_path: Path) -> None:
    """10% each of 500, 503, resets and stalls."""
    bill = []
    with SimulatedServer(dict.fromkeys(("500", "503", "reset", "stall"), 0.1), seed=count) as server:

        def look(ledger: Any) -> None:
            bill.extend([ledger.sent.calls, ledger.spent.calls])

        found = call_all(tmp_path / "run.db", server.base, count, look, attempts=4, timeout=0.3)
    assert all(isinstance(one, Settled) and one.attempts <= 4 for one in found)
    assert bill == [sum(one.attempts for one in found)] * 2, "every attempt is on the bill"
    read = {json.loads(body)["messages"][-1]["content"]: requests for body, requests in server.bodies.items()}
    assert all(read.get(f"call {n}", 0) <= one.attempts for n, one in enumerate(found))
    lost = [one for one in found if one.error is not None]
    assert len(lost) < count * 0.06 and {str(one.error.kind) for one in lost} <= {"server", "broken", "timeout"}
    base = connect(tmp_path / "run.db")
    failed, settled = (base.execute(f"select count(*) from {table}").fetchone()[0] for table in ("attempts", "calls"))
    assert settled == count and failed == sum(one.attempts for one in found) - count + len(lost)
    late = base.execute("select count(*) from attempts where outcome = 'timeout'").fetchone()[0] - server.stalls
    assert 0 <= bill[0] - server.requests <= late, "only a request past its deadline may not have been read"


@pytest.mark.fault("refused-requests")
@pytest.mark.parametrize("status", ["400", "422"])
def test_what_the_server_refuses_for_good_is_sent_once(status: str, tmp_path: Path) -> None:
    with ChatServer(status) as server:
        found = call_all(tmp_path / "run.db", server.base, 50, attempts=4)
        assert server.requests == 50
    assert {(str(one.error.kind), one.attempts) for one in found} == {("bad_request", 1)}


def write_files(folder: Path, base: str, **lm: Any) -> list[str]:
    """A task of 20 rows in each split; returns the words that evaluate it on val."""
    rows = "".join(json.dumps({"text": f"t{n}", "label": "a"}) + "\n" for n in range(60))
    (folder / "rows.jsonl").write_text(rows)
    file = {
        "name": "one",
        "data": {"file": "rows.jsonl", "split": {"train": 20, "val": 20, "test": 20}},
        "budget": {"calls": 200},
        "lm": {"model": "openai/m", "api_base": base, "attempts": 1, **lm},
        "metric": "exact_match(label)",
        "nodes": {"sort": {"predict": "text -> label"}},
    }
    (folder / "w.yaml").write_text(json.dumps(file))
    return ["eval", str(folder / "w.yaml"), "--db", str(folder / "run.db"), "--json"]


@pytest.mark.fault("refused-requests")
@pytest.mark.parametrize("status", ["401", "403"])
def test_a_refused_key_ends_a_run_with_what_is_in_flight(status: str, tmp_path: Path) -> None:
    with ChatServer(status) as server:
        words = write_files(tmp_path, server.base, attempts=4, concurrency=4)
        done = CliRunner().invoke(cli, ["optimize", *words[1:], "--out", str(tmp_path / "out.yaml")])
        assert done.exit_code == 1 and server.requests <= 4
    assert f"status {status}" in json.loads(done.stdout)["error"]


class Alternating(ChatServer):
    """Every second request gets the fault."""

    @property
    def kind(self) -> str:
        return self._fault if self.requests % 2 else "ok"

    @kind.setter
    def kind(self, kind: str) -> None:
        self._fault = kind


BROKEN = ("truncated", "html", "badutf8", "list", "nochoices", "empty", "error200", "deep", "huge", "hugechunked")


@pytest.mark.fault("broken-bodies")
@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_body_is_a_failure_by_name_and_no_answer(fault: str, tmp_path: Path) -> None:
    """10 of 20 rows. Nothing of it is journalled as an answer, and its row has no score."""
    with Alternating(fault) as server:
        done = CliRunner().invoke(cli, write_files(tmp_path, server.base))
        assert server.requests == 20
    report, base = json.loads(done.stdout), connect(tmp_path / "run.db")
    assert report["failures"]["bad_body"] == 10 and report["spent"]["failed"] == {"bad_body": 10}
    rows = base.execute("select outcome, response is null, count(*) from calls group by 1, 2").fetchall()
    assert ("bad_body", 1, 10) in rows and sum(row[2] for row in rows) == 20
    for (message,) in base.execute("select message from calls where outcome = 'bad_body'"):
        assert message and len(message) < 500
    assert report["spent"]["maybe_tokens"] > 0, "the server may bill it"


@pytest.mark.fault("empty-answers")
@pytest.mark.parametrize(
    ("fault", "named", "outcome"),
    [
        ("refusal", "refused", "refusal"),
        ("filter", "refused", "refusal"),
        ("length", "cut", "length"),
        ("null", "empty", "empty"),
        ("blank", "empty", "empty"),
    ],
)
def test_refused_cut_and_empty_answers_are_told_apart_from_wrong_ones(
    fault: str, named: str, outcome: str, tmp_path: Path
) -> None:
    with ChatServer(fault) as server:
        done = CliRunner().invoke(cli, write_files(tmp_path, server.base))
    assert json.loads(done.stdout)["failures"] == {named: 20}
    base = connect(tmp_path / "run.db")
    assert base.execute("select distinct outcome from calls").fetchall() == [(outcome,)]
    shown = CliRunner().invoke(cli, write_files(tmp_path, server.base)[:-1])
    assert shown.exit_code == 1, "no server is left, and nothing of another run is reused"


@pytest.mark.fault("stalled-answers")
@pytest.mark.parametrize("fault", ["slowloris", "stall"])
def test_20_calls_that_trickle_or_stall_end_by_their_deadline_and_leave_no_thread(fault: str, tmp_path: Path) -> None:
    threads, begun = threading.active_count(), time.monotonic()
    with ChatServer(fault) as server:
        found = call_all(tmp_path / "run.db", server.base, 19, attempts=1, timeout=0.5)
        assert 0 < server.requests <= 19, "a busy machine may read none of a request before its deadline"
    assert {(str(one.error.kind), one.attempts) for one in found} == {("timeout", 1)}
    while threading.active_count() > threads and time.monotonic() - begun < 10:
        time.sleep(0.05)
    assert threading.active_count() <= threads


@pytest.mark.fault("odd-usage")
@pytest.mark.parametrize("told", [10**9, MAX_TOKENS, 10**18, 10**400])
def test_huge_usage_passes_a_ceiling_by_no_more_than_what_was_in_flight(told: int, tmp_path: Path) -> None:
    """The first answers may say anything; after them nothing more is sent."""

    async def answer(request: Any) -> Any:
        await asyncio.sleep(0.005)
        return reply("x", told, told)

    lm = scripted()
    lm.answer, lm.concurrency = answer, 8

    async def main() -> None:
        with journal(tmp_path / "run.db", usd=5.0, tokens=100_000) as ledger:
            jobs = (ledger.call(lm, ask(f"{n}"), "task", spec()) for n in range(100))
            outcomes = await asyncio.gather(*jobs, return_exceptions=True)
            assert len(lm.requests) <= 8
            assert all(isinstance(one, Settled | BudgetSpent) for one in outcomes)
            assert ledger.sent.tokens <= 16 * MAX_TOKENS
            ledger.store.flush()

    asyncio.run(main())


@pytest.mark.fault("odd-usage")
def test_usage_that_is_missing_or_senseless_is_estimated_and_marked(tmp_path: Path) -> None:
    for fault in ("nousage", "badusage"):
        with ChatServer(fault) as server:
            found = call_all(tmp_path / f"{fault}.db", server.base, 20)
        for one in found:
            assert one.response.estimated and one.response.prompt_tokens > 0 and not isinstance(one.error, LMError)
