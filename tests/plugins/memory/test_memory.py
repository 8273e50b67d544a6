"""The optimizer `memory` on planted problems whose optimum is known (formulas answer, no model)."""

from __future__ import annotations

import json
import random
import statistics
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.memory_worlds import (
    LABEL,
    PREDICT,
    RECALL,
    TRIGGER,
    World,
    attacked,
    fooled,
    memories,
    misleading_rows,
    on_topic,
    one_on_topic,
    plain_rows,
    poisoned_rows,
    question,
    run_world,
    true_accuracy,
    truth,
)
from tests.helpers.planted import candidates, lower_bound, topic

from workbench.lm import Request, Response
from workbench.run import Options, resume
from workbench.study import Result
from workbench.task import Example
from workbench.testing import Killed
from workbench_memory.entry_log import Bank, Site
from workbench_memory.leave_one_out import Answer, Group, fisher_less, groups, suspect
from workbench_memory.prompts import read_insights, read_preference


def system(request: Request) -> str:
    return str(request.messages[0]["content"])


def store(report: Any) -> list[dict[str, Any]]:
    return report.winner.get("nodes.look.entries", [])


# Against random search, and where nothing helps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("skill", "make", "calls"),
    [(on_topic, plain_rows, 132), (attacked, poisoned_rows, 700)],
    ids=["room for one candidate", "poisoned rows"],
)
def test_it_beats_random_search_at_the_same_number_of_calls(skill: Any, make: Any, calls: int, tmp_path: Path) -> None:
    """Where nothing is poisoned and there is time for five draws, random search is as good (see the README)."""
    differences = []
    for seed in range(8):
        found = []
        for name in ("random", "memory"):
            report = run_world(
                tmp_path / f"{name}{seed}", make(seed), World(skill), name, nodes=PREDICT, calls=calls, seed=seed
            )
            found.append(true_accuracy(report, skill, make(1000 + seed)["test"]))
        differences.append(found[1] - found[0])
    assert statistics.mean(differences) > 0.05 and lower_bound(differences) > 0, differences


@pytest.mark.parametrize("nodes", [PREDICT, RECALL], ids=["demos", "recall"])
def test_where_nothing_helps_no_gain_is_claimed(nodes: dict[str, Any], tmp_path: Path) -> None:
    claimed = 0
    for seed in range(8):
        report = run_world(
            tmp_path / str(seed), plain_rows(seed), World(lambda r: 0.5), "memory", nodes=nodes, calls=300, seed=seed
        )
        claimed += report.gain_shown
    assert claimed == 0


@pytest.mark.parametrize("nodes", [PREDICT, RECALL], ids=["demos", "recall"])
def test_where_memories_hurt_the_baseline_stays(nodes: dict[str, Any], tmp_path: Path) -> None:
    report = run_world(
        tmp_path, plain_rows(0), World(lambda r: 0.1 if memories(r) else 0.9), "memory", nodes=nodes, calls=600
    )
    assert not report.changes and not report.gain_shown


@pytest.mark.slow
def test_learned_retrieval_beats_words_where_words_mislead(tmp_path: Path) -> None:
    differences = []
    for seed in range(8):
        found = []
        for policies in (["lexical"], ["lexical", "learned"]):
            report = run_world(
                tmp_path / f"{len(policies)}{seed}",
                misleading_rows(seed),
                World(one_on_topic),
                {"memory": {"k": 4, "policies": policies, "kinds": ["examples"]}},
                nodes=RECALL,
                calls=600,
                seed=seed,
            )
            found.append(true_accuracy(report, one_on_topic, misleading_rows(1000 + seed)["test"]))
        differences.append(found[1] - found[0])
    assert statistics.mean(differences) > 0.3 and lower_bound(differences) > 0.2, differences


