"""From comments to metrics in planted worlds: what is recovered, what the controls say, and what a second call pays."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted_comments import World, plant, rules, say_rules
from tests.helpers.scripted import Script

from workbench.errors import LMError, SpecError
from workbench.lm import Request, Response
from workbench.proof import interval
from workbench.spec import BudgetSpec, lm_spec
from workbench.store import Store
from workbench_feedback import induce as induction
from workbench_feedback.clustering import Groups, cut_tree
from workbench_feedback.comments import Comment, Comments
from workbench_feedback.coverage import Agreement, Match, interval_of_ratio, shuffle_traces
from workbench_feedback.grounding import Aspect
from workbench_feedback.induce import InducedSet, choose, hold_out, induce, max_calls
from workbench_feedback.settings import Induction
from workbench_kit.logs import Log, LogStep

LM = lm_spec({"model": "openai/scripted", "attempts": 1})


def settings(**given: Any) -> Induction:
    return Induction.model_validate(given)


def induced(
    world: World, folder: Path, script: Script | None = None, calls: int | None = 5000, **given: Any
) -> InducedSet:
    budget = BudgetSpec.model_validate({"calls": calls})
    chosen, pool = settings(**given), script or rules()
    return induce(world.comments, chosen, LM, database=str(folder / "w.db"), budget=budget, pool=pool)


def true_aspects(world: World) -> list[Aspect]:
    """The comments that are about something, as aspects."""
    return [Aspect(c.trace, 0, "q", c.text, "", 1, c.place) for c in world.comments.comments if world.topics[c.place]]


def agreement(world: World, aspects: list[Aspect], groups: Groups) -> float:
    """The adjusted Rand index of groups with the topics."""
    label = {i: number for number, group in enumerate(groups) for i in group}
    from sklearn.metrics import adjusted_rand_score

    return adjusted_rand_score(world.truth(aspects), [label[i] for i in range(len(aspects))])


# Recovery


@pytest.mark.parametrize("k", [3, 4, 5])
def test_groups_by_words_are_the_hidden_behaviours_and_random_ones_are_not(k: int) -> None:
    found, drawn = [], []
    for seed in range(5):
        world = plant(k, traces=30, seed=seed)
        aspects = true_aspects(world)
        found.append(agreement(world, aspects, cut_tree(aspects, k)))
        rng = random.Random(seed)
        labels = [rng.randrange(k) for _ in aspects]
        drawn.append(
            agreement(world, aspects, tuple(tuple(i for i, x in enumerate(labels) if x == g) for g in range(k)))
        )
    assert sum(found) / 5 > 0.8 and min(found) > 0.3
    assert max(map(abs, drawn)) < 0.15


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", [3, 5])
def test_the_number_of_metrics_is_that_of_the_hidden_behaviours(k: int, seed: int, tmp_path: Path) -> None:
    world = plant(k, seed=seed)
    found = induced(world, tmp_path, seed=seed)
    assert [len(t.metrics) for t in found.trials] == [2, 3, 4, 5, 6, 7, 8]
    assert len(found.metrics) == k
    assert len({metric.name for metric in found.metrics}) == k and not any(" and " in m.name for m in found.metrics)


def test_each_example_leads_to_the_comment_and_the_step_that_it_is_of(tmp_path: Path) -> None:
    world = plant(3)
    lines = {comment.place: comment for comment in world.comments.comments}
    metrics = induced(world, tmp_path).metrics
    examples = [(m, one) for m in metrics for one in (*m.good, *m.bad)]
    assert len(examples) >= 6
    for metric, one in examples:
        assert one.comment and world.topics[one.comment] == metric.name and one.step is not None
        log = world.comments.traces[lines[one.comment].trace]
        assert one.trace == log.id and (one.quote or "") in f"{one.behaviour} {log.steps[one.step].content}"


def test_comments_on_the_wrong_traces_are_mostly_dropped_and_cover_less(tmp_path: Path) -> None:
    """What is left of shuffled comments are those whose topic the other trace shows, too."""
    right, wrong = plant(4, traces=30, noise=0.0), plant(4, traces=30, noise=0.0, shuffled=True)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = induced(right, tmp_path / "a"), induced(wrong, tmp_path / "b")
    assert one.counts["dropped_unfounded"] == 0 < 10 < other.counts["dropped_unfounded"]
    assert one.held_out is not None and other.held_out is not None and one.shuffled is not None
    assert one.held_out.coverage == 1.0
    assert other.held_out.coverage is not None and other.held_out.coverage < 0.8
    assert one.shuffled.coverage is not None and one.shuffled.coverage < 0.6


def test_talk_about_nothing_in_the_trace_makes_no_aspect(tmp_path: Path) -> None:
    world = plant(3, noise=0.4)
    nothing = sum(topic is None for topic in world.topics.values())
    found = induced(world, tmp_path)
    assert nothing > 5 and found.counts["dropped_unfounded"] == nothing
    assert found.counts["aspects"] == len(world.topics) - nothing


def test_groups_by_words_ask_for_no_groups(tmp_path: Path) -> None:
    found = induced(plant(4), tmp_path, script := rules(), clustering="tfidf")
    assert found.metrics and not any("Sort the observations" in str(r.messages) for r in script.requests)


# The held-out traces


@pytest.mark.parametrize(
    ("n", "share", "held"), [(10, 0.3, 3), (2, 0.3, 1), (2, 0.9, 1), (1, 0.5, 0), (10, 0, 0), (3, 0.01, 1)]
)
def test_a_share_of_the_traces_is_held_out(n: int, share: float, held: int) -> None:
    found = hold_out(range(n), share, 0)
    assert len(found) == held and found <= set(range(n))


def test_no_metric_is_made_of_comments_on_held_out_traces(tmp_path: Path) -> None:
    world = plant(3, traces=12, seed=2)
    held = hold_out(range(12), 0.3, 2)
    found = induced(world, tmp_path, script := rules(), seed=2, examples=20)
    lines = {comment.place: comment.trace for comment in world.comments.comments}
    sources = {lines[one.comment] for m in found.metrics for one in (*m.good, *m.bad) if one.comment}
    assert len(held) == 4 and sources and not sources & held
    assert found.held_out is not None and len(found.held_out.matches) <= len(held)
    for request in script.requests:
        if "Make one metric" in str(request.messages):
            assert not any(f"done {trace}:" in str(request.messages) for trace in held)


def test_other_seeds_hold_out_other_traces() -> None:
    assert len({hold_out(range(20), 0.3, seed) for seed in range(5)}) > 1
    assert hold_out(range(20), 0.3, 1) == hold_out(range(20), 0.3, 1)


def test_without_held_out_traces_nothing_is_said_of_coverage(tmp_path: Path) -> None:
    found = induced(plant(3, traces=8), tmp_path, held_out=0.0)
    assert found.metrics and found.held_out is None and found.shuffled is None


# Coverage and redundancy


def test_coverage_and_redundancy_are_those_counted_by_hand() -> None:
    two = Agreement((Match(3, 2, 4, 2), Match(1, 0, 0, 0), Match(0, 0, 2, 2)))
    assert (two.coverage, two.redundancy) == (2 / 4, 4 / 6)
    assert two.balance == pytest.approx(2 * 0.5 * (1 / 3) / (0.5 + 1 / 3))
    none = Agreement((Match(2, 0, 0, 0),))
    assert (none.coverage, none.redundancy, none.balance) == (0.0, None, 0.0)
    assert Agreement(()).coverage is None and Agreement((Match(2, 2, 2, 0),)).balance == 1.0


def test_the_interval_is_wilsons_for_one_aspect_a_trace_and_wider_for_the_same_in_fewer_traces() -> None:
    ones = [1, 0, 1, 1, 0, 1, 1, 1]
    assert interval_of_ratio(ones, [1] * 8) == interval([float(x) for x in ones])
    narrow, wide = interval_of_ratio(ones, [1] * 8), interval_of_ratio([4, 2], [4, 4])
    assert wide[1] - wide[0] > narrow[1] - narrow[0]
    low, high = interval_of_ratio([3, 0, 1], [3, 1, 2])
    assert 0 <= low < 4 / 6 < high <= 1
    assert interval_of_ratio([0], [0]) == (0.0, 1.0)


@pytest.mark.slow
def test_the_interval_covers_the_truth_where_aspects_of_a_trace_agree() -> None:
    rng, covered = random.Random(0), 0
    for _ in range(200):
        wholes = [rng.choice((1, 2, 4)) for _ in range(15)]
        parts = [whole * (rng.random() < 0.7) for whole in wholes]
        low, high = interval_of_ratio(parts, wholes)
        covered += low <= 0.7 <= high
    assert covered >= 190


def test_the_control_gives_each_trace_the_comments_of_another_one() -> None:
    for seed in range(5):
        found = shuffle_traces([3, 1, 8, 5], seed)
        assert sorted(found) == sorted(found.values()) == [1, 3, 5, 8]
        assert all(one != other for one, other in found.items())
    assert shuffle_traces([3], 0) == {}


def test_the_best_balance_wins_and_of_equal_ones_the_fewest_metrics() -> None:
    def trial(n: int, *match: int) -> induction.Trial:
        return induction.Trial(((0,),) * n, (None,) * n, Agreement((Match(*match),)))  # type: ignore[arg-type]

    assert len(choose([trial(2, 4, 2, 2, 0), trial(3, 4, 4, 4, 0), trial(4, 4, 4, 6, 2)]).metrics) == 3
    assert len(choose([trial(4, 4, 4, 5, 1), trial(3, 4, 4, 5, 1)]).metrics) == 3


# Paying once


def test_the_same_command_again_pays_nothing_and_finds_the_same(tmp_path: Path) -> None:
    world = plant(3, traces=10)
    first = induced(world, tmp_path, script := rules())
    again = induced(world, tmp_path, Script(lambda request: pytest.fail("paid twice")))
    assert first.paid["calls"] == len(script.requests) > 50
    assert again.paid["calls"] == 0 and again.run == first.run
    assert again.metrics == first.metrics and again.report() == first.report()


@pytest.mark.parametrize("calls", [1, 7, 40, 75, 100])
def test_a_budget_that_ends_midway_loses_nothing(calls: int, tmp_path: Path) -> None:
    world, script = plant(3, traces=10), rules()
    cut = induced(world, tmp_path, script, calls=calls)
    assert cut.stopped and not cut.metrics and len(script.requests) <= calls
    whole = induced(world, tmp_path, script)
    assert whole.run == cut.run and whole.stopped is None and whole.metrics
    (tmp_path / "new").mkdir()
    straight = rules()
    assert induced(world, tmp_path / "new", straight).report()["tried"] == whole.report()["tried"]
    assert len(script.requests) == len(straight.requests)


def test_other_comments_or_settings_are_another_run(tmp_path: Path) -> None:
    world = plant(3, traces=8)
    runs = {induced(world, tmp_path, **given).run for given in ({}, {"seed": 1}, {"clustering": "tfidf"})}
    runs.add(induced(plant(3, traces=8, seed=1), tmp_path).run)
    assert len(runs) == 4


def test_a_server_that_is_down_ends_the_command_and_what_was_answered_is_kept(tmp_path: Path) -> None:
    world = plant(3, traces=10)

    def fails(request: Request) -> str:
        if "Rate the log" in str(request.messages):
            raise LMError("server", "down")
        return say_rules(request)

    with pytest.raises(LMError, match="down"):
        induced(world, tmp_path, Script(fails))
    whole = induced(world, tmp_path, script := rules())
    assert whole.metrics and not any("Break the comment" in str(r.messages) for r in script.requests)


class SlowScript(Script):
    """The first request fails at once; the others are answered a moment later."""

    async def complete(self, request: Request) -> Response:
        if self.requests:
            await asyncio.sleep(0.02)
        return await super().complete(request)


def test_what_is_in_flight_at_an_error_is_recorded(tmp_path: Path) -> None:
    world = plant(3, traces=4)

    def fails(request: Request) -> str:
        if len(first.requests) == 1:
            raise LMError("server", "down")
        return say_rules(request)

    with pytest.raises(LMError, match="down"):
        induced(world, tmp_path, first := SlowScript(fails))
    sent = len(first.requests)
    assert sent == len(world.comments.comments) == 8
    induced(world, tmp_path, again := rules())
    assert sum("Break the comment" in str(r.messages) for r in again.requests) == 1


def test_the_calls_are_not_more_than_were_said_before(tmp_path: Path) -> None:
    world = plant(4, traces=12)
    most = max_calls(world.comments, settings())
    script = Script(spoilt(say_rules, "Rate the log"))
    induced(world, tmp_path, script)
    assert len(script.requests) <= most


def test_making_and_judging_are_billed_apart(tmp_path: Path) -> None:
    induced(plant(3, traces=8), tmp_path)
    store = Store(tmp_path / "w.db")
    roles = {row["role"] for row in store.rows("select distinct role from calls")}
    kind = store.row("select kind, status from runs")
    store.close()
    assert roles == {"proposer", "judge"} and kind is not None and tuple(kind) == ("induce", "induced")


# Answers that cannot be read


def spoilt(say: Callable[[Request], Any], mark: str) -> Callable[[Request], Any]:
    return lambda request: "I would rather not." if mark in str(request.messages) else say(request)


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("Break the comment", "nothing could be made.*rather not"),
        ("Make one metric", "no metric could be made.*rather not"),
    ],
)
def test_a_model_that_answers_nonsense_is_named_as_the_cause(mark: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=said):
        induced(plant(3, traces=6), tmp_path, Script(spoilt(say_rules, mark)))


def test_what_a_judge_says_that_cannot_be_read_is_left_out_and_counted(tmp_path: Path) -> None:
    found = induced(plant(3, traces=10), tmp_path, Script(spoilt(say_rules, "Rate the log")))
    assert found.counts["traces_unread"] > 0 < found.counts["unread_unparsed"]
    assert found.held_out is not None and found.held_out.coverage is None


def test_groups_that_cannot_be_read_for_one_number_leave_the_others(tmp_path: Path) -> None:
    found = induced(plant(3), tmp_path, Script(spoilt(say_rules, "into exactly 3 groups")))
    assert [len(t.metrics) for t in found.trials] == [2, 4, 5, 6, 7, 8]


def test_one_aspect_is_enough_and_the_fewest_are_not_more_than_the_most(tmp_path: Path) -> None:
    log = Log("one", (LogStep("agent", "well done: stock shelf"),))
    world = World(Comments((Comment("c:1", "I like the stock shelf", 0),), (log,)), {"c:1": "stock"})
    found = induced(world, tmp_path)
    assert [m.name for m in found.metrics] == ["stock"] and found.held_out is None
    with pytest.raises(SpecError, match="fewest metrics"):
        induced(world, tmp_path, least=5, most=4)
