"""An agent that may search or guess learns to search, where searching tells more than a guess."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.helpers.grpo_runs import needs_torch, run
from tests.helpers.searching_lm import AGENT, save_searching, share_of_right_queries, write_world
from tests.helpers.sqlite import connect

from workbench.proof import Report

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

STEPS, ROLLOUTS = 28, 8 * 16
GRPO = {
    "algorithm": "dapo",
    "schedule": {
        "dynamic_sampling": 0,
        "steps": STEPS,
        "tasks": 8,
        "rollouts": 16,
        "evaluate_every": STEPS,
        "save_every": STEPS,
    },
    "learning": {"rate": 1e-3, "minibatches": 1},
    # dapo: by rows' means, the choice of a call of 45 tokens would weigh a tenth of that of a guess of 5
    "device": "cpu",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs_torch()
    made = save_searching(tmp_path_factory.mktemp("searching") / "base")
    if (right := share_of_right_queries(made)) < 0.8:
        # Sums of floats differ by processor, and where it does not learn to copy, a search tells no more than a guess.
        pytest.skip(f"on this processor the checkpoint searches for the right thing in {right:.0%} of the cases")
    return made


def train(base: Path, folder: Path, seed: int, *, facts: bool) -> tuple[Report, list[float], list[float]]:
    """The report, and of each step the mean reward and the share of rollouts that searched."""
    write_world(folder, seed, facts=facts)
    heard: list[tuple[str, dict[str, float]]] = []
    report = run(
        folder,
        heard=heard,
        lm=f"hf:{base}",
        seed=seed,
        nodes={"solve": AGENT},
        metric="exact_match(place)",
        data={"file": "rows.jsonl", "split": {"train": 20, "val": 12, "test": 24}},
        optimizers=[{"grpo": GRPO}],
        budget={"calls": 12000},
    )
    assert report.status == "finished"
    rewards = [figures["reward"] for message, figures in heard if message.startswith("step ")]
    return report, rewards, searches(folder)


def searches(folder: Path) -> list[float]:
    """Of each version of the policy, the searches for each of its rollouts."""
    counts: dict[str, list[int]] = {}
    with connect(folder / "run.db") as db:
        for lm, request in db.execute("select lm, request from calls where lm like 'policy:%'"):
            after_search = len(json.loads(request)["messages"]) > 2
            counts.setdefault(lm, [0, 0])[after_search] += 1
    return [after / max(1, first) for first, after in counts.values()]


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_agent_learns_to_search_before_it_answers(seed: int, base: Path, tmp_path: Path) -> None:
    """The things of the sealed rows are in no row that it learned from: what it learned is to look them up."""
    report, rewards, shares = train(base, tmp_path, seed, facts=True)
    print(rewards, shares, report.proof)
    assert sum(rewards[:2]) / 2 < 0.5 and sum(rewards[-4:]) / 4 > 0.85
    assert min(shares) < 0.4 and max(shares) > 0.9
    proof = report.proof
    assert proof is not None and proof.shown and proof.baseline < 0.5 and proof.winner >= 0.8


@pytest.mark.long
def test_where_searching_tells_nothing_it_is_given_up(base: Path, tmp_path: Path) -> None:
    report, rewards, shares = train(base, tmp_path, 2, facts=False)
    print(rewards, shares, report.proof)
    assert max(shares) < 0.5 and not (report.proof is not None and report.proof.shown)
