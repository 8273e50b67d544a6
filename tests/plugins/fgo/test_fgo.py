"""`fgo` and `rewrite`: dividing, merging, the guard, planted worlds, and the size of the proposer's prompts."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.planted import PlantedLM, lower_bound, plant

from workbench import Optimizer, Study, Workflow
from workbench.store import Store
from workbench.study import make_optimizer
from workbench.task import Example
from workbench_bench.run_world import run_world
from workbench_bench.worlds import WORLDS, read_rules
from workbench_fgo import optimizer as fgo_optimizer
from workbench_fgo.divide import split_at_random, split_by_group
from workbench_fgo.merge import merge_workflows, unite_rows
from workbench_fgo.optimizer import Fgo, Module
from workbench_kit.prompting import Proposer

ROWS = [Example(str(i), {"text": f"row {i}", "type": "ab"[i % 3 == 0]}) for i in range(25)]


@pytest.mark.parametrize("size", [1, 4, 8, 25, 40])
def test_random_parts_hold_every_row_once(size: int) -> None:
    parts = split_at_random(ROWS, size, random.Random(1))
    assert sorted(int(r.id) for p in parts for r in p) == list(range(25))
    assert len(parts) == -(-25 // size) and max(map(len, parts)) <= size
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("size", [3, 8, 9, 30])
def test_groups_stay_together_where_they_fit(size: int) -> None:
    """9 rows of type b, 16 of a."""
    parts = split_by_group(ROWS, size, random.Random(1), lambda row: row["type"])
    assert sorted(int(r.id) for p in parts for r in p) == list(range(25)) and max(map(len, parts)) <= size
    mixed = [p for p in parts if len({r["type"] for r in p}) == 2]
    assert len(mixed) <= 1


def test_a_union_of_functions_and_of_memories() -> None:
    one, two = {"name": "f", "source": "1"}, {"name": "f", "source": "2"}
    assert unite_rows([[one], [two, {"name": "g"}]], "functions") == [one, {"name": "g"}]
    live = {"inputs": {"x": 1}, "outputs": {"y": 2}, "text": "", "utility": 0.9}
    assert unite_rows([[live], [{**live, "utility": 0.1, "quarantined": "by hand"}]], "memories")[0]["quarantined"]


def test_a_union_of_demos_keeps_rows_that_share_a_name() -> None:
    rows = [{"name": ["Ann"], "age": 1}, {"name": ["Ann"], "age": 2}]
    assert unite_rows([rows[:1], rows], "demos") == rows


def test_an_unknown_inner_optimizer_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match="Did you mean 'rewrite'"):
        Fgo(optimizer="rewrit")
    with pytest.raises(ValueError, match="name one optimizer"):
        Fgo(optimizer={"rewrite": {}, "random": {}})
    with pytest.raises(ValueError, match="width"):
        Fgo(optimizer={"rewrite": {"width": 0}})


@pytest.mark.slow
@pytest.mark.parametrize("world", ["rules", pytest.param("conflict", marks=pytest.mark.long)])
def test_beats_random_search_at_equal_calls(world: str) -> None:
    seeds = range(8)
    found = [run_world(WORLDS[world], "fgo", calls=1000, seed=s) for s in seeds]
    others = [run_world(WORLDS[world], "random", calls=1000, seed=s) for s in seeds]
    assert all(r.calls <= 1000 and r.error is None for r in found)
    assert lower_bound([f.accuracy - o.accuracy for f, o in zip(found, others, strict=True)]) > 0, (found, others)


def test_rows_can_be_divided_by_a_field() -> None:
    found = run_world(WORLDS["rules"], {"fgo": {"by": "topic"}}, calls=900, seed=1)
    assert found.error is None and found.accuracy > 0.5


def test_divide_by_a_field_that_is_not_there_names_those_that_are() -> None:
    found = run_world(WORLDS["rules"], {"fgo": {"by": "kind"}}, calls=300, seed=1)
    assert found.error is not None and "Known: label, text, topic." in found.error


@pytest.mark.long
@pytest.mark.slow
def test_the_proposers_prompts_stay_small_as_train_grows() -> None:
    """Against all rows at once: at most half the prompt tokens a proposal, and no growth of the largest prompt."""
    largest, scores = [], []
    for train in (48, 96, 192):
        rows, calls = {"train": train, "val": 40, "test": 60}, 500 + 8 * train
        one = [
            run_world(WORLDS["rules"], {"rewrite": {"batch": None}}, calls=calls, seed=s, rows=rows) for s in range(3)
        ]
        ours = [run_world(WORLDS["rules"], "fgo", calls=calls, seed=s, rows=rows) for s in range(3)]

        def mean(runs: list[Any]) -> float:
            return sum(r.proposer["prompt_tokens"] for r in runs) / sum(r.proposer["calls"] for r in runs)

        assert mean(ours) <= 0.5 * mean(one), (train, mean(ours), mean(one))
        largest.append(max(r.proposer["largest_prompt"] for r in ours))
        scores += [a.accuracy - b.accuracy for a, b in zip(ours, one, strict=True)]
    assert max(largest) <= 1.25 * largest[0], largest
    assert sum(scores) / len(scores) >= 0, scores


class Lossy:
    """A proposer in whose hands every merge becomes the same few words."""

    def __init__(self, text: str):
        self.text, self.asked = text, 0

    async def prompt(self, messages: Any, workflow: Workflow, address: str, replica: int = 0) -> str | None:
        self.asked += 1
        return self.text


def test_who_agrees_is_not_asked() -> None:
    base = Workflow({"name": "w", "nodes": {"a": {"kind": "predict", "signature": "x -> y", "instructions": "Plain."}}})
    one, two = (base.patched({"nodes.a.instructions": text}) for text in ("One.", "Two."))
    lossy: Any = Lossy("Nothing.")
    assert asyncio.run(merge_workflows(lossy, base, [(0.9, one), (0.5, one)], 0)) == one and lossy.asked == 0
    made = asyncio.run(merge_workflows(lossy, base, [(0.9, one), (0.5, two)], 0))
    assert made is not None and made.get("nodes.a.instructions") == "Nothing." and lossy.asked == 1


@pytest.mark.parametrize(("merge", "kept"), [("Right. Also.", "Right. Also."), ("Nothing.", "Right.")])
def test_a_merge_that_loses_what_was_learned_is_not_kept(tmp_path: Path, merge: str, kept: str) -> None:
    """The guard: what a merge must not be worse than is the best of what goes in."""

    def skill(request: Any) -> float:
        return 1.0 if "Right." in str(request.messages[0]["content"]) else 0.2

    found: list[Module] = []

    class Once(Optimizer):
        """Merges two workflows, one of them right."""

        async def optimize(self, study: Study) -> Workflow:
            start = study.workflow
            group = [
                Module(start.patched({"nodes.sort.instructions": t}), list(study.train[i::2]))
                for i, t in enumerate(("Right.", "Wrong."))
            ]
            fgo_optimizer.Proposer = lambda *a, **k: Lossy(merge)
            found.append(await Fgo()._merge(study, start, group))
            return start

    try:
        plant_with(tmp_path, skill, Once())
    finally:
        fgo_optimizer.Proposer = Proposer
    assert found[0].workflow.get("nodes.sort.instructions") == kept and len(found[0].rows) == 40


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_where_calls_are_short_the_one_that_gained_most_goes_on_and_the_loss_is_told(
    order: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lossy, told, found = Lossy("Merged."), list[tuple[Any, ...]](), list[Module]()
    monkeypatch.setattr(fgo_optimizer, "Proposer", lambda *a, **k: lossy)
    monkeypatch.setattr(fgo_optimizer, "GUARD_ROWS", 40)

    class Short(Optimizer):
        """Merges three workflows with fewer calls than comparing them takes."""

        async def optimize(self, study: Study) -> Workflow:
            start = study.workflow
            made = [
                (start, 0.0),
                (start.patched({"nodes.sort.instructions": "Right."}), 0.5),
                (start.patched({"nodes.sort.instructions": "Wrong."}), 0.1),
            ]
            group = [Module(made[i][0], list(study.train[i::3]), made[i][1]) for i in order]
            assert study.remaining() < 4 * 40
            study.progress.on_note = lambda *note: told.append(note)
            found.append(await Fgo()._merge(study, start, group))
            return start

    plant_with(tmp_path, lambda r: 0.5, Short(), calls=250)
    assert found[0].workflow.get("nodes.sort.instructions") == "Right." and len(found[0].rows) == 40
    assert found[0].gain == 0.5 and lossy.asked == 0
    assert [(note[2]["dropped"], note[2]["gain"]) for note in told] == [(2, 0.5)] and "too few calls" in told[0][1]


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        (155, ["2 of 4 parts are left out"]),
        (120, ["4 of 4 parts are left out"]),
        (400, []),
    ],
)
def test_parts_that_are_not_paid_for_are_told(calls: int, said: list[str], tmp_path: Path) -> None:
    """Four parts of ten rows share six tenths of what baseline and whole proof leave: costs decide, too."""
    told = list[str]()

    class First(Optimizer):
        """One round of fgo."""

        async def optimize(self, study: Study) -> Workflow:
            study.progress.on_note = lambda optimizer, message, figures: told.append(message)
            await Fgo(size=10, optimizer={"random": {"trials": 1}})._round(study, study.workflow)
            return study.workflow

    plant_with(tmp_path, lambda r: 0.5, First(), calls=calls, objectives=["score", "tokens"])
    assert [message.partition(":")[0] for message in told if "left out" in message] == said


def merges(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[Module], Module]]:
    """What goes into each merge and what comes out, of all fgo from now on."""
    seen: list[tuple[list[Module], Module]] = []
    merge = Fgo._merge

    async def watched(self: Fgo, study: Study, start: Workflow, group: Any) -> Module:
        made = await merge(self, study, start, group)
        seen.append((list(group), made))
        return made

    monkeypatch.setattr(Fgo, "_merge", watched)
    return seen


def test_eight_parts_are_merged_three_at_a_time_in_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = merges(monkeypatch)
    monkeypatch.setattr(fgo_optimizer, "FAN_IN", 3)
    settings = {"size": 6, "rounds": 1}
    found = run_world(WORLDS["rules"], {"fgo": settings}, calls=1200, seed=0)
    assert found.error is None and [len(group) for group, _ in seen] == [3, 3, 2, 3]
    assert seen[3][0] == [made for _, made in seen[:3]], "the second step merges what the first one made"
    assert len({row.id for row in seen[3][1].rows}) == 48
    parts = [m for group, _ in seen[:3] for m in group]
    assert all(len(m.rows) == 6 and m.gain >= 0 for m in parts) and max(m.gain for m in parts) > 0
    rules = [len(read_rules(str(m.workflow.get("nodes.sort.instructions")))) for m in (*parts, seen[3][1])]
    assert rules[-1] > max(rules[:-1]), "it has rules of several parts"


def test_one_part_is_the_inner_optimizer_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, found = merges(monkeypatch), list[Workflow | None]()
    inner = {"rewrite": {"width": 1, "rounds": 2}}

    class Both(Optimizer):
        """fgo with a part that holds all rows, and what it runs inside, by themselves."""

        async def optimize(self, study: Study) -> Workflow:
            start, rows = study.workflow, len(study.train)
            study.rng = random.Random(7)
            found.append(await Fgo(size=rows, optimizer=inner)._round(study, start))
            study.rng = random.Random(7)
            (part,) = split_at_random(study.train, rows, study.rng)
            alone = study.narrow(train=part, val=part, workflow=start, share=0.6)
            await alone.evaluate(start)
            found.append(await alone.improve(make_optimizer(inner)))
            return start

    def skill(request: Any) -> float:
        return 0.3 if "Plain." in str(request.messages[0]["content"]) else 0.9

    plant_with(tmp_path, skill, Both(), calls=2000, roles={"proposer": "templates/instructions"})
    assert found[0] == found[1] and seen == []
    assert found[0] is not None and found[0].get("nodes.sort.instructions") != "Plain.", "something was learned"


def plant_with(folder: Path, skill: Any, optimizer: Optimizer, calls: int = 600, **spec: Any) -> None:
    """`plant` with an optimizer that has no name in a file."""
    from workbench.run import Options, optimize

    plant(folder, skill, "random", calls=130, **spec)
    pool = PlantedLM(skill)
    report = optimize(
        folder / "workflow.yaml",
        database=folder / "own.db",
        pool=pool,
        optimizers=[("own", optimizer)],
        options=Options([("budget.calls", calls)], str(folder / "o.yaml")),
    )
    assert report.status == "finished", report.error


def test_rewrite_begins_where_train_is_larger_than_the_budget(tmp_path: Path) -> None:
    def skill(request: Any) -> float:
        return 0.9 if "allowed values" in str(request.messages[0]["content"]) else 0.3

    report, _ = plant(
        tmp_path, skill, "rewrite", calls=200, rows=(300, 24, 24), roles={"proposer": "templates/instructions"}
    )
    assert report.spent["by_role"]["proposer"]["calls"] > 0


def test_a_share_of_tokens_leaves_room_for_the_merge(tmp_path: Path) -> None:
    """No ceiling of calls: the parts may not use all tokens up, so that what they made gets its turn on val."""
    report, _ = plant(
        tmp_path,
        lambda r: 0.3,
        "fgo",
        calls=100_000,
        rows=(48, 16, 16),
        budget={"tokens": 80_000},
        roles={"proposer": "templates/instructions"},
    )
    store = Store(tmp_path / "run.db")
    on_val = list(store.rows("select candidate from evaluations where split = 'val' and n > 0"))
    store.close()
    assert len(on_val) >= 2 and report.spent["prompt_tokens"] > 20_000, "not the baseline alone"
