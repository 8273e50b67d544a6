"""Gradients of all algorithms beside an independent implementation: two updates on ragged rows, with masked tokens,
a rollout of two rows, a silent group, rows without a reward, a stale row, a drifted sampler and a reference.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.helpers import independent_losses as own
from tests.helpers.independent_losses import ALGORITHMS, Sample
from tests.helpers.tiny_lm import save

from workbench_training.batch import find_advantages
from workbench_training.model.policy import Policy
from workbench_training.objective import Objective
from workbench_training.presets import PRESETS, make_objective
from workbench_training.rollouts.token_rows import Row
from workbench_training.scale.distributed import learner_for
from workbench_training.settings import Learning

torch.set_num_threads(1)
NEAR = 1e-5
#: (task, rollout, agent, turn, reward): three tasks, one of them silent; two rollouts have no reward, one of a task
#: that others make silent.
ROLLOUTS: list[tuple[str, int, str, int, float | None]] = [
    *(("s", 0, "a", 0, 1.0), ("s", 0, "b", 1, 1.0), ("s", 1, "a", 0, 0.25), ("s", 2, "a", 0, 0.0)),
    *(("s", 3, "a", 0, None), ("s", 3, "b", 1, None)),
    *(("t", 0, "a", 0, 1.5), ("t", 1, "a", 0, 0.5), ("t", 2, "b", 0, 0.75), ("t", 3, "a", 0, -1.0)),
    *(("u", 0, "a", 0, 0.5), ("u", 1, "a", 0, 0.5), ("u", 2, "a", 0, None)),
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(tmp_path_factory.mktemp("base"), 3))


def draw_samples(policy: Policy, reference: Any, *, drift: bool = True) -> list[Sample]:
    rng = random.Random(7)
    prompts = {
        (task, agent): [rng.randrange(5, 50) for _ in range(rng.randint(2, 7))] for task in "stu" for agent in "ab"
    }
    samples = []
    for number, (task, rollout, agent, turn, reward) in enumerate(ROLLOUTS):
        tokens = [rng.randrange(5, 50) for _ in range(rng.randint(3, 13))]
        drawn = [True] * len(tokens)
        if number % 3 == 0 and len(tokens) > 4:  # what a tool said
            drawn[2:4] = [False, False]
        made = Sample(prompts[task, agent], tokens, drawn, [0.0] * len(tokens), reward, task, rollout, agent, turn)
        made = replace(
            made, anchor=f"{task}{agent}", cost=float(20 + 9 * (ord(task) % 5 + 3 * rollout)), stale=number == 7
        )
        with torch.no_grad():
            old = own.log_probabilities(policy.inner, made).tolist()
            ref = own.log_probabilities(reference, made).tolist()
        off = 1.4 if number == 8 else 0.0
        noisy = iter([x + off + (rng.gauss(0.0, 0.4) if drift else 0.0) for x in old])
        sampled = [next(noisy) if d else 0.0 for d in drawn]
        samples.append(replace(made, old=old, ref=ref, sampled=sampled))
    return samples


def row_of(s: Sample) -> Row:
    return Row(
        tuple(s.prompt),
        tuple(s.tokens),
        tuple(map(int, s.drawn)),
        tuple(s.sampled),
        s.reward,
        s.task,
        s.rollout,
        s.agent,
        s.turn,
        s.anchor,
        costs={"tokens": s.cost},
        version=-1 if s.stale else 0,
    )


def compare(
    base: str,
    objective: Objective,
    loss_of: Callable[[Any, Sequence[Sample]], torch.Tensor],
    monkeypatch: pytest.MonkeyPatch,
    advantages: Callable[[list[Row]], Any],
    samples_of: Callable[[list[Sample], Any, list[Row]], list[Sample]] = lambda samples, learner, rows: samples,
    rate: float = 3e-3,
) -> list[float]:
    """The distance of two updates' gradients from those of the independent loss, relative to their norms."""
    policy = Policy(base, device="cpu", seed=0)
    learning = Learning.model_validate({"rate": rate, "epochs": 2, "minibatches": 1, "micro_tokens": 40})
    learner = learner_for(policy, objective, learning)
    reference = copy.deepcopy(policy.inner)
    torch.manual_seed(5)
    with torch.no_grad():
        for p in reference.parameters():
            p += 0.02 * torch.randn_like(p)
    if learner.reference is not None:
        found = dict(reference.named_parameters())
        learner.reference = {name: found[name].detach().clone() for name in learner.reference}
    samples = draw_samples(policy, reference)
    rows = [row_of(s) for s in samples]
    samples = samples_of(samples, learner, rows)
    steps: list[tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]] = []
    real, names = torch.nn.utils.clip_grad_norm_, {id(p): name for name, p in policy.trained.items()}

    def watched(parameters: Any, *args: Any, **more: Any) -> Any:
        parameters = list(parameters)
        if all(id(p) in names for p in parameters):
            weights = {names[id(p)]: p.detach().clone() for p in parameters}
            steps.append((weights, {names[id(p)]: p.grad.detach().clone() for p in parameters}))
        return real(parameters, *args, **more)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", watched)
    learner.step(rows, advantages(rows), 0)
    assert len(steps) == 2
    model, apart = copy.deepcopy(policy.inner), []
    for weights, gradient in steps:
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(weights[name])
        model.zero_grad()
        loss_of(model, samples).backward()
        wanted = {name: p.grad for name, p in model.named_parameters()}
        flat = torch.cat([wanted[name].flatten() for name in gradient])
        given = torch.cat([gradient[name].flatten() for name in gradient])
        assert float(flat.norm()) > 0 or float(given.norm()) == 0
        apart.append(float((given - flat).norm()) / max(float(flat.norm()), 1e-12))
    return apart


