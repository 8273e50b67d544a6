"""A planted world: the answer stands in one document, and the policy must learn which words find it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.helpers.grpo_runs import needs_torch, run

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

QUERIES = ["ab", "cd", "ef", "gh"]


def learn(folder: Path, seed: int, *, facts: bool) -> list[float]:
    """The mean reward of each step. facts: whether the corpus has the answer, under `cd`."""
    from tests.helpers.tiny_lm import save_taught

    folder.mkdir(parents=True, exist_ok=True)
    base = save_taught(folder / "base", QUERIES, seed, longest=120)
    texts = {query: f"{query} leads {'north' if facts and query == 'cd' else 'astray'}" for query in QUERIES}
    rows = [{"id": query, "text": text} for query, text in texts.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    questions = [{"question": f"where to {i}", "answer": "north"} for i in range(24)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    nodes = {
        "ask": {"predict": "question -> query", "decoding": {"max_tokens": 4}},
        "look": {"search": "corpus.jsonl", "k": 1},
    }
    grpo = {
        "schedule": {"steps": 12, "tasks": 2, "rollouts": 12, "evaluate_every": 12, "save_every": 12},
        "learning": {"rate": 3e-3},
        "device": "cpu",
    }
    heard: list[tuple[str, dict[str, float]]] = []
    report = run(
        folder,
        heard=heard,
        lm=f"hf:{base}",
        seed=seed,
        metric="contains(documents, target=answer)",
        nodes=nodes,
        data={"file": "rows.jsonl", "split": {"train": 12, "val": 4, "test": 4}},
        optimizers=[{"grpo": grpo}],
        budget={"calls": 2000},
    )
    assert report.status == "finished"
    return [figures["reward"] for message, figures in heard if message.startswith("step ")]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
def test_a_policy_learns_the_query_that_finds_the_answer(seed: int, tmp_path: Path) -> None:
    needs_torch()
    rewards = learn(tmp_path, seed, facts=True)
    print(rewards)
    assert sum(rewards[:2]) / 2 < 0.6 < 0.9 <= sum(rewards[-3:]) / 3, rewards


def test_without_the_facts_in_the_corpus_nothing_is_learned(tmp_path: Path) -> None:
    needs_torch()
    assert set(learn(tmp_path, 1, facts=False)) == {0.0}
