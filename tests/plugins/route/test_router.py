"""The router in a planted world: a row is as hard as x, the small model is right with 1 - x, the large with 0.95."""

from __future__ import annotations

import itertools
import random
import statistics
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.helpers.planted import lower_bound
from tests.helpers.route_worlds import LARGE, SMALL, planted_rows

from workbench.errors import SpecError
from workbench_bench.routing import KINDS, MODELS, PRICES, SKILLS, make_table as skills_of, score_route
from workbench_route import baselines, fitting, report
from workbench_route.curve import Point, Table, area_under, choose_point, cost_at, cross_table, make_table
from workbench_route.fitting import fit_predictor
from workbench_route.learn import Problem, fit_constants, learn_router
from workbench_route.outcomes import Candidate, Row, Sample
from workbench_route.router import Router, choose

pytest.importorskip("sklearn")
BOTH = [SMALL, LARGE]
RULES = pytest.mark.parametrize("rule", ["value", "match"])


def problem(rule: Any = "value", **more: Any) -> Problem:
    return Problem(BOTH, LARGE, rule, dims=256, **more)


@pytest.fixture(scope="module")
def tables() -> dict[str, Table]:
    train, test = planted_rows(0, 240), planted_rows(1, 240)
    return {rule: make_table(learn_router(problem(rule), train, 0), test) for rule in ("value", "match")}


def areas(table: Table, *curves: list[Point]) -> list[float]:
    """The areas of the table's curve and of others, between the small and the large model."""
    singles = report.single_points(table)
    return [area_under(points, singles["small"], singles["large"]) for points in (table.curve(), *curves)]


def mix_area(table: Table) -> float:
    singles = report.single_points(table)
    return (singles["small"].score + singles["large"].score) / 2


@pytest.mark.slow
@RULES
def test_the_cost_never_rises_towards_the_cheap_end(rule: str, tables: dict[str, Table]) -> None:
    table = tables[rule]
    points = table.curve()
    dearest = [sum(row[i] for row, i in zip(table.costs, table.route(p.threshold or 0.0), strict=True)) for p in points]
    assert all(a >= b - 1e-9 for a, b in itertools.pairwise(dearest))
    assert len({round(p.cost, 6) for p in points}) > 4


def test_the_highest_threshold_of_a_match_takes_the_reference_alone(tables: dict[str, Table]) -> None:
    table = tables["match"]
    highest = table.curve()[0]
    assert set(table.route(highest.threshold or 0.0)) == {table.router.position}
    assert highest.score == report.single_points(table)["large"].score
    assert set(table.route(0.0)) == {0}


def test_the_highest_price_of_quality_takes_the_cheapest_alone(tables: dict[str, Table]) -> None:
    assert set(tables["value"].route(1e6)) == {0}


def test_the_rules_by_hand() -> None:
    assert choose("match", [0.7, 1.0], [1.0, 10.0], 1, 0.6, 10.0) == 0
    assert choose("match", [0.5, 1.0], [1.0, 10.0], 1, 0.6, 10.0) == 1
    assert choose("match", [0.9, 0.9, 1.0], [2.0, 1.0, 10.0], 2, 0.6, 10.0) == 1
    assert choose("match", [0.0, 1.0], [1.0, 1.0], 1, 0.5, 1.0) == 1
    assert choose("value", [0.5, 0.9], [1.0, 10.0], 1, 0.0, 10.0) == 1
    assert choose("value", [0.5, 0.9], [1.0, 10.0], 1, 0.43, 10.0) == 1
    assert choose("value", [0.5, 0.9], [1.0, 10.0], 1, 0.46, 10.0) == 0
    assert choose("value", [0.5, 0.5], [3.0, 1.0], 0, 0.0, 3.0) == 1, "of equals the cheaper one"


