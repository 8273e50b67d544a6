"""The optimizer `prompt_mcts` on planted problems; its tree is tested in tests/kit/test_tree_search.py."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import LABELS, lower_bound
from tests.helpers.scripted import Script

from workbench.lm import Request, Response
from workbench.run import Options, optimize
from workbench.store import Store
from workbench_bench.run_world import run_world
from workbench_bench.worlds import WORLDS
from workbench_prompt_mcts import optimizer as prompt_mcts

# The search. Reward = share of the planted words that the instruction holds; the feedback names what is missing.

WORDS = ("amber", "birch", "cedar", "delta")


def play(request: Request) -> str:
    """The task: right where the instruction holds the word for the row. The proposer: names a word, and adds it."""
    text = "\n".join(str(m["content"]) for m in request.messages)
    question = str(request.messages[-1]["content"])
    if "between <prompt>" in text:
        prompt = re.findall(r"<prompt>\n(.*?)\n</prompt>", text, re.DOTALL)[0]
        word = re.search(r"missing: (\w+)", text)
        return f"<prompt>\n{prompt} {word.group(1) if word else 'nothing'}\n</prompt>"
    if "You improve the instruction" in text:
        found = re.search(r"- score 0\.00; task: .*?wants (\w+)", text)
        return f"missing: {found.group(1)}" if found else "keep it"
    wanted = re.search(r"wants (\w+)", question)
    right = question.split("-thing")[0][-1]
    held = wanted is not None and wanted.group(1) in str(request.messages[0]["content"])
    return right if held else LABELS[(LABELS.index(right) + 1) % 4]


def search(
    folder: Path, say: Any = play, budget: Any = None, nodes: Any = None, concurrency: int = 8, **settings: Any
) -> tuple[Any, Script]:
    folder.mkdir(exist_ok=True)
    for name, count in (("train", 32), ("val", 16), ("test", 16)):
        rows = [
            {"text": f"{name} {i} wants {WORDS[i // 4 % 4]}: a {LABELS[i % 4]}-thing", "label": LABELS[i % 4]}
            for i in range(count)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    file = folder / "workflow.yaml"
    file.write_text(
        json.dumps(
            {
                "name": "planted",
                "lm": {"model": "openai/planted", "api_base": "http://127.0.0.1:9/v1"},
                "data": {n: f"{n}.jsonl" for n in ("train", "val", "test")},
                "metric": "exact_match(label)",
                "nodes": nodes
                or {"sort": {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": "Label."}},
                "optimize": [{"prompt_mcts": settings}],
                "budget": budget or {"calls": 600},
                "concurrency": concurrency,
            }
        )
    )
    script = Script(say)
    report = optimize(file, database=folder / "run.db", pool=script, options=Options(out=str(folder / "out.yaml")))
    assert report.status in ("finished", "budget"), report.error
    return report, script


def test_prompts_are_taken_in_turns_and_a_judge_that_is_not_asked_is_left_alone(tmp_path: Path) -> None:
    team = {"ensemble": {"predict": f"text -> label: Literal{list(LABELS)}", "instructions": "Label."}, "samples": 1}
    nodes = {
        "team": team,
        "again": {"predict": f"text, label -> label: Literal{list(LABELS)}", "instructions": "Twice."},
    }
    _, script = search(tmp_path, rounds=1, depth=1, width=4, batch=4, rows=4, nodes=nodes)
    asked = [str(r.messages[-1]["content"]) for r in script.requests]
    steps = [re.findall(r"The step '(\w+)'", a)[0] for a in asked if "You improve the instruction" in a]
    assert steps == ["of", "again", "of", "again"]


def said(script: Script, words: str) -> int:
    return sum(words in str(r.messages[-1]["content"]) for r in script.requests)


def test_the_planted_words_are_found_one_below_the_other(tmp_path: Path) -> None:
    report, script = search(tmp_path, rounds=4, rows=16, batch=8)
    prompt = report.winner.get("nodes.sort.instructions")
    assert all(word in prompt for word in WORDS) and report.best["test"]["score"] == 1.0
    assert said(script, "Tried before:"), "a rewrite sees the earlier prompts of its path"
    assert not any(str(m["content"]).count("test ") for r in script.requests[:-32] for m in r.messages)


def test_an_expansion_costs_what_the_readme_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root 8 + 16, then 2 children at batch 5 + guide 8 + 2 calls; a finalist on val and the proof."""
    monkeypatch.setattr(prompt_mcts, "finalists", lambda study: 1)
    _, script = search(tmp_path, rounds=1, width=2, depth=1, rows=8, batch=5)
    assert said(script, "You improve the instruction") == said(script, "You write the instruction") == 2
    task = len(script.requests) - 4
    assert task <= (16 + 8) + 2 * (5 + 8) + 16 + 2 * 16


