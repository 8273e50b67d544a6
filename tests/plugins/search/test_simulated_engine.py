"""A search engine that a language model plays: who sees what, how often its documents are of no use, and who pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import Script, make_workflow, run_node, run_rows

from workbench.errors import SpecError
from workbench.lm import Request, Response
from workbench_search.simulated_engine import NOISY, USEFUL, cut_documents

ENGINE = {"simulated_search": 2, "lm": "openai/engine", "knows": ["question", "answer"]}
AGENT = {"agent": "question -> reply", "nodes": {"search": ENGINE}, "max_steps": 4}
ROW = {"question": "Who painted it?", "answer": "Zelda Quux"}
CALL = 'call: {"tool": "search", "arguments": {"query": "painter"}}'


def plays_engine(request: Request) -> bool:
    return str(request.messages[0]["content"]).startswith("You play a search engine")


def speak(request: Request) -> str:
    if plays_engine(request):
        return "Doc 1: a painter\nof old.\nDoc 2: another one.\nDoc 3: too many."
    return "reply: nobody" if "result:" in str(request.messages[-1]["content"]) else CALL


def test_the_engine_knows_the_answer_and_the_agent_never_sees_it(tmp_path: Path) -> None:
    outcome, script = run_node(AGENT, ROW, tmp_path, speak)
    engine = [r for r in script.requests if plays_engine(r)]
    agent = [r for r in script.requests if not plays_engine(r)]
    assert (len(agent), len(engine)) == (2, 1) and outcome.prediction == {"reply": "nobody"}
    assert "answer: Zelda Quux" in str(engine[0].messages) and "Query: painter" in str(engine[0].messages)
    assert all("Zelda" not in str(r.messages) for r in agent), "the label reached the agent"
    assert agent[1].messages[-1]["content"] == "result: Doc 1: a painter of old.\nDoc 2: another one."
    assert '- search({"query": "string"})' in agent[0].messages[0]["content"], "fields of the row are no arguments"
    assert [(c.role, c.lm) for span in outcome.trace.spans for c in span.calls] == [
        ("task", "openai/scripted"),
        ("task", "openai/scripted"),
        ("engine", "openai/engine"),
    ]


def test_a_replayed_run_pays_for_no_search_again_and_searches_alike(tmp_path: Path) -> None:
    workflow = make_workflow({"n": {**AGENT, "nodes": {"search": {**ENGINE, "noise": 0.5}}}}, tmp_path)
    rows = [{**ROW, "question": f"Who painted {i}?"} for i in range(12)]

    def go() -> tuple[list[bool], int]:
        script = Script(speak)
        found = run_rows(workflow, rows, script, tmp_path / "run.db")
        return [span.notes["noisy"] for o in found for span in o.trace.spans if "noisy" in span.notes], len(
            script.requests
        )

    first, again = go(), go()
    assert first == (again[0], 36) and again[1] == 0
    assert True in first[0] and False in first[0]


def noise_of(folder: Path, noise: float, searches: int, seed: int = 0) -> tuple[float, Script]:
    script = Script(lambda request: "Doc 1: x")
    node = {**ENGINE, "noise": noise, "seed": seed}
    workflow = make_workflow({"n": node}, folder)
    rows = [{**ROW, "query": f"q{i}"} for i in range(searches)]
    found = run_rows(workflow, rows, script, folder / f"{noise}-{seed}.db")
    return sum(o.trace.spans[0].notes["noisy"] for o in found) / searches, script


@pytest.mark.parametrize("noise", [0.0, 0.25, 0.75, 1.0])
def test_as_many_searches_are_noisy_as_the_setting_says(noise: float, tmp_path: Path) -> None:
    share, script = noise_of(tmp_path, noise, 300)
    assert share == pytest.approx(noise, abs=0.08 if 0 < noise < 1 else 0)
    told = [USEFUL in str(r.messages[0]["content"]) for r in script.requests]
    assert [NOISY in str(r.messages[0]["content"]) for r in script.requests] == [not useful for useful in told]
    assert told.count(False) / 300 == share, "what is noted is what the engine was told"


def test_another_seed_draws_anew_and_the_number_of_a_search_counts(tmp_path: Path) -> None:
    told = [
        [NOISY in str(r.messages[0]["content"]) for r in noise_of(tmp_path, 0.5, 40, seed)[1].requests]
        for seed in (1, 2)
    ]
    assert told[0] != told[1]
    calls = iter(range(9))

    def ask(request: Request) -> str:
        if plays_engine(request):
            return "Doc 1: x"
        n = next(calls)
        return "reply: done" if n == 8 else f'call: {{"tool": "search", "arguments": {{"query": "q{n}"}}}}'

    node = {**AGENT, "max_steps": 9, "nodes": {"search": {**ENGINE, "noise": 0.5}}}
    outcome, _ = run_node(node, ROW, tmp_path, ask)
    noisy = {span.notes["noisy"] for span in outcome.trace.spans if "noisy" in span.notes}
    assert noisy == {True, False}, "all searches of a run were drawn alike"


def test_documents_are_cut_to_their_number() -> None:
    assert cut_documents("Doc 1: a\nDoc 2: b\nDoc 3: c", 2) == "Doc 1: a\nDoc 2: b"
    assert cut_documents("**Document 4:** a b", 2).startswith("Doc 1:")
    assert cut_documents(" a text without marks ", 2) == "a text without marks"


def test_an_engine_that_fails_is_told_to_the_agent_or_leaves_the_row_out(tmp_path: Path) -> None:
    def refuse(request: Request) -> Any:
        return Response("", "refusal", 1, 0) if plays_engine(request) else speak(request)

    outcome, script = run_node(AGENT, ROW, tmp_path, lambda r: refuse(r) if plays_engine(r) else said(r))
    assert outcome.prediction == {"reply": "I know"} and "wrote no documents" in str(script.requests[-1].messages[-1])

    from workbench.errors import LMError

    def dead(request: Request) -> str:
        if plays_engine(request):
            raise LMError("server", "gone")
        return CALL

    # One attempt; a server's failure says nothing about the agent, so the row is left out and earns no 0.
    engine = {**ENGINE, "lm": {"model": "openai/engine", "attempts": 1}}
    outcome, _ = run_node({**AGENT, "nodes": {"search": engine}}, ROW, tmp_path, dead)
    assert outcome.failure == "server"


def said(request: Request) -> str:
    return "reply: I know" if "error:" in str(request.messages[-1]["content"]) else CALL


def test_calls_of_the_engine_are_counted_and_what_cannot_be_is_refused(tmp_path: Path) -> None:
    assert make_workflow({"n": AGENT}, tmp_path).enabled_nodes["n"].max_calls == 8
    with pytest.raises(SpecError, match="asks a model at each"):
        make_workflow({"n": {**AGENT, "actions": 3}}, tmp_path)
    native = tuple({"id": str(i), "name": "search", "arguments": {"query": str(i)}} for i in range(2))

    def twice(request: Request) -> Any:
        if plays_engine(request):
            return "Doc 1: x"
        if request.messages[-1]["role"] == "tool":
            return "reply: done"
        return Response("", "tool_calls", 1, 1, 0.0, tool_calls=native)

    _, script = run_node({**AGENT, "native": True}, ROW, tmp_path, twice)
    assert sum(map(plays_engine, script.requests)) == 1
    assert "one such call at a time" in str(script.requests[-1].messages[-1]["content"])
