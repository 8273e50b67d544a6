"""The bill is what the biller states; our price is the reservation; and a ceiling holds calls with any condition."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.external_agents import SORTER, write_agent
from tests.helpers.said import Reply, billed, saying, streamed
from tests.helpers.upstream import message_answer

from workbench.errors import SpecError
from workbench.evaluation import EvalOptions, EvalReport, evaluate, resume_evaluation
from workbench.lm import LM, Native, Request, Response, make_lm
from workbench.spec import lm_spec
from workbench.store import Store

HELLO = ({"role": "user", "content": "hello"},)
PRICE = {"input": 1, "output": 2}  # an answer of `billed()` costs $0.00006


def write(folder: Path, base: str, budget: Any = None, text: str = "a row", **lm: Any) -> Path:
    rows = [{"text": f"{text} {i}", "label": "technical"} for i in range(6)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {
        "name": "t",
        "lm": {"model": "openai/m", "api_base": base, "attempts": 1, "price": PRICE, **lm},
        "data": {"file": "rows.jsonl", "split": {"train": 1, "val": 4, "test": 1}},
        "metric": "exact_match(label)",
        "nodes": {"sort": {"predict": "text -> label: Literal['billing','technical']", "instructions": "Sort."}},
        "budget": budget or {"calls": 100},
    }
    path = folder / "workflow.yaml"
    path.write_text(json.dumps(spec))
    return path


def run(folder: Path, answer: Any, budget: Any = None, **lm: Any) -> EvalReport:
    with saying(lambda asked: answer) as server:
        return evaluate(write(folder, server.base, budget, **lm), database=folder / "runs.db")


async def complete(lm: LM, request: Request) -> Response:
    try:
        return await lm.complete(request)
    finally:
        await lm.aclose()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")


def test_what_the_biller_states_is_the_bill(subtests: pytest.Subtests) -> None:
    byok = {"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.2}}
    header = {"x-litellm-response-cost": "0.25"}
    table: list[tuple[str, Any, float, bool]] = [
        ("none", billed(), 0.00006, False),
        ("openrouter", billed(cost=0.5), 0.5, True),
        ("free", billed(cost=0), 0.0, True),
        ("text", billed(cost="0.5"), 0.5, True),
        ("whole", billed(cost=1), 1.0, True),
        ("perplexity", billed(cost={"input_tokens_cost": 0.1, "request_cost": 0.2, "total_cost": 0.3}), 0.3, True),
        ("deepinfra", billed(estimated_cost=0.4), 0.4, True),
        ("another currency", billed(cost=0.5, currency="EUR"), 0.00006, False),
        ("with details", billed(cost=0.5, cost_details={"upstream_inference_cost": 0.4}), 0.5, True),
        ("own key", billed(**byok), 0.21, True),
        ("own key, half told", billed(cost=0.01, is_byok=True), 0.00006, False),
        ("negative", billed(cost=-1), 0.00006, False),
        ("not a number", billed(cost=math.nan), 0.00006, False),
        ("endless", billed(cost=math.inf), 0.00006, False),
        ("words", billed(cost="free"), 0.00006, False),
        ("truth", billed(cost=True), 0.00006, False),
        ("null", billed(cost=None), 0.00006, False),
        ("list", billed(cost=[1]), 0.00006, False),
        ("absurd", billed(cost=1e300), 0.00006, False),
        ("stream", streamed(billed(cost=0.5)), 0.5, True),
        ("header", Reply(billed(), headers=header), 0.25, True),
        ("header in other case", Reply(billed(), headers={"X-LiteLLM-Response-Cost": "0.25"}), 0.25, True),
        ("header without an amount", Reply(billed(), headers={"x-litellm-response-cost": "None"}), 0.00006, False),
        ("body before header", Reply(billed(cost=0.5), headers=header), 0.5, True),
        ("nonsense before header", Reply(billed(cost=-1), headers=header), 0.25, True),
    ]
    for name, answer, usd, stated in table:
        with subtests.test(name), saying(lambda asked, answer=answer: answer) as server:
            lm = make_lm(lm_spec({"model": "openai/m", "api_base": server.base, "price": PRICE}))
            found = asyncio.run(complete(lm, Request(HELLO)))
            assert (found.usd, found.stated) == (pytest.approx(usd), stated)
            assert found.computed_usd == (pytest.approx(0.00006) if stated else None)


def test_every_way_to_a_server_reads_what_it_states(subtests: pytest.Subtests, monkeypatch: Any) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    said = {
        **message_answer({"type": "text", "text": "a"}),
        "usage": {"input_tokens": 50, "output_tokens": 5, "cost": 0.5},
    }
    native = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
    asked = {
        "chat": Request(HELLO),
        "native chat": Request(HELLO, native=Native("chat", native)),
        "native messages": Request(HELLO, native=Native("messages", native)),
        "dspy": Request(HELLO),
    }
    for name, request in asked.items():
        answer = said if "messages" in name else billed(cost=0.5)
        with subtests.test(name), saying(lambda asked, answer=answer: answer) as server:
            model = {"native messages": "anthropic/m", "dspy": "litellm/openai/m"}.get(name, "openai/m")
            lm = make_lm(lm_spec({"model": model, "api_base": server.base, "price": PRICE}))
            found = asyncio.run(complete(lm, request))
            assert (found.usd, found.stated) == (0.5, True), found


def test_a_stated_cost_is_kept_and_replayed(tmp_path: Path) -> None:
    report = run(tmp_path, billed(cost=0.5))
    assert report.cost["usd"] == 0.5 and report.spent["usd"] == 2.0
    again = run(tmp_path, billed(cost=7), budget={"calls": 100})
    assert again.spent["usd"] == 28.0
    with Store(tmp_path / "runs.db") as store:
        paid = sorted(row["usd"] for row in store.rows("select usd from calls where kind = 'lm'"))
    assert paid == [0.5] * 4 + [7.0] * 4


def gap(report: EvalReport) -> list[str]:
    return [line for line in report.lines() if line.startswith("Warning: Billed:")]


def test_a_run_that_ended_early_states_the_same_bill_when_it_is_resumed(tmp_path: Path) -> None:
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = run(tmp_path / "whole", billed(cost=0.5))
    with saying(lambda asked: billed(cost=0.5)) as server:
        path, database = write(tmp_path / "parts", server.base, {"calls": 2}), tmp_path / "parts" / "runs.db"
        first = evaluate(path, database=database)
        done = resume_evaluation("last", options=EvalOptions([("budget.calls", 100)]), database=database)
    assert (first.status, first.spent["usd"], len(server.asked)) == ("budget", 1.0, 4)
    assert (done.spent["usd"], done.cost["usd"], gap(done)) == (2.0, 0.5, gap(whole)) and gap(whole)


@pytest.mark.slow
def test_a_killed_run_bills_what_was_stated_before(tmp_path: Path) -> None:
    """The third call ends the process; whether it is billed is not known, and told."""
    started = list[subprocess.Popen[bytes]]()

    def answer(asked: Any) -> Any:
        if len(server.asked) == 3 and started:
            started.pop().send_signal(signal.SIGKILL)
        return billed(cost=0.5)

    with saying(answer) as server:
        path, database = write(tmp_path, server.base, concurrency=1), tmp_path / "runs.db"
        words = [sys.executable, "-m", "workbench", "eval", str(path), "--db", str(database), "-q"]
        started.append(process := subprocess.Popen(words))
        assert process.wait(120) == -signal.SIGKILL
        done = resume_evaluation("last", database=database)
    assert (done.complete, done.spent["usd"], len(server.asked)) == (True, 2.0, 5)
    assert "states $2.0000 for calls that cost $0.0002" in gap(done)[0]
    assert any("1 more were in flight at a kill, outcome unknown" in line for line in done.lines())


@pytest.mark.slow
def test_what_the_biller_states_through_the_gateway_is_the_bill(tmp_path: Path) -> None:
    """An agent in a process of its own, whose calls we pass on."""
    path = write_agent(tmp_path, SORTER, budget=100, rows=(4, 4, 4))
    with saying(lambda asked: billed(cost=0.5)) as server:
        spec = json.loads(path.read_text())
        spec["lm"] = {"model": "openai/m", "api_base": server.base, "attempts": 1, "price": PRICE}
        path.write_text(json.dumps(spec))
        report = evaluate(path, database=tmp_path / "runs.db")
    assert len(server.asked) == report.n == 4 and (report.cost["usd"], report.spent["usd"]) == (0.5, 2.0)
    assert len(gap(report)) == 1


def test_one_stated_cost_is_no_price_of_the_other_answers(tmp_path: Path) -> None:
    """A server on this machine without a price, which states the cost of the first call alone, or of each."""
    for name, every, missing in (("one", False, ["openai/m"]), ("each", True, [])):
        (tmp_path / name).mkdir()

        def answer(asked: Any, every: bool = every) -> Any:
            return billed(cost=0.5) if every or len(server.asked) == 1 else billed()

        with saying(answer) as server:
            report = evaluate(write(tmp_path / name, server.base, price=None), database=tmp_path / name / "runs.db")
        assert report.unpriced == missing


def test_a_gap_between_stated_and_computed_is_one_line(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name, cost, lines in (("dear", 0.5, 1), ("free", 0.0, 1), ("near", 0.0000602, 0), ("none", None, 0)):
        with subtests.test(name):
            (tmp_path / name).mkdir()
            report = run(tmp_path / name, billed() if cost is None else billed(cost=cost))
            assert len(told := gap(report)) == lines
            assert not told or f"${4 * (cost or 0):.4f}" in told[0]


def test_a_settled_cost_above_its_reservation_is_billed_and_ends_the_run(tmp_path: Path) -> None:
    report = run(tmp_path, billed(cost=0.5), budget={"usd": 0.9}, concurrency=1)
    assert (report.status, report.ceiling, report.spent["usd"]) == ("budget", "usd", 1.0)


def test_a_ceiling_holds_a_call_whose_length_makes_it_dear(tmp_path: Path) -> None:
    price = {"input": 2.5, "output": 15, "above": {272_000: {"input": 5, "output": 22.5}}}
    for usd, sent in ((1.0, 0), (30.0, 4)):
        folder = tmp_path / str(sent)
        folder.mkdir()
        with saying(lambda asked: billed(tokens=300_000)) as server:
            path = write(folder, server.base, {"usd": usd}, "word " * 180_000, price=price, max_tokens=1000)
            report = evaluate(path, database=folder / "runs.db")
        assert len(server.asked) == sent and report.spent["usd"] == pytest.approx(sent * (1.5 + 5 * 22.5e-6))


def test_a_served_tier_without_a_price_is_unpriced_and_no_ceiling_covers_it(tmp_path: Path) -> None:
    price = {**PRICE, "tiers": {"flex": {"input": 0.5, "output": 1}}}
    flex, other = {**billed(), "service_tier": "flex"}, {**billed(), "service_tier": "priority"}
    for name in ("flex", "other", "ceiling"):
        (tmp_path / name).mkdir()
    known = run(tmp_path / "flex", flex, price=price, extra={"service_tier": "flex"})
    assert not known.unpriced and known.spent["usd"] == pytest.approx(4 * 0.00003)
    unknown = run(tmp_path / "other", other, price=price)
    assert unknown.unpriced == ["openai/m"] and any("Dollars unknown" in line for line in unknown.lines())
    with pytest.raises(SpecError, match="budget.usd cannot be kept"):
        run(tmp_path / "ceiling", other, budget={"usd": 1}, price=price, concurrency=1)
    with Store(tmp_path / "ceiling" / "runs.db") as store:  # nothing that was paid for is lost
        assert [row["usd"] for row in store.rows("select usd from calls where response is not null")] == [None]
