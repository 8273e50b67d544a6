"""The node `recall`: what is retrieved, what never is, and how it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers.scripted import make_workflow, run_node

import workbench.task.write as write
from workbench.errors import SpecError
from workbench.workflow import node_tree
from workbench_memory.learned_retrieval import extract_features, fit_weights, score_pair
from workbench_memory.word_search import split_words

ROWS = ["the red bird sings", "the blue fish swims", "a red fish sleeps", "stones do not move"]


def entries(*texts: str, **more: Any) -> list[dict[str, Any]]:
    return [{"inputs": {"q": t}, "outputs": {"a": f"answer {i}"}, **more} for i, t in enumerate(texts)]


def node(rows: list[dict[str, Any]], **settings: Any) -> dict[str, Any]:
    return {"recall": "q -> notes", "entries": rows, **settings}


def recall(rows: list[dict[str, Any]], q: Any, tmp_path: Path, **settings: Any) -> tuple[str, list[int]]:
    outcome, script = run_node(node(rows, **settings), {"q": q}, tmp_path)
    assert outcome.failure is None, outcome.message
    assert not script.requests, "a recall node calls no model"
    notes = outcome.trace.spans[0].notes
    assert notes["count"] == len(notes["recalled"])
    return outcome.prediction["notes"], notes["recalled"]


def test_the_nearest_entries_are_written_the_best_last(tmp_path: Path) -> None:
    text, shown = recall(entries(*ROWS), "which red bird?", tmp_path, k=2)
    assert shown == [2, 0]
    assert text == "q: a red fish sleeps\na: answer 2\n\nq: the red bird sings\na: answer 0"


def test_what_shares_no_word_is_not_shown(tmp_path: Path) -> None:
    assert recall(entries(*ROWS), "unrelated", tmp_path) == ("", [])
    assert recall([], "anything", tmp_path) == ("", [])


@pytest.mark.parametrize("policy", ["lexical", "utility", "recent", "random", "learned"])
def test_an_input_never_gets_its_own_answer_and_quarantine_holds(policy: str, tmp_path: Path) -> None:
    rows = [*entries(*ROWS), *entries("the red bird of evil", quarantined="by hand")]
    _, shown = recall(rows, "  The RED bird\n sings", tmp_path, policy=policy, k=9, weights={"relevance": 1.0})
    assert 0 not in shown and 4 not in shown and shown


def test_what_holds_for_every_input_comes_first_and_on_top_of_k(tmp_path: Path) -> None:
    rows = [
        *entries(*ROWS),
        {"kind": "insight", "text": "Fish may be red."},
        {"kind": "insight", "text": "Never.", "quarantined": "by hand"},
    ]
    text, shown = recall(rows, "a blue fish", tmp_path, k=1)
    assert shown == [4, 1] and text.startswith("- Fish may be red.\nq: the blue fish")


def test_a_preference_is_shown_without_the_text_it_came_from(tmp_path: Path) -> None:
    rows = [{"kind": "preference", "inputs": {"q": "a red fish"}, "text": "The user prefers short texts."}]
    assert recall(rows, "some fish", tmp_path)[0] == "- The user prefers short texts."


def test_entries_that_do_not_fit_are_left_out_whole(tmp_path: Path) -> None:
    rows = entries("red " + "x " * 200, "red bird")
    text, shown = recall(rows, "red", tmp_path, chars=60)
    assert shown == [1] and len(text) <= 60


def test_other_policies(tmp_path: Path) -> None:
    rows = entries("red one", "red two", "red three")
    rows[1]["utility"] = 0.9
    assert recall(rows, "red", tmp_path, policy="recent", k=2)[1] == [1, 2]
    assert recall(rows, "red", tmp_path, policy="utility", k=1)[1] == [1]
    draws = [recall(rows, "red", tmp_path, policy="random", seed=s, k=1)[1] for s in range(8)]
    assert draws == [recall(rows, "red", tmp_path, policy="random", seed=s, k=1)[1] for s in range(8)]
    assert len({tuple(d) for d in draws}) > 1
    weights = {"word two": 2.0, "relevance": -1.0}
    assert recall(rows, "two or three", tmp_path, policy="learned", weights=weights, k=1)[1] == [1]
    # Without weights there is nothing learned yet, and words decide.
    assert recall(rows, "three", tmp_path, policy="learned", k=1)[1] == [2]


@pytest.mark.parametrize("q", ['say "AND" OR NOT (x*)', "", "ünïcode NEAR/3 red", 7, ["red"], None, "red " * 5000])
def test_any_input_can_be_looked_up(q: Any, tmp_path: Path) -> None:
    recall(entries(*ROWS), q, tmp_path)


@pytest.mark.parametrize("signature", ["q -> a, b", "-> notes", "q -> notes: int"])
def test_other_signatures_are_refused_with_what_to_write(signature: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="reads at least one field and writes one text") as error:
        make_workflow({"n": {"recall": signature}}, tmp_path)
    assert "question -> notes" in str(error.value.hint)


def test_a_store_survives_export_whatever_its_rows_are_called(tmp_path: Path) -> None:
    """Rows have a field `kind`, as nodes have; only nodes are written the short way."""
    raw = node([{"kind": "case", "inputs": {"q": "x", "kind": "predict"}, "text": "t"}], k=3)
    workflow = make_workflow({"n": raw}, tmp_path)
    written = yaml.safe_load(yaml.safe_dump(write.written_node(workflow.nodes["n"])))
    assert written == raw
    assert node_tree(written) == workflow.nodes["n"]
    ensemble = {"ensemble": {"predict": "q -> a"}, "samples": 2}
    assert write.written_node(make_workflow({"n": ensemble}, tmp_path).nodes["n"]) == ensemble


# Learned retrieval


def test_weights_find_the_word_that_helps() -> None:
    pairs = []
    for i in range(60):
        helps = i % 3 == 0
        query = ["please", "look", "topic1" if helps else "other"]
        pairs.append((extract_features(query, {"please", "look", "topic1"}, 1.0), 1.0 if helps and i % 4 else 0.0))
    weights = fit_weights(pairs)
    assert weights["word topic#"] > 1 and abs(weights.get("word please", 0.0)) < 0.5
    topical, wordy = (
        extract_features(["topic9"], {"topic9"}, 0.2),
        extract_features(["please", "look"], {"please", "look"}, 1.0),
    )
    assert score_pair(weights, topical) > score_pair(weights, wordy), "what is learned of topic1 holds for topic9"


def test_with_too_little_to_learn_from_there_are_no_weights() -> None:
    pair = extract_features(["a"], {"a"}, 1.0)
    assert fit_weights([]) == {} and fit_weights([(pair, 1.0)] * 5) == {}
    assert fit_weights([(pair, 1.0)] * 500) == {}, "where every answer was right, nothing tells entries apart"


def test_words_are_each_taken_once_in_order() -> None:
    assert split_words("B a, b A_1!") == ["b", "a", "a_1"]


def test_a_recall_node_is_part_of_the_graph(tmp_path: Path) -> None:
    workflow = make_workflow({"look": node([]), "say": {"predict": "notes, q -> a"}}, tmp_path)
    assert list(workflow.graph.edges) == [("look", "say")]
    assert workflow.enabled_nodes["look"].max_calls == 0
