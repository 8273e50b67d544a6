"""The losses of all algorithms, written from their papers, one row at a time and without padding.

Nothing here is imported from the code that it is compared with. What is a choice of this project and not of a paper is
written down again: unscored and silent rows stay in the divisors, a rollout of several rows has one share, and drifted
samples are weighted by truncated ratios.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

EPS = 1e-6


@dataclass(frozen=True)
class Sample:
    """A row: its prompt, its tokens, which of them were drawn, and what is known of them."""

    prompt: list[int]
    tokens: list[int]
    drawn: list[bool]
    sampled: list[float]
    reward: float | None
    task: str
    rollout: int
    agent: str = "a"
    turn: int = 0
    anchor: str = ""
    cost: float = 0.0
    stale: bool = False
    #: Log-probabilities of the drawn tokens at the start of the step, and of the reference.
    old: list[float] = field(default_factory=list)
    ref: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)  # of a critic, before each drawn token
    gains: list[float] = field(default_factory=list)  # of a critic of turns: the advantage of each drawn token

    @property
    def n(self) -> int:
        return sum(self.drawn)


def log_probabilities(model: Any, sample: Sample) -> torch.Tensor:
    """Of the drawn tokens: (n,)."""
    ids = torch.tensor([[*sample.prompt, *sample.tokens]])
    scores = torch.log_softmax(model(input_ids=ids).logits[0].float(), -1)
    places = [len(sample.prompt) + i for i, drawn in enumerate(sample.drawn) if drawn]
    return torch.stack([scores[place - 1, ids[0, place]] for place in places])


def sampled_of(sample: Sample) -> list[float]:
    return [one for one, drawn in zip(sample.sampled, sample.drawn, strict=True) if drawn]


def before(sample: Sample) -> list[float]:
    """What ratios are formed with: a row of older weights has the sampler's, others the trainer's."""
    return sampled_of(sample) if sample.stale else sample.old


def drift_weights(sample: Sample) -> list[float]:
    """Truncated importance weights, at most 2; none where the geometric mean of the ratios is outside 1/2 to 2."""
    ratios = [math.exp(a - b) for a, b in zip(before(sample), sampled_of(sample), strict=True)]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return [min(ratio, 2.0) if 0.5 <= mean <= 2.0 else 0.0 for ratio in ratios]


# Advantages: one number a row


def by_rollout(samples: Sequence[Sample], value: Callable[[Sample], float]) -> dict[tuple[str, int], float]:
    """The mean of a value over the rows of each scored rollout."""
    found: dict[tuple[str, int], list[float]] = {}
    for s in samples:
        if s.reward is not None:
            found.setdefault((s.task, s.rollout), []).append(value(s))
    return {key: sum(values) / len(values) for key, values in found.items()}


def deviation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1)) + EPS


def centred(
    samples: Sequence[Sample], value: Callable[[Sample], float], scale: str = "", leave_one_out: bool = False
) -> list[float]:
    """Each row's value less the mean of its task's rollouts (or of the others), divided by a deviation."""
    votes = by_rollout(samples, value)
    means = {}
    for task, rollout in votes:
        peers = [v for (t, r), v in votes.items() if t == task and not (leave_one_out and r == rollout)]
        means[task, rollout] = sum(peers) / len(peers)
    everything = deviation([*votes.values()])
    rest = deviation([v - sum(x) / len(x) for (t, _), v in votes.items() if (x := _of_task(votes, t))])
    found = []
    for s in samples:
        if s.reward is None or len(_of_task(votes, s.task)) == 1:
            found.append(0.0)
            continue
        divisors = {"std": deviation(_of_task(votes, s.task)), "batch": everything, "centred batch": rest}
        found.append((value(s) - means[s.task, s.rollout]) / divisors.get(scale, 1.0))
    return found


def _of_task(votes: Mapping[tuple[str, int], float], task: str) -> list[float]:
    return [value for (other, _), value in votes.items() if other == task]


def _reward(s: Sample) -> float:
    assert s.reward is not None
    return s.reward


def step_term(samples: Sequence[Sample], gamma: float = 0.95) -> list[float]:
    """GiGPO: discounted returns, compared among steps from one state."""
    returns: list[float | None] = []
    for s in samples:
        later = sum(o.task == s.task and o.rollout == s.rollout and o.turn > s.turn for o in samples)
        returns.append(None if s.reward is None else s.reward * gamma**later)
    found = []
    for s, own in zip(samples, returns, strict=True):
        peers = [
            r
            for o, r in zip(samples, returns, strict=True)
            if r is not None and (o.task, o.anchor) == (s.task, s.anchor)
        ]
        found.append(0.0 if own is None or len(peers) < 2 else own - sum(peers) / len(peers))
    return found


def own_agents(samples: Sequence[Sample]) -> list[float]:
    """Dr. MAS: each agent compared with itself, a row a vote."""
    found = []
    for s in samples:
        peers = [_reward(o) for o in samples if o.reward is not None and (o.task, o.agent) == (s.task, s.agent)]
        alone = s.reward is None or len(peers) < 2
        found.append(0.0 if alone else (_reward(s) - sum(peers) / len(peers)) / deviation(peers))
    return found


def constrained(samples: Sequence[Sample], budget: float = 64.0) -> list[float]:
    """The reward's advantage less the cost's, with the proportional part of the multiplier."""
    costs = by_rollout(samples, lambda s: s.cost)
    weight = min(max((sum(costs.values()) / len(costs) - budget) / budget, 0.0), 5.0)
    gains = centred(samples, _reward, "std")
    losses = centred(samples, lambda s: s.cost, "std")
    return [(a - weight * b) / (1 + weight) for a, b in zip(gains, losses, strict=True)]


# Losses


@dataclass(frozen=True)
class Algorithm:
    """How a paper's loss differs from GRPO's."""

    advantages: Callable[[Sequence[Sample]], list[float]] = lambda samples: centred(samples, _reward, "std")
    low: float = 0.2
    high: float = 0.2
    divide: str = "sequence"
    ratio: str = "token"
    surrogate: str = "clip"
    beta: float = 0.0
    kl: str = "k3"
    in_reward: str = ""  # the divergence as a part of the reward: `row` (RLOO) or `token` (REINFORCE++)
    by_row: bool = False  # each row counts, and not each rollout
    largest: int = 256
    lam: float = 0.0  # of a critic of tokens
    gamma: float = 1.0
    turns: bool = False  # with a critic of turns, whose advantages the samples carry


ALGORITHMS: dict[str, Algorithm] = {
    "grpo": Algorithm(),
    "grpo beta": Algorithm(beta=0.05),
    "dr_grpo": Algorithm(lambda s: centred(s, _reward), divide="constant"),
    "dapo": Algorithm(high=0.28, divide="token"),
    "lite_ppo": Algorithm(lambda s: centred(s, _reward, "batch"), divide="token"),
    "gspo": Algorithm(low=3e-4, high=4e-4, ratio="sequence"),
    "cispo": Algorithm(high=5.0, divide="token", surrogate="cispo"),
    "prorl": Algorithm(high=0.4, divide="token", beta=1e-4),
    "rloo": Algorithm(
        lambda s: centred(s, _reward, leave_one_out=True), ratio="product", beta=0.05, kl="", in_reward="row"
    ),
    "reinforce++": Algorithm(
        lambda s: [0.0 if x is None else x for x in whole_batch(s)], divide="token", beta=1e-3, in_reward="token"
    ),
    "reinforce++_baseline": Algorithm(
        lambda s: centred(s, _reward, "centred batch"), divide="token", beta=1e-4, kl="k2"
    ),
    "gigpo": Algorithm(lambda s: [a + b for a, b in zip(centred(s, _reward), step_term(s), strict=True)], by_row=True),
    "dr_mas": Algorithm(own_agents, by_row=True),
    "constrained": Algorithm(constrained),
    "ppo": Algorithm(divide="token", lam=0.95),
    "poad": Algorithm(divide="token", lam=0.95, gamma=0.95),
    "archer": Algorithm(divide="token", turns=True),
}


def whole_batch(samples: Sequence[Sample]) -> list[float | None]:
    """REINFORCE++: rewards of the batch less their mean, divided by their deviation."""
    votes = [*by_rollout(samples, _reward).values()]
    mean = sum(votes) / len(votes)
    return [None if s.reward is None else (s.reward - mean) / deviation(votes) for s in samples]


def token_advantages(samples: Sequence[Sample], algorithm: Algorithm) -> list[list[float]]:
    """The advantage of each drawn token."""
    if algorithm.turns:
        return [s.gains for s in samples]
    if algorithm.lam:
        return estimated(samples, algorithm)
    rows = algorithm.advantages(samples)
    if algorithm.in_reward == "row":
        kl = centred(samples, lambda s: sum(a - b for a, b in zip(s.old, s.ref, strict=True)), leave_one_out=True)
        rows = [a - algorithm.beta * b for a, b in zip(rows, kl, strict=True)]
    found = [[a] * s.n for a, s in zip(rows, samples, strict=True)]
    if algorithm.in_reward == "token":
        for s, own in zip(samples, found, strict=True):
            for t in range(s.n):
                own[t] -= algorithm.beta * sum(a - b for a, b in zip(s.old[t:], s.ref[t:], strict=True))
        flat = [x for s, own in zip(samples, found, strict=True) if s.reward is not None for x in own]
        mean = sum(flat) / len(flat)
        spread = math.sqrt(sum((x - mean) ** 2 for x in flat) / (len(flat) - 1)) + 1e-8
        found = [[(x - mean) / spread for x in own] for own in found]
    return found


def estimated(samples: Sequence[Sample], algorithm: Algorithm) -> list[list[float]]:
    """Generalized advantage estimation within each agent's part of a rollout, whitened over the step."""
    found: dict[int, list[float]] = {}
    for task, rollout, agent in {(s.task, s.rollout, s.agent) for s in samples if s.reward is not None}:
        mine = [i for i, s in enumerate(samples) if (s.task, s.rollout, s.agent) == (task, rollout, agent)]
        steps = [(i, t) for i in sorted(mine, key=lambda i: samples[i].turn) for t in range(samples[i].n)]
        later = following = 0.0
        for i, t in reversed(steps):
            s = samples[i]
            places = [p for p, drawn in enumerate(s.drawn) if drawn]
            ends = t == s.n - 1 or places[t + 1] > places[t] + 1
            earned = _reward(s) if (i, t) == steps[-1] else 0.0
            discount = algorithm.gamma if ends else 1.0
            later = earned + discount * following - s.values[t] + discount * algorithm.lam * later
            following = s.values[t]
            found.setdefault(i, []).insert(0, later)
    flat = [x for own in found.values() for x in own]
    mean = sum(flat) / len(flat)
    spread = math.sqrt(sum((x - mean) ** 2 for x in flat) / len(flat)) + 1e-8
    return [[(x - mean) / spread for x in found[i]] if i in found else [0.0] * s.n for i, s in enumerate(samples)]


