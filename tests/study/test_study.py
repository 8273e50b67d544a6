"""A study: the best candidate so far, fairly compared; nothing evaluated twice; inner studies keep to themselves."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.helpers.journal import FakeLM, journal, reply, run
from tests.helpers.scripted import make_workflow

from workbench.errors import BudgetSpent, ShareSpent
from workbench.lm import LMPool, Request
from workbench.runtime import Runtime
from workbench.spec import DomainSpec, lm_spec
from workbench.study import (
    Evaluation,
    Evaluator,
    Optimizer,
    Progress,
    RandomTrial,
    Result,
    Study,
    estimate_calls,
)
from workbench.task import Example
from workbench.workflow import Workflow
from workbench_training.rollouts.position import recall_evaluation

ROWS = [Example(str(n), {"text": f"row {n}", "label": "yes"}) for n in range(12)]


class OneLM(LMPool):
    def __init__(self, lm: FakeLM):
        super().__init__()
        self.lm = lm

    def get(self, spec: Any) -> Any:
        return self.lm


def label(example: Example, prediction: Any, trace: Any) -> float:
    return float(prediction["label"] == example["label"])


def answer(request: Request) -> Any:
    """Right on as many rows as the instructions say."""
    row = int(str(request.messages[-1]["content"]).split("row ")[1].split()[0])
    right = int(str(request.messages[0]["content"]).split("Right ")[1].split()[0])
    return reply("yes" if row < right else "no")


def studying(folder: Path, body: Callable[[Study], Any], **budget: Any) -> tuple[list[str], FakeLM]:
    """What happened, in order, and the model. The workflow `Right 6` is right on 6 of 12 rows."""
    told: list[str] = []
    lm = FakeLM(answer)

    async def on_evaluation(evaluation: Evaluation) -> None:
        told.append(f"evaluated {instructions(evaluation.workflow)} {evaluation.complete}")

    async def main() -> None:
        with journal(folder / "run.db", **(budget or {"calls": 1000})) as ledger:
            runtime = Runtime(ledger, lm_spec({"model": "openai/fake", "attempts": 1}), {}, OneLM(lm))
            workflow = make_workflow({"n": {"predict": "text -> label", "instructions": "Right 6"}}, folder)
            study = Study(
                workflow=workflow,
                train=ROWS[:4],
                val=ROWS,
                evaluator=Evaluator(runtime, label, 4, block=4),
                ledger=ledger,
                progress=Progress(lambda w, name: told.append(f"candidate {name}"), on_evaluation),
                rng=random.Random(0),
                name="test",
            )
            await body(study)

    run(main)
    return told, lm


def right(study: Study, n: int) -> Workflow:
    return study.workflow.patched({"nodes.n.instructions": f"Right {n}"})


def instructions(workflow: Workflow) -> str:
    return workflow.get("nodes.n.instructions")


def test_the_best_is_the_highest_on_all_of_val_and_ties_keep_the_earlier(tmp_path: Path) -> None:
    async def main(study: Study) -> None:
        assert study.best == study.workflow and study.best_evaluation is None
        for n, best in ((6, 6), (4, 6), (8, 8), (3, 8)):
            found = await study.evaluate(right(study, n))
            assert found.score == n / 12 and instructions(study.best) == f"Right {best}"
        tied = right(study, 8).patched({"nodes.n.decoding.max_tokens": 7})
        assert (await study.evaluate(tied)).score == 8 / 12
        assert study.best == right(study, 8), "a tie is no improvement"
        await study.evaluate(right(study, 12), ROWS[:3])
        assert study.best == right(study, 8), "a part of the rows decides nothing"

    studying(tmp_path, main)


def test_a_candidate_is_paid_for_once_and_replicas_do_not_win(tmp_path: Path) -> None:
    async def main(study: Study) -> None:
        first = await study.evaluate(right(study, 5))
        assert await study.evaluate(right(study, 5)) is study.progress.complete[first.workflow.hash]
        hot = right(study, 9).patched({"nodes.n.decoding.temperature": 1.0})
        await study.evaluate(hot, replica=1)
        assert study.best == right(study, 5) and hot.hash not in study.progress.complete
        traced = await study.evaluate(right(study, 5), traces=True)
        assert all(r.trace is not None for r in traced.results)
        assert all(r.trace is None for r in study.progress.complete[first.workflow.hash].results), "memory stays flat"

    told, lm = studying(tmp_path, main)
    assert len(lm.requests) == 24
    assert told.count("candidate test") == 4


def test_what_an_earlier_process_evaluated_is_among_what_was_tried(tmp_path: Path) -> None:
    """Or an optimizer that looks at it would do something else in a run that was resumed."""

    async def main(study: Study) -> None:
        first, other = await study.evaluate(study.workflow), right(study, 7)
        assert [*study.progress.tried] == [first.workflow.hash]
        study.progress.stored = lambda workflow: replace(first, workflow=workflow)
        assert await recall_evaluation(study, other) is not None
        assert [*study.progress.tried] == [first.workflow.hash, other.hash]

    studying(tmp_path, main)


def test_optimizers_tell_of_candidates_in_one_way() -> None:
    """Or what looks at the candidates of a run, as `evolve` does, misses some."""
    root = Path(__file__).parents[2]
    tell = [
        path.name
        for folder in ("core", "plugins")
        for path in sorted((root / folder).rglob("*.py"))
        if ".on_candidate(" in path.read_text(encoding="utf-8")
    ]
    assert tell == ["standing.py"]


def test_a_race_against_the_best_cannot_be_won_by_a_part(tmp_path: Path) -> None:
    async def main(study: Study) -> None:
        await study.evaluate(right(study, 9), race=True)  # nothing to race against yet
        lost = await study.evaluate(right(study, 0), race=True)
        assert not lost.complete and len(lost.results) == 4, "8 rows are left, the best has 9"
        assert lost.workflow.hash not in study.progress.complete and study.best == right(study, 9)
        assert (await study.evaluate(right(study, 10), race=True)).complete and study.best == right(study, 10)
        own = await study.evaluate(right(study, 11), race=lambda scores: True)
        assert not own.complete and study.best == right(study, 10)

    told, _ = studying(tmp_path, main)
    assert [t for t in told if t.startswith("evaluated")] == [
        "evaluated Right 9 True",
        "evaluated Right 0 False",
        "evaluated Right 10 True",
        "evaluated Right 11 False",
    ]


@given(st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, 1.0]), min_size=1, max_size=12), st.data())
def test_a_candidate_equal_on_all_rows_is_never_better(scores: list[float], data: st.DataObject) -> None:
    """Nor one that is as good on other rows: the mean is the same to the last bit."""

    async def nobody(evaluation: Evaluation) -> None:
        pass

    study = Study(
        workflow=Workflow({"nodes": {}}),
        train=(),
        val=(),
        evaluator=None,
        ledger=None,  # type: ignore[arg-type]
        progress=Progress(lambda w, n: None, nobody),
        rng=random.Random(0),
    )

    def evaluation(values: list[float], name: str) -> Evaluation:
        results = tuple(Result(ROWS[0], v) for v in values)
        return Evaluation(Workflow({"lm": name, "nodes": {}}), "val", results, True)

    async def main() -> None:
        await study.record(evaluation(scores, "first"))
        await study.record(evaluation(list(scores), "same"))
        await study.record(evaluation(data.draw(st.permutations(scores)), "other rows"))
        assert study.best.tree["lm"] == "first"

    run(main)


def test_what_the_budget_affords(tmp_path: Path) -> None:
    async def main(study: Study) -> None:
        assert study.affords(study.workflow) and study.remaining() == 30
        await study.evaluate(study.workflow)
        assert study.affords(right(study, 1)) and study.remaining() == 18
        voted = study.workflow.patched({"nodes.n.samples": 2, "nodes.n.decoding.temperature": 1.0})
        assert not study.affords(voted) and study.affords(voted, ROWS[:9]) and not study.affords(voted, ROWS[:10])
        study.ledger.reserve_for_proof(calls=7)
        assert study.remaining() == 11 and not study.affords(right(study, 1))
        with pytest.raises(BudgetSpent):
            await study.evaluate(right(study, 1))
        assert study.best == study.workflow and right(study, 1).hash not in study.progress.complete
        evaluation = study.best_evaluation
        assert evaluation is not None and estimate_calls(evaluation, 5) == 5

    studying(tmp_path, main, calls=30)


def test_inner_studies_keep_their_own_best(tmp_path: Path) -> None:
    async def main(study: Study) -> None:
        await study.evaluate(right(study, 6))
        part = study.narrow(val=ROWS[:6], name="inner")
        assert part.name == "test/inner" and part.best == study.workflow
        await part.evaluate(right(part, 5))
        assert part.best == right(part, 5) and study.best == right(study, 6)
        same = study.narrow(train=ROWS[:1], workflow=right(study, 2))
        assert same.train == ROWS[:1] and same.best == study.best, "on the whole of val it is the same race"
        await same.evaluate(right(same, 7))
        assert study.best == right(study, 7)

    told, _ = studying(tmp_path, main)
    assert [t for t in told if t.startswith("evaluated")] == ["evaluated Right 6 True", "evaluated Right 7 True"]


def test_a_share_of_the_budget_ends_an_inner_optimizer_and_not_the_run(tmp_path: Path) -> None:
    class Greedy(Optimizer):
        """Asks until it is stopped."""

        async def optimize(self, study: Study) -> Workflow:
            for number in range(100):
                await study.evaluate(right(study, 1).patched({"nodes.n.instructions": f"Right 1 {number}"}), ROWS[:5])
            return study.best

    async def main(study: Study) -> None:
        before, left = study.ledger.spent.calls, study.remaining()
        inner = study.narrow(val=ROWS[:5], share=0.5)
        nested = inner.narrow(val=ROWS[:5], share=0.5)
        assert inner.remaining() == left / 2 and nested.remaining() == left / 4
        assert study.narrow().limits == {} and inner.narrow().limits == inner.limits
        await nested.improve(Greedy())
        spent = study.ledger.spent.calls - before
        assert left / 4 - 5 < spent <= left / 4
        with pytest.raises(ShareSpent, match="calls left, 5 needed"):
            await nested.evaluate(right(study, 2), ROWS[:5])
        while nested.remaining() >= 1:
            await nested.lm()(
                [{"role": "system", "content": "Right 1"}, {"role": "user", "content": f"row 0 {nested.remaining()}"}]
            )
        with pytest.raises(ShareSpent):
            await nested.lm()([{"role": "user", "content": "row 0 more"}])
        await inner.improve(Greedy())
        assert study.ledger.spent.calls - before <= left / 2 and study.remaining() >= left / 2

    studying(tmp_path, main)


def test_chance_comes_from_the_seed_alone(tmp_path: Path) -> None:
    drawn: list[Any] = []

    async def main(study: Study) -> None:
        study.domains = {"nodes.n.decoding.temperature": DomainSpec.model_validate({"float": [0.0, 1.0]})}
        inner = study.narrow()
        draws = [RandomTrial(each.rng) for each in (study, study, inner)]
        drawn.append([each.space().suggest(draw, study.workflow) for draw in draws for each in (study, inner)])
        domains = {"nodes.n.samples": DomainSpec.model_validate({"int": [1, 3]})}
        assert list(study.space(domains).domains) == ["nodes.n.samples"]
        study.domains = {}
        assert list(study.space().domains) == ["nodes.n.demos"]

    for turn in range(2):
        (tmp_path / str(turn)).mkdir()
        studying(tmp_path / str(turn), main)
    assert drawn[0] == drawn[1]


def test_a_proposer_is_paid_for_under_its_role(tmp_path: Path) -> None:
    async def main(study: Study) -> None:
        lm = study.lm()
        await lm([{"role": "system", "content": "Right 1"}, {"role": "user", "content": "row 0"}], temperature=1.0)
        await study.lm("critic of mine")(
            [{"role": "system", "content": "Right 1"}, {"role": "user", "content": "row 1"}]
        )
        assert {role: s.calls for role, s in study.ledger.by_role.items()} == {"proposer": 1, "critic of mine": 1}

    studying(tmp_path, main)


def test_what_an_optimizer_tells_is_heard_with_its_name_and_in_narrowed_studies(tmp_path: Path) -> None:
    heard: list[tuple[str, str, dict[str, Any]]] = []

    async def main(study: Study) -> None:
        study.progress.on_note = lambda name, message, figures: heard.append((name, message, dict(figures)))
        study.log("nothing to do")
        study.narrow(val=ROWS[:2], name="inner").log("alarm", step=3)

    studying(tmp_path, main)
    assert heard == [("test", "nothing to do", {}), ("test/inner", "alarm", {"step": 3})]
