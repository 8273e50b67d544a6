"""What the library has fitted is evaluated here as it does it; calibration; what a file may hold."""

from __future__ import annotations

import builtins
import json
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from workbench.errors import PluginError
from workbench_route.features import Features, FeatureSpace
from workbench_route.fitting import (
    FEW_ROWS,
    MIN_ROWS,
    _choose_kinds,
    check_library,
    export_linear,
    export_trees,
    fit_heads,
    fit_predictor,
    make_model,
    recalibrate,
)
from workbench_route.predictor import Linear, Predictor, Sigmoid, Tree, Trees, expit

SPACE = FeatureSpace(dims=64)


def texts(seed: int, count: int) -> tuple[list[str], list[float]]:
    """Texts and labels: `easy` ones are right with 0.85, `hard` ones with 0.25."""
    rng, made, labels = random.Random(seed), [], []
    for _ in range(count):
        easy = rng.random() < 0.5
        made.append(f"{'easy' if easy else 'hard'} {rng.choice('abcdefgh')} {rng.randrange(50)} {rng.choice('xyz')}")
        labels.append(float(rng.random() < (0.85 if easy else 0.25)))
    return made, labels


def features_of(made: list[str]) -> list[Features]:
    return [SPACE.extract([text]) for text in made]


@pytest.fixture(scope="module")
def fitted() -> tuple[list[Features], Any, Any]:
    """(features, the library's linear model, its boosting)"""
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("sklearn")
    made, labels = texts(0, 240)
    rows = features_of(made)
    matrix = numpy.zeros((len(rows), SPACE.size))
    for i, row in enumerate(rows):
        for j, value in row.items():
            matrix[i, j] = value
    linear, trees = make_model("loose", 3), make_model("trees", 3)
    linear.fit(matrix, labels)
    trees.fit(matrix, labels)
    return rows, (linear, linear.predict_proba(matrix)[:, 1]), (trees, trees.predict_proba(matrix)[:, 1])


def test_a_linear_model_gives_the_librarys_probabilities(fitted: Any) -> None:
    rows, (model, expected), _ = fitted
    own = Predictor.model_validate_json(Predictor(models=[export_linear(model)]).model_dump_json())
    assert max(abs(own(row) - p) for row, p in zip(rows, expected, strict=True)) < 1e-9
    assert max(expected) - min(expected) > 0.2


def test_trees_give_the_librarys_probabilities(fitted: Any) -> None:
    rows, _, (model, expected) = fitted
    exported = export_trees(model)
    own = Trees.model_validate_json(exported.model_dump_json())
    assert max(abs(expit(own.log_odds(row)) - p) for row, p in zip(rows, expected, strict=True)) < 1e-9
    assert len(own.trees) == 80 and max(expected) - min(expected) > 0.2


def test_calibrated_probabilities_happen_as_often_as_they_say() -> None:
    pytest.importorskip("sklearn")
    made, labels = texts(1, 900)
    predictor, _ = fit_predictor(features_of(made), labels, SPACE.size, 0)
    fresh, outcomes = texts(2, 2000)
    found = [predictor(row) for row in features_of(fresh)]
    for kind, rate in (("easy", 0.85), ("hard", 0.25)):
        said = [p for p, text in zip(found, fresh, strict=True) if text.startswith(kind)]
        assert abs(sum(said) / len(said) - rate) < 0.06
    bins: dict[int, list[tuple[float, float]]] = {}
    for p, y in zip(found, outcomes, strict=True):
        bins.setdefault(min(9, int(p * 10)), []).append((p, y))
    error = sum(abs(sum(p for p, _ in b) - sum(y for _, y in b)) for b in bins.values()) / len(found)
    assert error < 0.08  # 0.05 with this many rows, 0.17 for one that only ranks


def test_where_nothing_is_visible_it_is_hardly_more_than_a_constant() -> None:
    pytest.importorskip("sklearn")
    rng = random.Random(4)
    made, _ = texts(3, 400)
    labels = [float(rng.random() < 0.6) for _ in made]
    predictor, _ = fit_predictor(features_of(made), labels, SPACE.size, 0)
    found = [predictor(row) for row in features_of(texts(5, 300)[0])]
    assert max(abs(p - 0.6) for p in found) < 0.2


def test_few_rows_and_equal_rows_give_a_constant() -> None:
    pytest.importorskip("sklearn")
    made, labels = texts(0, MIN_ROWS - 1)
    few, unseen = fit_predictor(features_of(made), labels, SPACE.size, 0)
    assert few.constant and len(unseen) == len(made)
    made, _ = texts(0, 40)
    assert fit_predictor(features_of(made), [1.0] * 40, SPACE.size, 0)[0].constant


def visible_and_blind(seed: int, count: int) -> tuple[list[dict[int, float]], dict[str, list[float]]]:
    """Rows with one outcome that the text shows, one that it does not, and one that never varies."""
    rng, (made, labels) = random.Random(f"blind:{seed}"), texts(seed, count)
    return features_of(made), {
        "seen": labels,
        "blind": [float(rng.random() < 0.5) for _ in made],
        "sure": [1.0] * count,
    }