def gains_of_turns(model: Any, heads: Mapping[str, Any], samples: Sequence[Sample], passes: int) -> list[list[float]]:
    """ArCHer: min(q) - min(v) of the turn of each drawn token, after passes over the step's turns in which the worth q
    of a turn follows its reward and 0.95 of the next state's value, and the value v of a state the worth of the turn
    that was drawn there, both as a copy says that takes over 0.1 after each pass. heads: v1, v2, q1 and q2, as they
    begin; they are trained."""
    turns = _turns_of(samples)
    states = {i: _states_of(model, samples[i]) for i in {turn[0] for turn in turns}}
    before_ = torch.stack([states[i][first - 1] for i, first, *_ in turns])
    after = torch.stack([states[i][last] for i, _, last, *_ in turns])
    copied = {name: copy.deepcopy(head) for name, head in heads.items()}
    optimizer = torch.optim.Adam([p for head in heads.values() for p in head.parameters()], lr=1e-3)

    def learn(names: Sequence[str], given: torch.Tensor, wanted: Sequence[torch.Tensor]) -> None:
        optimizer.zero_grad()
        errors = [((heads[name](given) - goal) ** 2).sum() for name, goal in zip(names, wanted, strict=True)]
        (sum(errors, torch.zeros(())) / len(given)).backward()
        moved = [p for name in names for p in heads[name].parameters()]
        torch.nn.utils.clip_grad_norm_(moved, 1.0)
        optimizer.step()

    for _ in range(passes):
        with torch.no_grad():
            goals = []
            for name in ("v1", "v2"):
                value = copied[name](before_)
                later = [0.0 if end else 0.95 * float(value[k + 1]) for k, (*_, end) in enumerate(turns)]
                goals.append(torch.tensor([turn[3] + more for turn, more in zip(turns, later, strict=True)]))
            worths = [copied[name](after) for name in ("q1", "q2")]
        learn(("q1", "q2"), after, goals)
        learn(("v1", "v2"), before_, worths)
        with torch.no_grad():
            for name, head in heads.items():
                for mine, theirs in zip(copied[name].parameters(), head.parameters(), strict=True):
                    mine.mul_(0.9).add_(0.1 * theirs)
    with torch.no_grad():
        value = torch.minimum(heads["v1"](before_), heads["v2"](before_))
        gain = torch.minimum(heads["q1"](after), heads["q2"](after)) - value
    found = [[0.0] * s.n for s in samples]
    for (i, first, last, *_), own in zip(turns, gain.tolist(), strict=True):
        s = samples[i]
        places = [len(s.prompt) + p for p, drawn in enumerate(s.drawn) if drawn]
        found[i] = [own if first <= place <= last else x for place, x in zip(places, found[i], strict=True)]
    return found


