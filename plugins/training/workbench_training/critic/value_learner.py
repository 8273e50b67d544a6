"""Updates a model of values, and reads values from it. What they should become is said by the kinds of critic."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from workbench_training.critic.returns import Array, Trajectory, gather_turns, split_trajectories
from workbench_training.critic.value_model import ValueModel
from workbench_training.model.policy import Policy, Weights
from workbench_training.objective import Critic, critic_kinds
from workbench_training.rollouts.token_rows import Row
from workbench_training.settings import MAX_NORM, Learning

Tensor = torch.Tensor
#: The summed loss of states, from the states, the numbers of their rows, and their places.
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass
class _Marked:
    """Rows and states of them: (states, numbers of rows, places) in passes; None until they are computed."""

    rows: Sequence[Row]
    masks: list[list[int]]
    passes: list[tuple[Tensor, Tensor, Tensor]] | None = None


class ValueLearner(ABC):
    """AdamW on a model of values. One step: `start_step`, `compute_advantages`, the policy's update, `end_step`."""

    def __init__(self, policy: Policy, settings: Critic, learning: Learning):
        self.policy, self.settings, self.learning, self.steps = policy, settings, learning, 0
        self.model = ValueModel(policy, critic_kinds()[settings.of].heads, settings.widths, settings.model)
        self.optimizer = torch.optim.AdamW(self.model.trained.values(), lr=settings.rate, weight_decay=0.0)
        self.figures: dict[str, float] = {}
        # By the identity of rows, in one step.
        self._split: dict[int, tuple[Sequence[Row], list[Trajectory]]] = {}
        self._marked: dict[tuple[int, str], _Marked] = {}

    def start_step(self, rows: Sequence[Row]) -> None:
        """Before the policy's update."""
        self.steps += 1
        self.figures = {}
        self._split.clear()
        self._marked.clear()

    @abstractmethod
    def compute_advantages(self, rows: Sequence[Row], penalty: Array | None = None) -> Array:
        """The advantages of the tokens after the prompts, 0 where none was drawn: (rows, longest).

        Args:
            rows: those of `start_step`.
            penalty: (rows, longest), taken off the rewards of tokens.
        """

    @abstractmethod
    def end_step(self) -> None:
        """After the policy's update."""

    def trajectories(self, rows: Sequence[Row]) -> list[Trajectory]:
        if id(rows) not in self._split:
            self._split[id(rows)] = rows, split_trajectories(rows)
        return self._split[id(rows)][1]

    def read(self, rows: Sequence[Row], marks: str, *heads: str) -> list[Array]:
        """For each head the values by row and place, where a state is marked, 0 elsewhere: (rows, longest + 1)."""
        found = [np.zeros((len(rows), 1 + max(len(row.token_ids) for row in rows))) for _ in heads]
        with torch.no_grad():
            for states, which, places in self._states(self._mark(rows, marks)):
                for values, head in zip(found, heads, strict=True):
                    computed = self.model.heads[head](states).double().cpu().numpy()
                    values[which.cpu().numpy(), places.cpu().numpy()] = computed
        return found

    def fit(self, rows: Sequence[Row], marks: str, loss: Loss, number: int) -> float:
        """Make a pass over the marked states, in `minibatches` updates, and return their mean loss. An update
        whose gradient is not finite changes nothing and is counted. number: of the pass in this step, for the order."""
        marked, total = self._mark(rows, marks), 0.0
        counts = [sum(mask) for mask in marked.masks]
        if not any(counts):
            return 0.0
        order = np.random.default_rng([self.steps, number]).permutation(np.flatnonzero(counts))
        for part in np.array_split(order, min(self.settings.minibatches, len(order))):
            count = sum(counts[i] for i in part)
            self.optimizer.zero_grad(set_to_none=True)
            for states, which, places in self._states_of(marked, part):
                found = loss(states, which, places)
                (found / count).backward()
                total += float(found.detach())
            norm = torch.nn.utils.clip_grad_norm_(list(self.model.trained.values()), MAX_NORM)
            if torch.isfinite(norm):
                self.optimizer.step()
            else:
                self.figures["value_skipped"] = self.figures.get("value_skipped", 0.0) + 1.0
        self.optimizer.zero_grad(set_to_none=True)
        return total / sum(counts)

    def _mark(self, rows: Sequence[Row], marks: str) -> _Marked:
        key = id(rows), marks
        if key not in self._marked:
            self._marked[key] = _Marked(rows, mark_states(rows, self.trajectories(rows), marks))
        return self._marked[key]

    def _states(self, marked: _Marked) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
        """(states, numbers of rows, places) in passes; of a decoder that is not trained computed once a step."""
        if self.model.trunk is not None:
            return self.model.states(marked.rows, marked.masks, self.learning.micro_tokens)
        if marked.passes is None:
            marked.passes = [*self.model.states(marked.rows, marked.masks, self.learning.micro_tokens)]
        return marked.passes

    def _states_of(self, marked: _Marked, chosen: np.ndarray[Any, Any]) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
        """As `_states`, of some rows."""
        if self.model.trunk is not None:
            kept = set(chosen.tolist())
            some = [mask if i in kept else [] for i, mask in enumerate(marked.masks)]
            yield from self.model.states(marked.rows, some, self.learning.micro_tokens)
            return
        taken = torch.zeros(len(marked.rows), dtype=torch.bool, device=self.policy.device)
        taken[torch.as_tensor(chosen, device=taken.device)] = True
        for states, which, places in self._states(marked):
            mine = taken[which]
            if mine.any():
                yield states[mine], which[mine], places[mine]

    def spread(self, rows: Sequence[Row], values: Sequence[Array]) -> Array:
        """(rows, longest) from the values of the trajectories' tokens."""
        table = np.zeros((len(rows), max(1, *(len(row.token_ids) for row in rows))))
        for t, found in zip(self.trajectories(rows), values, strict=True):
            table[t.rows, t.places] = found
        return table

    def tensor(self, values: Array) -> Tensor:
        return torch.tensor(values, dtype=torch.float, device=self.policy.device)

    # State, as the parts of a checkpoint

    def tensors(self) -> dict[str, Weights]:
        names = list(self.model.trained)
        memory = {
            f"{names[index]}|{key}": value
            for index, state in self.optimizer.state_dict()["state"].items()
            for key, value in state.items()
        }
        record = json.dumps(self.record()).encode()
        return {
            "critic": {name: p.detach() for name, p in self.model.trained.items()},
            "critic_optimizer": memory or {"empty": torch.zeros(1)},
            "critic_record": {"json": torch.frombuffer(bytearray(record), dtype=torch.uint8)},
        }

    def load(self, tensors: Mapping[str, Weights]) -> None:
        self.model.restore(tensors["critic"])
        self.restore_record(json.loads(tensors["critic_record"]["json"].numpy().tobytes()))
        names, state = list(self.model.trained), dict[int, dict[str, Any]]()
        for name, value in tensors["critic_optimizer"].items():
            if "|" in name:
                parameter, key = name.rsplit("|", 1)
                state.setdefault(names.index(parameter), {})[key] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    def record(self) -> dict[str, Any]:
        """The state besides weights, as JSON for a checkpoint."""
        return {"steps": self.steps}

    def restore_record(self, record: Mapping[str, Any]) -> None:
        self.steps = int(record["steps"])


def mark_states(rows: Sequence[Row], trajectories: Sequence[Trajectory], marks: str) -> list[list[int]]:
    """For each row a mask of states, one place longer than the row.

    Args:
        rows, trajectories: rows, and the trajectories of them that were scored.
        marks: `token`: the states before each drawn token; `start`: before each turn; `end`: after it.
    """
    masks = [[0] * (len(row.token_ids) + 1) for row in rows]
    if not trajectories:
        return masks
    if marks == "token":
        which, places = (np.concatenate([getattr(t, name) for t in trajectories]) for name in ("rows", "places"))
    else:
        turns = gather_turns(trajectories)
        which, places = turns.starts if marks == "start" else turns.ends
    for row, place in zip(which.tolist(), places.tolist(), strict=True):
        masks[row][place] = 1
    return masks
