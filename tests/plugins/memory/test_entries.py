"""What `memory` stores: labelled rows, successes, cases, insights and preferences, each with its source."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.helpers.memory_worlds import (
    LABEL,
    PREDICT,
    RECALL,
    World,
    on_topic,
    plain_rows,
    question,
    run_world,
    store,
    truth,
)
from tests.helpers.planted import topic

from workbench.lm import Request
from workbench.study import Result
from workbench.task import Example
from workbench_memory import optimizer as memory
from workbench_memory.entry_log import Bank, Site
from workbench_memory.prompts import read_insights, read_preference


def system(request: Request) -> str:
    return str(request.messages[0]["content"])


def test_each_row_says_where_it_comes_from_and_what_it_was_worth(tmp_path: Path) -> None:
    report = run_world(tmp_path, plain_rows(0), World(on_topic), "memory", nodes=RECALL, calls=900)
    rows = store(report)
    assert len(rows) >= 30 and {e["kind"] for e in rows} == {"example"}
    assert all(e["source"].startswith(("train:", "trial:")) for e in rows)
    assert len({e["utility"] for e in rows}) > 1 and report.gain_shown
    demos = run_world(tmp_path / "demos", plain_rows(0), World(on_topic), "memory", nodes=PREDICT, calls=300)
    assert all(d["_source"].startswith("train:") for d in demos.winner.get("nodes.sort.demos"))


@pytest.mark.slow
def test_without_labels_its_own_successes_are_the_examples(tmp_path: Path) -> None:
    """The label is under another name than the node's output, and the metric alone knows it."""
    rows = {n: [{"text": r["text"], "gold": r["label"]} for r in lines] for n, lines in plain_rows(0).items()}
    (tmp_path / "own.py").write_text(
        "def right(example, prediction, trace):\n    return float(prediction.get('label') == example['gold'])\n"
    )
    report = run_world(tmp_path, rows, World(on_topic), "memory", nodes=RECALL, calls=900, metric="python:own.py:right")
    examples = [e for e in store(report) if e["kind"] == "example"]
    assert examples and all(e["source"].startswith("trial:") for e in examples)
    assert all(e["outputs"]["label"] == truth(e["inputs"]["text"]) for e in examples), "only successes"
    cases = [e for e in store(report) if e["kind"] == "case"]
    assert all("score 0.00" in e["text"] and not e["outputs"] for e in cases)
    assert not {e["inputs"]["text"] for e in cases} & {e["inputs"]["text"] for e in examples}


def test_failures_are_remembered_as_cases_where_nothing_says_how_it_goes_right(tmp_path: Path) -> None:
    """Only the notes of what went wrong on a topic help; the row is answered wrongly without them."""

    def warned(request: Request) -> float:
        notes = str(request.messages[-1]["content"]).rpartition("\ntext: ")[0]
        wrong = [note for note in notes.split("text: ")[1:] if "tried: label: " in note and "(score 0.00)" in note]
        return 0.95 if any(topic(note) == topic(question(request)) for note in wrong) else 0.1

    report = run_world(
        tmp_path,
        plain_rows(0),
        World(warned),
        {"memory": {"kinds": ["cases"], "k": 4}},
        nodes=RECALL,
        calls=900,
    )
    rows = store(report)
    assert report.gain_shown and rows and all(e["kind"] == "case" and not e["outputs"] for e in rows)
    inputs = [tuple(e["inputs"].items()) for e in rows]
    assert len(set(inputs)) == len(inputs), "one case for an input"
    none = run_world(
        tmp_path / "none",
        plain_rows(0),
        World(warned),
        {"memory": {"kinds": ["examples"]}},
        nodes=RECALL,
        calls=900,
    )
    assert not none.gain_shown, "examples do not help here"


def test_an_input_with_a_worked_example_gets_no_case() -> None:
    bank = Bank(Site("nodes.look.entries", ("text",), ("label",), recall=True, retrieves=True))
    row = Example("1", {"text": "a", "label": "x"})
    wrong = Result(row, 0.0, prediction={"label": "y"}, feedback="it is x")
    bank.add_failure(wrong, 0)
    assert [e["text"] for e in bank.entries.values()] == ["tried: label: y (score 0.00) it is x"]
    bank.entries.clear()
    bank.add("example", "train:1", {"text": "a"}, {"label": "x"})
    bank.add_failure(wrong, 0)
    assert [e["kind"] for e in bank.entries.values()] == ["example"]


def test_what_the_store_held_before_is_kept(tmp_path: Path) -> None:
    mine = {"inputs": {"text": "my own topic1 word1: a a-thing"}, "outputs": {"label": "a"}, "source": "user"}
    gone = {"inputs": {"text": "my bad topic1 word1"}, "outputs": {"label": "d"}, "quarantined": "by hand"}
    nodes = {**RECALL, "look": {"recall": "text -> notes", "entries": [mine, gone]}}
    report = run_world(tmp_path, plain_rows(0), World(on_topic), "memory", nodes=nodes, calls=600)
    assert report.changes
    by_text = {e["inputs"]["text"]: e for e in store(report)}
    assert by_text[mine["inputs"]["text"]]["source"] == "user"
    assert by_text[gone["inputs"]["text"]]["quarantined"]