@pytest.mark.slow
@pytest.mark.parametrize("rule", [pytest.param("value", marks=pytest.mark.long), "match"])
def test_it_is_above_the_mix_line_and_above_a_constant_and_shuffled_labels(rule: Any) -> None:
    """It fails if the predictor is replaced by a constant: what is gained over that is tested as well."""
    over = {"mix": [], "constant": [], "shuffled": []}
    for seed in range(5):
        train, test = planted_rows(2 * seed, 300), planted_rows(2 * seed + 1, 300)
        table = make_table(learn_router(problem(rule), train, seed), test)
        blind = make_table(learn_router(problem(rule), train, seed, fit_constants), test)
        shuffled = baselines.shuffled_table(problem(rule), train, test, seed)
        own, constant, control = areas(table, blind.curve(), shuffled.curve())
        for name, value in (("mix", mix_area(table)), ("constant", constant), ("shuffled", control)):
            over[name].append(own - value)
    for name, found in over.items():
        assert lower_bound(found) > 0.03, (name, found)


def test_it_is_above_the_mix_line_in_one_world(tables: dict[str, Table]) -> None:
    for table in tables.values():
        assert areas(table)[0] > mix_area(table) + 0.04


@pytest.mark.long
@pytest.mark.slow
def test_controls_are_not_above_the_mix_line() -> None:
    """Texts that do not show how hard a row is, and labels of other rows."""
    found: dict[str, list[float]] = {"invisible": [], "shuffled": []}
    for seed in range(6):
        blind, test = planted_rows(2 * seed, 300, visible=False), planted_rows(2 * seed + 1, 300, visible=False)
        table = make_table(learn_router(problem(), blind, seed), test)
        found["invisible"].append(areas(table)[0] - mix_area(table))
        train, test = planted_rows(2 * seed, 300), planted_rows(2 * seed + 1, 300)
        shuffled = baselines.shuffled_table(problem(), train, test, seed)
        found["shuffled"].append(areas(shuffled)[0] - mix_area(shuffled))
    for name, gains in found.items():
        assert statistics.mean(gains) < 0.02, (name, gains)


