"""The node `loop`, run by the real runtime with a scripted model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.node_runs import run
from tests.helpers.scripted import Script, make_workflow, run_rows

from workbench.errors import NodeError, SpecError
from workbench.lm import Request
from workbench.workflow import Surroundings, learnable_addresses, mermaid
from workbench_kit.acting import FieldCondition
from workbench_mcts.graph_hash import graph_hash

NOTE = {"predict": "fact, notes -> notes", "instructions": "Add it."}


def shown(request: Request, field: str) -> str:
    """What the prompt shows of a field."""
    lines = str(request.messages[-1]["content"]).splitlines()
    return next(line.removeprefix(f"{field}: ") for line in lines if line.startswith(f"{field}: "))


def add_fact(request: Request) -> str:
    return f"notes: {shown(request, 'notes')}+{shown(request, 'fact')}"


def test_a_list_is_folded_item_by_item_with_what_is_carried(folder: Path) -> None:
    node = {"loop": NOTE, "over": "facts", "as": "fact", "carry": {"notes": "start"}, "rounds": 4}
    outcome, lm, workflow = run({"n": node}, {"facts": ["a", "b", "c"]}, folder, add_fact)
    assert outcome.prediction == {"notes": "start+a+b+c"} and len(lm.requests) == 3
    span = outcome.trace.spans[0]
    assert span.notes == {"rounds": 3, "ended": "items"}
    assert workflow.input_fields == ["facts"] and workflow.max_calls == 4
    assert [s.node for s in outcome.trace.spans] == ["n", "n.of", "n.of", "n.of"]


@pytest.mark.parametrize("facts", ['["a", "b"]', "- a\n- b", ("a", "b")])
def test_a_list_may_stand_in_a_text(facts: Any, folder: Path) -> None:
    node = {"loop": NOTE, "over": "facts", "as": "fact", "carry": {"notes": "start"}}
    assert run({"n": node}, {"facts": facts}, folder, add_fact)[0].prediction == {"notes": "start+a+b"}


@pytest.mark.parametrize(
    ("facts", "kind", "said"),
    [
        ("a plain text, and more", "unparsed", "'facts' is no list, declare it as `facts: list[str]`"),
        (7, "unparsed", "'facts' is no list"),
        ([*"abcdef"], "steps", "'facts' has 6 items, and 'n' takes 5 at most"),
    ],
)
def test_what_is_no_list_and_a_list_that_is_too_long_fail_the_row(
    facts: Any, kind: str, said: str, folder: Path
) -> None:
    node = {"loop": NOTE, "over": "facts", "as": "fact", "carry": {"notes": "start"}}
    outcome, lm, _ = run({"n": node}, {"facts": facts}, folder, add_fact)
    assert outcome.failure == kind and said in str(outcome.message) and not lm.requests


def test_an_empty_list_runs_no_round_and_leaves_the_first_values(folder: Path) -> None:
    node = {
        "kind": "loop",
        "nodes": {"look": {"predict": "fact, notes -> seen"}, "add": {"predict": "seen, notes -> notes"}},
        "over": "facts",
        "as": "fact",
        "carry": {"notes": "start"},
        "gather": {"all": "seen"},
    }
    outcome, lm, _ = run({"n": node}, {"facts": []}, folder)
    assert outcome.prediction == {"notes": "start", "all": [], "seen": None} and not lm.requests


def test_an_item_is_taken_apart(folder: Path) -> None:
    node = {"loop": NOTE, "over": "plan", "as": ["fact", "notes"], "gather": {"all": "notes"}}
    rows = [{"fact": "a", "notes": "x", "more": 1}, {"fact": "b", "notes": "y"}]
    assert run({"n": node}, {"plan": rows}, folder, add_fact)[0].prediction["all"] == ["x+a", "y+b"]
    items = [{"fact": "a", "notes": "of the item"}]
    row = {"plan": items, "notes": "of the row"}
    outcome = run({"n": {**node, "as": ["fact"]}}, row, folder, add_fact)[0]
    assert outcome.prediction["all"] == ["of the row+a"], "what `as` does not name is not taken from the item"
    lost = run({"n": node}, {"plan": [{"fact": "a"}]}, folder, add_fact)[0]
    assert lost.failure == "unparsed" and "item 1 of 'plan' lacks one of fact, notes" in str(lost.message)


SEARCH = {
    "kind": "loop",
    "rounds": 6,
    "carry": {"known": "nothing"},
    "gather": {"asked": "query"},
    "until": "finished",
    "nodes": {
        "plan": {"predict": "question, known, asked -> query, finished: bool", "instructions": "Plan."},
        "read": {"predict": "query, known -> known", "instructions": "Read."},
    },
}


def plan(request: Request) -> str:
    if "Read." in str(request.messages[0]["content"]):
        return f"known: {shown(request, 'known')},{shown(request, 'query')}"
    number = len(json.loads(shown(request, "asked")))
    return f"query: q{number}{shown(request, 'known').count(',')}\nfinished: {'yes' if number == 2 else 'no'}"


def test_it_ends_when_the_condition_holds_and_each_round_sees_the_one_before(folder: Path) -> None:
    outcome, lm, workflow = run({"n": SEARCH}, {"question": "x"}, folder, plan)
    assert outcome.prediction == {
        "query": "q22",
        "finished": True,
        "known": "nothing,q00,q11,q22",
        "asked": ["q00", "q11", "q22"],
    }
    assert outcome.trace.spans[0].notes == {"rounds": 3, "ended": "until"} and len(lm.requests) == 6
    assert workflow.max_calls == 12 and workflow.input_fields == ["question"]


def test_without_an_end_the_last_round_counts_and_the_trace_tells(folder: Path) -> None:
    outcome, lm, _ = run({"n": {**SEARCH, "rounds": 2}}, {"question": "x"}, folder, plan)
    assert outcome.prediction["known"] == "nothing,q00,q11" and len(lm.requests) == 4
    assert outcome.trace.spans[0].notes == {"rounds": 2, "ended": "rounds"}


def test_a_field_that_is_there_before_the_loop_is_refined(folder: Path) -> None:
    node = {"loop": NOTE, "rounds": 2, "carry": {"notes": None}}
    nodes = {"first": {"predict": "fact -> notes", "instructions": "Begin."}, "n": node}

    def say(request: Request) -> str:
        return "begun" if "Begin." in str(request.messages[0]["content"]) else add_fact(request)

    outcome, _, workflow = run(nodes, {"fact": "a"}, folder, say)
    assert outcome.prediction == {"notes": "begun+a+a"} and list(workflow.graph.edges) == [("first", "n")]


def test_each_round_draws_anew_and_effects_are_kept_apart(folder: Path) -> None:
    node = {
        "loop": {"predict": "fact -> guess", "decoding": {"temperature": 1.0}},
        "rounds": 3,
        "gather": {"all": "guess"},
    }
    outcome, _, _ = run({"n": node}, {"fact": "a"}, folder, lambda r: f"guess {r.replica // 1000}")
    assert outcome.prediction["all"] == ["guess 0", "guess 1", "guess 2"]
    tools = {
        "loop": {"tool": "python:mytools.add", "arguments": {"a": "one"}},
        "rounds": 3,
        "gather": {"all": "result"},
    }
    outcome, _, _ = run({"n": tools}, {"one": 1}, folder)
    assert outcome.prediction["all"] == [2, 2, 2] and (folder / "calls.txt").read_text() == "xxx"


def test_what_was_paid_for_is_not_asked_again(folder: Path) -> None:
    outcome, lm, _ = run({"n": SEARCH}, {"question": "x"}, folder, plan, times=2)
    assert outcome.prediction["finished"] and len(lm.requests) == 6


def test_a_tool_inside_is_refused_by_the_policy(folder: Path) -> None:
    node = {"loop": {"tool": "python:mytools.add", "arguments": {"a": "one"}}, "rounds": 2, "gather": {"all": "result"}}
    outcome, _, _ = run({"n": node}, {"one": 1}, folder, policy={"rules": [{"deny": "add"}]})
    assert outcome.failure == "policy" and not (folder / "calls.txt").exists()


def test_what_is_inside_is_learnable_hashed_and_drawn(folder: Path) -> None:
    _, _, workflow = run({"n": SEARCH}, {"question": "x"}, folder, plan)
    found = learnable_addresses(workflow)
    assert found["nodes.n.rounds"] == "int" and found["nodes.n.nodes.plan.instructions"] == "text"
    changed = workflow.patched({"nodes.n.nodes.plan.instructions": "Plan well."})
    assert graph_hash(changed) != graph_hash(workflow)
    drawn = mermaid(workflow)
    names = {line.split("[")[0].strip(): line for line in drawn.splitlines() if "nodes." in line}
    reader, writer = (next(n for n, line in names.items() if label in line) for label in ("plan", "read"))
    assert f'{writer} -->|"known"| {reader}' in drawn and f'{reader} -->|"query"| {writer}' in drawn


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"until": "finishd"}, "until reads 'finishd', which no round has. Did you mean 'finished'?"),
        ({"until": "finished ="}, "cannot read the condition 'finished ='"),
        ({"until": "open('x')"}, "a condition cannot have 'open('x')'"),
        ({"carry": {"known": "", "knwn": ""}}, "no node inside 'n' writes 'knwn'. Did you mean 'known'?"),
        ({"gather": {"asked": "queries"}}, "no node inside 'n' writes 'queries'. Did you mean 'query'?"),
        ({"gather": {"query": "query"}}, "'query' is written by a round, and no list. Name it e.g. all_query."),
        ({"carry": {}}, "the nodes form a cycle: plan -> read -> plan. What comes from the round before"),
        ({"of": NOTE}, "give either `of`, a node, or `nodes`"),
        ({"carry": {}, "gather": {}, "until": None, "nodes": {}, "of": NOTE}, "write carry, over, until or gather"),
        ({"nodes": {"plan": {"predict": "a -> b", "needs": "no"}}, "carry": {}, "gather": {}}, "unknown node 'no'"),
    ],
)
def test_what_cannot_work_is_said_when_the_file_is_read(change: dict[str, Any], said: str, folder: Path) -> None:
    with pytest.raises(SpecError) as error:
        run({"n": {**SEARCH, **change}}, {"question": "x"}, folder)
    assert said in str(error.value).replace("\n  ", ". ")


def test_a_condition_that_never_holds_and_a_list_that_is_none_are_defects(folder: Path) -> None:
    node = {"loop": {"predict": "x -> verdict: Literal['right', 'wrong']"}, "until": "verdict == 'rigth'", "over": "x"}
    _, _, workflow = run({"n": node}, {"x": []}, folder)
    around = Surroundings(None, values={"x": ("a", "b")})  # type: ignore[arg-type]
    found = {d.kind: f"{d.message}. {d.hint}" for d in workflow.enabled_nodes["n"].defects(around)}
    assert "'verdict' is one of right, wrong. Did you mean 'right'?" in found["no_end"]
    assert "'x' is one of a, b, and no list" in found["contradiction"]


@pytest.mark.parametrize(
    ("condition", "values", "holds"),
    [
        ("done", {"done": True}, True),
        ("done", {"done": "No."}, False),
        ("done", {"done": ""}, False),
        ("not open", {"open": []}, True),
        ("not open", {"open": ["x"]}, False),
        ("score >= 0.8", {"score": 0.8}, True),
        ("score > 0.8", {"score": "0.8"}, False),
        ("0.2 < score <= 1", {"score": 1}, True),
        ("verdict == 'right'", {"verdict": " Right "}, True),
        ("verdict != 'right'", {"verdict": "wrong"}, True),
        ("count == 3", {"count": "3"}, True),
        ("count == 3", {"count": "3, or perhaps 4"}, False),
        ("count == 3", {"count": "I count 3"}, False),
        ("ok == true", {"ok": "yes"}, True),
        ("verdict in ['right', 'fine']", {"verdict": "fine"}, True),
        ("'stop' not in text", {"text": "now STOP"}, False),
        ("len(notes) >= 2 and not bad", {"notes": [1, 2], "bad": False}, True),
        ("a or b", {"a": False, "b": None}, False),
    ],
)
def test_conditions_hold(condition: str, values: dict[str, Any], holds: bool) -> None:
    assert FieldCondition(condition).holds(values) is holds


@pytest.mark.parametrize(("condition", "value"), [("x", "perhaps"), ("x > 1", "many"), ("x > 1", None)])
def test_a_condition_on_what_cannot_be_read_fails_the_row(condition: str, value: Any) -> None:
    with pytest.raises(NodeError, match="until"):
        FieldCondition(condition).holds({"x": value})


@pytest.mark.parametrize("kind", ["loop", "workflow"])
def test_spans_stand_in_the_order_of_the_file_however_fast_the_model_is(kind: str, tmp_path: Path) -> None:
    nodes = {
        "ask": {"predict": "question -> word"},
        "keep": {"remember": "word -> note"},
        "apart": {"remember": "question -> other", "into": "questions"},
    }
    node = {"kind": kind, "nodes": nodes, **({"rounds": 2, "gather": {"notes": "note"}} if kind == "loop" else {})}
    rows = [{"question": "same"}] * 2  # the second row's calls are answered at once, from the journal
    outcomes = run_rows(make_workflow({"n": node}, tmp_path), rows, Script(lambda _: "yes"), tmp_path / "run.db")
    first, second = ([(span.node, span.order) for span in outcome.trace.spans] for outcome in outcomes)
    assert first == second and [name for name, _ in first[1:4]] == ["n.nodes.ask", "n.nodes.keep", "n.nodes.apart"]