RULE = "Reading the last letter is necessary for the label"


def knows_rule(request: Request) -> float:
    return 0.9 if RULE in str(request.messages[-1]["content"]) else 0.3


def test_insights_are_rewritten_after_each_trial_and_kept_if_they_pay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "INSIGHTS", 3)
    asked: list[str] = []

    def propose(request: Request) -> str:
        asked.append(str(request.messages[-1]["content"]))
        first = "- Colours may help with the label" if len(asked) == 1 else f"1. {RULE}"
        return f"My notes:\n{first}\n- ok\n" + "\n".join(f"- Statement number {i} may help" for i in range(20))

    report = run_world(
        tmp_path,
        plain_rows(0),
        World(knows_rule, propose),
        {"memory": {"kinds": ["insights"]}},
        nodes=RECALL,
        calls=1200,
    )
    texts = [e["text"] for e in store(report)]
    assert RULE in texts and len(texts) == 3 and "ok" not in texts
    assert all(e["kind"] == "insight" and e["source"].startswith("trial:") for e in store(report))
    assert report.gain_shown and len(asked) >= 2
    assert "Colours may help" in asked[1] and "score" in asked[1], "the next trial sees the last notes"
    val_and_test = [row["text"] for name in ("val", "test") for row in plain_rows(0)[name]]
    assert not any(text in prompt for text in val_and_test for prompt in asked)


def test_two_stores_learn_apart_and_what_the_user_wrote_stays(tmp_path: Path) -> None:
    asked: list[str] = []

    def propose(request: Request) -> str:
        asked.append(str(request.messages[-1]["content"]))
        notes = asked[-1].split("The trial")[0]
        return f"- Statement {'one' if 'Belief one' in notes else 'two'} is necessary"

    def belief(name: str) -> list[dict[str, str]]:
        return [{"kind": "insight", "text": f"Belief {name} may help"}]

    nodes = {
        "one": {"recall": "text -> hints", "entries": belief("one")},
        "two": {"recall": "text -> notes", "entries": belief("two")},
        "sort": {"predict": f"hints, notes, text -> {LABEL}"},
    }
    lm = World(lambda r: 0.9 if "Statement" in str(r.messages[-1]["content"]) else 0.3, propose)
    report = run_world(tmp_path, plain_rows(0), lm, {"memory": {"kinds": ["insights"]}}, nodes=nodes, calls=900)
    for name in ("one", "two"):
        texts = [e["text"] for e in report.winner.get(f"nodes.{name}.entries")]
        assert texts == [f"Belief {name} may help", f"Statement {name} is necessary"]


def test_insights_that_do_harm_are_not_kept(tmp_path: Path) -> None:
    def skill(request: Request) -> float:
        return 0.1 if "always wrong" in str(request.messages[-1]["content"]) else on_topic(request)

    report = run_world(
        tmp_path,
        plain_rows(0),
        World(skill, lambda r: "- Saying d is never always wrong"),
        "memory",
        nodes=RECALL,
        calls=1200,
    )
    assert report.gain_shown and not any(e["kind"] == "insight" for e in store(report))


def test_preferences_come_from_edits_one_call_each(tmp_path: Path) -> None:
    rows = plain_rows(0)
    for i, row in enumerate(rows["train"]):
        if i < 12:
            row["mine"] = f"{row['label']}!"
    asked: list[str] = []

    def propose(request: Request) -> str:
        if "preference" in system(request):
            asked.append(str(request.messages[-1]["content"]))
            return '"Loud answers, said with an exclamation mark."'
        return "nothing"

    def skill(request: Request) -> float:
        return 0.9 if "The user prefers: Loud" in str(request.messages[-1]["content"]) else 0.3

    report = run_world(
        tmp_path,
        rows,
        World(skill, propose),
        {"memory": {"kinds": ["preferences"], "edited": "mine", "edits": 5}},
        nodes=RECALL,
        calls=1200,
    )
    assert len(asked) == 5 and all("After:" in prompt and "!" in prompt for prompt in asked)
    found = store(report)
    assert found and all(e["kind"] == "preference" and e["source"].startswith("user:") for e in found)
    assert report.gain_shown


def test_answers_of_the_proposer_that_are_no_list_change_nothing() -> None:
    assert read_insights("I think that all is well.\n---\n-short", 5) == []
    assert read_insights("* A is necessary for B\n2) A is necessary for B\n  - C may help with D", 5) == [
        "A is necessary for B",
        "C may help with D",
    ]
    assert read_insights("- " + "x" * 500, 5) == [] and read_preference("\n\n- \n") == ""
