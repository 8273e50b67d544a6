"""Planted worlds: the best accuracy is the best, the null world claims nothing, and the command says what is wrong."""

from __future__ import annotations

import itertools
import json

import pytest
from click.testing import CliRunner

from workbench.cli import cli
from workbench.lm import Request
from workbench_sim.run import Result, regret, run_world
from workbench_sim.worlds import INSTRUCTIONS, TOPICS, WORLDS, World


def request(instruction: str, topics: list[int], asked: int = 0, **settings: float) -> Request:
    messages = [{"role": "system", "content": f"{instruction}\nlabel: one of a, b"}]
    for t in topics:
        messages += [{"role": "user", "content": f"text: x topic{t}: a a-thing"}, {"role": "assistant", "content": "a"}]
    return Request((*messages, {"role": "user", "content": f"text: y topic{asked}: a b-thing\nlabel:"}), **settings)


@pytest.mark.parametrize("name", ["facets", "retrieval", "deceptive", "null"])
def test_nothing_is_better_than_the_best(name: str) -> None:
    """All instructions, up to eight examples, of which up to eight are on the topic."""
    world = WORLDS[name]
    found = [
        world.skill(request(instruction, [0] * same + [1] * (count - same)))
        for instruction, count in itertools.product(INSTRUCTIONS, range(9)) for same in range(count + 1)
    ]  # fmt: skip
    assert max(found) == pytest.approx(world.best) and min(found) > 0 and max(found) <= 1


def test_the_hills_top_is_the_best_of_the_settings() -> None:
    world = WORLDS["settings"]
    grid = [world.skill(request("x", [], temperature=t / 50, top_p=p / 50)) for t in range(76) for p in range(3, 51)]
    assert max(grid) == pytest.approx(world.best, abs=1e-9)


def test_an_optimizer_gets_nearer_with_more_calls() -> None:
    world = WORLDS["facets"]
    means = [regret(world, [run_world(world, "optuna", calls=c, seed=s) for s in range(4)])[0] for c in (180, 700)]
    assert means[1] < means[0] - 0.1, means


def test_the_null_world_claims_nothing() -> None:
    results = [run_world(WORLDS["null"], "optuna", calls=260, seed=s) for s in range(8)]
    assert sum(r.claimed for r in results) <= 1 and {r.accuracy for r in results} == {0.5}


def test_the_same_seed_gives_the_same_result() -> None:
    assert run_world(WORLDS["deceptive"], "random", calls=250, seed=3) == run_world(
        WORLDS["deceptive"], "random", calls=250, seed=3
    )


def test_regret_and_its_interval() -> None:
    world = World("w", "", lambda r: 0.0, 1.0)
    mean, (low, high) = regret(world, [Result(a, 0, False) for a in (0.8, 0.6, 0.7)])
    assert mean == pytest.approx(0.3) and low == pytest.approx(0.3 - 4.303 * 0.1 / 3**0.5, abs=1e-3) and high > mean


def test_the_command_compares_with_the_first() -> None:
    done = CliRunner().invoke(cli, ["bench", "--world", "retrieval", "--optimizers", "random,bootstrap", "--budget", "250",
                                    "--seeds", "2", "--json"])  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = json.loads(done.output.splitlines()[-1])
    assert [r["optimizer"] for r in rows] == ["random", "bootstrap"] and "against" not in rows[0]
    assert rows[1]["against"]["optimizer"] == "random" and all(r["calls"] <= 250 for r in rows)
    assert TOPICS == 8


@pytest.mark.parametrize(
    ("flags", "message"),
    [(["--world", "facet"], "Did you mean 'facets'?"), (["--optimizers", "optna"], "Did you mean 'optuna'?"),
     (["--budget", "many"], "--budget 200,400"), (["--budget", ""], "--budget 200,400")],
)  # fmt: skip
def test_wrong_words_are_named(flags: list[str], message: str) -> None:
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", "from workbench.cli import main; main()", "bench", *flags],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 2 and message in done.stderr
