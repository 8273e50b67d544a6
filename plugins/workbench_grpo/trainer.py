"""The loop of training: draw rollouts, score them, compare them, change the weights; now and then offer a candidate.

A run that was killed begins again at its first step: rollouts then come from the journal, so drawing costs nothing,
and up to the last checkpoint no weight is computed either. From there on everything is computed as it was.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from workbench.data import Example
from workbench.errors import StoreError
from workbench_grpo.advantages import advantages, update_multipliers
from workbench_grpo.learner import Learner
from workbench_grpo.policy import Weights, last_checkpoint, write_checkpoint
from workbench_grpo.rewards import Rollout
from workbench_grpo.rollouts import Row
from workbench_grpo.settings import Course


class Source(Protocol):
    """Where rollouts come from, and where candidates go."""

    async def rollouts(self, tasks: Sequence[Example], course: Course, step: int) -> list[list[Rollout]]:
        """For each task its scored rollouts, drawn by the policy at version `step`."""
        ...

    def rows(self, rollout: Rollout, step: int) -> list[Row]: ...

    def affords(self, course: Course, step: int) -> bool:
        """Whether the budget allows another step, and a candidate after it."""
        ...

    async def offer(self, folder: Path, step: int) -> float | None:
        """Evaluate weights as a candidate; its score on val, None where the budget does not allow it."""
        ...


@dataclass
class State:
    """What training carries from step to step besides the weights; plain JSON values."""

    step: int = 0
    multipliers: dict[str, float] = field(default_factory=dict)
    replay: dict[str, list[list[dict[str, Any]]]] = field(default_factory=dict)  # by task: rows of successes
    offered: dict[str, str] = field(default_factory=dict)  # by step: the folder of the candidate
    best: float = -1.0
    stale: int = 0  # candidates since the best one
    last_reset: int = 0
    kl: float = 0.0
    skipped: int = 0
    order: list[int] = field(default_factory=list)  # what is left of this pass over the tasks
    rng: list[Any] = field(default_factory=list)
    ended: bool = False  # by an alarm


class Trainer:
    """One training. `tell(message, **figures)` hears of each step, reset and alarm."""

    def __init__(self, learner: Learner, source: Source, tasks: Sequence[Example], course: Course, folder: Path, *,
                 weights: Path, seed: int = 0, at: Callable[[int], Awaitable[None] | None] = lambda version: None,
                 tell: Callable[..., None] = lambda message, **figures: None):  # fmt: skip
        self.learner, self.source, self.tasks, self.course = learner, source, tasks, course
        self.folder, self.weights, self.at, self.tell = folder, weights, at, tell
        self.state, self.seed, self.rng = State(), seed, random.Random(f"{seed}: order")
        self.best_weights: Weights | None = None
        self.log: list[dict[str, float]] = []
        self._offered: set[int] = set()  # by this process

    async def train(self) -> None:
        """Train until the steps or the budget end. Raises BudgetSpent only where the budget could not be foreseen."""
        self.folder.mkdir(parents=True, exist_ok=True)
        saved = last_checkpoint(self.folder)
        ready = saved[0] if saved else 0
        for step in range(self.course.steps):
            if saved is not None and step == ready:
                self._load(saved[1], saved[2])
            if self.state.ended or not self.source.affords(self.course, step):
                break
            computed = step >= ready
            if computed:
                synced = self.at(step)
                if synced is not None:
                    await synced
            groups = await self._collect(step)
            self.state.step = step + 1
            if computed:
                figures = await asyncio.to_thread(self._learn, groups, step)
                self.log.append(figures)
                silent = f"{figures['silent']:.0%} of the groups without differences"
                self.tell(f"step {step + 1}: reward {figures['reward']:.3f}, {silent}", **figures)
                self.state.ended = self._alarmed(figures, step)
            if (step + 1) % self.course.evaluate_every == 0:
                await self._offer(computed, saved)
            if computed and (step + 1) % self.course.save_every == 0:
                self._save()
        if saved is not None and self.state.step <= ready:  # all that the budget allowed had been done before the kill
            self._load(saved[1], saved[2])
        if self.state.step and self.state.step not in self._offered:
            await self._offer(True, saved)
            self._save()

    # Drawing

    async def _collect(self, step: int) -> list[list[Rollout]]:
        """Groups of rollouts; those that teach nothing are replaced as often as allowed (dynamic sampling)."""
        groups = await self.source.rollouts(self._next_tasks(self.course.tasks), self.course, step)
        for _ in range(self.course.refill):
            useful = [group for group in groups if differs(group)]
            missing = self.course.tasks - len(useful)
            if missing <= 0 or len(self.tasks) < 2 * self.course.tasks or not self.source.affords(self.course, step):
                break
            seen = {group[0].example.id for group in groups}
            others = [task for task in self._next_tasks(missing) if task.id not in seen]
            found = await self.source.rollouts(others, self.course, step) if others else []
            spare = [group for group in groups if not differs(group)]
            groups = [*useful, *found, *spare][: max(self.course.tasks, len(useful) + len(found))]
        return groups

    def _next_tasks(self, count: int) -> list[Example]:
        """The next rows of a pass over all of them, in an order drawn anew for each pass."""
        chosen: list[int] = []
        while len(chosen) < min(count, len(self.tasks)):
            if not self.state.order:
                self.state.order = self.rng.sample(range(len(self.tasks)), len(self.tasks))
            index = self.state.order.pop(0)
            if index not in chosen:
                chosen.append(index)
        return [self.tasks[i] for i in chosen]

    # Learning

    def _learn(self, groups: list[list[Rollout]], step: int) -> dict[str, float]:
        rows = [row for group in groups for row in self._rows_of_group(group, step)]
        scored = [r for group in groups for r in group if r.reward is not None]
        figures = {
            "step": float(step), "rollouts": float(len(scored)), "rows": float(len(rows)),
            "reward": sum(r.reward or 0.0 for r in scored) / max(1, len(scored)),
            "silent": sum(not differs(group) for group in groups) / max(1, len(groups)),
            "guarded": float(sum(bool(r.guarded) for r in scored)), "tokens": float(sum(r.drawn for r in rows)),
        }  # fmt: skip
        objective = self.learner.objective
        rows = [row for row in rows if row.token_ids]
        if rows:
            values = advantages(rows, objective, self.state.multipliers)
            if values.any() or objective.beta:
                figures |= self.learner.step(rows, values.tolist(), step)
        if objective.constraints:
            self.state.multipliers = update_multipliers(self.state.multipliers, rows, objective.constraints)
            figures |= {f"multiplier_{name}": value for name, value in self.state.multipliers.items()}
        self.state.kl = 0.9 * self.state.kl + 0.1 * figures.get("kl", 0.0)
        self.state.skipped = self.learner.skipped
        return figures

    def _rows_of_group(self, group: list[Rollout], step: int) -> list[Row]:
        """Rows of a group. Where it all but fails, a stored success takes the place of its first rollout (ARPO); its
        tokens keep the log-probabilities with which they were drawn, so that the ratio corrects for their age."""
        made = [self.source.rows(rollout, step) for rollout in group]
        if not self.course.replay or not group:
            return [row for rows in made for row in rows]
        rewards = [r.reward or 0.0 for r in group]
        stored = self.state.replay.setdefault(group[0].example.id, [])
        mean = sum(rewards) / len(rewards)
        if stored and mean < 0.2 and max(rewards) - min(rewards) < 0.1:
            chosen = random.Random(f"{self.seed}: replay {step}").choice(stored)
            made[0] = [Row.from_dict({**row, "rollout": group[0].replica}) for row in chosen]
        for rollout, rows in zip(group, made, strict=True):
            if (rollout.reward or 0.0) > 0.1 and rows and all(row.version == step for row in rows):
                stored.append([row.as_dict() for row in rows])
        del stored[: -self.course.replay]
        return [row for rows in made for row in rows]

    def _alarmed(self, figures: dict[str, float], step: int) -> bool:
        """Look for signs of collapse. True where training should end."""
        low, high = self.course.entropy
        entropy, kl, gap = (figures.get(name) for name in ("entropy", "kl", "gap"))
        found = []
        if entropy is not None and not low <= entropy <= high:
            found.append(f"entropy {entropy:.3g} outside {low:g} to {high:g}")
        if kl is not None and not kl <= self.course.kl:
            found.append(f"divergence {kl:.3g} above {self.course.kl:g}")
        if gap is not None and not gap <= self.course.gap:
            found.append(f"log-probabilities of drawing and training differ by {gap:.3g}")
        if not found:
            return False
        self.tell(f"alarm at step {step + 1}: {'; '.join(found)}", **figures)
        if self.course.on_alarm == "rollback" and self.best_weights is not None:
            self.learner.policy.restore(self.best_weights)
            self.learner.renew()
            self.tell(f"step {step + 1}: back to the best weights")
        return self.course.on_alarm == "stop"

    # Candidates and checkpoints

    async def _offer(self, computed: bool, saved: Any) -> None:
        """Let the study evaluate the weights. A replayed step names the folder that it wrote the first time."""
        key = str(self.state.step)
        self._offered.add(self.state.step)
        if computed:
            folder = await asyncio.to_thread(self.learner.policy.save, self.weights)
        else:
            known = saved[2]["state"]["offered"].get(key)
            if known is None:
                return
            folder = self.weights / known
            if not folder.exists():
                raise StoreError(f"the weights {folder} of this run are gone; start a new run")
        self.state.offered[key] = folder.name
        score = await self.source.offer(folder, self.state.step)
        if not computed or score is None:
            return
        if score > self.state.best:
            self.state.best, self.state.stale, self.best_weights = score, 0, self.learner.policy.snapshot()
        else:
            self.state.stale += 1
        self._reset_reference()

    def _reset_reference(self) -> None:
        """ProRL: a policy that stalls, or has moved far, becomes its own reference, with a fresh optimizer."""
        c, s = self.course, self.state
        due = c.reset_after and s.step - s.last_reset >= c.reset_after
        if due and (s.stale >= c.reset_patience or s.kl > c.reset_kl):
            why = f"{s.stale} candidates without a gain" if s.stale >= c.reset_patience else f"divergence {s.kl:.3g}"
            s.last_reset, s.stale, s.kl = s.step, 0, 0.0
            self.learner.reset_reference()
            self.learner.renew()
            self.tell(f"step {s.step}: the reference is reset ({why})", reset=s.step)

    def _save(self) -> None:
        self.state.rng = _plain(self.rng.getstate())
        tensors = self.learner.tensors()
        if self.best_weights is not None:
            tensors["best"] = self.best_weights
        write_checkpoint(self.folder, self.state.step, tensors, {"state": asdict(self.state)})

    def _load(self, tensors: dict[str, Weights], saved: dict[str, Any]) -> None:
        self.learner.load(tensors)
        self.best_weights = tensors.get("best")
        self.state = State(**saved["state"])
        self.learner.skipped = self.state.skipped
        version, numbers, gauss = self.state.rng
        self.rng.setstate((version, tuple(numbers), gauss))


def differs(group: Sequence[Rollout]) -> bool:
    """Whether a group teaches anything: two of its rollouts earned differently."""
    rewards = {r.reward for r in group if r.reward is not None}
    return len(rewards) > 1


def _plain(state: tuple[Any, ...]) -> list[Any]:
    return [state[0], list(state[1]), state[2]]