def with_values(samples: list[Sample], learner: Any, rows: list[Row]) -> list[Sample]:
    """What the critic says before its first update."""
    with torch.random.fork_rng():
        (values,) = learner.critic.read(rows, "token", "v")
    return [
        replace(s, values=[values[i, p] for p, drawn in enumerate(s.drawn) if drawn]) for i, s in enumerate(samples)
    ]


def with_turns(samples: list[Sample], learner: Any, rows: list[Row]) -> list[Sample]:
    """What a critic of turns says after its passes, which come before the policy's first update."""
    heads = dict(copy.deepcopy(learner.critic.model.heads).items())
    gains = own.gains_of_turns(learner.policy.inner, heads, samples, learner.critic.settings.epochs)
    return [replace(s, gains=gain) for s, gain in zip(samples, gains, strict=True)]


#: What an algorithm has beside its preset: no steps that train the critic alone.
MORE: dict[str, dict[str, Any]] = {"grpo beta": {"beta": 0.05}, "archer": {"critic": {"warmup": 0}}}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_gradients_equal_an_independent_implementation(base: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, preset = ALGORITHMS[name], name.split()[0]
    objective = make_objective(preset, MORE.get(name, {}))
    critic = objective.critic is not None
    known = with_turns if algorithm.turns else with_values
    apart = compare(
        base,
        objective,
        lambda model, samples: own.compute_loss(model, samples, algorithm),
        monkeypatch,
        lambda rows: [0.0] * len(rows) if critic else find_advantages(rows, objective, {}),
        known if critic else lambda samples, learner, rows: samples,
    )
    assert max(apart) < NEAR, (name, apart)


def with_signs(rows: list[Row]) -> list[float]:
    return [1.0] * len(rows)


@pytest.mark.parametrize(
    ("objective", "loss"),
    [
        (Objective.model_validate({"surrogate": "pairs", "beta": 0.1}), own.dpo_loss),
        (Objective.model_validate({"surrogate": "pairs", "pair_loss": "odds_ratio"}), own.orpo_loss),
        (make_objective("trpa"), own.trpa_loss),
        (make_objective("p3o"), own.p3o_loss),
        (Objective.model_validate({"surrogate": "likelihood", "aggregate": "token"}), own.likelihood_loss),
    ],
    ids=["dpo", "orpo", "trpa", "p3o", "sft"],
)
def test_gradients_of_preferences_and_likelihoods_equal_an_independent_implementation(
    base: str, objective: Objective, loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rate = 1e-4 if loss is own.p3o_loss else 3e-3  # at the larger one its second update is clipped throughout
    apart = compare(base, objective, loss, monkeypatch, with_signs, rate=rate)
    assert max(apart) < NEAR, apart


def test_every_algorithm_is_compared() -> None:
    assert {name.split()[0] for name in ALGORITHMS} | {"trpa", "p3o"} == set(PRESETS)
