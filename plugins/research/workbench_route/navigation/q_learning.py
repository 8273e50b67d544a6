"""Q-learning of a navigator from recorded choices: double, with a dueling network and a replay of all choices so far.

Source: Hao et al. (RL of Thoughts, arXiv 2505.14140), who train with Double-Dueling-DQN. Departures are in the README.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench_route.navigation.navigator import MAX_DEVIATION, Navigator, hidden_units

Array = NDArray[np.float64]
#: Of the network: hidden weights and biases, value weights and bias, advantage weights and biases.
Parameters = dict[str, Array]

#: What a score is worth one choice before it is reached, so that a shorter way is better.
DISCOUNT = 0.95
STEPS, BATCH, RATE = 3000, 64, 3e-3
#: Steps after which the target network takes over the learned one.
RENEWAL = 100


@dataclass(frozen=True)
class Choice:
    """A choice that a row made. following: features of the next state; None after the last choice of the row."""

    features: Sequence[float]
    choice: int
    reward: float
    following: Sequence[float] | None


def row_choices(
    features: Sequence[Sequence[float]], chosen: Sequence[int], score: float, judged: Sequence[float] | None = None
) -> list[Choice]:
    """Return the choices of a row with their rewards. The score is the reward of the last one.

    judged: by choice, how good the partial solution before it is. What this rises by is rewarded at once. The sum of
    discounted rewards changes only by the first value, so the best policy stays the same (Ng, Harada and Russell 1999).
    """
    found: list[Choice] = []
    for n, (state, choice) in enumerate(zip(features, chosen, strict=True)):
        last = n + 1 == len(features)
        reward = score if last else 0.0
        if judged is not None:
            reward += (0.0 if last else DISCOUNT * judged[n + 1]) - judged[n]
        found.append(Choice(state, choice, reward, None if last else features[n + 1]))
    return found


def learn_navigator(inputs: Sequence[str], choices: Sequence[str], rows: Sequence[Choice], seed: int) -> Navigator:
    """Learn a navigator from recorded choices."""
    states = np.array([row.features for row in rows], dtype=float)
    center, scale = states.mean(axis=0), states.std(axis=0)
    scale[scale < 1e-6] = 1.0
    center, scale = np.round(center, 5), np.maximum(np.round(scale, 5), 1e-5)
    last = np.array([row.following is None for row in rows])
    following = np.array([row.features if row.following is None else row.following for row in rows], dtype=float)
    data = Replay(
        normalize(states, center, scale),
        np.array([row.choice for row in rows]),
        np.array([row.reward for row in rows], dtype=float),
        normalize(following, center, scale),
        last,
    )
    found = fit(data, len(choices), seed)
    rounded = {name: np.round(part, 5) for name, part in found.items()}
    hidden = np.column_stack([rounded["hidden"].T, rounded["hidden_bias"]])
    advantages = np.column_stack([rounded["advantage"].T, rounded["advantage_bias"]])
    return Navigator(
        inputs=list(inputs),
        choices=list(choices),
        center=center.tolist(),
        scale=scale.tolist(),
        hidden=hidden.tolist(),
        value=[*rounded["value"][:, 0].tolist(), *rounded["value_bias"].tolist()],
        advantages=advantages.tolist(),
    )


@dataclass(frozen=True)
class Replay:
    """Recorded choices as arrays, with normalized states."""

    states: Array
    choices: NDArray[np.int_]
    rewards: Array
    following: Array
    last: NDArray[np.bool_]

    def take(self, rows: NDArray[np.int_]) -> Replay:
        return Replay(self.states[rows], self.choices[rows], self.rewards[rows], self.following[rows], self.last[rows])


def normalize(states: Array, center: Array, scale: Array) -> Array:
    return np.clip((states - center) / scale, -MAX_DEVIATION, MAX_DEVIATION)


def fit(data: Replay, choices: int, seed: int) -> Parameters:
    """Fit the network with Adam."""
    rng = np.random.default_rng(seed)
    online = start(data.states.shape[1], choices, rng)
    target = online
    mean = {name: np.zeros_like(part) for name, part in online.items()}
    square = {name: np.zeros_like(part) for name, part in online.items()}
    for step in range(1, STEPS + 1):
        batch = data.take(rng.integers(0, len(data.choices), BATCH))
        gradients = loss_gradients(online, batch, double_targets(online, target, batch))[1]
        rate = RATE * (1 - step / STEPS) + 1e-5
        moved: Parameters = {}
        for name, gradient in gradients.items():
            mean[name] = 0.9 * mean[name] + 0.1 * gradient
            square[name] = 0.999 * square[name] + 0.001 * gradient**2
            corrected = mean[name] / (1 - 0.9**step)
            moved[name] = online[name] - rate * corrected / (np.sqrt(square[name] / (1 - 0.999**step)) + 1e-8)
        online = moved
        if step % RENEWAL == 0:
            target = online
    return online


def start(size: int, choices: int, rng: np.random.Generator) -> Parameters:
    """Return the network before it has learned: every choice is worth 0."""
    units = hidden_units(size, choices)
    return {
        "hidden": rng.normal(0.0, 1 / np.sqrt(size + 1), (size, units)),
        "hidden_bias": np.zeros(units),
        "value": np.zeros((units, 1)),
        "value_bias": np.zeros(1),
        "advantage": np.zeros((units, choices)),
        "advantage_bias": np.zeros(choices),
    }


def q_values(network: Parameters, states: Array) -> Array:
    """Return the value of each choice in each state."""
    return _forward(network, states)[1]


def _forward(network: Parameters, states: Array) -> tuple[Array, Array]:
    units = np.tanh(states @ network["hidden"] + network["hidden_bias"])
    advantages = units @ network["advantage"] + network["advantage_bias"]
    value = units @ network["value"] + network["value_bias"]
    return units, value + advantages - advantages.mean(axis=1, keepdims=True)


def double_targets(online: Parameters, target: Parameters, batch: Replay) -> Array:
    """Return what each choice should be worth: the online network picks the next one, the target network values it."""
    picked = q_values(online, batch.following).argmax(axis=1)
    worth = q_values(target, batch.following)[np.arange(len(picked)), picked]
    return batch.rewards + DISCOUNT * np.where(batch.last, 0.0, worth)


def loss_gradients(network: Parameters, batch: Replay, targets: Array) -> tuple[float, Parameters]:
    """Return the mean Huber loss of the chosen values against the targets, and its gradients."""
    units, values = _forward(network, batch.states)
    rows = np.arange(len(targets))
    errors = values[rows, batch.choices] - targets
    size = np.abs(errors)
    loss = float(np.where(size <= 1, 0.5 * errors**2, size - 0.5).mean())
    slopes = np.clip(errors, -1, 1) / len(targets)
    advantages: Any = np.full_like(values, -1 / values.shape[1])
    advantages[rows, batch.choices] += 1
    advantages *= slopes[:, None]
    back = (slopes[:, None] @ network["value"].T + advantages @ network["advantage"].T) * (1 - units**2)
    return loss, {
        "hidden": batch.states.T @ back,
        "hidden_bias": back.sum(axis=0),
        "value": units.T @ slopes[:, None],
        "value_bias": slopes.sum(keepdims=True),
        "advantage": units.T @ advantages,
        "advantage_bias": advantages.sum(axis=0),
    }
