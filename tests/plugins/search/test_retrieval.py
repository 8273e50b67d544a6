"""What `search` finds by words, vectors or both, in a corpus of a row, in pieces, and in the order of a rerank node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.embedding import Meanings
from tests.helpers.scripted import make_workflow, run_node, run_rows
from tests.helpers.strangers import passed_by

from workbench.errors import SpecError
from workbench.workflow import ExampleRun, learnable_addresses
from workbench_kit.searching import merge_rankings

MEANINGS = {"cat": "cat feline", "car": "car vehicle", "red": "red crimson"}
PETS = ["A feline sleeps.", "The red vehicle is fast.", "My cat eats.", "Stones lie."]
VECTORS = {"embedder": "openai/vectors"}


def search(row: dict[str, Any], folder: Path, script: Any = None, **node: Any) -> ExampleRun:
    nodes = {"n": {"search": "field:pages", "ids": "found", **node}}
    script = script or Meanings(MEANINGS)
    return run_rows(make_workflow(nodes, folder), [row], script, folder / f"{len(list(folder.glob('*.db')))}.db")[0]


def found(query: str, folder: Path, script: Any = None, **node: Any) -> list[str]:
    outcome = search({"query": query, "pages": PETS}, folder, script, **node)
    assert outcome.failure is None, outcome.message
    return outcome.prediction["found"]


def test_words_find_what_is_written_vectors_what_is_meant_and_both_what_either_finds(tmp_path: Path) -> None:
    assert found("cat", tmp_path, k=2) == ["3"]
    assert found("cat", tmp_path, by="vectors", k=2, **VECTORS) == ["1", "3"]
    # Vectors cannot tell 1 from 3; words have only 3, so that it is first where both count.
    assert found("cat", tmp_path, by="both", k=2, **VECTORS) == ["3", "1"]
    assert found("???", tmp_path, by="both", k=2, **VECTORS) == []


def test_ranks_are_merged_by_their_reciprocals_and_ties_go_to_the_earlier() -> None:
    assert [*merge_rankings([[4, 2, 7], [2, 4, 9]])] == [2, 4, 7, 9]
    assert [*merge_rankings([[1, 2, 3], [3]])] == [3, 1, 2]  # 1/61 + 1/63 > 1/61


def test_vectors_are_paid_and_counted_and_a_corpus_is_embedded_once(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in PETS * 20))
    workflow = make_workflow({"n": {"search": "c.jsonl", "by": "vectors", **VECTORS}}, tmp_path)
    assert workflow.max_calls == 1 + 2  # the query, and 80 documents, 64 to a request
    script = Meanings(MEANINGS)
    first, second = run_rows(workflow, [{"query": "cat"}, {"query": "vehicle"}], script, tmp_path / "run.db")
    assert [len(texts) for texts in script.asked] == [64, 16, 1, 1]
    assert [call.cached for call in first.trace.calls] == [False, False, False]
    assert [call.cached for call in second.trace.calls] == [True, True, False]
    again = Meanings(MEANINGS)
    run_rows(workflow, [{"query": "cat"}], again, tmp_path / "run.db")
    assert again.asked == [], "a resumed run reads them from the journal"


@pytest.mark.parametrize(
    "pages",
    [
        ["Oslo is in Norway.", "Rome is in Italy."],
        [["Oslo", ["Oslo is in", " Norway."]], ["Rome", ["Rome is in Italy."]]],
        [{"id": 1, "title": "Oslo", "text": "Oslo is in Norway."}, {"id": 2, "text": ["Rome is", "in Italy."]}],
        {"title": ["Oslo", "Rome"], "text": [["Oslo is in Norway."], ["Rome is in Italy."]]},
    ],
)
def test_a_corpus_may_stand_in_the_row_as_data_sets_write_it(pages: Any, tmp_path: Path) -> None:
    outcome = search({"query": "Italy", "pages": pages}, tmp_path, items="rows")
    assert outcome.prediction["found"] == ["2"]
    assert outcome.prediction["rows"][0]["text"] == "Rome is in Italy."
    assert outcome.prediction["documents"].endswith("Rome is in Italy.")


@pytest.mark.parametrize(
    ("pages", "said"),
    [
        (7, "no list of documents: 7"),
        ([{"body": "x"}], "document 1 of 'pages' has no field 'text'"),
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "two documents of 'pages' have the id 'a'"),
        ({"title": ["x"], "text": ["y", "z"]}, "no lists of one length"),
    ],
)
def test_a_row_of_no_use_fails_and_says_why(pages: Any, said: str, tmp_path: Path) -> None:
    outcome = search({"query": "x", "pages": pages}, tmp_path)
    assert outcome.failure == "data" and said in str(outcome.message)


def test_each_row_is_searched_in_its_own_documents(tmp_path: Path) -> None:
    workflow = make_workflow({"n": {"search": "field:pages", "items": "rows"}}, tmp_path)
    rows = [{"query": "colour", "pages": [f"the colour is {colour}"]} for colour in ("red", "blue")]
    outcomes = run_rows(workflow, rows, Meanings({}), tmp_path / "run.db")
    assert [run.prediction["rows"][0]["text"].split()[-1] for run in outcomes] == ["red", "blue"]
    none = run_rows(workflow, [{"query": "colour", "pages": []}], Meanings({}), tmp_path / "none.db")[0]
    assert none.prediction == {"documents": "nothing found", "rows": []}


def test_long_documents_are_found_by_their_pieces_which_browse_opens(tmp_path: Path) -> None:
    text = f"{'many words ' * 10}The treasure lies in Lorvik. {'more words ' * 10}"
    row = {"query": "treasure", "pages": [{"id": "book", "text": text}]}
    whole, piece = search(row, tmp_path), search(row, tmp_path, chunk=60, items="rows")
    assert whole.prediction["found"] == ["book"] and piece.prediction["found"] == ["book#3"]
    assert "treasure" in piece.prediction["rows"][0]["text"] and len(piece.prediction["rows"][0]["text"]) <= 60
    node = {"browse": "field:pages", "chars": 60}
    page = run_node(node, {"document": "[book#3]", "pages": row["pages"]}, tmp_path)[0].prediction["page"]
    assert page.startswith(piece.prediction["rows"][0]["text"])


def test_a_node_may_order_the_whole_list_or_score_each(tmp_path: Path) -> None:
    listed = Meanings(MEANINGS, lambda request: "[4, 9, 4, 1]")
    order = {"predict": "query, documents -> order: list[int]"}
    more = {"by": "vectors", **VECTORS}
    assert found("cat", tmp_path, listed, rerank=order, k=3, **more) == ["2", "1", "3"]  # what is not named follows
    assert "1. [1]: A feline sleeps.\n2. [3]: My cat eats." in str(listed.requests[0].messages[-1]["content"])

    def say(request: Any) -> str:
        shown = str(request.messages[-1]["content"])
        return "9" if "eats" in shown else "3"

    score = {"predict": "question, document -> score: float"}
    row = {"query": "cat", "pages": PETS, "question": "Which one is hungry?"}
    for k, best in ((1, ["3"]), (2, ["3", "1"])):
        script = Meanings(MEANINGS, say)
        outcome = search(row, tmp_path, script, rerank=score, k=k, candidates=2, **more)
        assert outcome.prediction["found"] == best and len(script.requests) == 2
    assert search(row, tmp_path, k=1, **more).prediction["found"] == ["1"]


def test_the_budget_counts_what_a_reranker_may_ask(tmp_path: Path) -> None:
    def calls(**node: Any) -> int:
        return make_workflow({"n": {"search": "field:pages", **node}}, tmp_path).max_calls

    assert calls(rerank={"predict": "documents -> order"}) == 1
    assert calls(rerank={"predict": "document -> score"}, candidates=7) == 7
    assert calls(rerank={"predict": "document -> score"}, candidates=7, by="both", **VECTORS) == 14 + 11


@pytest.mark.parametrize(
    ("node", "said", "path"),
    [
        ({"by": "both"}, "needs a language model that embeds", ("nodes", "n", "embedder")),
        ({"rerank": {"predict": "query -> order"}}, "reads documents and writes order", ("nodes", "n", "rerank")),
        ({"search": "field:two words"}, "names no field of a row", ("nodes", "n", "corpus")),
    ],
)
def test_wrong_settings_are_refused_with_what_to_write(
    node: dict[str, Any], said: str, path: Any, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        make_workflow({"n": {"search": "field:pages", **node}}, tmp_path)
    assert caught.value.path == path and caught.value.hint


def test_more_documents_of_a_row_than_the_budget_counts_fail_it_before_a_call(tmp_path: Path) -> None:
    script = Meanings(MEANINGS)
    row = {"query": "cat", "pages": [f"page {n}" for n in range(641)]}
    outcome = search(row, tmp_path, script, by="vectors", **VECTORS)
    assert outcome.failure == "steps" and "640 at most" in str(outcome.message) and script.asked == []
    assert search(row, tmp_path).failure is None, "words cost nothing"


def test_a_score_that_is_no_number_fails_the_row(tmp_path: Path) -> None:
    rerank = {"predict": "query, document -> score"}
    outcome = search({"query": "a", "pages": ["a b", "a c"]}, tmp_path, Meanings({}, lambda _: "good"), rerank=rerank)
    assert outcome.failure == "unparsed" and "'good', and no number" in str(outcome.message)


def test_an_agent_searches_in_the_documents_of_its_row(tmp_path: Path) -> None:
    said = iter(['call: {"tool": "look", "arguments": {"query": "treasure"}}', "answer: done"])
    script = Meanings({}, lambda request: next(said))
    agent = {"agent": "question -> answer", "nodes": {"look": {"search": "field:pages", "k": 1}}}
    row = {"question": "Where?", "pages": ["the treasure is here", "nothing"]}
    outcome = run_rows(make_workflow({"a": agent}, tmp_path), [row], script, tmp_path / "run.db")[0]
    assert outcome.prediction["answer"] == "done", outcome.message
    first, second = ("\n".join(str(m["content"]) for m in request.messages) for request in script.requests)
    assert 'look({"query": "string"})' in first and "pages" not in first and "[1]: the treasure is here" in second


def test_optimizers_may_change_how_it_searches_and_what_its_reranker_is_told(tmp_path: Path) -> None:
    rerank = {"predict": "query, documents -> order"}

    def learnable(kind: str, **node: Any) -> set[str]:
        workflow = make_workflow({"n": {"search": "field:pages", **node}}, tmp_path)
        return {address.removeprefix("nodes.n.") for address in learnable_addresses(workflow, kind)}

    assert learnable("int") == {"k", "chars"} and learnable("choice") == set()
    assert "candidates" in learnable("int", rerank=rerank) and "rerank.instructions" in learnable("text", rerank=rerank)
    assert learnable("choice", **VECTORS) == {"by"}


def test_a_field_of_the_row_is_no_path_that_a_user_must_trust(tmp_path: Path) -> None:
    def asked(corpus: str) -> list[str]:
        return [one.kind for one in passed_by(tmp_path, nodes={"n": {"search": corpus}})]

    assert asked("field:pages") == [] and asked("../c.jsonl") == ["reads outside its folder"]