def _turns_of(samples: Sequence[Sample]) -> list[tuple[int, int, int, float, bool]]:
    """(sample, place of its first token, of its last, reward, whether it is the last of its agent in its rollout) of
    each run of drawn tokens, an agent's in a row."""
    found = []
    for key in dict.fromkeys((s.task, s.rollout, s.agent) for s in samples if s.reward is not None):
        mine = [i for i, s in enumerate(samples) if (s.task, s.rollout, s.agent) == key]
        runs = []
        for i in sorted(mine, key=lambda i: samples[i].turn):
            s = samples[i]
            flags = [False, *s.drawn, False]
            firsts = [p for p in range(len(s.drawn)) if flags[p + 1] and not flags[p]]
            lasts = [p for p in range(len(s.drawn)) if flags[p + 1] and not flags[p + 2]]
            runs += [(i, len(s.prompt) + a, len(s.prompt) + b) for a, b in zip(firsts, lasts, strict=True)]
        reward = _reward(samples[mine[-1]])
        found += [(*run, reward if run == runs[-1] else 0.0, run == runs[-1]) for run in runs]
    return found


def _states_of(model: Any, s: Sample) -> torch.Tensor:
    """What the decoder says after each token: (tokens, width)."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([[*s.prompt, *s.tokens]]), output_hidden_states=True).hidden_states[-1][0]


def compute_loss(model: Any, samples: Sequence[Sample], algorithm: Algorithm) -> torch.Tensor:
    """The loss of an update over these rows."""
    advantages = token_advantages(samples, algorithm)
    tokens = sum(s.n for s in samples)
    lengths: dict[Any, int] = {}
    for i, s in enumerate(samples):
        key = i if algorithm.by_row else (s.task, s.rollout, s.stale)
        lengths[key] = lengths.get(key, 0) + s.n
    total = torch.zeros(())
    for i, (s, advantage) in enumerate(zip(samples, advantages, strict=True)):
        if s.reward is None:
            continue
        per_token = row_loss(model, s, torch.tensor(advantage), algorithm)
        key = i if algorithm.by_row else (s.task, s.rollout, s.stale)
        own = s.n if algorithm.ratio == "product" else lengths[key]
        divisors = {
            "sequence": len(lengths) * own,
            "token": tokens,
            "constant": len(lengths) * algorithm.largest,
        }
        total = total + per_token.sum() / divisors[algorithm.divide]
    return total


def row_loss(model: Any, s: Sample, advantage: torch.Tensor, algorithm: Algorithm) -> torch.Tensor:
    """The loss of each drawn token of a row."""
    logp = log_probabilities(model, s)
    log_ratio = logp - torch.tensor(before(s))
    if algorithm.ratio == "sequence":
        log_ratio = log_ratio.mean().expand(s.n)
    elif algorithm.ratio == "product":
        log_ratio = log_ratio.sum().expand(s.n)
    ratio = log_ratio.exp()
    if algorithm.surrogate == "cispo":
        loss = -ratio.clamp(max=algorithm.high).detach() * advantage * logp
    else:
        clipped = ratio.clamp(1 - algorithm.low, 1 + algorithm.high)
        loss = -torch.minimum(ratio * advantage, clipped * advantage)
    loss = loss * torch.tensor(drift_weights(s))
    if algorithm.beta and not algorithm.in_reward:
        apart = torch.tensor(s.ref) - logp
        loss = loss + algorithm.beta * (apart.exp() - apart - 1 if algorithm.kl == "k3" else apart**2 / 2)
    return loss


# Preferences


def whole_rollouts(model: Any, samples: Sequence[Sample]) -> dict[str, list[tuple[float, torch.Tensor, int]]]:
    """By task: (reward, summed gain on the reference, tokens) of each scored rollout."""
    sums: dict[tuple[str, int], tuple[float, torch.Tensor, int]] = {}
    for s in samples:
        if s.reward is not None:
            gain = (log_probabilities(model, s) - torch.tensor(s.ref)).sum()
            _, before_, n = sums.get((s.task, s.rollout), (0.0, torch.zeros(()), 0))
            sums[s.task, s.rollout] = s.reward, before_ + gain, n + s.n
    found: dict[str, list[tuple[float, torch.Tensor, int]]] = {}
    for (task, _), value in sums.items():
        found.setdefault(task, []).append(value)
    return found


def preference_terms(model: Any, samples: Sequence[Sample]) -> list[tuple[float, Any, Any]]:
    """(reward of the better, the better, the worse) of all pairs of a task's rollouts."""
    return [
        (a[0], a, b) for group in whole_rollouts(model, samples).values() for a in group for b in group if a[0] > b[0]
    ]


