"""Navigation: the network against independent calculations, the node, and the optimizer in a planted world."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers import navigate_worlds as world
from tests.helpers.scripted import Script, make_workflow, run_rows

from workbench.errors import SpecError
from workbench.run import Options, optimize, prepare, resume
from workbench.workflow import parse_signature
from workbench_route.navigation import optimizer as navigation, q_learning
from workbench_route.navigation.navigator import MAX_NUMBERS, Navigator, StateSpace, hidden_units
from workbench_route.navigation.optimizer import LearnNavigate
from workbench_route.navigation.q_learning import DISCOUNT, Choice, Parameters, Replay, row_choices
from workbench_testing import optimizer_checks

# The network.


def network(seed: int, size: int = 4, choices: int = 3) -> Parameters:
    """One with random numbers everywhere, and few hidden units."""
    rng = np.random.default_rng(seed)
    parts = q_learning.start(size, choices, rng)
    return {name: rng.normal(0, 0.5, part.shape) for name, part in parts.items()}


def batch(seed: int, count: int = 20, size: int = 4, choices: int = 3) -> Replay:
    rng = np.random.default_rng(seed)
    return Replay(
        rng.normal(0, 1, (count, size)),
        rng.integers(0, choices, count),
        rng.normal(0, 1, count),
        rng.normal(0, 1, (count, size)),
        rng.random(count) < 0.3,
    )


def units(weights: Any, biases: Any) -> list[list[float]]:
    """A row for each unit: its weights, and its bias."""
    return [[*map(float, column), float(bias)] for column, bias in zip(weights.T, biases, strict=True)]


def exported(parts: Parameters) -> Navigator:
    """The network as the file holds it, which another program evaluates."""
    size, choices = len(parts["hidden"]), len(parts["advantage_bias"])
    return Navigator(
        inputs=["x"],
        choices=[str(n) for n in range(choices)],
        center=[0.0] * size,
        scale=[1.0] * size,
        hidden=units(parts["hidden"], parts["hidden_bias"]),
        value=units(parts["value"], parts["value_bias"])[0],
        advantages=units(parts["advantage"], parts["advantage_bias"]),
    )


def test_the_file_and_the_learner_value_choices_alike() -> None:
    parts, data = network(0), batch(1)
    ours = [exported(parts).values([float(x) for x in state]) for state in data.states]
    np.testing.assert_allclose(ours, q_learning.q_values(parts, data.states), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_finite_differences(seed: int) -> None:
    parts, data = network(seed), batch(seed)
    targets = 3 * data.rewards  # errors on both sides of 1, where the loss changes its form
    gradients = q_learning.loss_gradients(parts, data, targets)[1]
    rng = np.random.default_rng(seed)
    for name, part in parts.items():
        for place in {tuple(int(rng.integers(0, n)) for n in part.shape) for _ in range(6)}:
            losses = list[float]()
            for step in (1e-5, -1e-5):
                moved = part.copy()
                moved[place] += step
                losses.append(q_learning.loss_gradients({**parts, name: moved}, data, targets)[0])
            expected = (losses[0] - losses[1]) / 2e-5
            assert float(gradients[name][place]) == pytest.approx(expected, rel=1e-5, abs=1e-8), (name, place)


def test_targets_are_picked_by_one_network_and_valued_by_the_other() -> None:
    online, target, data = network(0), network(1), batch(2)
    picks, values = exported(online), exported(target)
    double, single = list[float](), list[float]()
    for reward, state, last in zip(data.rewards, data.following, data.last, strict=True):
        picked, worth = picks.values([*map(float, state)]), values.values([*map(float, state)])
        double.append(float(reward) + (0.0 if last else DISCOUNT * worth[picked.index(max(picked))]))
        single.append(float(reward) + (0.0 if last else DISCOUNT * max(worth)))
    np.testing.assert_allclose(q_learning.double_targets(online, target, data), double, rtol=1e-10)
    assert max(abs(a - b) for a, b in zip(double, single, strict=True)) > 0.01, "these cannot tell them apart"


def test_what_is_learned_are_the_values_of_a_known_chain() -> None:
    """Five states in a row: right leads to a score of 1 behind the last one, left ends with 0.3."""
    rows = [
        Choice([float(n)], go, (1.0 if n == 4 else 0.0) if go else 0.3, [n + 1.0] if go and n < 4 else None)
        for n in range(5)
        for go in (0, 1)
        for _ in range(8)
    ]
    learned = q_learning.learn_navigator(["n"], ["left", "right"], rows, 0)
    for n in range(5):
        assert learned.values([float(n)]) == pytest.approx([0.3, DISCOUNT ** (4 - n)], abs=0.08)


def test_judged_progress_changes_a_rows_return_only_by_its_first_value() -> None:
    rng = random.Random(0)
    for length in range(1, 8):
        judged, states = [rng.random() for _ in range(length)], [[0.0]] * length
        plain, shaped = (row_choices(states, [0] * length, 0.7, values) for values in (None, judged))
        returns = [sum(DISCOUNT**n * c.reward for n, c in enumerate(found)) for found in (plain, shaped)]
        assert returns[1] == pytest.approx(returns[0] - judged[0])
        assert [c.following is None for c in shaped] == [False] * (length - 1) + [True]


@pytest.mark.parametrize("choices", [2, 5, 20])
def test_whatever_is_read_a_navigator_stays_below_its_limit(choices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (1, 9, 50, 150):
        rng = np.random.default_rng(size)
        rows = [Choice(rng.normal(0, 1, size).tolist(), n % choices, 1.0, None) for n in range(20)]
        monkeypatch.setattr(q_learning, "STEPS", 2)
        learned = q_learning.learn_navigator(["x"], [str(n) for n in range(choices)], rows, 0)
        assert 200 * (size > 8) < learned.numbers < MAX_NUMBERS
    with pytest.raises(SpecError, match="too many for a navigator"):
        hidden_units(700, choices)


# The node.

SIGNATURE = "hard: int, kind: Literal['a', 'b'], done: list, text -> block: Literal['go', 'stop']"


def test_features_follow_the_types() -> None:
    space = StateSpace(parse_signature(SIGNATURE).inputs)
    found = space.encode({"hard": "2", "kind": "B", "done": ["x", "y", "z"], "text": "one two"})
    assert found[:4] == [2.0, 0.0, 1.0, 2.0] and len(found) == space.size and any(found[4:])
    other = space.encode({"hard": None, "kind": "none", "done": [], "text": "three"})
    assert other[:4] == [0.0] * 4 and other[4:] != found[4:]


def take_hard(value: float = 5.0) -> Navigator:
    """One that stops where `hard` is above 2."""
    return Navigator(
        inputs=["hard"],
        choices=["go", "stop"],
        center=[2.0],
        scale=[1.0],
        hidden=[[1.0, 0.0]],
        value=[0.0, 0.0],
        advantages=[[-value, 0.0], [value, 0.0]],
    )


def chosen(node: dict[str, Any], rows: list[dict[str, Any]], folder: Path) -> list[Any]:
    found = run_rows(make_workflow({"n": node}, folder), rows, Script(lambda request: ""), folder / "run.db")
    return [one.prediction.get("block", one.message) for one in found]


NODE = {"navigate": "hard: int -> block: Literal['go', 'stop']"}


def test_the_learned_choice_is_taken_and_the_first_one_before(tmp_path: Path) -> None:
    rows = [{"hard": n} for n in (1, 3, "3", "many")]
    assert chosen({**NODE, "learned": take_hard().dump()}, rows, tmp_path)[:3] == ["go", "stop", "stop"]
    assert "'hard' is not" in chosen(NODE, rows[3:], tmp_path)[0]
    assert chosen(NODE, rows[:2], tmp_path) == ["go", "go"]


def test_exploring_draws_all_choices_and_the_same_ones_again(tmp_path: Path) -> None:
    rows = [{"hard": n} for n in range(40)]
    first, again = (chosen({**NODE, "explore": 1.0}, rows, tmp_path) for _ in range(2))
    assert first == again and 10 <= first.count("go") <= 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"signature": "hard: int -> block"}, "writes one field, a Literal"),
        ({"signature": " -> block: Literal['go', 'stop']"}, "without inputs"),
        ({"signature": "seen: Image -> block: Literal['go', 'stop']"}, "cannot read the image 'seen'"),
        ({"signature": "easy: int -> block: Literal['go', 'stop']", "learned": take_hard().dump()}, "was learned for"),
        ({"signature": NODE["navigate"], "learned": "{}"}, "not a learned navigator"),
        (
            {"signature": NODE["navigate"], "learned": take_hard().dump().replace("[2.0]", "[2.0,1.0]")},
            "scale must have a number above 0 for each of center",
        ),
    ],
)
def test_what_cannot_work_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message):
        make_workflow({"n": {"kind": "navigate", **change}}, tmp_path)


def test_a_navigator_of_too_many_numbers_is_refused() -> None:
    large = {"hidden": [[0.1, 0.1]] * 700, "value": [0.1] * 701, "advantages": [[0.1] * 701] * 2}
    text = take_hard().dump()
    assert Navigator.parse(text) == take_hard()
    with pytest.raises(SpecError, match="fewer than 3000 numbers, and this one 3505"):
        Navigator.parse(Navigator.model_construct(**{**dict(take_hard()), **large}).dump())


# The optimizer.


@pytest.mark.parametrize("check", optimizer_checks(), ids=lambda check: check.__name__)
def test_the_optimizer_keeps_the_contract(check: Callable[..., None]) -> None:
    check(LearnNavigate())  # pyright: ignore[reportCallIssue]


def run(folder: Path, seed: int, *, world_of: Any = None, **settings: Any) -> Any:
    """A report. world_of: settings of the planted world."""
    path = world.write(folder, {"navigate": {"judged": "progress", **settings}}, seed, **world_of or {})
    options = Options(out=str(folder / "out.yaml"), allow_unproved=True, keep_unproved=True)
    return optimize(path, database=folder / "run.db", options=options)


def test_a_replayed_run_learns_the_same_and_the_file_holds_it(tmp_path: Path) -> None:
    report = run(tmp_path, 0, world_of={"counts": (12, 6, 6)}, rounds=3)
    again = resume("last", database=tmp_path / "run.db")
    learned = report.winner.get("nodes.think.nodes.choose.learned")
    assert again.winner == report.winner and learned
    assert prepare(tmp_path / "out.yaml")[2].workflow.get("nodes.think.nodes.choose.learned") == learned
    assert Navigator.parse(learned).numbers < MAX_NUMBERS


def test_a_judge_must_be_a_number_that_is_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="'progres' is no number that 'nodes.choose' reads") as caught:
        run(tmp_path, 0, judged="progres")
    assert "progress" in str(caught.value.hint)


def shuffled(inputs: Any, choices: Any, rows: Any, seed: int) -> Navigator:
    """The learner with the rewards of other choices."""
    rewards = [row.reward for row in rows]
    random.Random(seed).shuffle(rewards)
    pairs = zip(rows, rewards, strict=True)
    return q_learning.learn_navigator(inputs, choices, [replace(row, reward=reward) for row, reward in pairs], seed)


def on_test(report: Any) -> float:
    """The winner's score on the sealed rows; nothing is scored there if the start wins, which solves none."""
    return report.best["test"]["score"] if report.winner.get("nodes.think.nodes.choose.learned", "") else 0.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_it_beats_every_fixed_order_and_itself_with_shuffled_rewards(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fixed order is scored on the sealed rows themselves, so no search for one finds more at any budget."""
    learned = on_test(run(tmp_path / "learned", seed))
    fixed = world.best_fixed(world.make_rows(10 * seed + 2, 60))
    monkeypatch.setattr(navigation, "learn_navigator", shuffled)
    control = on_test(run(tmp_path / "shuffled", seed))
    assert fixed == pytest.approx(1 / 3)
    assert learned >= 0.85 and control <= fixed, (learned, control)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_where_one_order_is_best_for_all_it_is_not_worse(seed: int, tmp_path: Path) -> None:
    """The negative control: ratings differ, and say nothing."""
    same: world.Orders = dict.fromkeys(world.ORDERS, ("decompose", "reason"))
    assert world.best_fixed(world.make_rows(10 * seed + 2, 60, same)) == 1.0
    assert on_test(run(tmp_path, seed, world_of={"orders": same})) >= 0.98
