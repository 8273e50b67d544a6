"""Published designs made of `search`, `remember` and `recall`: right as they are, and wrong without their mechanism.

As in test_gallery_rows, the numbers in the names are those of the documents that list the designs.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.gallery_retrieval import QUERIES, not_listed, workload
from tests.helpers.gallery_scripts import CASES
from tests.helpers.gallery_tried import GALLERY, searched, tried
from tests.whole.test_gallery_rows import facts


def test_141_a_store_of_knowledge_leads_from_page_to_page(tmp_path: Path) -> None:
    whole = tried("knowledge_cache", tmp_path)
    assert whole.right == [True, True] and [notes["rounds"] for notes in whole.notes("gather")] == [2, 1]
    blind = tried("knowledge_cache", tmp_path, {"nodes.gather.nodes.ask.signature": "question -> query"})
    assert blind.right == [False, True]
    opened = [s.notes["found"] for s in blind.outcomes[0].trace.spans if s.node.endswith("look")]
    assert opened == [["p2"]] * 5, "without what is known it returns to the same page"
    assert tried("knowledge_cache", tmp_path, {"nodes.gather.nodes.keep.into": "elsewhere"}).right == [False, False]


@pytest.mark.slow
def test_177_arigraph_answers_from_what_was_seen_long_ago_because_triples_are_linked(tmp_path: Path) -> None:
    many = [facts(4), facts(30), facts(60)]
    assert tried("arigraph", tmp_path, rows=many).right == [True] * 3
    assert tried("arigraph", tmp_path, {"nodes.near.links": 0}, many).right == [False] * 3
    assert tried("arigraph", tmp_path, {"nodes.watch.nodes.know.links": []}, many).right == [False] * 3
    assert tried("arigraph", tmp_path, {"nodes.watch.nodes.live.into": "nowhere"}, many).right == [False] * 3


def test_84_research_code_agent_needs_both_its_memories_and_the_variables_of_its_code(tmp_path: Path) -> None:
    whole = tried("research_code_agent", tmp_path)
    assert whole.right == [True] and whole.notes("work") == [{"rounds": 9, "ended": "until"}]
    shown = [str(request.messages[-1]["content"]) for request in whole.script.requests]
    assert "cat notes.txt" in shown[1] and "cat notes.txt" not in shown[-1], "the course is not shown as a whole"
    assert "fruits = 5" in shown[4] and not any("5" in text for text in shown[7:]), "the variable alone has the number"
    for lost in ("short", "long"):
        one = tried("research_code_agent", tmp_path, {f"nodes.work.nodes.{lost}.k": 0})
        assert one.right == [False] and one.notes("work")[0]["ended"] == "rounds"
    forgets = tried("research_code_agent", tmp_path, {"nodes.work.nodes.act.cases.run.tool": "sandbox:session"})
    assert forgets.right == [False] and "NameError" in str(forgets.outcomes[0].message)


def test_168_toolshed_needs_enriched_cards_parts_of_the_request_and_an_order(tmp_path: Path) -> None:
    assert tried("toolshed", tmp_path).right == [True] * 4
    for change in (
        {"nodes.look.of.fields": {"text": "text"}},
        {
            "nodes.expand": {
                "kind": "code",
                "code": "question -> asks: list",
                "source": "def ask(question): return [question]",
            }
        },
        {"nodes.look.of.rerank": None},
    ):
        assert sum(tried("toolshed", tmp_path, change).right) <= 2, change


def test_1_dare_tells_equal_descriptions_apart_by_the_data(tmp_path: Path) -> None:
    assert tried("dare", tmp_path).right == [True] * 5
    plain = {"nodes.ask.source": "def ask(question, profile): return question"}
    assert sum(tried("dare", tmp_path, plain).right) <= 2
    assert sum(tried("dare", tmp_path, {"nodes.look.fields": {"text": "text"}}).right) <= 2


def test_139_examples_are_looked_up_at_each_step(tmp_path: Path) -> None:
    whole = tried("own_examples", tmp_path)
    assert whole.right == [True, True] and [notes["rounds"] for notes in whole.notes("play")] == [4, 2]
    once = {"nodes.play.nodes.look.signature": "start -> examples", "nodes.play.nodes.look.entries": entries("start")}
    pairs = [({**row, "start": row["situation"]}, expected) for row, expected in CASES["own_examples.yaml"].rows]
    assert tried("own_examples", tmp_path, once, pairs).right == [False, False]


def entries(field: str) -> list[dict[str, Any]]:
    found = [("a door that is shut", "turn the key"), ("a dog that growls", "give it a bone")]
    return [{"inputs": {field: situation}, "outputs": {"action": action}} for situation, action in found]


@pytest.mark.slow
def test_154_graph_team_codes_by_the_method_and_thinks_where_the_code_fails(tmp_path: Path) -> None:
    whole = tried("graph_team", tmp_path)
    assert whole.right == [True] * 4
    without = {"nodes.code.signature": "question, graph -> found"}
    assert tried("graph_team", tmp_path, without).right == [False] * 4
    trust = {"nodes.check.source": "def check(found): return 'coded'"}
    assert tried("graph_team", tmp_path, trust).right == [True, True, False, True]
    # The call of networkx is wrong at first, and mended: two steps leave no room for that.
    assert tried("graph_team", tmp_path, {"nodes.code.max_steps": 2}).right == [True, True, True, False]
    assert tried("graph_team", tmp_path, {"nodes.code.tools": ["sandbox:session"]}).right == [True, True, True, False]
    assert all("A-B" not in str(r.messages) for r in whole.script.requests if "```python" in str(r.messages[0]))


def test_160_omni_search_asks_pictures_for_what_pages_named(tmp_path: Path) -> None:
    whole = tried("omni_search", tmp_path)
    assert whole.right == [True, True] and [notes["rounds"] for notes in whole.notes("gather")] == [3, 2]
    blind = {"nodes.gather.nodes.plan.signature": "question, asked -> source, ask"}
    assert tried("omni_search", tmp_path, blind).right == [False, True]
    pages = {"nodes.gather.nodes.look.cases.pictures.corpus": "../data/places.jsonl"}
    assert tried("omni_search", tmp_path, pages).right == [False, True]
    assert tried("omni_search", tmp_path, {"nodes.gather.rounds": 1}).right == [False, True]


def test_198_mobile_agent_follows_the_procedure_and_asks_before_it_pays(tmp_path: Path) -> None:
    whole = tried("mobile_agent", tmp_path)
    assert whole.right == [True] * 3
    assert sum("May this be done?" in str(request.messages[0]["content"]) for request in whole.script.requests) == 3
    unknown = {"nodes.use.nodes.next.signature": "question, done, screen -> action"}
    assert tried("mobile_agent", tmp_path, unknown).right == [False, False, True]
    bold = {"nodes.use.nodes.weigh.source": "def weigh(action): return False"}
    assert tried("mobile_agent", tmp_path, bold).right == [True, True, False]


def test_170_vidorag_takes_as_many_pages_as_fit_and_looks_until_they_suffice(tmp_path: Path) -> None:
    whole = tried("vidorag", tmp_path)
    assert whole.right == [True] * 4
    assert [len(run.prediction["kept"]) for run in whole.outcomes] == [1, 3, 5, 2]
    for most in (1, 3, 20):
        fixed = {"nodes.cut.source": f"def cut(ranked): return ranked[:{most}]"}
        assert not all(tried("vidorag", tmp_path, fixed).right), most
    assert tried("vidorag", tmp_path, {"nodes.look.rounds": 1}).right == [True, False, False, False]


SWEEP = "nodes.work.nodes.sweep.nodes"


def rewrites() -> Any:
    """workflows/gallery/rewrites.py, whose databases tell queries apart."""
    spec = importlib.util.spec_from_file_location("rewrites", GALLERY / "rewrites.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_183_without_counterexamples_a_rewrite_stays_that_is_wrong_only_for_nulls(tmp_path: Path) -> None:
    databases, counted, rows = rewrites(), QUERIES["counted"], [workload("counted")]
    wrong, right = not_listed(counted), not_listed(counted, " WHERE {} IS NOT NULL")
    assert "(1, NULL, " in databases.find_difference(counted, wrong)
    assert databases.find_difference(counted, wrong, nulls=0.0) == databases.find_difference(counted, right) == "none"

    def found(change: dict[str, Any]) -> tuple[str, float]:
        prediction = tried("gen_rewrite", tmp_path, change, rows).outcomes[0].prediction
        return prediction["rewrites"][0], databases.score(rows[0][0], prediction)[0]

    assert found({}) == (right, 1.0)
    source = "def check(query, rewrite): return 'none'"
    blind = {"kind": "code", "code": "query, rewrite -> fault", "source": source}
    assert found({f"{SWEEP}.mend.nodes.check": blind}) == (wrong, 0.0)


@pytest.mark.slow
def test_183_a_rule_learned_from_one_query_rewrites_another(tmp_path: Path) -> None:
    assert tried("gen_rewrite", tmp_path).right == [True] * 3
    untold = {f"{SWEEP}.mend.nodes.write.signature": "schema, query, rules, rewrite -> rewrite, rule"}
    assert tried("gen_rewrite", tmp_path, untold).right == [False] * 3, "what is not told cannot be mended"
    # The rule comes from the last query of the first workload, and behind one with a smaller speed-up.
    assert tried("gen_rewrite", tmp_path, {"nodes.work.rounds": 1}).right == [False, False, True]
    assert tried("gen_rewrite", tmp_path, {f"{SWEEP}.keep.into": "elsewhere"}).right == [False, False, True]
    kept = "[{'rule': rule, 'query': query}] if speedup > 1 else []"
    pair = "[query, rewrite] if speedup >= 2 else []"
    source = f"def judge(query, rewrite, rule, speedup): return {{'result': {pair}, 'learned': {kept}}}"
    assert tried("gen_rewrite", tmp_path, {f"{SWEEP}.judge.source": source}).right == [False, True, True]


#: A setting of each file that its search changes, and a value with which it is wrong.
POOR: dict[str, tuple[str, Any]] = {
    "knowledge_cache": ("nodes.answer.instructions", "Answer."),
    "arigraph": ("nodes.near.links", 0),
    "research_code_agent": ("nodes.work.rounds", 4),
    "toolshed": ("nodes.look.of.candidates", 1),
    "dare": ("nodes.choose.instructions", "Answer."),
    "own_examples": ("nodes.play.nodes.look.k", 0),
    "graph_team": ("nodes.answer.instructions", "Answer."),
    "mobile_agent": ("nodes.use.nodes.next.instructions", "What next?"),
    "omni_search": ("nodes.answer.instructions", "Answer."),
    "vidorag": ("nodes.look.rounds", 1),
    "gen_rewrite": (f"{SWEEP}.mend.rounds", 1),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ("toolshed", "own_examples") else pytest.mark.slow) for n in POOR]
)
def test_the_search_of_each_file_finds_what_makes_it_right(name: str, tmp_path: Path) -> None:
    address, poor = POOR[name]
    report = searched(name, address, poor, tmp_path)
    assert report.baseline["val"] < 1.0 == report.best["val"] and report.winner.get(address) != poor