def test_where_all_is_right_it_asks_what_must_be_kept(tmp_path: Path) -> None:
    def right(request: Request) -> str:
        question = str(request.messages[-1]["content"])
        return question.split("-thing")[0][-1] if question.endswith("label:") else "keep it"

    _, script = search(tmp_path, right, rounds=1, depth=1)
    assert said(script, "All of these are right") and not said(script, "For each of these failures")


def test_a_weak_child_below_the_least_depth_is_not_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def worse(request: Request) -> str:
        """The first prompt is right on half of the rows, a rewrite on a quarter."""
        text, question = str(request.messages[0]["content"]), str(request.messages[-1]["content"])
        if "between <prompt>" in question:
            return f"<prompt>\n{text.count('worse')} times worse.\n</prompt>"
        if not question.endswith("label:"):
            return "advice"
        return question.split("-thing")[0][-1] if text.startswith("Label.") and " wants a" in question else "d"

    monkeypatch.setattr(prompt_mcts, "MIN_DEPTH", 0)
    report, script = search(tmp_path, worse, rounds=1, width=1, rows=8)
    assert said(script, "between <prompt>") == 1, "the branch ends at its first child"
    assert report.winner.get("nodes.sort.instructions") == "Label."


def test_search_never_looks_at_val_and_val_alone_makes_the_winner(tmp_path: Path) -> None:
    """A prompt that is right on train alone is the best of the tree and loses on val."""

    def overfit(request: Request) -> str:
        text, question = str(request.messages[0]["content"]), str(request.messages[-1]["content"])
        if "between <prompt>" in question:
            return "<prompt>\nKnows train by heart.\n</prompt>"
        if not question.endswith("label:"):
            return "advice"
        right = question.split("-thing")[0][-1]
        known = "train" in question if "by heart" in text else "wants a" in question
        return right if known else LABELS[(LABELS.index(right) + 1) % 4]

    report, script = search(tmp_path, overfit, rounds=2)
    assert report.winner.get("nodes.sort.instructions") == "Label."
    shown = [r for r in script.requests if not str(r.messages[-1]["content"]).endswith("label:")]
    assert shown and not any("val " in str(r.messages[-1]["content"]) for r in shown)
    store = Store(tmp_path / "run.db")
    tried = [r["complete"] for r in store.rows("select complete from evaluations where split = 'val' order by id")]
    store.close()
    assert len(tried) == 2, "the heart-learner had its turn on val"


@pytest.mark.parametrize(("answer", "proposal", "tokens"), [(31, 1400, 40_000), (600, 31, 120_000)])
def test_under_a_ceiling_of_tokens_too_the_best_has_its_turn_on_val(
    answer: int, proposal: int, tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long proposals or long answers: without room kept the search would go on until nothing is left for val."""

    def long(request: Request) -> Response:
        labels = str(request.messages[-1]["content"]).endswith("label:")
        return Response(play(request), "stop", (answer if labels else proposal) - 1, 1, 0.0)

    monkeypatch.setattr(prompt_mcts, "finalists", lambda study: 1)
    report, script = search(tmp_path, long, rounds=100, rows=4, concurrency=2, budget={"tokens": tokens})
    assert said(script, "You improve the instruction") > 4 and report.status == "finished"
    assert report.winner.get("nodes.sort.instructions") != "Label."


# Planted worlds

SEEDS = range(6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rules", pytest.param("conflict", marks=pytest.mark.long)])
def test_it_beats_random_search_with_as_many_calls(name: str) -> None:
    world = WORLDS[name]
    ours, drawn = ([run_world(world, o, calls=700, seed=s) for s in SEEDS] for o in ("prompt_mcts", "random"))
    differences = [a.accuracy - b.accuracy for a, b in zip(ours, drawn, strict=True)]
    assert lower_bound(differences) > 0, differences
    assert statistics.mean(r.calls for r in ours) <= 700
