"""Search over a corpus: BM25 against SQLite's, what is found and shown, and pages of long documents."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.scripted import make_workflow, run_node
from tests.helpers.sqlite import connect

from workbench.errors import SpecError
from workbench_kit.searching import WordIndex, best_first
from workbench_search.corpus import Fields, open_corpus, split_pages
from workbench_search.node import cut_snippet

DOCUMENTS = [
    {"id": "oslo", "title": "Oslo", "text": "Oslo is the capital of Norway. It lies on a fjord."},
    {"id": "bergen", "title": "Bergen", "text": "Bergen is a city in Norway, where it rains a lot."},
    {"id": "rome", "title": "Rome", "text": "Rome is the capital of Italy."},
]


def write_corpus(folder: Path, rows: list[dict[str, Any]] = DOCUMENTS, name: str = "corpus.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def search_with_sqlite(texts: list[str], words: list[str]) -> list[float]:
    """Scores by the BM25 of SQLite's FTS5, word by word, with Lucene's idf in place of its own, less k1 + 1."""
    db = connect(":memory:")
    db.execute("create virtual table docs using fts5(text)")
    db.executemany("insert into docs(rowid, text) values (?, ?)", enumerate(texts, 1))
    found = [0.0] * len(texts)
    for word in words:
        rows = db.execute("select rowid, bm25(docs) from docs where docs match ?", (f'"{word}"',)).fetchall()
        n, having = len(texts), len(rows)
        theirs = max(math.log((n - having + 0.5) / (having + 0.5)), 1e-6)
        for rowid, score in rows:
            found[rowid - 1] += -score / theirs / 2.2 * math.log(1 + (n - having + 0.5) / (having + 0.5))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_an_independent_bm25(seed: int) -> None:
    draw = random.Random(seed)
    words = [f"w{i}" for i in range(30)]
    weights = [1 / (i + 1) for i in range(30)]
    texts = [" ".join(draw.choices(words, weights, k=draw.randint(1, 40))) for _ in range(80)]
    index = WordIndex(texts)
    for _ in range(20):
        query = draw.sample(words, draw.randint(1, 4))
        expected, found = search_with_sqlite(texts, query), index.scores(" ".join(query))
        assert [found.get(i, 0.0) for i in range(len(texts))] == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_a_search_shows_ids_titles_and_snippets_best_first_and_ties_in_order(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    node = {"search": "corpus.jsonl", "k": 2}
    outcome, _ = run_node(node, {"query": "the capital of Norway?"}, tmp_path)
    assert outcome.prediction["documents"].splitlines() == [
        "[oslo] Oslo: Oslo is the capital of Norway. It lies on a fjord.",
        "[rome] Rome: Rome is the capital of Italy.",
    ]
    assert outcome.trace.spans[0].notes == {"query": "the capital of Norway?", "found": ["oslo", "rome"]}
    assert run_node(node, {"query": "zebra"}, tmp_path)[0].prediction["documents"] == "nothing found"
    same = open_corpus(str(write_corpus(tmp_path, [{"text": "a b"}] * 3, "same.jsonl")), tmp_path, Fields())
    assert [same.documents[number].id for number in best_first(same.index.scores("b"), 2)] == ["1", "2"]


def test_a_corpus_is_read_and_indexed_once_for_its_content(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    nodes = [
        make_workflow({"n": {kind: "corpus.jsonl", **more}}, tmp_path).enabled_nodes["n"]
        for kind, more in (("search", {}), ("search", {"k": 1}), ("browse", {}))
    ]
    first: Any = nodes[0]
    assert all(node.of_files is first.of_files for node in nodes)  # type: ignore[attr-defined]
    assert first.of_files.index is first.of_files.index
    before = first.external_inputs()
    write_corpus(tmp_path, [{**row, "text": row["text"].replace("a", "e")} for row in DOCUMENTS])
    as_long: Any = make_workflow({"n": {"search": "corpus.jsonl", "k": 8}}, tmp_path).enabled_nodes["n"]
    assert as_long.external_inputs() != before
    write_corpus(tmp_path, DOCUMENTS[:2])
    changed: Any = make_workflow({"n": {"search": "corpus.jsonl", "k": 7}}, tmp_path).enabled_nodes["n"]
    assert len(changed.of_files.documents) == 2 and changed.external_inputs() != before


def test_texts_are_documents_too(tmp_path: Path) -> None:
    (tmp_path / "notes/deep").mkdir(parents=True)
    (tmp_path / "notes/a.txt").write_text("apples and pears")
    (tmp_path / "notes/deep/b.md").write_text("bananas")
    found = open_corpus("notes", tmp_path, Fields())
    assert [(d.id, d.title) for d in found.documents] == [("a.txt", "a"), ("deep/b.md", "b")]
    assert [found.documents[number].id for number in found.index.scores("bananas")] == ["deep/b.md"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"id": 1, "body": "x"}], "no field 'text'"),
        ([{"id": 1, "text": "x"}, {"id": 1, "text": "y"}], "two documents"),
        ([], "there are no rows"),
    ],
)
def test_rows_of_no_use_are_refused(rows: list[dict[str, Any]], said: str, tmp_path: Path) -> None:
    write_corpus(tmp_path, rows)
    with pytest.raises(SpecError, match=said):
        make_workflow({"n": {"search": "corpus.jsonl"}}, tmp_path)
    with pytest.raises(SpecError, match=r"no corpus .*corpsu\.jsonl"):
        make_workflow({"n": {"search": "corpsu.jsonl"}}, tmp_path)


def test_a_snippet_is_where_most_of_the_query_stands() -> None:
    text = "alpha " * 30 + "the red fox met a grey owl " + "omega " * 30
    shown = cut_snippet(text, "fox and owl", 30)
    assert "fox met a grey owl" in shown and shown.startswith("... ") and shown.endswith(" ...")
    assert cut_snippet("short", "x", 30) == "short"


def test_long_documents_are_read_page_by_page(tmp_path: Path) -> None:
    words = [f"word{i}" for i in range(100)]
    text = " ".join(words)
    assert " ".join(split_pages(text, 50)).split() == words and max(map(len, split_pages(text, 50))) <= 50
    write_corpus(tmp_path, [{"id": "long", "title": "Long", "text": text}, {"id": "x#2", "text": "short"}])
    node = {"browse": "corpus.jsonl", "chars": 400}

    def read(document: str) -> Any:
        return run_node(node, {"document": document}, tmp_path)[0]

    first, second = read("long").prediction["page"], read("[long#2]").prediction["page"]
    assert first.startswith("Long\nword0 ") and first.endswith("(page 1 of 2; the next one is long#2)")
    assert "word99" in second and second.endswith("(page 2 of 2)")
    assert read("x#2").prediction["page"] == "short", "an id that looks like a page"
    assert "no page 3" in read("long#3").message and "no document 'lang'" in read("lang").message
