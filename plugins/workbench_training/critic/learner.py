"""A learner whose advantages come from a critic that it trains beside the policy."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from workbench_training.critic.returns import (
    Array,
    Trajectory,
    compute_gae,
    compute_turn_targets,
    normalise,
    split_trajectories,
    split_turns,
)
from workbench_training.critic.value_model import ValueModel
from workbench_training.learner import Learner
from workbench_training.model.policy import Policy, Weights
from workbench_training.objective import Objective
from workbench_training.rollouts.token_rows import Batch, Row
from workbench_training.settings import Learning

Tensor = torch.Tensor


class CriticLearner(Learner):
    """PPO and its kin: values of states, learned from what was earned.

    of token (PPO, POAD): the critic that stood at the start of the step gives the advantages; then both are updated.
    of turn (ArCHer): the critic is updated first, by temporal differences from this step's turns and those of some
    steps before, against a slowly moving copy; then each turn's advantage is the smaller of two estimates of what it
    was worth, less the smaller of two of what its state was. Departures: the value of a state is learned from the
    turns of this step alone, which this policy drew, where the authors draw new ones for states of their buffer; and a
    turn is judged by the decoder's state after its last token, where theirs encodes question and answer apart.
    """

    def __init__(self, policy: Policy, objective: Objective, learning: Learning, *, seed: int = 0):
        assert objective.critic is not None
        super().__init__(policy, objective, learning)
        self.critic, self.steps = objective.critic, 0
        heads = ("v",) if self.critic.of == "token" else ("v1", "v2", "q1", "q2")
        self.values = ValueModel(policy, heads, self.critic.widths, base=self.critic.model, seed=seed)
        self.targets = {name: p.detach().clone() for name, p in self.values.trained.items()}
        self.value_optimizer = torch.optim.AdamW(self.values.trained.values(), lr=self.critic.rate, weight_decay=0.0)
        self.buffer: list[list[Row]] = []  # rows of the last steps, the newest last
        # States of the policy, which stand until it is updated.
        self._passes: dict[tuple[int, str], list[tuple[Tensor, Tensor, Tensor]]] = {}

    def step(
        self,
        rows: Sequence[Row],
        advantages: Sequence[float],
        version: int,
        rate: float | None = None,
        done: int | None = None,
    ) -> dict[str, float]:
        """As of a Learner. advantages: not used, since the critic gives them."""
        self.figures: dict[str, float] = {}
        self._passes.clear()
        self.steps += 1
        if self.critic.of == "turn":
            self.buffer = [*self.buffer, list(rows)][-self.critic.replay :]
            self._fit_turns()
        if self.steps <= self.critic.warmup:
            if self.critic.of == "token":
                self._fit_tokens(rows, *self._estimate(rows, None))
            return self.figures
        found = super().step(rows, advantages, version, rate, done)
        if self.critic.of == "token":  # from the states that its estimates were read from
            self._fit_tokens(rows, *self._estimates)
        return found | self.figures

    def _spread(
        self, values: Tensor, batch: Batch, rows: Sequence[Row], old: Tensor | None, ref: Tensor | None
    ) -> Tensor:
        """The advantages of tokens by the critic: (rows, tokens)."""
        if self.critic.of == "turn":
            return self._turn_advantages(rows, batch)
        penalty = None
        if self.objective.beta and self.objective.kl_place == "reward":
            assert old is not None and ref is not None
            penalty = (self.objective.beta * (old - ref)).double().cpu().numpy()
        self._estimates = self._estimate(rows, penalty)
        return self._on_tokens(batch, *self._estimates[:2])

    def _on_tokens(self, batch: Batch, trajectories: Sequence[Trajectory], found: Sequence[Array]) -> Tensor:
        spread = np.zeros(tuple(batch.mask.shape))
        for trajectory, values in zip(trajectories, found, strict=True):
            spread[trajectory.rows, trajectory.places] = values
        return torch.tensor(spread, dtype=torch.float, device=batch.mask.device)

    # Tokens

    def _estimate(
        self, rows: Sequence[Row], penalty: Array | None
    ) -> tuple[list[Trajectory], list[Array], list[Array], Array]:
        """(trajectories, advantages, returns, values by row and place) with the critic as it stands. penalty: (rows,
        tokens), taken off the rewards."""
        c, trajectories = self.critic, split_trajectories(rows)
        before = self._read(rows, "token", "v")
        advantages, returns = [], []
        for t in trajectories:
            rewards = t.rewards if penalty is None else t.rewards - penalty[t.rows, t.places]
            found = compute_gae(rewards, before[t.rows, t.places], t.ends, gamma=c.gamma, within=c.within, lam=c.lam)
            advantages.append(found[0])
            returns.append(found[1])
        if c.normalise and advantages:
            whole = normalise(np.concatenate(advantages))
            advantages = np.split(whole, np.cumsum([len(a) for a in advantages])[:-1])
        return trajectories, advantages, returns, before

    def _fit_tokens(
        self, rows: Sequence[Row], trajectories: list[Trajectory], _: list[Array], returns: list[Array], before: Array
    ) -> None:
        if not trajectories:
            return
        wanted = np.full(before.shape, np.nan)
        for t, found in zip(trajectories, returns, strict=True):
            wanted[t.rows, t.places] = found
        goal, was = (torch.tensor(x, dtype=torch.float, device=self.policy.device) for x in (wanted, before))

        def loss(states: Tensor, which: Tensor, places: Tensor) -> Tensor:
            value, target, start = self.values.heads["v"](states), goal[which, places], was[which, places]
            error = (value - target) ** 2
            if self.critic.clip is not None:
                held = start + (value - start).clamp(-self.critic.clip, self.critic.clip)
                error = torch.maximum(error, (held - target) ** 2)
            return 0.5 * error.sum()

        self.figures["value_loss"] = self._fit(rows, "token", loss)
        every = np.concatenate(returns)
        left = np.concatenate([r - before[t.rows, t.places] for t, r in zip(trajectories, returns, strict=True)])
        self.figures["value_explained"] = float(1 - left.var() / every.var()) if every.var() > 0 else 0.0

    # Turns

    def _fit_turns(self) -> None:
        """Update the critic by temporal differences."""
        for _ in range(self.critic.epochs):
            losses = []
            for turns, fresh in [*((found, False) for found in self.buffer[:-1]), (self.buffer[-1], True)]:
                losses.append(self._fit_turns_of(turns, fresh))
            self.figures["value_loss"] = math.fsum(losses) / len(losses)

    def _fit_turns_of(self, rows: Sequence[Row], fresh: bool) -> float:
        trajectories = split_trajectories(rows)
        with self._having_targets():
            next_values = [self._read(rows, "start", name) for name in ("v1", "v2")]
            worth = [self._read(rows, "end", name) for name in ("q1", "q2")]
        goals = {name: np.full(next_values[0].shape, np.nan) for name in ("v1", "v2", "q1", "q2")}
        for t in trajectories:
            turns = split_turns(t)
            first, last = np.array(turns, np.int64).T
            earned = np.array([t.rewards[a : b + 1].sum() for a, b in turns])
            for k in (0, 1):
                values = next_values[k][t.rows[first], t.places[first]]
                following = np.append(values[1:], 0.0)
                goals[f"q{k + 1}"][t.rows[last], t.places[last] + 1] = compute_turn_targets(
                    earned, following, self.critic.gamma
                )
                goals[f"v{k + 1}"][t.rows[first], t.places[first]] = worth[k][t.rows[last], t.places[last] + 1]
        total = self._fit(rows, "end", self._loss_of(goals, "q"))
        if fresh:  # states of older steps would need turns that this policy draws
            total += self._fit(rows, "start", self._loss_of(goals, "v"))
        self._follow()
        return total

    def _loss_of(self, goals: Mapping[str, Array], kind: str) -> Any:
        wanted = {
            name: torch.tensor(goals[name], dtype=torch.float, device=self.policy.device)
            for name in (f"{kind}1", f"{kind}2")
        }

        def loss(states: Tensor, which: Tensor, places: Tensor) -> Tensor:
            errors = [(self.values.heads[n](states) - goal[which, places]) ** 2 for n, goal in wanted.items()]
            return torch.stack(errors).sum()

        return loss

    def _turn_advantages(self, rows: Sequence[Row], batch: Batch) -> Tensor:
        """min(q1, q2) - min(v1, v2) of each turn, on all of its tokens."""
        trajectories = split_trajectories(rows)
        value = np.minimum(*(self._read(rows, "start", name) for name in ("v1", "v2")))
        worth = np.minimum(*(self._read(rows, "end", name) for name in ("q1", "q2")))
        found = []
        for t in trajectories:
            each = np.zeros(len(t.rows))
            for a, b in split_turns(t):
                each[a : b + 1] = worth[t.rows[b], t.places[b] + 1] - value[t.rows[a], t.places[a]]
            found.append(each)
        return self._on_tokens(batch, trajectories, found)

    # The model of values

    def _states(self, rows: Sequence[Row], marks: str) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
        """(states, which rows, which places) in passes. marks: `token`, before each drawn token; `start`, before each
        turn; `end`, after it."""
        masks = _masks(rows, marks)
        if self.values.trunk is not None:
            return self.values.states(rows, masks)
        return self._passes.setdefault((id(rows), marks), [*self.values.states(rows, masks)])

    @torch.no_grad()
    def _read(self, rows: Sequence[Row], marks: str, head: str) -> Array:
        """Values by row and place, where there is one; 0 elsewhere: (rows, longest + 1)."""
        found = np.zeros((len(rows), 1 + max(len(row.token_ids) for row in rows)))
        for states, which, places in self._states(rows, marks):
            found[which.cpu().numpy(), places.cpu().numpy()] = self.values.heads[head](states).double().cpu().numpy()
        return found

    def _fit(self, rows: Sequence[Row], marks: str, loss: Any) -> float:
        """Update the critic on the marked states; returns their mean loss in the first pass. loss: of some states and
        the rows and places that they are of, summed."""
        c, total, count = self.critic, 0.0, 0
        for epoch in range(c.epochs if c.of == "token" else 1):
            order = np.random.default_rng([self.steps, epoch]).permutation(len(rows))
            for part in np.array_split(order, min(c.minibatches, len(rows))):
                chosen = torch.zeros(len(rows), dtype=torch.bool, device=self.policy.device)
                chosen[torch.tensor(part, device=chosen.device)] = True
                size = max(1, sum(int(chosen[which].sum()) for _, which, _ in self._states(rows, marks)))
                self.value_optimizer.zero_grad(set_to_none=True)
                for states, which, places in self._states(rows, marks):
                    mine = chosen[which]
                    if mine.any():
                        found = loss(states[mine], which[mine], places[mine])
                        (found / size).backward()
                        if not epoch:
                            total, count = total + float(found.detach()), count + int(mine.sum())
                torch.nn.utils.clip_grad_norm_(list(self.values.trained.values()), self.learning.max_norm)
                self.value_optimizer.step()
        self.value_optimizer.zero_grad(set_to_none=True)
        return total / max(1, count)

    def _having_targets(self) -> Any:
        return _Swapped(self.values.trained, self.targets)

    def _follow(self) -> None:
        """Move the copy that gives targets a little towards the critic (Polyak averaging)."""
        with torch.no_grad():
            for name, p in self.values.trained.items():
                self.targets[name].lerp_(p, self.critic.tau)

    # State

    def tensors(self) -> dict[str, Weights]:
        state = self.value_optimizer.state_dict()["state"]
        names = list(self.values.trained)
        memory = {f"{names[i]}|{key}": value for i, of in state.items() for key, value in of.items()}
        rows = json.dumps([self.steps, [[row.as_dict() for row in rows] for rows in self.buffer]]).encode()
        return super().tensors() | {
            "critic": {name: p.detach() for name, p in self.values.trained.items()},
            "critic_targets": dict(self.targets),
            "critic_optimizer": memory or {"empty": torch.zeros(1)},
            "critic_rows": {"json": torch.frombuffer(bytearray(rows), dtype=torch.uint8)},
        }

    def load(self, tensors: Mapping[str, Weights]) -> None:
        super().load(tensors)
        self.values.load(tensors["critic"])
        self.targets = {name: t.to(self.policy.device) for name, t in tensors["critic_targets"].items()}
        steps, rows = json.loads(bytes(tensors["critic_rows"]["json"].tolist()))
        self.steps, self.buffer = int(steps), [[Row.from_dict(row) for row in some] for some in rows]
        names, state = list(self.values.trained), dict[int, dict[str, Any]]()
        for name, value in tensors["critic_optimizer"].items():
            if "|" in name:
                parameter, key = name.rsplit("|", 1)
                state.setdefault(names.index(parameter), {})[key] = (
                    value.to(self.policy.device) if value.dim() else value
                )
        groups = self.value_optimizer.state_dict()["param_groups"]
        self.value_optimizer.load_state_dict({"state": state, "param_groups": groups})


class _Swapped:
    """With other weights for a while."""

    def __init__(self, trained: Weights, others: Weights):
        self.trained, self.others = trained, others

    def __enter__(self) -> None:
        self.kept = {name: p.data for name, p in self.trained.items()}
        for name, p in self.trained.items():
            p.data = self.others[name]

    def __exit__(self, *_: object) -> None:
        for name, p in self.trained.items():
            p.data = self.kept[name]


def _masks(rows: Sequence[Row], marks: str) -> list[list[int]]:
    """Of scored rows, what `_states` marks."""
    masks = [[0] * (len(row.token_ids) + 1) for row in rows]
    for t in split_trajectories(rows):
        if marks == "token":
            places = list(zip(t.rows.tolist(), t.places.tolist(), strict=True))
        elif marks == "start":
            places = [(int(t.rows[a]), int(t.places[a])) for a, _ in split_turns(t)]
        else:
            places = [(int(t.rows[b]), int(t.places[b]) + 1) for _, b in split_turns(t)]
        for row, place in places:
            masks[row][place] = 1
    return masks
