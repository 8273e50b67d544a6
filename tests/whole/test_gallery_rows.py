"""Published designs made of `loop`, `map` and `branch`: each is right, and wrong where its mechanism is taken out.

The numbers in the names are those of the documents that list the designs. The scripted model answers from what it is
shown, so a turn, a field or a source that is not there makes the answer wrong.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.gallery_loops import BOTH
from tests.helpers.gallery_speech import call
from tests.helpers.gallery_tried import GALLERY, Tried, searched, tried
from tests.helpers.scripted import Script, make_workflow, run_rows


def facts(count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """So many facts, half of them on who has what, and a question that takes two of them."""
    draw, half = random.Random(count), count // 2
    who = [f"P{i} has the animal{i}" for i in range(half)]
    colours = [draw.choice(("pink", "green", "blue", "white")) for _ in range(half)]
    asked = draw.randrange(half)
    what = [f"the animal{i} is {colour}" for i, colour in enumerate(colours)]
    question = f"Which color is the animal of P{asked}?"
    return {"facts": " . ".join([*who, *what]), "question": question}, {"answer": colours[asked]}


@pytest.mark.slow
def test_165_chain_of_agents_reads_any_length_because_notes_are_handed_on(tmp_path: Path) -> None:
    rows = [facts(4), facts(40), facts(400)]
    whole = tried("chain_of_agents", tmp_path, rows=rows)
    assert whole.right == [True] * 3
    assert [notes["rounds"] for notes in whole.notes("work")] == [1, 3, 33]
    at_once = {"nodes.cut.source": "def cut(facts): return [facts]"}
    assert tried("chain_of_agents", tmp_path, at_once, rows).right == [True, False, False]
    alone = {"nodes.work.of.signature": "question, piece -> notes"}
    assert tried("chain_of_agents", tmp_path, alone, rows).right == [True, False, False]


def test_157_mindsearch_asks_what_was_found_and_asks_at_once_what_can_be(tmp_path: Path) -> None:
    whole = tried("mindsearch", tmp_path)
    assert whole.right == [True] * 3
    assert [notes["rounds"] for notes in whole.notes("find")] == [3, 2, 2]  # the last wave is empty
    assert [len(run.prediction["asked"][0]) for run in whole.outcomes] == [1, 1, 4]
    assert tried("mindsearch", tmp_path, {"nodes.find.rounds": 1}).right == [False, True, True]
    blind = {"nodes.find.nodes.plan.signature": "question, asked -> queries: list[str]"}
    assert tried("mindsearch", tmp_path, blind).right == [False, True, True]
    one = {"nodes.find.nodes.look.most": 3}
    assert tried("mindsearch", tmp_path, one).right == [True, True, False]


@pytest.mark.slow
def test_180_long_writer_writes_twelve_points_because_it_sees_where_it_is(tmp_path: Path) -> None:
    assert tried("long_writer", tmp_path).right == [True, True]
    source = 'def plan(question): return [{"point": "p1", "words": 36}]'
    at_once = {"nodes.plan": {"kind": "code", "code": "question -> plan: list", "source": source}}
    assert tried("long_writer", tmp_path, at_once).right == [False, False]
    blind = {"nodes.write.of.signature": "question, plan, point, words -> paragraph"}
    assert tried("long_writer", tmp_path, blind).right == [True, False]


def test_142_reaper_plans_in_one_call_what_an_agent_asks_step_by_step(tmp_path: Path) -> None:
    whole = tried("reaper", tmp_path)
    assert whole.right == [True, True] and len(whole.script.requests) == 4  # two a row, whatever the number of steps
    places = {"kind": "tool", "tool": "python:corpus.py:search", "arguments": {"query": "ask"}, "output": "found"}
    assert tried("reaper", tmp_path, {"nodes.fetch.of": places}).right == [False, True]

    said = [call("search", query="lighthouse of Lorvik"), call("shell", command="cat notes.txt"), "answer: Mara Ilven"]
    script = Script(lambda request: said[len(script.requests) - 1])
    agent = {"agent": "question -> answer", "tools": ["python:corpus.py:search", "python:tools.py:shell"]}
    run_rows(make_workflow({"a": agent}, GALLERY), [{"question": BOTH}], script, tmp_path / "agent.db")
    assert len(script.requests) == 3


@pytest.mark.slow
def test_101_amber_sifts_before_it_remembers_and_ends_when_it_suffices(tmp_path: Path) -> None:
    whole = tried("amber", tmp_path)
    assert whole.right == [True] and whole.notes("gather") == [{"rounds": 2, "ended": "until"}]
    pages = {"nodes.gather.nodes.left.source": "def left(pages, useful): return pages"}
    assert tried("amber", tmp_path, pages).right == [False]
    sentences = {"nodes.gather.nodes.remember.signature": "question, memory, kept -> memory, enough: bool", **pages}
    assert tried("amber", tmp_path, sentences).right == [False]
    endless = tried("amber", tmp_path, {"nodes.gather.until": None})
    calls, more = (len(one.outcomes[0].trace.calls) for one in (whole, endless))
    assert endless.right == [True] and more > 1.7 * calls


def test_172_mag_sql_builds_on_the_query_before_and_mends_what_the_database_refuses(tmp_path: Path) -> None:
    whole = tried("mag_sql", tmp_path)
    assert whole.right == [True, True]
    queries = [s.notes["rounds"] for s in whole.outcomes[0].trace.spans if s.node == "write.nodes.query"]
    assert queries == [1, 2]  # the second sub-query names a missing column at first
    assert tried("mag_sql", tmp_path, {"nodes.write.nodes.query.rounds": 1}).right == [False, True]
    signature = "schema, columns, part, outcome -> sql"
    alone = {"nodes.write.nodes.query.nodes.draft.signature": signature}
    assert tried("mag_sql", tmp_path, alone).right == [False, True]


@pytest.mark.slow
def test_15_aries_fits_its_moves_to_the_thoughts_where_a_schedule_fails_or_wastes(tmp_path: Path) -> None:
    def solved(one: Tried) -> int:
        return sum(span.node.endswith("solve.of") for run in one.outcomes for span in run.trace.spans)

    whole = tried("aries", tmp_path)
    assert whole.right == [True] * 3 and solved(whole) == 1 + 3 + 7
    long = ["split", "split", "solve", "merge", "split", "solve", "merge", "solve"]
    schedules = {
        ("solve", "stop"): [True, False, False],
        ("split", "solve", "merge", "solve", "stop"): [True, True, False],
        tuple(long): [True] * 3,
    }
    for schedule, right in schedules.items():
        source = f"def move(done): return {schedule}[len(done)]"
        fixed = {"nodes.think.nodes.policy": {"kind": "code", "code": "done: list -> move", "source": source}}
        one = tried("aries", tmp_path, fixed)
        assert one.right == right
        assert not all(right) or solved(one) > 1.5 * solved(whole)


@pytest.mark.slow
def test_13_autoflow_jumps_as_its_program_says(tmp_path: Path) -> None:
    whole = tried("autoflow", tmp_path)
    assert whole.right == [True] * 3 and [notes["rounds"] for notes in whole.notes("work")] == [7, 5, 11]
    blind = {"nodes.work.nodes.step.signature": "question, notes -> notes, line: int"}
    assert tried("autoflow", tmp_path, blind).right == [False] * 3
    assert tried("autoflow", tmp_path, {"nodes.work.rounds": 3}).right == [False, True, False]


@pytest.mark.slow
def test_190_two_heads_talk_as_long_and_think_as_deep_as_the_chief_says(tmp_path: Path) -> None:
    whole = tried("two_heads", tmp_path)
    assert whole.right == [True, True] and [notes["rounds"] for notes in whole.notes("discuss")] == [2, 6]
    source = "def chief(talk): return {'speaker': 'solver', 'depth': 'shallow'}"
    chief = {"kind": "code", "code": "talk -> speaker, depth", "source": source}
    for rounds, right in ((2, [True, False]), (5, [False, False])):
        fixed = {"nodes.discuss.nodes.chief": chief, "nodes.discuss.rounds": rounds}
        assert tried("two_heads", tmp_path, fixed).right == right
    shallow = {"nodes.discuss.nodes.turn.cases.checker.signature": "question, talk -> said"}
    assert tried("two_heads", tmp_path, shallow).right == [True, False]


@pytest.mark.slow
def test_196_iagents_keep_their_facts_and_talk_until_nothing_is_open(tmp_path: Path) -> None:
    whole = tried("iagents", tmp_path)
    assert whole.right == [True] * 3
    for request in whole.script.requests:
        knows = [
            name for name in ("ann", "bob", "cid") if f"\n{name}_knows: " in f"\n{request.messages[-1]['content']}"
        ]
        assert len(knows) <= 1, "each sees the facts of its own person alone"
    forgets = {"nodes.talk.nodes.navigate.signature": "question, said_so_far, said -> open: list[str]"}
    early = tried("iagents", tmp_path, forgets)
    assert early.right == [False] * 3 and {notes["rounds"] for notes in early.notes("talk")} == {1}


def test_197_sibyl_mends_what_one_juror_finds_because_the_others_hear_it(tmp_path: Path) -> None:
    whole = tried("sibyl", tmp_path)
    assert whole.right == [True] and whole.notes("settle") == [{"rounds": 2, "ended": "until"}]
    asked = {"predict": "question, workspace, answer -> fault"}
    jurors = [{**asked, "instructions": f"You check the {seen}."} for seen in ("sources", "logic", "form")]
    vote = {"nodes.settle.nodes.jury": {"kind": "ensemble", "of": jurors, "samples": 1}}
    assert tried("sibyl", tmp_path, vote).right == [False]
    assert tried("sibyl", tmp_path, {"nodes.settle.rounds": 1}).right == [False]
    assert tried("sibyl", tmp_path, {"nodes.explore.rounds": 1}).right == [False]


@pytest.mark.slow
def test_147_hm_rag_votes_over_sources_of_which_each_is_wrong_once(tmp_path: Path) -> None:
    assert tried("hm_rag", tmp_path).right == [True] * 3
    for field, right in (
        ("first", [True, True, False]),
        ("second", [True, False, True]),
        ("third", [False, False, True]),
    ):
        source = f"def vote(first, second, third): return {{'most': {field}.lower(), 'agreed': True}}"
        assert tried("hm_rag", tmp_path, {"nodes.look_up.nodes.vote.source": source}).right == right
    expert = {"code": "first -> finding", "source": "def settle(first): return 'unknown'"}
    without = {"nodes.look_up.nodes.settle.cases.False": {"kind": "code", **expert}}
    assert tried("hm_rag", tmp_path, without).right == [True, False, True]


def test_193_codetree_refines_what_passes_the_test_and_not_the_critic(tmp_path: Path) -> None:
    assert tried("codetree", tmp_path).right == [True, True]
    # By the test alone the first answer with the right last digit is taken.
    assert tried("codetree", tmp_path, {"nodes.solve.until": "score >= 0.5"}).right == [False, False]
    # With one strategy there is nothing to go back to.
    assert tried("codetree", tmp_path, {"nodes.solve.branching": 1, "nodes.solve.evaluations": 8}).right == [
        False,
        False,
    ]
    blind = {"nodes.solve.of.cases.refine.signature": "question, plan -> answer"}
    assert tried("codetree", tmp_path, blind).right == [False, False]


def test_125_swe_search_reads_the_value_in_words_and_debates_the_finished(tmp_path: Path) -> None:
    whole = tried("swe_search", tmp_path)
    assert whole.right == [True, True] and [n["states"] for n in whole.notes("search")] == [3, 3]
    assert tried("swe_search", tmp_path, {"nodes.search.of.signature": "question, patch -> patch"}).right == [False] * 2
    first = {"nodes.decide": {"kind": "code", "code": "patch -> answer", "source": "def take(patch): return patch"}}
    assert tried("swe_search", tmp_path, first).right == [False, False], "of equal scores the first"


def test_056_se_agent_recombines_what_no_trajectory_has_alone(tmp_path: Path) -> None:
    assert tried("se_agent", tmp_path).right == [True, True]
    one = {"nodes.start.source": "def start(question): return ['from the left']"}
    assert tried("se_agent", tmp_path, one).right == [False, False]
    alone = {"nodes.recombine.instructions": "Take the first.", "nodes.refine.signature": "question, pool -> answer"}
    assert tried("se_agent", tmp_path, alone).right == [False, False]
    rough = {"nodes.revise.gather": {"pool": "revised"}, "nodes.revise.of.instructions": "Repeat it."}
    assert tried("se_agent", tmp_path, rough).right == [False, False]


#: A setting of each file that its search changes, and a value with which it is wrong.
POOR: dict[str, tuple[str, Any]] = {
    "chain_of_agents": ("nodes.manager.instructions", "Answer."),
    "mindsearch": ("nodes.write.instructions", "Answer in a few words."),
    "long_writer": ("nodes.write.of.instructions", "Write."),
    "reaper": ("nodes.write.instructions", "Answer."),
    "amber": ("nodes.answer.instructions", "Answer."),
    "mag_sql": ("nodes.write.nodes.query.rounds", 1),
    "aries": ("nodes.think.nodes.act.cases.solve.of.instructions", "Solve it."),
    "autoflow": ("nodes.work.nodes.step.instructions", "Add the numbers. Write the total, and 0."),
    "two_heads": ("nodes.answer.instructions", "Answer."),
    "iagents": ("nodes.answer.instructions", "Answer."),
    "sibyl": ("nodes.settle.rounds", 1),
    "hm_rag": ("nodes.write.instructions", "Answer."),
    "codetree": ("nodes.solve.until", "score >= 0.5"),
    "swe_search": ("nodes.search.evaluations", 1),
    "se_agent": ("nodes.start.source", "def start(question): return ['from the left']"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ("mag_sql", "reaper") else pytest.mark.slow) for n in POOR]
)
def test_the_search_of_each_file_finds_what_makes_it_right(name: str, tmp_path: Path) -> None:
    address, poor = POOR[name]
    report = searched(name, address, poor, tmp_path)
    assert report.baseline["val"] < 1.0 == report.best["val"] and report.winner.get(address) != poor
