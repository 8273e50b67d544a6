"""Roles in training: which policies learn in a stage, two that exchange their roles, and the reward of both answers."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.helpers.grpo_runs import needs_torch, run

from workbench import SpecError
from workbench_training.grpo import GRPO

sys.path.insert(0, str(Path(__file__).parents[3] / "contrib" / "bench" / "training"))

pytestmark = pytest.mark.filterwarnings("ignore")

#: The observer sees what the pioneer answered.
NODES = {
    "pioneer": {"predict": "text -> draft", "decoding": {"max_tokens": 12}},
    "observer": {"predict": "text, draft -> label", "decoding": {"max_tokens": 12}},
}
COURSE = {"steps": 4, "tasks": 4, "rollouts": 8, "evaluate_every": 1, "save_every": 1, "keep": 0}
POLICIES = {"pioneer": {"address": "nodes.pioneer.lm"}, "observer": {"address": "nodes.observer.lm"}}


def settings(**more: Any) -> dict[str, Any]:
    schedule = {**COURSE, **more.pop("schedule", {})}
    return {"schedule": schedule, "device": "cpu", "learning": {"rate": 1e-2}, "policies": POLICIES, **more}


def weights(folder: Path) -> list[dict[str, str]]:
    """The digest of each role's weights after each step."""
    last = max(folder.glob("run-weights/run-*/step-*/state.json"))
    submitted = json.loads(last.read_text())["state"]["submitted"]
    return [submitted[step] for step in sorted(submitted, key=int)]


def base(folder: Path) -> str:
    from tests.helpers.tiny_lm import save

    return f"hf:{save(folder / 'base', 0, positions=512)}"


LENGTHS = [{"kind": "length", "tokens": 12}]  # an untrained model knows no labels, but answers differ in length


def test_a_stage_trains_the_policies_that_it_names(tmp_path: Path) -> None:
    """First who acts on the plan, then who plans, then both (PilotRL, arXiv 2508.00344)."""
    needs_torch()
    stages = [{"start": 0, "train": ["observer"]}, {"start": 1, "train": ["pioneer"]}, {"start": 2}]
    optimizers = [
        {"grpo": settings(stages=stages, rewards=LENGTHS, guards=["empty", "repeated"], schedule={"steps": 3})}
    ]
    report = run(tmp_path, lm=base(tmp_path), nodes=NODES, optimizers=optimizers, rows=(8, 3, 3))
    assert report.status == "finished"
    first, second, third = weights(tmp_path)
    assert second["observer"] == first["observer"] and second["pioneer"] != first["pioneer"]
    assert third["observer"] != second["observer"] and third["pioneer"] != second["pioneer"]


def tiny_learner(folder: Path, seed: int, name: str, lora: bool) -> Any:
    from tests.helpers.tiny_lm import save

    from workbench_training.learner import Learner
    from workbench_training.model.policy import Policy
    from workbench_training.presets import make_objective
    from workbench_training.settings import Learning, Lora

    path = folder / "base"
    save(path, 0) if not path.exists() else None
    policy = Policy(str(path), device="cpu", seed=seed, name=name, lora=Lora(rank=2) if lora else None)
    learner = Learner(policy, make_objective("grpo"), Learning.model_validate({"rate": 1e-2}))
    for weight in policy.trained.values():
        weight.grad = weight.detach() * seed + seed
    learner.optimizer.step()
    return learner