@pytest.mark.slow
def test_with_few_rows_the_heads_share_the_kind_of_model_and_the_calibration() -> None:
    pytest.importorskip("sklearn")
    rows, wanted = visible_and_blind(2, 120)
    alone = {name: fit_predictor(rows, labels, SPACE.size, 0)[0] for name, labels in wanted.items()}
    assert alone["blind"].constant and not alone["seen"].constant
    heads = fit_heads(rows, wanted, SPACE.size, 0)
    assert [type(m) for m in heads["blind"].models] == [type(m) for m in heads["seen"].models]
    assert not heads["blind"].constant and heads["blind"].calibration == heads["seen"].calibration
    assert heads["sure"] == alone["sure"]


@pytest.mark.slow
def test_with_many_rows_each_head_is_fitted_by_itself() -> None:
    pytest.importorskip("sklearn")
    rows, wanted = visible_and_blind(2, FEW_ROWS + 1)
    heads = fit_heads(rows, wanted, SPACE.size, 0)
    assert heads == {name: fit_predictor(rows, labels, SPACE.size, 0)[0] for name, labels in wanted.items()}


@pytest.mark.slow
def test_heads_that_the_text_says_nothing_about_are_constants_all_of_them_or_none() -> None:
    pytest.importorskip("sklearn")
    rng, constant = random.Random(3), 0
    for seed in range(4):
        rows, wanted = visible_and_blind(seed, 120)
        rng.shuffle(wanted["seen"])
        heads = fit_heads(rows, wanted, SPACE.size, 0)
        assert heads["seen"].constant == heads["blind"].constant
        constant += heads["seen"].constant
        assert max(abs(heads["blind"](row) - 0.5) for row in rows) < 0.35
    assert constant


@pytest.mark.parametrize(("count", "calibrated"), [(12, False), (49, False), (50, True)])
def test_few_rows_calibrate_nothing(count: int, calibrated: bool) -> None:
    pytest.importorskip("sklearn")
    made = [f"{'easy' if i % 2 else 'hard'} {'abc'[i % 3]}" for i in range(count)]
    predictor, _ = fit_predictor(features_of(made), [float(i % 2) for i in range(count)], SPACE.size, 0)
    assert not predictor.constant and (predictor.calibration != Sigmoid(slope=1.0, bias=0.0)) == calibrated


@pytest.mark.parametrize(("better", "taken"), [(2, False), (20, True)])
def test_boosting_is_taken_where_it_gains_more_than_chance(better: int, taken: bool) -> None:
    """On most of 40 rows it is as good as the linear model, on some better and on one worse."""
    wanted = [float(i % 2) for i in range(40)]

    def predicted(*right: float) -> list[float]:
        return [p if y else 1 - p for p, y in zip(right, wanted, strict=True)]

    linear, trees = [0.7] * 40, [0.9] * better + [0.5] + [0.7] * (39 - better)
    gain = better * math.log(0.9 / 0.7) - math.log(0.7 / 0.5)
    assert gain > 0, "the mean is for it in both cases"
    kinds = _choose_kinds({"constant": [0.5] * 40, "linear": predicted(*linear), "trees": predicted(*trees)}, wanted)
    assert ("trees" in kinds) == taken


def test_a_model_that_is_too_sure_is_judged_by_its_order() -> None:
    """It is worse than a constant as it stands, and better once it is calibrated."""
    pytest.importorskip("sklearn")
    wanted = [float(i % 4 != 0) for i in range(80)]
    sure = [(0.999 if y else 0.001) if i % 5 else 0.999 - 0.998 * y for i, y in enumerate(wanted)]
    wrong = [0.2 if y else 0.7 for y in wanted]
    found = recalibrate({"constant": [0.75] * 80, "sure": sure, "wrong": wrong}, wanted)

    def loss(said: Sequence[float]) -> float:
        return -sum(math.log(p if y else 1 - p) for p, y in zip(said, wanted, strict=True))

    assert loss(sure) > loss(found["constant"]) > loss(found["sure"])
    assert found["wrong"] == found["constant"] == [0.75] * 80


def test_predictions_of_unseen_rows_are_not_those_of_seen_ones() -> None:
    """A model that saw its rows would know random labels."""
    pytest.importorskip("sklearn")
    rng = random.Random(0)
    made = [f"word{i} other{i}" for i in range(200)]
    labels = [float(rng.random() < 0.5) for _ in made]
    _, unseen = fit_predictor(features_of(made), labels, SPACE.size, 0)
    right = sum((p > 0.5) == bool(y) for p, y in zip(unseen, labels, strict=True)) / len(labels)
    assert right < 0.62


