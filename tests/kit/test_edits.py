"""Edits of the structure: each is checked, gives what it says, and can be undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.helpers.scripted import make_workflow

from workbench.errors import SpecError
from workbench.workflow import Patch, Workflow, check_flow, disable_nodes, with_inputs
from workbench_kit.searching import Edit, Menu, apply_edit, describe_edit, edit_classes, edit_options, places, read_edit
from workbench_mcts.graph_hash import graph_hash

HERE = Path(__file__).parent
MENU = Menu(
    lms=["openai/a", "openai/b"],
    tools=["python:math.sqrt", "python:math.factorial"],
    verifiers=["python:operator.not_"],
)
ONE = {"answer": {"predict": "question -> answer", "instructions": "Answer."}}
CHAIN = {
    "facts": {"predict": "question -> facts: list[str]"},
    "plan": {"predict": "question, facts: list[str] -> plan", "demos": [{"question": "a", "facts": [], "plan": "b"}]},
    "answer": {"predict": "question, plan -> why, answer: Literal['x -> y', 'z']", "instructions": "Answer."},
}
STARTS = {
    "one": ONE,
    "chain": CHAIN,
    "agent": {"answer": {"agent": "question -> answer", "tools": ["python:math.sqrt"]}},
    "wrapped": {
        "answer": {"ensemble": {"reflect": {"predict": "question -> answer"}}, "samples": 3},
        "say": {"predict": "answer -> said", "enabled": False},
    },
    "refined": {
        "draft": {"predict": "question -> answer"},
        "mend": {"predict": "question, answer -> answer"},
        "use": {"predict": "answer -> final", "needs": ["draft"]},
    },
}


def make(nodes: dict[str, Any]) -> Workflow:
    return make_workflow(nodes, HERE)


def possible(workflow: Workflow, start: Workflow) -> list[tuple[Edit, Workflow]]:
    found = []
    for edit in edit_options(workflow, MENU):
        try:
            found.append((edit, apply_edit(edit, workflow, start)))
        except SpecError:
            pass
    return found


@pytest.mark.slow
@given(start=st.sampled_from(sorted(STARTS)), picks=st.lists(st.integers(0, 10**6), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_every_edit_can_be_undone_and_keeps_the_flow(start: str, picks: list[int]) -> None:
    """A walk of edits: what each makes is another workflow that reads and gives what the start does, and its inverse
    leads back to the very same settings, graph included."""
    origin = workflow = make(STARTS[start])
    for pick in picks:
        choices = possible(workflow, origin)
        if not choices:
            return
        edit, made = choices[pick % len(choices)]
        assert made.parent == workflow.hash and made.patch is not None and made.patch.note == describe_edit(edit)
        assert made.hash != workflow.hash, edit
        check_flow(made, origin)
        back = made.patched(made.patch.inverse(workflow))
        assert back.tree == workflow.tree and back.hash == workflow.hash, edit
        assert set(back.graph.edges) == set(workflow.graph.edges) and graph_hash(back) == graph_hash(workflow)
        workflow = made


def test_each_edit_applies_somewhere() -> None:
    starts = [make(nodes) for nodes in STARTS.values()]
    seen = {type(edit) for start in starts for edit, _ in possible(start, start)}
    # A verifier must read what the node reads or gives: none of the starts has such fields.
    assert seen == {cls for name, cls in edit_classes().items() if name != "verify"}
    checked = make({"n": {"predict": "question -> a"}})
    edit = edit_classes()["verify"](node="nodes.n", verifier="python:operator.not_")
    assert apply_edit(edit, checked).get("nodes.n.verifier") == "python:operator.not_"


def edit(name: str, **arguments: Any) -> Edit:
    return edit_classes()[name](**arguments)


def test_what_edits_make() -> None:
    start = make(CHAIN)
    made = apply_edit(edit("insert", node="nodes.answer", field="notes", instructions="Note."), start)
    assert made.get("nodes.answer_notes.signature") == "question, plan -> notes"
    assert made.get("nodes.answer.signature") == "question, plan, notes -> why, answer: Literal['x -> y', 'z']"
    assert ("answer_notes", "answer") in made.graph.edges
    made = apply_edit(edit("remove", node="nodes.facts"), start)
    assert "facts" not in made.nodes and made.get("nodes.plan.signature") == "question -> plan"
    made = apply_edit(edit("split", node="nodes.answer"), start)
    assert made.get("nodes.answer_first.signature") == "question, plan -> why"
    assert made.get("nodes.answer.signature") == "question, plan, why -> answer: Literal['x -> y', 'z']"
    again = apply_edit(edit("merge", node="nodes.answer_first", into="nodes.answer"), made)
    assert again.get("nodes.answer.signature") == start.get("nodes.answer.signature")
    made = apply_edit(edit("rewire", node="nodes.answer", field="facts"), start)
    assert ("facts", "answer") in made.graph.edges
    made = apply_edit(edit("ensemble", node="nodes.answer", samples=5), start)
    assert made.get("nodes.answer.of.decoding.temperature") == 0.7, "else all answers are the same"
    assert apply_edit(edit("unwrap", node="nodes.answer"), made).get("nodes.answer.kind") == "predict"


def test_a_node_among_several_writers_is_switched_off_and_keeps_its_place() -> None:
    start = make({"draft": {"predict": "q -> a"}, "mend": {"predict": "q, a -> a"}, "use": {"predict": "a -> b"}})
    made = apply_edit(edit("remove", node="nodes.mend"), start)
    assert made.get("nodes.mend.enabled") is False and list(made.nodes) == list(start.nodes)
    assert set(apply_edit(edit("restore", node="nodes.mend"), made, start).graph.edges) == set(start.graph.edges)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("remove", {"node": "nodes.answer"}), "no node gives 'why' any more"),
        (("remove", {"node": "nodes.nobody"}), "takes no part"),
        (("refine", {"node": "nodes.nobody"}), "there is no node 'nodes.nobody'"),
        (("refine", {"node": "lm.model"}), "there is no node"),
        (("insert", {"node": "nodes.plan", "field": "facts", "instructions": "x"}), "there is a field 'facts' already"),
        (("rewire", {"node": "nodes.facts", "field": "answer"}), "cycle"),
        (("rewire", {"node": "nodes.facts", "field": "label"}), "which no node before it writes"),
        (("merge", {"node": "nodes.facts", "into": "nodes.answer"}), "not the only node"),
        (("tool", {"node": "nodes.plan", "tool": "python:math.sqrt"}), "for agent, not for predict"),
        (("replace", {"node": "nodes.plan", "kind": "predict"}), "for agent"),
    ],
)
def test_a_wrong_edit_says_why(wrong: tuple[str, dict[str, Any]], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        apply_edit(edit(wrong[0], **wrong[1]), make(CHAIN))


def test_types_must_fit() -> None:
    start = make(
        {"count": {"predict": "q -> n: int"}, "use": {"predict": "q, n: int -> a"}, "x": {"predict": "q -> b"}}
    )
    worse = start.patched({"nodes.count.signature": "q -> n: list[str]"})
    with pytest.raises(SpecError, match=r"'use' reads 'n' as int, and 'count' writes it as list\[str\]"):
        check_flow(worse, start)
    check_flow(start.patched({"nodes.use.signature": "q, n: float -> a"}), start)
    check_flow(start.patched({"nodes.use.signature": "q, n -> a"}), start)  # text may be read of anything
    check_flow(worse, worse)  # as the user wrote it


def test_the_graph_hash_sees_what_a_workflow_does_and_no_names() -> None:
    start = make(CHAIN)
    renamed = make({f"{name}_2": tree for name, tree in CHAIN.items()})
    shuffled = make(dict(reversed(CHAIN.items())))
    explicit = start.patched({"nodes.plan.samples": 1, "nodes.plan.decoding": {"temperature": None}})
    switched = make({**CHAIN, "more": {"predict": "question -> x", "enabled": False}})
    same = [graph_hash(w) for w in (start, renamed, shuffled, explicit, switched)]
    assert len(set(same)) == 1 and len({w.hash for w in (start, renamed, explicit, switched)}) == 4
    others = [
        start.patched({"nodes.plan.samples": 2}),
        start.patched({"nodes.plan.optional": True}),
        start.patched({"nodes.answer.needs": "facts"}),
        start.patched({"lm": {"model": "openai/x"}}),
        make({**CHAIN, "again": CHAIN["facts"]}),
    ]
    assert len({same[0], *map(graph_hash, others)}) == 6


def test_inside_a_wrapper_defaults_count_as_written() -> None:
    one = make({"n": {"ensemble": {"predict": "q -> a"}}})
    two = make({"n": {"ensemble": {"kind": "predict", "signature": "q -> a", "samples": 1}, "samples": 3}})
    other = make({"n": {"ensemble": {"predict": "q -> a", "samples": 2}}})
    assert graph_hash(one) == graph_hash(two) != graph_hash(other)


def test_nodes_inside_others_lose_inputs_too() -> None:
    start = make({"facts": {"predict": "q -> facts"}, "n": {"ensemble": {"predict": "q, facts -> a"}}})
    made = start.patched(disable_nodes(start, ["facts"]))
    assert list(made.enabled_nodes) == ["n"] and made.enabled_nodes["n"].inputs == ("q",)
    assert made.output_fields == ["a"] and [a for a, _ in places(made)] == ["nodes.n", "nodes.n.of"]
    tool = make({"x": {"predict": "q -> x"}, "root": {"tool": "python:math.sqrt"}})
    with pytest.raises(SpecError, match="'root' cannot do without 'x'"):
        tool.patched(disable_nodes(tool, ["x"]))


def test_what_the_example_has_is_still_read_without_the_node_that_refined_it() -> None:
    start = make({"mend": {"predict": "question -> question"}, "n": {"predict": "question -> a"}})
    made = start.patched(disable_nodes(start, ["mend"]))
    assert made.enabled_nodes["n"].inputs == ("question",)
    drafted = make({"draft": {"predict": "q -> x"}, "mend": {"predict": "x -> x"}, "n": {"predict": "q, x -> a"}})
    assert drafted.patched(disable_nodes(drafted, ["mend"])).enabled_nodes["n"].inputs == ("q", "x")
    assert drafted.patched(disable_nodes(drafted, ["draft", "mend"])).enabled_nodes["n"].inputs == ("q",), (
        "no example has it"
    )


@pytest.mark.parametrize(
    ("text", "add", "drop", "made"),
    [
        ("a, b: list[str] -> c: Literal['x -> y']", ["d: int", "a"], ["b"], "a, d: int -> c: Literal['x -> y']"),
        ("a  ->  b", [], ["x"], "a  ->  b"),
        ("-> b", ["a"], [], "a -> b"),
        ("a -> b", [], ["a"], "-> b"),
    ],
)
def test_signatures_gain_and_lose_inputs(text: str, add: list[str], drop: list[str], made: str) -> None:
    assert with_inputs(text, add=add, drop=drop) == made


def test_an_edit_is_read_as_a_model_writes_it() -> None:
    made = read_edit({"edit": "ensemble", "node": "nodes.answer", "samples": 5}, make(ONE), MENU)
    assert describe_edit(made) == "ensemble nodes.answer samples=5"
    for wrong in (
        {"edit": "nothing"},
        "words",
        {"edit": "ensemble", "node": "n", "samples": 99},
        {"edit": "refine"},
        {"edit": ["insert"]},
        {"edit": {}},
        {"edit": "ensemble", "node": "nodes.answer", "samples": "5"},
    ):
        with pytest.raises(SpecError):
            read_edit(wrong, make(ONE), MENU)
    with pytest.raises(SpecError, match="Did you mean 'refine'"):
        edit_classes(["refin"])


def test_no_field_of_an_edit_takes_the_wrong_type() -> None:
    right = {
        "node": "nodes.answer",
        "field": "plan",
        "instructions": "Plan.",
        "into": "nodes.answer",
        "kind": "predict",
        "tool": MENU.tools[0],
        "lm": MENU.lms[0],
        "verifier": MENU.verifiers[0],
    }
    checked = 0
    for name, cls in edit_classes().items():
        given = {"edit": name, **{k: v for k, v in right.items() if k in cls.model_fields}}
        assert isinstance(read_edit(given, make(ONE), MENU), cls)
        for field in cls.model_fields:
            for wrong in (["nodes.answer"], {"a": [1]}, None, 3.5, [["x"]]):
                with pytest.raises(SpecError):
                    read_edit({**given, field: wrong}, make(ONE), MENU)
                checked += 1
    assert checked > 100


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ({"edit": "tool", "node": "nodes.n", "tool": "python:os.system"}, "tools"),
        ({"edit": "replace", "node": "nodes.m", "kind": "agent", "tools": [MENU.tools[1], "mcp:sh#x"]}, "tools"),
        ({"edit": "verify", "node": "nodes.m", "verifier": "python:os.system"}, "verifiers"),
        ({"edit": "verify", "node": "nodes.m", "verifier": {"tool": "python:operator.not_"}}, "verifiers"),
        ({"edit": "model", "node": "nodes.m", "lm": "openai/dear"}, "lms"),
    ],
)
def test_only_what_is_on_the_menu_is_brought_in(asked: dict[str, Any], what: str) -> None:
    menu = Menu(MENU.lms, MENU.tools[1:], MENU.verifiers)
    workflow = make(
        {
            "n": {"agent": "q -> a", "tools": [MENU.tools[0]]},
            "m": {"predict": "q -> b", "lm": "openai/c", "instructions": "python:os.system"},
        }
    )
    with pytest.raises(SpecError, match=f"is not among the {what} that may be brought in"):
        read_edit(asked, workflow, menu)
    there = {"tool": MENU.tools[0], "tools": list(MENU.tools), "verifier": MENU.verifiers[0], "lm": "openai/c"}
    right = {key: there.get(key, value) for key, value in asked.items()}
    assert read_edit(right, workflow, menu).node == asked["node"]
    gone = {"edit": "tool", "node": "nodes.n", "tool": "python:any.thing", "add": False}
    assert read_edit(gone, workflow, menu), "to take a tool away needs no menu"


def test_the_graph_hash_sees_the_order_of_several_writers() -> None:
    one, two = {"predict": "q -> a", "instructions": "One."}, {"predict": "q -> a", "instructions": "Two."}
    use, late = {"predict": "a -> b"}, {"predict": "a -> b", "needs": ["x", "y"]}
    unread = [make({"x": one, "y": two}), make({"x": two, "y": one})]
    between = [make({"x": one, "n": use, "y": two}), make({"x": one, "y": two, "n": use})]
    bound = [make({"x": one, "y": two, "n": late}), make({"x": two, "y": one, "n": late})]
    for here, there in (unread, between, bound):
        assert graph_hash(here) != graph_hash(there)
    assert graph_hash(unread[0]) == graph_hash(make({"first": one, "z": two})), "names do not count"


def test_the_inverse_of_any_patch() -> None:
    start = make(ONE)
    patch = Patch(
        {"nodes.answer.decoding.temperature": 0.5, "nodes.answer.samples": 3, "lm": {"model": "openai/x"}},
        ("nodes.answer.instructions",),
        "try",
    )
    made = start.patched(patch)
    undo = patch.inverse(start)
    assert made.patched(undo).tree == start.tree and undo.note == "undo try"
    assert set(undo.unset) == {"nodes.answer.decoding", "nodes.answer.samples", "lm"}
