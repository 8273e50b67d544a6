"""Notes of a row: what `remember` keeps, what `recall` finds and follows, and that no other row sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.embedding import Meanings
from tests.helpers.scripted import Script, make_workflow, run_rows

from workbench.errors import BudgetSpent, SpecError
from workbench.workflow import ExampleRun, learnable_addresses

LOOK = {"recall": "question -> known", "from": "notes", "needs": "keep"}
TRIPLES = [
    {"subject": "lighthouse", "relation": "built by", "object": "Mara"},
    {"subject": " mara", "relation": "born in", "object": "Tessmark"},
    {"subject": "Tessmark", "relation": "lies on", "object": "Quill"},
    {"subject": "dorn", "relation": "is a", "object": "cheese"},
]


def run(
    nodes: dict[str, Any], rows: list[dict[str, Any]], folder: Path, script: Script | None = None
) -> list[ExampleRun]:
    script, database = script or Script(lambda request: "yes"), folder / f"{len(list(folder.glob('*.db')))}.db"
    return run_rows(make_workflow(nodes, folder), rows, script, database)


def known(keep: dict[str, Any], look: dict[str, Any], row: dict[str, Any], folder: Path, script: Any = None) -> str:
    outcome = run({"keep": keep, "look": {**LOOK, **look}}, [row], folder, script)[0]
    assert outcome.failure is None, outcome.message
    return outcome.prediction["known"]


def test_a_row_recalls_what_it_remembered_and_never_what_another_did(tmp_path: Path) -> None:
    nodes = {
        "early": {"recall": "question -> before", "from": "notes"},
        "keep": {"remember": "fact -> note"},
        "look": LOOK,
    }
    nodes["keep"]["needs"] = "early"
    rows = [{"fact": f"the colour is {colour}", "question": "Which colour?"} for colour in ("red", "blue")]
    for outcome, colour in zip(run(nodes, rows, tmp_path), ("red", "blue"), strict=True):
        assert outcome.prediction["before"] == "" and outcome.prediction["note"] == ["n1"]
        assert outcome.prediction["known"] == f"[n1] the colour is {colour}"


def test_what_was_said_in_rounds_is_found_by_words_or_by_time(tmp_path: Path) -> None:
    rounds = {
        "kind": "loop",
        "over": "facts",
        "gather": {"seen": "known"},
        "nodes": {
            "keep": {"remember": "item -> note"},
            "look": {**LOOK, "recall": "item -> known", "k": 2, "policy": "recent"},
        },
    }
    facts = ["a red bird", "a blue fish", "a red fish"]
    outcome = run({"n": rounds}, [{"facts": facts}], tmp_path)[0]
    assert outcome.prediction["seen"][-1] == "[n2] a blue fish\n[n3] a red fish"
    keep = {"remember": "facts -> note"}
    assert known(keep, {"k": 1}, {"facts": facts, "question": "blue?"}, tmp_path) == "[n2] a blue fish"
    assert known(keep, {"k": 1}, {"facts": facts, "question": "green?"}, tmp_path) == ""


def test_links_lead_to_notes_that_share_no_word_with_the_question(tmp_path: Path) -> None:
    keep, row = (
        {"remember": "facts -> note", "links": ["subject", "object"]},
        {"facts": TRIPLES, "question": "lighthouse"},
    )
    near = "[n1] subject: lighthouse; relation: built by; object: Mara"
    assert known(keep, {}, row, tmp_path) == near
    two = known(keep, {"links": 2}, row, tmp_path)
    assert two.splitlines()[0] == near and "Quill" in two and "dorn" not in two and len(two.splitlines()) == 3
    assert "Quill" not in known(keep, {"links": 1}, row, tmp_path)
    assert known({"remember": "facts -> note"}, {"links": 2}, row, tmp_path) == near, "nothing says what they are about"


def test_a_note_may_name_another_by_its_id(tmp_path: Path) -> None:
    nodes = {
        "first": {"remember": "fact -> first_note"},
        "keep": {"remember": "other, first_note -> note", "links": ["first_note"]},
        "look": {**LOOK, "links": 1, "k": 1},
    }
    row = {"fact": "the key is under the mat", "other": "a brass thing opens the door", "question": "the door"}
    outcome = run(nodes, [row], tmp_path)[0]
    assert outcome.prediction["known"].splitlines()[0] == "[n1] the key is under the mat"
    assert outcome.prediction["note"] == ["n2"]


def test_vectors_find_notes_in_other_words(tmp_path: Path) -> None:
    keep, row = {"remember": "facts -> note"}, {"facts": ["a feline sleeps", "a car drives"], "question": "cat"}
    look, script = (
        {"policy": "embedding", "embedder": "openai/v", "k": 1},
        Meanings({"cat": "cat feline", "car": "car"}),
    )
    assert known(keep, look, row, tmp_path, script) == "[n1] a feline sleeps"
    assert known(keep, {"k": 1}, row, tmp_path) == ""


def test_what_is_empty_or_known_is_not_kept_and_a_long_list_is_cut_by_whole_notes(tmp_path: Path) -> None:
    facts = ["one fact", "", "one fact", "another fact", "a third fact"]
    nodes = {"keep": {"remember": "facts -> note"}, "look": {**LOOK, "chars": 20, "policy": "recent"}}
    outcome = run(nodes, [{"facts": facts, "question": "?"}], tmp_path)[0]
    assert outcome.prediction["note"] == ["n1", "n1", "n2", "n3"]
    assert outcome.prediction["known"] == "[n3] a third fact", "the newest that fit"


def test_notes_of_nodes_that_run_at_once_are_the_same_in_a_resumed_run(tmp_path: Path) -> None:
    said = Script(lambda request: str(request.messages[-1]["content"]).split("item: ")[1].split()[0])
    body = {"say": {"predict": "item -> word"}, "keep": {"remember": "word -> note"}}
    body["look"] = {"recall": "item -> known", "from": "notes", "needs": "keep", "policy": "recent"}
    workflow = make_workflow({"n": {"kind": "map", "over": "items", "nodes": body}}, tmp_path)
    row = {"items": [f"w{i} x" for i in range(8)]}
    first = run_rows(workflow, [row], said, tmp_path / "run.db")[0].prediction
    silent = Script(lambda request: pytest.fail("everything is in the journal"))
    assert run_rows(workflow, [row], silent, tmp_path / "run.db")[0].prediction == first
    assert sorted(id_ for ids in first["note"] for id_ in ids) == [f"n{i}" for i in range(1, 9)]


def test_an_agent_keeps_notes_with_the_same_nodes(tmp_path: Path) -> None:
    answers = iter(
        [
            'call: {"tool": "keep", "arguments": {"finding": "the code is 4711"}}',
            'call: {"tool": "look", "arguments": {"topic": "code"}}',
        ]
    )

    def say(request: Any) -> str:
        return next(answers, None) or f"answer: {str(request.messages[-1]['content']).split()[-1]}"

    tools = {"keep": {"remember": "finding -> note"}, "look": {"recall": "topic -> known", "from": "notes"}}
    outcome = run(
        {"a": {"agent": "question -> answer", "nodes": tools}}, [{"question": "Code?"}], tmp_path, Script(say)
    )[0]
    assert "4711" in outcome.prediction["answer"], outcome.message


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"remember": "-> note"}, "reads at least one field"),
        ({"remember": "a -> b, c"}, "writes one"),
        ({"remember": "fact, about -> note", "links": ["abuot"]}, "links names 'abuot'"),
        ({"recall": "q -> n", "links": 2}, "name their store"),
        ({"recall": "q -> n", "from": "notes", "entries": [{"text": "x"}]}, "give either `entries`"),
        ({"recall": "q -> n", "from": "notes", "policy": "learned"}, "and not by learned"),
    ],
)
def test_wrong_settings_are_refused(node: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises((SpecError, ValueError), match=said):
        make_workflow({"n": node}, tmp_path)


def test_a_row_that_was_cut_short_has_its_notes_when_it_goes_on(tmp_path: Path) -> None:
    nodes = {
        "keep": {"remember": "fact -> note"},
        "say": {"predict": "question -> said", "needs": "keep"},
        "go_on": {"predict": "said -> more"},
        "look": {**LOOK, "needs": "go_on"},
    }
    workflow, row = make_workflow(nodes, tmp_path), {"fact": "the colour is red", "question": "Which colour?"}
    with pytest.raises(BudgetSpent):
        run_rows(workflow, [row], Script(lambda request: "yes"), tmp_path / "run.db", calls=1)
    second = run_rows(workflow, [row], Script(lambda request: "yes"), tmp_path / "run.db")[0]
    assert second.prediction["known"] == "[n1] the colour is red"
    effects = [(effect.kind, effect.replayed) for span in second.trace.spans for effect in span.effects]
    assert effects == [("remember", True), ("recall", False)]


def test_the_budget_counts_vectors_of_notes_and_too_many_fail_the_row(tmp_path: Path) -> None:
    look = {**LOOK, "policy": "embedding", "embedder": "openai/v"}
    nodes = {"keep": {"remember": "facts -> note"}, "look": look}
    assert make_workflow(nodes, tmp_path).max_calls == 11
    script = Meanings({"cat": "cat"})
    outcome = run(nodes, [{"facts": [f"fact {n}" for n in range(641)], "question": "?"}], tmp_path, script)[0]
    assert outcome.failure == "steps" and "640 at most" in str(outcome.message) and script.asked == []


def test_no_optimizer_fills_a_store_that_is_the_rows_own(tmp_path: Path) -> None:
    for more, stores, numbers in (({"from": "notes"}, 0, {"k", "chars", "links"}), ({}, 1, {"k", "chars"})):
        workflow = make_workflow({"n": {"recall": "question -> known", **more}}, tmp_path)
        assert len(learnable_addresses(workflow, "memories")) == stores
        assert {address.rpartition(".")[2] for address in learnable_addresses(workflow, "int")} == numbers
