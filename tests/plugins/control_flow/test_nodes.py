"""The nodes ensemble, branch and workflow, run by the real runtime with a scripted model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.node_runs import run

from workbench.errors import SpecError
from workbench.lm import Request, Response
from workbench.workflow import Surroundings, learnable_addresses

YESNO = {"predict": "text -> label: Literal['yes', 'no']", "decoding": {"temperature": 1.0}}


def test_ensemble_takes_the_majority_of_fresh_samples(folder: Path) -> None:
    def say(request: Request) -> str:
        return "no" if request.replica % 1000 == 1 else "yes"

    outcome, lm, workflow = run({"e": {"ensemble": YESNO, "samples": 3}}, {"text": "x"}, folder, say)
    assert outcome.prediction == {"label": "yes"} and len(lm.requests) == 3
    assert "nodes.e.of.instructions" in learnable_addresses(workflow)
    assert workflow.patched({"nodes.e.of.instructions": "Say no."}).get("nodes.e.of.instructions") == "Say no."


def test_ensemble_may_ask_a_judge_and_survives_failing_members(folder: Path) -> None:
    def say(request: Request) -> Any:
        if "number of the best answer" in request.messages[0]["content"]:
            return "2"
        if request.messages[0]["content"].startswith("Refuse"):
            return Response("", "refusal")
        return "no" if "Doubt" in request.messages[0]["content"] else "yes"

    members = [{**YESNO, "instructions": words} for words in ("Trust.", "Doubt.", "Refuse.")]
    outcome, _, _ = run({"e": {"ensemble": members, "samples": 1, "decide": "judge"}}, {"text": "x"}, folder, say)
    assert outcome.prediction == {"label": "no"}


def members_say(*labels: str) -> tuple[list[dict[str, Any]], Any]:
    """Members in the order of their names, and a script of what each says; an empty text is a failure."""
    told = dict(zip(("Ann.", "Bob.", "Cid.", "Dan."), labels, strict=True))
    nodes = [{"predict": "text -> label", "instructions": name} for name in told]
    return nodes, lambda request: next(said for name, said in told.items() if name in request.messages[0]["content"])


@pytest.mark.parametrize(("ann", "wins"), [(0.9, "a"), (0.5, "b")])
def test_a_vote_counts_what_its_members_weight_says(ann: float, wins: str, folder: Path) -> None:
    """One against two: only the weights decide, and those who are asked are the same."""
    of, say = members_say("a", "b", "b", "c")
    node = {"ensemble": of, "samples": 1, "weights": [ann, 0.3, 0.3, 0.1]}
    outcome, lm, _ = run({"e": node}, {"text": "x"}, folder, say)
    assert outcome.prediction == {"label": wins} and len(lm.requests) == 4
    notes = next(span.notes for span in outcome.trace.spans if span.node == "e")
    assert notes["votes"] == {'"a"': ann, '"b"': 0.6, '"c"': 0.1}
    assert notes["answers"] == {"of.0": ['"a"'], "of.1": ['"b"'], "of.2": ['"b"'], "of.3": ['"c"']}
    plain, _, _ = run({"e": {"ensemble": of, "samples": 1}}, {"text": "x"}, folder, say)
    assert plain.prediction == {"label": "b"}


def test_a_member_of_no_weight_is_not_asked_and_those_who_fail_are_left_out(folder: Path) -> None:
    of, say = members_say("a", "b", "c", "b")
    node = {"ensemble": of, "samples": 1, "weights": [0.9, 0, 0.6, 0]}
    outcome, lm, workflow = run({"e": node}, {"text": "x"}, folder, say)
    assert outcome.prediction == {"label": "a"} and workflow.enabled_nodes["e"].max_calls == len(lm.requests) == 2
    assert {r.messages[0]["content"].split(".")[0] for r in lm.requests} == {"Ann", "Cid"}
    of, say = members_say("", "b", "c", "b")
    outcome, _, _ = run({"e": {"ensemble": of, "samples": 1, "weights": [9, 1, 3, 1]}}, {"text": "y"}, folder, say)
    assert outcome.prediction == {"label": "c"}


@pytest.mark.parametrize(
    ("of", "weights", "told"),
    [
        ([YESNO, YESNO], [1.0], "'weights' has 1 numbers and 'of' 2 nodes"),
        (YESNO, [1.0], "no list"),
        ([YESNO, YESNO], [0, 0], "all weights are 0"),
        ([YESNO, YESNO], [1, -1], "greater than or equal to 0"),
        ([YESNO, YESNO], [1, float("inf")], "finite"),
    ],
)
def test_weights_that_make_no_sense_are_refused(of: Any, weights: list[float], told: str, folder: Path) -> None:
    with pytest.raises(SpecError, match=told):
        run({"e": {"ensemble": of, "weights": weights}}, {"text": "x"}, folder)


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ("Answer 1 is wrong; the best is 2.", "no"),
        ("<think>1 is close, and 3 there is none.</think>2", "no"),
        ('{"answer": 2}', "no"),
        ("The task has 2 parts. The best answer is 1.", "yes"),
        ("1 or 2", "yes"),  # not certain: the first one
    ],
)
def test_the_judge_of_an_ensemble_is_read_as_answers_are(folder: Path, said: str, label: str) -> None:
    def say(request: Request) -> str:
        if "number of the best answer" in request.messages[0]["content"]:
            return said
        return "no" if "Doubt" in request.messages[0]["content"] else "yes"

    members = [{**YESNO, "instructions": words} for words in ("Trust.", "Doubt.")]
    outcome, _, _ = run({"e": {"ensemble": members, "samples": 1, "decide": "judge"}}, {"text": "x"}, folder, say)
    assert outcome.prediction == {"label": label}
    assert ("judge_unreadable" in str(outcome.trace.spans)) == (said == "1 or 2")


def test_branch_runs_the_case_of_the_value(folder: Path) -> None:
    nodes = {
        "b": {
            "branch": "kind",
            "cases": {"sum": {"tool": "python:mytools.add", "arguments": {"a": "a"}}},
            "default": {"tool": "python:mytools.slow", "arguments": {"text": "kind"}},
        }
    }
    assert run(nodes, {"kind": "sum", "a": 1}, folder)[0].prediction == {"result": 2}
    assert run(nodes, {"kind": "other", "a": 1}, folder)[0].prediction == {"result": {"said": "OTHER"}}
    assert run(nodes, {"kind": " Sum\n", "a": 1}, folder)[0].prediction == {"result": 2}
    del nodes["b"]["default"]
    assert run(nodes, {"kind": "other", "a": 1}, folder)[0].failure == "branch"


def test_a_case_is_named_whatever_its_case_and_so_is_no_defect(folder: Path) -> None:
    cases = {"Sum": YESNO, "no": YESNO}
    _, _, workflow = run({"b": {"branch": "kind", "cases": cases}}, {"kind": "sum", "text": "x"}, folder)
    around = Surroundings(None, values={"kind": ("sum", "other")})  # type: ignore[arg-type]
    found = {defect.kind: defect.message for defect in workflow.enabled_nodes["b"].defects(around)}
    assert list(found) == ["unreachable", "unhandled_value"] and "'no' never runs" in found["unreachable"]
    assert "'kind' is 'other'" in found["unhandled_value"]


def test_cases_may_write_their_fields_in_any_order_and_keep_one_as_it_was(folder: Path) -> None:
    cases = {"one": {"predict": "text -> label, note"}, "other": {"predict": "text -> note, label"}}
    node = {"branch": "kind", "cases": cases}
    outcome, _, _ = run({"b": node}, {"kind": "other", "text": "x"}, folder, lambda r: "label: yes\nnote: n")
    assert outcome.prediction == {"label": "yes", "note": "n"}
    cases["third"] = {"predict": "text -> label"}
    with pytest.raises(SpecError, match="(?s)must write the same fields.*keep: true"):
        run({"b": node}, {"kind": "third", "text": "x"}, folder)
    row = {"kind": "third", "text": "x", "note": "old"}
    outcome, _, workflow = run({"b": {**node, "keep": True}}, row, folder)
    assert outcome.prediction == {"note": "old", "label": "yes"}
    assert workflow.input_fields == ["kind", "text", "note"]


def test_a_workflow_is_a_node_in_another_one(folder: Path) -> None:
    inner = {"second": {"predict": "hint -> label: Literal['yes', 'no']"}, "first": {"predict": "text -> hint"}}
    (folder / "inner.yaml").write_text(json.dumps({"data": {"file": "x.jsonl"}, "metric": "f1(label)", "nodes": inner}))
    for raw in ({"workflow": "inner.yaml"}, {"workflow": None, "nodes": inner}):
        outcome, lm, _ = run({"w": raw}, {"text": "x"}, folder)
        (folder / "run.db").unlink()  # else the second one is answered from the first one's journal
        assert outcome.prediction == {"hint": "yes", "label": "yes"}
        assert [r.messages[-1]["content"].split(":")[0] for r in lm.requests] == ["text", "hint"]


def test_independent_nodes_run_at_the_same_time_and_optional_ones_may_fail(folder: Path) -> None:
    nodes = {
        "a": {"predict": "text -> one"},
        "b": {"predict": "text -> two"},
        "c": {"tool": "python:mytools.broken", "optional": True, "output": "three"},
        "d": {"predict": "one, two -> label: Literal['yes', 'no']"},
    }
    outcome, _, _ = run(nodes, {"text": "x"}, folder)
    assert outcome.failure is None and outcome.prediction["label"] == "yes" and "three" not in outcome.prediction


def test_votes_drop_refusals_and_all_refused_is_a_typed_failure(folder: Path) -> None:
    def say(request: Request) -> Any:
        return Response("", "refusal") if request.replica < 2 else "no"

    node = {"p": {**YESNO, "samples": 3}}
    assert run(node, {"text": "x"}, folder, say)[0].prediction == {"label": "no"}
    refused, _, _ = run(node, {"text": "y"}, folder, lambda r: Response("", "refusal"))
    assert refused.failure == "refused"