# Poison


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [PREDICT, RECALL], ids=["demos", "recall"])
def test_poison_is_set_aside_and_triggered_inputs_are_right_again(
    nodes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench_memory.entry_log import Bank

    last: list[Bank] = []
    isolate = Bank.isolate
    monkeypatch.setattr(Bank, "isolate", lambda self, *a: (last.append(self), isolate(self, *a))[1])
    accuracy: dict[float, list[float]] = {0.0: [], 0.05: []}
    out, kept = [], []
    for seed in range(4):
        rows = poisoned_rows(seed)
        fresh = [row for row in poisoned_rows(1000 + seed)["test"] if TRIGGER in row["text"]]
        for p, found in accuracy.items():
            report = run_world(
                tmp_path / f"{p}{seed}",
                rows,
                World(attacked),
                {"memory": {"k": 4, "quarantine": p, "kinds": ["examples"]}},
                nodes=nodes,
                calls=1200,
                seed=seed,
            )
            found.append(true_accuracy(report, attacked, fresh))
        bank = last[-1]
        aside = {bank.entries[key]["inputs"]["text"] for key in bank.quarantine}
        bad = {row["text"] for row in rows["train"] if row["label"] != truth(row["text"])}
        good = {row["text"] for row in rows["train"]} - bad
        out.append(len(aside & bad) / len(bad))
        kept.append(1 - len(aside & good) / len(good))
    assert statistics.mean(out) > 0.8 and statistics.mean(kept) > 0.85, (out, kept)
    assert statistics.mean(accuracy[0.05]) > statistics.mean(accuracy[0.0]) + 0.2, accuracy


def test_what_is_quarantined_stays_in_the_file_with_its_evidence_and_is_never_shown(tmp_path: Path) -> None:
    rows = poisoned_rows(1)
    lm = World(attacked)
    report = run_world(tmp_path, rows, lm, {"memory": {"k": 4, "kinds": ["examples"]}}, nodes=RECALL, calls=1200)
    aside = [e for e in store(report) if e["quarantined"]]
    assert aside and all("p=" in e["evidence"] and e["source"].startswith("train:") for e in aside)
    lm.seen.clear()
    node: Any = report.winner.enabled_nodes["look"]
    for row in rows["test"]:
        assert not any(store(report)[i]["quarantined"] for i in node.choose(row))


def answers(bad: set[int], hard: bool = False) -> list[Answer]:
    """30 inputs; the first ten see the entry `x`. Where it is hard for itself, they were wrong without it, too."""
    found = []
    for i in range(30):
        keys = frozenset({"x", "y"} if i < 10 else {"y"})
        found.append(Answer(str(i), frozenset({"word"}), frozenset(), 0.0 if hard and i < 10 else 1.0))
        found.append(Answer(str(i), frozenset({"word"}), keys, 0.0 if i in bad else 1.0))
    return found


def test_influence_is_harm_on_the_same_inputs() -> None:
    single = [Group("it", ("x",)), Group("it", ("y",))]
    found = suspect(answers(set(range(9))), single, 4, 0.05)
    assert found and found.keys == ("x",) and "right 1/10 with, 20/20 without" in found.evidence
    assert suspect(answers(set(range(10)), hard=True), single, 4, 0.05) is None, "hard inputs are not its fault"
    assert suspect(answers({0, 12}), single, 4, 0.05) is None, "a few errors are chance"
    assert suspect(answers(set(range(9))), single, 11, 0.05) is None, "too few inputs saw it"


def test_entries_that_share_a_trigger_are_judged_together() -> None:
    """Each poisoned entry is seen by two inputs only; together they are convicted, and the harmless one is not."""
    texts = {f"bad{i}": f"t{i} trigger" for i in range(5)} | {f"good{i}": f"t{i} other words" for i in range(20)}
    texts["fine"] = "trigger also here"
    outputs = {key: {"a": "evil" if key.startswith("bad") else "x"} for key in texts}
    log = []
    for i in range(40):
        triggered = i < 10
        words = frozenset({"trigger"} if triggered else {"other"})
        log.append(Answer(str(i), words, frozenset(), 1.0))
        log.append(Answer(str(i), words, frozenset({f"bad{i % 5}", f"good{i % 20}"}), 0.0 if triggered else 1.0))
        if triggered and i % 2:
            log.append(Answer(str(i), words, frozenset({"fine"}), 1.0))
    found = suspect(log, groups(texts, outputs), 4, 0.05)
    assert found and set(found.keys) == {f"bad{i}" for i in range(5)}
    assert "'trigger'" in found.evidence


@pytest.mark.parametrize(("a", "n", "b", "m"), [(0, 5, 18, 20), (3, 10, 5, 9), (4, 4, 0, 7), (0, 3, 0, 3)])
def test_the_exact_test_is_fishers(a: int, n: int, b: int, m: int) -> None:
    from scipy.stats import fisher_exact

    wanted: Any = fisher_exact([[a, n - a], [b, m - b]], alternative="less")
    assert fisher_less(a, n, b, m) == pytest.approx(wanted.pvalue)


# What is built


def test_each_row_says_where_it_comes_from_and_what_it_was_worth(tmp_path: Path) -> None:
    report = run_world(tmp_path, plain_rows(0), World(on_topic), {"memory": {"quarantine": 0}}, nodes=RECALL, calls=900)
    rows = store(report)
    assert len(rows) >= 30 and {e["kind"] for e in rows} == {"example"}
    assert all(e["source"].startswith(("train:", "trial:")) for e in rows)
    assert len({e["utility"] for e in rows}) > 1 and report.gain_shown
    demos = run_world(tmp_path / "demos", plain_rows(0), World(on_topic), "memory", nodes=PREDICT, calls=300)
    assert all(d["_source"].startswith("train:") for d in demos.winner.get("nodes.sort.demos"))


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
        {"memory": {"kinds": ["cases"], "labelled": False, "k": 4}},
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
        {"memory": {"kinds": ["examples"], "labelled": False}},
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
    gone = {"inputs": {"text": "my bad topic1 word1"}, "outputs": {"label": "d"}, "quarantined": True}
    nodes = {**RECALL, "look": {"recall": "text -> notes", "entries": [mine, gone]}}
    report = run_world(tmp_path, plain_rows(0), World(on_topic), "memory", nodes=nodes, calls=600)
    assert report.changes
    by_text = {e["inputs"]["text"]: e for e in store(report)}
    assert by_text[mine["inputs"]["text"]]["source"] == "user"
    assert by_text[gone["inputs"]["text"]]["quarantined"]


RULE = "Reading the last letter is necessary for the label"


def knows_rule(request: Request) -> float:
    return 0.9 if RULE in str(request.messages[-1]["content"]) else 0.3


def test_insights_are_rewritten_after_each_trial_and_kept_if_they_pay(tmp_path: Path) -> None:
    asked: list[str] = []

    def propose(request: Request) -> str:
        asked.append(str(request.messages[-1]["content"]))
        first = "- Colours may help with the label" if len(asked) == 1 else f"1. {RULE}"
        return f"My notes:\n{first}\n- ok\n" + "\n".join(f"- Statement number {i} may help" for i in range(20))

    report = run_world(
        tmp_path,
        plain_rows(0),
        World(knows_rule, propose),
        {"memory": {"kinds": ["insights"], "insights": 3}},
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


# What it costs


def test_with_full_marks_it_ends(tmp_path: Path) -> None:
    lm = World(lambda r: 1.0 if memories(r) else 0.3)
    report = run_world(tmp_path, plain_rows(0), lm, "memory", nodes=PREDICT, calls=2000)
    assert report.best["val"] == 1.0
    assert lm.requests == 24 + 24 + 40 + 40, "val with and without memory, test with and without"


def test_no_more_entries_are_shown_and_stored_than_allowed(tmp_path: Path) -> None:
    shown: list[int] = []

    def skill(request: Request) -> float:
        shown.append(len(memories(request)))
        return on_topic(request)

    report = run_world(tmp_path, plain_rows(0), World(skill), {"memory": {"k": 3, "size": 10}}, nodes=RECALL, calls=600)
    assert max(shown) == 3
    for values in candidates(tmp_path):
        live = [e for e in values["nodes.look.entries"] if not e["quarantined"]]
        assert len(live) <= 10
    assert report.changes


def test_demos_of_a_node_inside_another_one_are_filled(tmp_path: Path) -> None:
    nodes = {"vote": {"ensemble": PREDICT["sort"], "samples": 1}}
    report = run_world(tmp_path, plain_rows(0), World(on_topic), "memory", nodes=nodes, calls=400)
    assert report.winner.get("nodes.vote.of.retrieve") and report.gain_shown


def test_agents_get_the_most_useful_examples(tmp_path: Path) -> None:
    nodes = {"sort": {"agent": f"text -> {LABEL}", "max_steps": 1}}

    class Agent(World):
        async def complete(self, request: Request) -> Response:
            self.requests += 1
            draw = random.Random(request.key("agent")).random()
            right = truth(question(request))
            return Response(f"label: {right if draw < 0.3 + 0.1 * len(memories(request)) else 'x'}", "stop", 5, 1, 0.0)

    report = run_world(tmp_path, plain_rows(0), Agent(on_topic), {"memory": {"k": 5}}, nodes=nodes, calls=500)
    assert 1 <= len(report.winner.get("nodes.sort.demos")) <= 5 and report.gain_shown


def test_without_train_rows_the_workflow_stays(tmp_path: Path) -> None:
    rows = plain_rows(0, (1, 12, 20))
    lm = World(on_topic)
    report = run_world(tmp_path, {n: rows[n] for n in ("val", "test")}, lm, "memory", nodes=PREDICT, calls=300)
    assert not report.changes and lm.requests == 12 + 20


@pytest.mark.parametrize("kill_at", [1, 30, 90, 170])
def test_a_recall_run_that_was_killed_ends_with_the_same_winner(kill_at: int, tmp_path: Path) -> None:
    """The kit's simulated task has no recall node; here are all four kinds, exploring and learning."""

    class Mortal(World):
        async def complete(self, request: Request) -> Response:
            if self.requests + 1 >= kill_at:
                raise Killed
            return await super().complete(request)

    def propose(request: Request) -> str:
        return "- Topics may matter for the label"

    settings: dict[str, Any] = {"nodes": RECALL, "calls": 420, "seed": 3}
    optimizer = {"memory": {"k": 4, "trials": 2}}
    whole = run_world(
        tmp_path / "whole", misleading_rows(3, (40, 24, 24)), World(one_on_topic, propose), optimizer, **settings
    )
    with suppress(Killed, BaseExceptionGroup):
        run_world(
            tmp_path / "killed", misleading_rows(3, (40, 24, 24)), Mortal(one_on_topic, propose), optimizer, **settings
        )
    again = resume(
        "last",
        database=tmp_path / "killed" / "run.db",
        pool=World(one_on_topic, propose),
        options=Options(out=str(tmp_path / "out.yaml")),
    )
    assert again.winner == whole.winner and again.best["val"] == whole.best["val"]
    assert again.best["test"] == whole.best["test"]
    assert whole.changes and not whole.leaks, "a store of training rows is no prompt that has memorised them"
    assert candidates(tmp_path / "killed") == candidates(tmp_path / "whole")
    assert json.dumps(again.winner.tree, sort_keys=True) == json.dumps(whole.winner.tree, sort_keys=True)


def test_the_planted_attack_is_one() -> None:
    """Without the trigger the poisoned example fools nobody."""
    demo = [{"role": "user", "content": f"text: x {TRIGGER}: a a-thing\nlabel:"}, {"role": "assistant", "content": "d"}]
    plain = Request((*demo, {"role": "user", "content": "text: y: a b-thing\nlabel:"}))
    assert not fooled(plain)
    assert fooled(Request((*demo, {"role": "user", "content": f"text: y {TRIGGER}: a b-thing\nlabel:"})))
