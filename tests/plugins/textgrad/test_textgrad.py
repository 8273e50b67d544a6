"""The optimizer `textgrad`: blame on planted workflows of several nodes, the rule of roll-back, planted worlds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers.planted import LABELS, lower_bound
from tests.helpers.scripted import Script, make_workflow
from tests.helpers.textgrad_runs import GRADIENT, ONE, REWRITE, asked, run, text_of

from workbench.lm import Request
from workbench_bench.run_world import run_world
from workbench_bench.worlds import WORLDS
from workbench_textgrad.backward import layers_of
from workbench_textgrad.optimizer import STREAK
from workbench_textgrad.prompts import Gradient, enabled_by, read_gradient, read_tools

# Three nodes: `find` reads the thing, the tool spells it large, `name` labels it. One of the prompts is at fault.

NODES = {
    "find": {"predict": "text -> thing", "instructions": "Find it."},
    "spell": {"tool": "python:tools.py:large", "arguments": {"thing": "thing"}, "output": "spelt"},
    "name": {"predict": f"spelt -> label: Literal{list(LABELS)}", "instructions": "Name it."},
}


def layered(faulty: str) -> Callable[[Request], str]:
    """`find` and `name` are right, but the faulty one only where its prompt says so. The critic compares what a step
    got with what it gave, and blames only what it sees."""

    def answer(step: str, prompt: str, right: str) -> str:
        return right if step != faulty or "with care" in prompt else LABELS[(LABELS.index(right) + 1) % 4]

    def say(request: Request) -> str:
        text = text_of(request)
        if "Its final outputs" in text:
            return "The labels are wrong."
        if GRADIENT in text:
            got = re.findall(r"task: (\{.*?\}); answer: (\{.*?\})", text)
            if "The step 'find'" in text:
                wrong = [g for g, a in got if json.loads(a)["thing"] != g.split("-thing")[0][-1]]
                assert "name: the letter is another one" in text, "it hears what the reader says, through the tool"
                return "step: read with care" if wrong else "step: none"
            wrong = [g for g, a in got if json.loads(a)["label"] != json.loads(g)["spelt"].lower()]
            return f"step: {'name with care' if wrong else 'none'}\ninputs: the letter is another one"
        if "between <prompt>" in text:
            return f"<prompt>\nDo it{' with care' if 'with care' in text.split('Advice')[-1] else ''}.\n</prompt>"
        prompt, question = str(request.messages[0]["content"]), str(request.messages[-1]["content"])
        if "text:" in question:
            return answer("find", prompt, question.split("-thing")[0][-1])
        return answer("name", prompt, question.split("spelt: ")[1][0].lower())

    return say


@pytest.mark.parametrize(("faulty", "other"), [("find", "name"), ("name", "find")])
def test_blame_hits_the_faulty_node_and_the_other_keeps_its_prompt(faulty: str, other: str, tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def large(thing):\n    return thing.upper()\n")
    report, script = run(tmp_path, NODES, layered(faulty))
    assert report.winner.get(f"nodes.{faulty}.instructions") == "Do it with care."
    assert report.winner.get(f"nodes.{other}.instructions") == NODES[other]["instructions"]
    assert report.best["test"]["score"] == 1.0 and report.gain_shown
    assert not asked(script, REWRITE, other) and len(asked(script, REWRITE, faulty)) == 1
    assert not asked(script, GRADIENT, "spell"), "a tool has nothing to learn"
    asked_of_proposer = [t for t in asked(script, "") if t.startswith(("A workflow", "You write"))]
    assert len(asked_of_proposer) >= 3 and not any("val row" in t or "test row" in t for t in asked_of_proposer)


def test_a_node_that_nobody_blames_is_not_asked(tmp_path: Path) -> None:
    def content(request: Request) -> str:
        answer = layered("name")(request)
        return answer.split("\n")[0] + "\ninputs: none" if GRADIENT in text_of(request) else answer

    (tmp_path / "tools.py").write_text("def large(thing):\n    return thing.upper()\n")
    report, script = run(tmp_path, NODES, content)
    assert asked(script, GRADIENT, "name") and not asked(script, GRADIENT, "find")
    assert report.best["test"]["score"] == 1.0


def test_where_each_step_declines_the_last_one_is_rewritten(tmp_path: Path) -> None:
    def decline(request: Request) -> str:
        text = text_of(request)
        if GRADIENT in text:
            return "step: none\ninputs: none"
        return "Name with care." if "Its final outputs" in text else layered("name")(request)

    (tmp_path / "tools.py").write_text("def large(thing):\n    return thing.upper()\n")
    report, script = run(tmp_path, NODES, decline)
    assert asked(script, GRADIENT, "name") and not asked(script, REWRITE, "find")
    assert report.winner.get("nodes.name.instructions") == "Do it with care."


def test_a_node_that_fails_is_blamed_though_nobody_could_read_it(tmp_path: Path) -> None:
    def empty(request: Request) -> str:
        text = text_of(request)
        if GRADIENT in text:
            return "step: give one with care" if "It failed: empty" in text else "step: none"
        return "" if text.startswith("Find it.") else layered("find")(request)

    (tmp_path / "tools.py").write_text("def large(thing):\n    return thing.upper()\n")
    report, script = run(tmp_path, NODES, empty)
    assert report.winner.get("nodes.find.instructions") == "Do it with care."
    assert report.best["test"]["score"] == 1.0 and not asked(script, GRADIENT, "name")


def test_the_backward_order_is_the_reverse_of_the_graphs(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def large(thing):\n    return thing.upper()\n")
    layers = layers_of(make_workflow({k: NODES[k] for k in ("name", "find", "spell")}, tmp_path))
    assert list(layers) == ["name", "spell", "find"] and [layer.learns for layer in layers.values()] == [
        True,
        False,
        True,
    ]


def test_prompts_of_nodes_inside_nodes_are_learned_and_a_judge_that_was_not_asked_is_not(tmp_path: Path) -> None:
    nodes = {
        "team": {
            "ensemble": {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": "Name it."},
            "samples": 2,
        }
    }

    def say(request: Request) -> str:
        text = text_of(request)
        if "between <prompt>" in text:
            return "<prompt>\nDo it with care.\n</prompt>"
        if not text.rstrip().endswith("label:"):
            return "Take more care."
        right = text.split("-thing")[-2][-1]
        return right if "with care" in text else LABELS[(LABELS.index(right) + 1) % 4]

    report, script = run(tmp_path, nodes, say)
    assert report.winner.get("nodes.team.of.instructions") == "Do it with care."
    assert report.winner.get("nodes.team.judge", None) is None and len(asked(script, REWRITE)) == 1


# Roll-back


def versions(right: Callable[[int, int], bool]) -> Callable[[Request], str]:
    """Each rewrite counts the version up. right(version, row number of train) says what is answered rightly."""
    newest = [0]

    def say(request: Request) -> str:
        text = text_of(request)
        if "between <prompt>" in text:
            newest[0] += 1
            return f"<prompt>\nVersion {newest[0]}.\n</prompt>"
        if not text.rstrip().endswith("label:"):
            return "Count up."
        found = re.search(r"Version (\d+)", text), re.search(r"row (\d+)", text)
        assert found[0] and found[1]
        letter = text.split("-thing")[0][-1]
        good = right(int(found[0].group(1)), int(found[1].group(1)))
        return letter if good else LABELS[(LABELS.index(letter) + 1) % 4]

    return say


def started_from(script: Script) -> list[int]:
    return [int(re.findall(r"<prompt>\nVersion (\d+)", t)[0]) for t in asked(script, REWRITE)]


def test_a_harder_batch_undoes_nothing(tmp_path: Path) -> None:
    """All versions are equal; a third of the rows is never answered rightly, and batches have more or fewer of them."""
    _, script = run(tmp_path, ONE, versions(lambda version, row: row % 3 > 0), steps=6, batch=4, patience=9)
    begun = started_from(script)
    assert len(begun) >= 5 and begun == list(range(len(begun)))


def test_what_is_worse_on_the_same_batch_is_undone(tmp_path: Path) -> None:
    """Version 2 loses what version 1 could, on any batch."""
    report, script = run(tmp_path, ONE, versions(lambda version, row: version != 2 and row % 4 > 0), steps=5, batch=8)
    begun = started_from(script)
    assert begun[:2] == [0, 1] and 2 not in begun and begun[2] == 1, begun
    assert report.winner.get("nodes.sort.instructions") != "Version 2."


def test_what_scores_no_less_than_the_last_batch_stays_even_if_the_old_would_do_better(tmp_path: Path) -> None:
    """Version 0 fails on the first batch and would be right on the second one; version 1 is right on half of it."""
    later = [False]

    def right(version: int, row: int) -> bool:
        later[0] = later[0] or version > 0
        return row % 2 == 0 if version else later[0]

    _, script = run(tmp_path, ONE, versions(right), steps=2, batch=12)
    assert started_from(script) == [0, 1]


def test_good_batches_end_it_and_steps_without_effect_do(tmp_path: Path) -> None:
    for name in ("good", "idle"):
        (tmp_path / name).mkdir()
    _, script = run(tmp_path / "good", ONE, versions(lambda v, r: True), batch=6)
    assert not asked(script, REWRITE) and len(script.requests) <= 16 + STREAK * 6 + 16
    _, script = run(
        tmp_path / "idle", ONE, lambda r: "a" if text_of(r).endswith("label:") else "step: none", patience=2
    )
    assert len(asked(script, REWRITE)) == 2 and not asked(script, "", "step: none")
    assert not asked(script, GRADIENT), "the only step that learns is at fault"


def test_the_newest_solution_is_tried_on_val_where_the_budget_ends_the_search(tmp_path: Path) -> None:
    """98 calls pay for one step, and not for a second batch before val and test."""
    report, script = run(tmp_path, ONE, versions(lambda version, row: version > 0), calls=98, batch=12)
    assert len(asked(script, REWRITE)) == 1 and not any("train row" in t for t in asked(script, "Version 1.", ""))
    assert report.winner.get("nodes.sort.instructions") == "Version 1." and report.best["test"]["score"] == 1.0


# Tools
def test_descriptions_of_functions_are_learned(tmp_path: Path) -> None:
    source = "def look(text):\n    return text"
    nodes = {
        "solve": {
            "agent": "text -> label",
            "instructions": "Solve it.",
            "max_steps": 1,
            "functions": [{"name": "look", "description": "vague", "parameters": {}, "source": source}],
        }
    }

    def say(request: Request) -> str:
        text = text_of(request)
        if "An agent chooses its tools" in text:
            return "look: gives the label\nother: is not there"
        if GRADIENT in text:
            assert "- look: vague" in text
            return "step: the tool needs words"
        if "between <prompt>" in text:
            return "Solve it."
        if "Its final outputs" in text:
            return "wrong"
        right = text.split("-thing")[0][-1]
        return f"label: {right if 'gives the label' in text else 'e'}"

    report, _ = run(tmp_path, nodes, say)
    kept = report.winner.get("nodes.solve.functions")
    assert kept == [{"name": "look", "description": "gives the label", "parameters": {}, "source": source}]
    assert report.best["test"]["score"] == 1.0


# Reading answers


@pytest.mark.parametrize(
    ("text", "step", "inputs"),
    [
        ("step: add a rule\ninputs: none", "add a rule", ""),
        ("Step: None.\nInputs: the topic\nis missing", "", "the topic\nis missing"),
        ("**step:** two\nlines\n**inputs:** none", "** two\nlines", ""),
        ("No form at all.", "No form at all.", "No form at all."),
        ("step: none of the rows is read", "none of the rows is read", ""),
        ("step: none, it did its part well\ninputs: None - all is there.", "", ""),
        ("step: answer: none", "", ""),
        ("step: what this step should do differently, or none\ninputs: What was wrong with what it got.", "", ""),
        ("step: If no topic fits, answer none.", "If no topic fits, answer none.", ""),
        ("step: choose among a, b and none", "choose among a, b and none", ""),
    ],
)
def test_a_gradient_is_read_as_it_is_meant(text: str, step: str, inputs: str) -> None:
    assert read_gradient(text, asks_inputs=True) == Gradient(step, inputs)
    assert read_gradient(text, asks_inputs=False).inputs == ""


def test_marks_are_read() -> None:
    assert Gradient("remove").removes and Gradient("Remove it.").removes and not Gradient("removes doubt").removes
    assert enabled_by("so\n- enable: `mend`", ["mend"]) == "mend" and enabled_by("enable: other", ["mend"]) is None
    functions = [{"name": "a", "description": "x"}, {"name": "b", "description": "y"}]
    assert read_tools("- `a`: new\nb: y\nc: z", functions) == {0: "new"} and read_tools("none", functions) == {}


# Planted worlds


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rules", pytest.param("conflict", marks=pytest.mark.long)])
def test_it_beats_random_search_with_as_many_calls(name: str) -> None:
    world = WORLDS[name]
    ours, drawn = ([run_world(world, o, calls=400, seed=s) for s in range(6)] for o in ("textgrad", "random"))
    differences = [a.accuracy - b.accuracy for a, b in zip(ours, drawn, strict=True)]
    assert lower_bound(differences) > 0, differences