@pytest.mark.parametrize("lora", [False, True])
def test_an_exchange_gives_each_the_weights_and_the_memory_of_the_other(tmp_path: Path, lora: bool) -> None:
    needs_torch()
    import torch

    from workbench_training.papers.cory import exchange_roles

    def read(learner: Any) -> list[Any]:
        return [value.detach().clone() for part in learner.tensors().values() for value in part.values()]

    one, two = tiny_learner(tmp_path, 1, "one", lora), tiny_learner(tmp_path, 2, "two", lora)
    first, second = read(one), read(two)
    assert not all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    exchange_roles(one, two)
    assert all(torch.equal(a, b) for a, b in zip(read(one), second, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(read(two), first, strict=True))


def test_two_policies_exchange_their_roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a difference between rewards nothing is learned, and only the exchange changes the weights."""
    needs_torch()
    monkeypatch.setattr("workbench_training.papers.cory.EVERY", 2)
    silent = [{"kind": "length", "tokens": 12, "weight": 0.0}]
    stages = [{"start": 0, "rewards": LENGTHS}, {"start": 1, "rewards": silent}]
    grpo = settings(stages=stages, rewards=LENGTHS, guards=["empty", "repeated"], cory={})
    run(tmp_path, lm=base(tmp_path), nodes=NODES, optimizers=[{"grpo": grpo}], rows=(8, 3, 3))
    after = weights(tmp_path)
    assert after[0] == after[1] and after[0]["pioneer"] != after[0]["observer"]
    assert after[2] == after[3] == {"pioneer": after[0]["observer"], "observer": after[0]["pioneer"]}


def test_both_earn_the_sum_of_what_their_answers_earn(tmp_path: Path) -> None:
    from workbench.study import Result
    from workbench.task import Example, Score
    from workbench.workflow import Span, Trace
    from workbench_training.rewards import RewardTerm, Rollout, score
    from workbench_training.rollouts.node_outputs import score_output

    class OneRow:
        """A study with one metric: is the label billing?"""

        class workflow:
            output_fields = ["label"]

        class ledger:
            stopping = None

        async def score(self, example: Any, prediction: Any, trace: Any) -> Score:
            assert prediction["label"], "an empty label"
            return Score(float(prediction["label"] == example["label"]))

    async def reward(draft: str, label: str) -> float | None:
        spans = [Span("pioneer", "predict", {}, {"draft": draft}), Span("observer", "predict", {}, {"label": label})]
        row = Example("1", {"label": "billing"})
        result = Result(row, float(label == "billing"), prediction={"label": label}, trace=Trace("1", spans))
        rollout = Rollout(row, result, 0)
        terms = [RewardTerm.model_validate({}), RewardTerm.model_validate({"field": "draft"})]
        study: Any = OneRow()
        guards = ("truncated", "repeated")
        await score([rollout], terms, guards, None, lambda made, name, metric: score_output(study, made, name, metric))
        return rollout.reward

    assert asyncio.run(reward("billing", "billing")) == 2.0
    assert asyncio.run(reward("", "billing")) == 1.0, "what the metric cannot score earns nothing, and ends nothing"
    assert asyncio.run(reward("billing", "account")) == asyncio.run(reward("account", "billing")) == 1.0
    assert asyncio.run(reward("account", "returns")) == 0.0


def test_roles_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="trains 'pilot', which is none of `policies`. Known: observer"):
        GRPO.model_validate({"policies": POLICIES, "stages": [{"start": 0, "train": ["pilot"]}]})
    with pytest.raises(ValidationError, match="`cory` exchanges the weights of two policies"):
        GRPO.model_validate({"cory": {}})
    lora = {"pioneer": {**POLICIES["pioneer"], "lora": {}}, "observer": POLICIES["observer"]}
    with pytest.raises(ValidationError, match="both with the same `lora`"):
        GRPO.model_validate({"cory": {}, "policies": lora})
    wrong = [{"grpo": settings(rewards=[{"kind": "metric", "field": "drafts"}])}]
    with pytest.raises(SpecError, match="no node writes 'drafts'") as caught:
        run(tmp_path, nodes=NODES, optimizers=wrong, rows=(8, 3, 3))
    assert "field" in caught.value.path


@pytest.mark.long
def test_a_pair_learns_while_it_exchanges_roles(tmp_path: Path) -> None:
    """Both are to name the row's digit, and earn together. With rewards of no weight (the control) nothing is learned.

    One row: with two, a policy that always says the same digit earns half, and some seeds stay there."""
    needs_torch()
    from tests.helpers.tiny_lm import save
    from train_worlds import World, span

    from workbench.task import Example
    from workbench_training.learner import Learner
    from workbench_training.model.policy import Policy
    from workbench_training.papers.cory import RoleExchange
    from workbench_training.presets import make_objective
    from workbench_training.serving.policy_lm import LocalEngine
    from workbench_training.settings import Learning, TrainingSchedule
    from workbench_training.trainer import Trainer

    class Pair(World):
        tasks, roles, weight = ["3"], ("pioneer", "observer"), 1.0

        async def play(self, task: str, replica: int) -> Any:
            first = await self.ask("pioneer", f"a{task}", replica)
            second = await self.ask("observer", f"b{task}{first.text}", replica)
            both = float(first.text == task) + float(second.text == task)
            earned = dict.fromkeys(self.roles, self.weight * both)
            return [span("pioneer", 0, first), span("observer", 0, second)], earned, both == 2

    class Unpaid(Pair):
        weight = 0.0

    def train(world: type[Pair], seed: int) -> float:
        base = tmp_path / f"base{seed}"
        save(base, seed) if not base.exists() else None
        policies = {r: Policy(str(base), device="cpu", seed=seed + i, name=r) for i, r in enumerate(world.roles)}
        engines = {role: LocalEngine(policy.generator) for role, policy in policies.items()}
        source = world(engines, seed, False)
        learning, objective = Learning.model_validate({"rate": 3e-3}), make_objective("grpo")
        learners = {role: Learner(policy, objective, learning) for role, policy in policies.items()}
        every = {"evaluate_every": 1000, "save_every": 1000}
        schedule = TrainingSchedule.model_validate({"steps": 60, "tasks": 1, "rollouts": 16, **every})

        exchange = RoleExchange().before_step

        def at(version: int) -> None:
            for engine in engines.values():
                engine.at(version)

        folder = tmp_path / f"{world.__name__}{seed}"
        rows = [Example(task, {"text": task}) for task in world.tasks]
        trainer = Trainer(
            learners, source, rows, schedule, folder, weights=tmp_path / "w", seed=seed, at=at, before=[exchange]
        )

        async def run() -> None:
            try:
                await trainer.train()
            finally:
                for engine in engines.values():
                    await engine.aclose()

        asyncio.run(run())
        return sum(source.success[-5:]) / 5

    learned = [train(Pair, seed) for seed in range(2)]
    unpaid = train(Unpaid, 0)
    print({"learned": learned, "unpaid": unpaid})
    assert min(learned) > 0.8, learned
    assert unpaid < 0.1, unpaid