def test_rows_of_a_group_are_in_one_fold() -> None:
    """Twins in two folds would tell each other's label."""
    pytest.importorskip("sklearn")
    rng = random.Random(7)
    made, labels, groups = [], [], []
    for number in range(60):
        label = float(rng.random() < 0.5)
        made += [f"twin{number} name{number}"] * 4
        labels += [label] * 4
        groups += [number] * 4
    _, unseen = fit_predictor(features_of(made), labels, SPACE.size, 0, groups=groups)
    assert sum((p > 0.5) == bool(y) for p, y in zip(unseen, labels, strict=True)) / len(labels) < 0.7


def test_without_the_library_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **more: Any) -> Any:
        if name == "sklearn":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(PluginError, match=r"pip install -e '\./plugins/research\[route\]'"):
        check_library()


@pytest.mark.parametrize(
    "broken",
    [
        {"models": []},
        {"models": [{"bias": "x"}]},
        {"models": [{"bias": 0.0, "weights": {"a": 1.0}}]},
        {"models": [{"bias": 0.0, "code": "x"}]},
        {
            "models": [
                {"bias": 0, "trees": [{"feature": [1], "threshold": [0], "left": [0], "right": [0], "value": [0]}]}
            ]
        },
        {
            "models": [
                {"bias": 0, "trees": [{"feature": [-1], "threshold": [0], "left": [], "right": [0], "value": [0]}]}
            ]
        },
        {"models": [{"bias": 0.0}], "calibration": {"x": [0.1, 0.5], "y": [0.0, 1.0]}},
    ],
)
def test_what_is_no_predictor_is_refused(broken: Any) -> None:
    """Among them a tree that is its own child, which would never end."""
    with pytest.raises(ValueError, match=r"validation error"):
        Predictor.model_validate_json(json.dumps(broken))


def test_infinite_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"finite"):
        Predictor.model_validate_json('{"models": [{"bias": 1e999}]}')


@given(st.floats(0, 1), st.floats(0.01, 5), st.floats(-5, 5))
def test_a_calibration_gives_probabilities_and_rises(p: float, slope: float, bias: float) -> None:
    sigmoid = Sigmoid(slope=slope, bias=bias)
    assert 0 <= sigmoid.calibrate(p) <= 1 and sigmoid.calibrate(p) <= sigmoid.calibrate(min(1.0, p + 0.1)) + 1e-12


@given(st.text(max_size=300), st.lists(st.floats(-3, 3), min_size=2, max_size=2))
def test_features_lie_in_their_space_and_are_exact_in_single_precision(text: str, extras: list[float]) -> None:
    numpy = pytest.importorskip("numpy")
    space = FeatureSpace(texts=1, extras=2, dims=32)
    found = space.extract([text], extras)
    assert all(0 <= i < space.size for i in found)
    assert all(float(numpy.float32(value)) == value for value in found.values())


def test_the_same_word_in_two_texts_is_two_features() -> None:
    space = FeatureSpace(texts=2, dims=4096)
    first = 2 * 9
    one, other = space.extract(["word", ""]), space.extract(["", "word"])
    assert {i for i in one if i >= first} != {i for i in other if i >= first}


def test_long_texts_are_cut_in_the_middle() -> None:
    space = FeatureSpace(dims=4096)
    ends = " ".join(["start", *["filler"] * 2000, "end"])
    assert {i for i in space.extract(["start"]) if i >= 9} <= set(space.extract([ends]))
    assert {i for i in space.extract(["end"]) if i >= 9} <= set(space.extract([ends]))
    assert len(space.extract([" ".join(f"w{i}" for i in range(5000))])) < 4 * 128 * 2


def test_a_constant_says_the_same_of_everything() -> None:
    constant = Predictor(models=[Linear(bias=math.log(3))])
    assert constant.constant and constant({}) == constant({5: 1.0}) == pytest.approx(0.75)


def test_a_tree_a_mean_and_a_calibration_by_hand() -> None:
    tree = Tree(feature=[7, -1, -1], threshold=[0.5, 0, 0], left=[1, 0, 0], right=[2, 0, 0], value=[0, -1.0, 2.0])
    assert [tree.leaf({7: value}) for value in (0.0, 0.5, 0.51)] == [-1.0, -1.0, 2.0] and tree.leaf({}) == -1.0
    both = Predictor(models=[Trees(bias=1.0, trees=[tree]), Linear(bias=0.0, weights={7: 3.0})])
    assert both({7: 1.0}) == pytest.approx((expit(3.0) + expit(3.0)) / 2) and both({}) == pytest.approx(0.5)
    shifted = Predictor(models=[Linear(bias=1.0)], calibration=Sigmoid(slope=2.0, bias=-3.0))
    assert shifted({}) == pytest.approx(expit(-1.0)) and shifted.raw({}) == pytest.approx(expit(1.0))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_tree_that_would_never_end_is_refused(side: str) -> None:
    tree = {"feature": [1, -1, -1], "threshold": [0.0] * 3, "left": [1, 0, 0], "right": [2, 0, 0], "value": [0.0] * 3}
    Tree.model_validate(tree)
    with pytest.raises(ValueError, match="before its children"):
        Tree.model_validate({**tree, side: [0, 0, 0]})
