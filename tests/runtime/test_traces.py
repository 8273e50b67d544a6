"""Traces, deadlines and draws of one example."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.journal import FakeLM, journal, reply, run
from tests.helpers.planted_nodes import DOES, outcome, program
from tests.helpers.scripted import Script, make_workflow

from workbench.ledger import Ledger
from workbench.lm import Request, Response
from workbench.runtime import Context, Draw, Program, Runtime
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench.task import Example
from workbench.workflow import Trace


def test_a_trace_is_a_rollout_where_the_provider_gives_tokens(tmp_path: Path) -> None:
    tokens = {"prompt_ids": (1, 2), "token_ids": (7, 8), "logprobs": (-0.5, -0.25)}
    lm = FakeLM(lambda request: reply("a", **(tokens if request.logprobs else {})))

    async def speak(inputs: Any, ctx: Context) -> Any:
        ctx.span.agent, ctx.span.turn = "seller", 3
        await ctx.complete([{"role": "user", "content": "one"}], logprobs=True)
        await ctx.complete([{"role": "user", "content": "two"}])
        ctx.note(fallback=True)
        return {"y": "a"}

    async def plain(inputs: Any, ctx: Context) -> Any:
        await ctx.complete([{"role": "user", "content": "three"}], logprobs=True)
        ctx.step("by the door", 0.5)
        await ctx.complete([{"role": "user", "content": "four"}], logprobs=True, role="judge")  # nobody's to learn
        return {}

    DOES["speak"], DOES["plain"] = speak, plain
    nodes = {"s": {"planted": "speak", "writes": ["y"]}, "p": {"planted": "plain", "reads": ["y"]}}
    for _ in range(2):  # the second time from the journal
        found = outcome(tmp_path, nodes, lm=lm)
        common = {**tokens, "text": "a"}
        assert found.trace.rollout == [
            {"agent": "seller", "turn": 3, **common, "state": None, "earned": None},
            {"agent": "p", "turn": 0, **common, "state": "by the door", "earned": 0.5},
        ]
        assert [(c.role, c.messages[0]["content"], c.lm) for c in found.trace.calls] == [
            ("task", "one", "openai/fake"),
            ("task", "two", "openai/fake"),
            ("task", "three", "openai/fake"),
            ("judge", "four", "openai/fake"),
        ]
        span = found.trace.spans[0].as_dict()
        assert (span["agent"], span["turn"], span["notes"]) == ("seller", 3, {"fallback": True})
        assert [c["text"] for c in span["calls"]] == ["a", "a"] and "error" not in span
    assert len(lm.requests) == 4


def test_a_slow_model_ends_at_the_deadline(tmp_path: Path) -> None:
    async def never(request: Any) -> Any:
        await asyncio.sleep(3600)

    async def ask(inputs: Any, ctx: Context) -> Any:
        return {"y": (await ctx.complete([{"role": "user", "content": "x"}])).text}

    DOES["ask"] = ask
    lm = FakeLM(never)
    found = outcome(tmp_path, {"n": {"planted": "ask", "writes": ["y"]}}, lm=lm, timeout=0.05, attempts=2)
    assert found.failure == "timeout" and "0.05 s" in (found.message or "") and len(lm.requests) == 2


def test_replicas_and_children_draw_fresh_samples_only_where_there_is_chance(tmp_path: Path) -> None:
    drawn: list[int] = []
    lm = FakeLM(lambda request: drawn.append(request.replica) or reply())

    async def ask(inputs: Any, ctx: Context) -> Any:
        hot = float(inputs["x"])
        for replica in (0, 1):
            await ctx.complete([{"role": "user", "content": "x"}], temperature=hot, replica=replica)
        return {}

    DOES["ask"] = ask

    async def main() -> None:
        with journal(tmp_path / "run.db", calls=100) as ledger:
            made = program(tmp_path, ledger, {"n": {"planted": "ask", "reads": ["x"]}}, lm)
            for hot in (0.0, 1.0):
                for replica in (0, 1, 0):
                    await made.run(Example("1", {"x": hot}), Draw(replica))

    run(main)
    assert drawn == [0, 0, 1, 1000, 1001]


def test_effects_are_told_apart_by_their_place(tmp_path: Path) -> None:
    made: list[str] = []

    async def work(inputs: Any, ctx: Context) -> Any:
        async def effect() -> int:
            made.append(ctx.node)
            return len(made)

        return {"y": [await ctx.effect("tool", "same", effect) for _ in range(2)]}

    DOES["work"] = work
    nodes = {"n": {"planted": "work", "writes": ["y"]}}
    assert outcome(tmp_path, nodes).prediction["y"] == [1, 2]
    assert outcome(tmp_path, nodes).prediction["y"] == [1, 2], "replayed"
    nodes["n"]["reads"] = ["x"]
    assert outcome(tmp_path, nodes).prediction["y"] == [3, 4], "another workflow"


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_a_trace_does_not_tell_who_was_faster(slow: int, tmp_path: Path) -> None:
    """Three samples, each checked when it is there: what a proposer is shown of them must be the same in a replay."""

    class Slow(Script):
        async def complete(self, request: Request) -> Response:
            checks = "good" in str(request.messages)
            if not checks and request.replica == slow * 1000:
                await asyncio.sleep(0.05)
            return Response("no" if checks else f"answer {request.replica // 1000}", "stop", 5, 1, 0.0)

    lm = {"model": "openai/scripted", "attempts": 1, "temperature": 1.0}
    node = {
        "reflect": {"predict": "text -> label", "lm": lm},
        "samples": 3,
        "rounds": 0,
        "verifier": {"predict": "label -> good: bool", "lm": lm},
    }

    async def main() -> Trace:
        store = Store(tmp_path / "run.db")
        store.execute("insert into runs (id, run, status, started, spec, options) values (1, 'r', '', '', '', '')")
        ledger = Ledger(store, 1, BudgetSpec.model_validate({"calls": 100}))
        program = Program(make_workflow({"r": node}, tmp_path), Runtime(ledger, lm_spec(lm), {}, Slow(lambda r: "")))
        outcome = await program.run(Example("1", {"text": "q"}))
        store.close()
        return outcome.trace

    trace = asyncio.run(main())
    checked = [span.inputs["label"] for span in trace.spans if span.node.endswith("verifier")]
    assert checked == ["answer 0", "answer 1", "answer 2"]