def dpo_loss(model: Any, samples: Sequence[Sample], beta: float = 0.1) -> torch.Tensor:
    terms = [-torch.nn.functional.logsigmoid(beta * (a[1] - b[1])) for _, a, b in preference_terms(model, samples)]
    return torch.stack(terms).mean()


def trpa_loss(model: Any, samples: Sequence[Sample], beta: float = 0.1) -> torch.Tensor:
    terms = [
        -torch.nn.functional.logsigmoid((2.5 if reward >= 1.0 else 1.0) * beta * (a[1] / a[2] - b[1] / b[2]))
        for reward, a, b in preference_terms(model, samples)
    ]
    trust = torch.zeros(())
    for s in samples:
        if s.reward is not None:
            apart = torch.tensor(before(s)) - log_probabilities(model, s)
            trust = trust + (apart.exp() - apart - 1).sum()
    return torch.stack(terms).mean() + 0.001 * trust / sum(s.n for s in samples)


def p3o_loss(model: Any, samples: Sequence[Sample], weight: float = 0.05, clip: float = 0.2) -> torch.Tensor:
    """Half the clipped product of both ratios, times the smaller of D d and D clip(d), over all pairs."""
    found: dict[tuple[str, int], list[Any]] = {}  # reward, log-ratio to the sampler, log-ratio of it to the reference
    for s in samples:
        if s.reward is not None:
            own = found.setdefault((s.task, s.rollout), [s.reward, torch.zeros(()), 0.0])
            own[1] = own[1] + (log_probabilities(model, s) - torch.tensor(before(s))).sum()
            own[2] += sum(before(s)) - sum(s.ref)
    terms = []
    for (task, _), (reward, moved, apart) in found.items():
        for (other, _), (less, moved_less, apart_less) in found.items():
            if task == other and reward > less:
                gain = (reward - weight * apart) - (less - weight * apart_less)
                d = moved - moved_less
                ratio = min(max(math.exp(float((moved + moved_less).detach())), 1 - clip), 1 + clip)
                bounded = torch.clamp(d, -clip, clip)
                terms.append(-ratio * torch.minimum(gain * d, gain * bounded) / 2)
    return torch.stack(terms).mean()


def orpo_loss(model: Any, samples: Sequence[Sample], weight: float = 0.1) -> torch.Tensor:
    """Without a reference: gains are mean log-probabilities."""

    def log_odds(mean: torch.Tensor) -> torch.Tensor:
        return mean - torch.log1p(-mean.exp())

    plain = [Sample(**{**vars(s), "ref": [0.0] * s.n}) for s in samples]
    terms = []
    for _, a, b in preference_terms(model, plain):
        better, worse = a[1] / a[2], b[1] / b[2]
        terms.append(-better - weight * torch.nn.functional.logsigmoid(log_odds(better) - log_odds(worse)))
    return torch.stack(terms).mean()


def likelihood_loss(model: Any, samples: Sequence[Sample]) -> torch.Tensor:
    scored = [s for s in samples if s.reward is not None]
    total = sum((log_probabilities(model, s).sum() for s in scored), torch.zeros(()))
    return -total / sum(s.n for s in samples)