def rows_of_kinds(seed: int, count: int) -> list[Row]:
    """Rows of world `routing`: the text is the kind, and each model is good at other kinds."""
    skills, rng, rows = skills_of(seed), random.Random(f"dev:{seed}:{count}"), []
    for number in range(count):
        kind = KINDS[(number + number // len(KINDS)) % len(KINDS)]
        samples = {m: (Sample(float(rng.random() < skills[m, kind]), PRICES[m], "a"),) for m in MODELS}
        rows.append(Row(str(number), kind, samples))
    return rows


def regret_of(seed: int, rows: list[Row], **more: Any) -> float:
    """By how much the routes that are learned from the rows fall behind the best ones."""
    candidates = [Candidate(model) for model in MODELS]
    router = learn_router(Problem(candidates, candidates[-1]), rows, seed, **more)
    taken = {k: MODELS[router.choose(router.scores(k), router.estimated_costs(k), 0.0)] for k in KINDS}
    return SKILLS[0] - score_route(taken, seed)


@pytest.mark.long
@pytest.mark.slow
def test_from_few_rows_each_kind_goes_to_the_model_that_is_good_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads that are fitted one by one are constants by chance, and send kinds astray: on average, not at each seed."""
    fit_one, made = fitting._fit, dict[Any, Any]()

    def fit_once(kind: str, matrix: Any, wanted: Any, seed: int) -> Any:
        """Both ways to learn fit the same models, and choose differently among them."""
        key = (kind, matrix.tobytes(), tuple(wanted), seed)
        if key not in made:
            made[key] = fit_one(kind, matrix, wanted, seed)
        return made[key]

    monkeypatch.setattr(fitting, "_fit", fit_once)

    def fit_alone(rows: Any, wanted: Any, *more: Any) -> dict[str, Any]:
        return {name: fit_predictor(rows, labels, *more)[0] for name, labels in wanted.items()}

    together, saved = list[float](), list[float]()
    for seed in range(200, 232):
        rows = rows_of_kinds(seed, 72)
        together.append(regret_of(seed, rows))
        saved.append(regret_of(seed, rows, fit=fit_alone) - together[-1])
    assert statistics.mean(together) < 0.06 and lower_bound(saved) > 0, (together, saved)


@pytest.mark.slow
def test_a_model_that_is_too_sure_is_not_passed_over_for_one_that_says_nothing() -> None:
    """On these rows the penalised models have the least loss as they stand, and route no better than a constant."""
    assert regret_of(115, rows_of_kinds(115, 88)) < 0.1


@pytest.mark.slow
def test_more_samples_are_chosen_where_they_pay(tables: dict[str, Table]) -> None:
    """Four answers of the small model cost less than one of the large, and a good reward finds the right one. With a
    reward that says the same of all answers the gain is gone."""
    several = Candidate("small", 4)
    train, test = planted_rows(0, 160, draws=4, proxy="perfect"), planted_rows(1, 160, draws=4, proxy="perfect")
    many = Problem([SMALL, several, LARGE], LARGE, dims=256)
    router = learn_router(many, train, 0)
    table = make_table(router, test)
    singles = report.single_points(table)
    assert singles["small*4"].cost < singles["large"].cost and singles["small*4"].score > singles["small"].score + 0.15
    routes = {router.candidates[i] for i in table.route(0.2)}
    assert "small*4" in routes
    blind = router.model_copy(update={"rewards": {}})
    assert report.single_points(make_table(blind, test))["small*4"].score < singles["small*4"].score - 0.1


def test_a_decision_is_a_few_thousand_calls_of_functions(tables: dict[str, Table]) -> None:
    """Some 2,600, which take 0.7 ms here, and no more for a longer text. Seconds would be those of a busy machine."""
    router, counts = tables["value"].router, list[int]()
    for words in (120, 480):
        text = " ".join(f"word{i} and" for i in range(words))
        seen = Counter[str]()
        sys.setprofile(lambda _frame, event, _argument, seen=seen: seen.update([event]))
        router.choose(router.scores(text), router.estimated_costs(text))
        sys.setprofile(None)
        counts.append(seen["call"] + seen["c_call"])
    assert all(1000 < count < 4000 for count in counts), counts


def test_what_is_written_down_decides_the_same(tables: dict[str, Table]) -> None:
    for table in tables.values():
        again = Router.parse(table.router.dump())
        assert again == table.router and again.dump() == table.router.dump()
        for row in planted_rows(5, 20):
            assert again.scores(row.text) == table.router.scores(row.text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reference": "other"}, "reference must be one"),
        ({"heads": {}}, "no head of small"),
        ({"costs": {}}, "no cost of small"),
        ({"version": 2}, "version"),
        ({"more": 1}, "more"),
    ],
)
def test_a_router_that_is_not_whole_is_refused(change: dict[str, Any], said: str, tables: dict[str, Table]) -> None:
    import json

    tree = {**json.loads(tables["value"].router.dump()), **change}
    with pytest.raises(SpecError, match=said) as caught:
        Router.parse(json.dumps(tree))
    assert caught.value.path == ("learned",)


@pytest.mark.slow
def test_estimated_and_realised_costs_are_both_reported(tables: dict[str, Table]) -> None:
    train, test = planted_rows(0, 240), planted_rows(1, 240)
    figures = report.compare(problem(), tables["value"], train, test, tables["value"].point(0.3), 0)
    names = {
        "router",
        "router, realised costs",
        "random mix",
        "cascade",
        "k-NN",
        "guarded k-NN",
        "shuffled labels",
        "oracle",
    }
    assert set(figures["area"]) == set(figures["cost_at_99"]) == names
    area = figures["area"]
    assert area["oracle"] > area["router"] > area["random mix"] and area["router"] > area["shuffled labels"]
    said = report.summary("answer", figures)
    assert "best single, large" in said and "shuffled labels" in said and "rows: large" in said


@pytest.mark.slow
def test_predictions_of_a_cross_table_have_not_seen_the_row() -> None:
    """Texts that are all different: who has seen a row knows its outcome, who has not does not."""
    rows = planted_rows(0, 60, visible=False)
    unique = [replace(row, text=f"unique{i} name{i}") for i, row in enumerate(rows)]
    router = learn_router(problem(), unique, 0)
    blind, seen = cross_table(problem(), router, unique, 0), make_table(router, unique)
    truth = [row.samples["small"][0].score for row in unique]

    def gap(table: Table) -> float:
        own = [scores[0] for scores in table.scores]
        right = statistics.mean(p for p, y in zip(own, truth, strict=True) if y)
        return right - statistics.mean(p for p, y in zip(own, truth, strict=True) if not y)

    assert gap(blind) < 0.06
    assert len(blind.scores) == len(rows) and blind.found == seen.found


@pytest.mark.long
@pytest.mark.slow
def test_what_a_row_came_to_has_no_part_in_its_own_prediction() -> None:
    """Another outcome of one row changes predictions of others in a cross table, and not its own."""
    rows = planted_rows(0, 24)
    router = learn_router(problem(), rows, 0)
    other = [
        replace(row, samples={model: tuple(replace(s, score=1 - s.score) for s in found) for model, found in turned})
        for row in rows[:3]
        for turned in [row.samples.items()]
    ]
    whole = cross_table(problem(), router, rows, 0).scores
    for i, turned in enumerate(other):
        changed = cross_table(problem(), router, [*rows[:i], turned, *rows[i + 1 :]], 0).scores
        assert changed[i] == whole[i] and changed != whole


def test_a_point_is_chosen_by_its_aim() -> None:
    points = [Point(0.9, 10.0, 0.0), Point(0.92, 8.0, 0.1), Point(0.85, 3.0, 0.2), Point(0.5, 1.0, 0.3)]
    assert choose_point(points, least=0.9) == points[1]
    assert choose_point(points, least=0.8) == points[2]
    assert choose_point(points, least=0.0, save=False) == points[1]
    assert choose_point(points, least=0.0, ceiling=5.0, save=False) == points[2]
    assert choose_point(points, least=0.95) is None and choose_point(points, least=0.9, ceiling=5.0) is None


@pytest.mark.parametrize("turned", [False, True])
def test_of_points_with_the_same_aim_the_better_or_the_cheaper_is_chosen(turned: bool) -> None:
    same_cost = [Point(0.8, 2.0, 0.0), Point(0.9, 2.0, 0.1)][:: -1 if turned else 1]
    assert choose_point(same_cost, least=0.5) == Point(0.9, 2.0, 0.1)
    same_score = [Point(0.9, 2.0, 0.0), Point(0.9, 1.0, 0.1)][:: -1 if turned else 1]
    assert choose_point(same_score, least=0.5, save=False) == Point(0.9, 1.0, 0.1)


def test_areas_and_costs_by_hand() -> None:
    cheap, strong = Point(0.4, 0.0), Point(0.8, 10.0)
    assert area_under(baselines.mix_curve(cheap, strong), cheap, strong) == pytest.approx(0.6)
    assert area_under([cheap, Point(0.8, 5.0), strong], cheap, strong) == pytest.approx(0.7)
    assert area_under([Point(0.6, 5.0)], cheap, strong) == pytest.approx(0.6)
    assert area_under([Point(0.6, 2.0), Point(0.7, 2.0), strong], cheap, strong) == pytest.approx(0.74)
    assert cost_at([cheap, Point(0.79, 5.0), strong], 0.79) == 5.0 and cost_at([cheap], 0.9) == float("inf")


def test_a_cascade_pays_for_all_that_it_asks() -> None:
    train, test = planted_rows(0, 200, proxy="perfect"), planted_rows(1, 200, proxy="perfect")
    points = baselines.cascade_curve(problem(), train, test, 0)
    singles = report.single_points(make_table(learn_router(problem(), train, 0, fit_constants), test))
    assert points[0].cost == pytest.approx(singles["small"].cost)
    assert points[-1].cost == pytest.approx(singles["small"].cost + singles["large"].cost)
    assert max(p.score for p in points) > singles["large"].score
    mute = [
        replace(r, samples={m: tuple(replace(s, answer=None) for s in f) for m, f in r.samples.items()}) for r in train
    ]
    assert baselines.cascade_curve(problem(), mute, mute, 0) == []


def test_neighbours_leave_the_reference_only_on_evidence() -> None:
    assert baselines._by_neighbours({"small": [1.0] * 9, "large": [0.0] * 9}, "large", True) == "small"
    assert baselines._by_neighbours({"small": [0.0] * 9, "large": [1.0] * 9}, "large", True) == "large"
    weak = {"small": [1.0, 0.0, 1.0, 0.0, 1.0], "large": [0.0, 1.0, 0.0, 1.0, 0.9]}
    assert baselines._by_neighbours(weak, "large", True) == "large"
    assert baselines._by_neighbours(weak, "large", False) == "small"
    assert baselines._by_neighbours({"small": [], "large": []}, "large", True) == "large"
