"""The training loop: sample rollouts, score them, compute advantages, update the weights; at intervals, offer a
candidate.

`Trainer.train` runs it. One step: `Collector.take` (rollouts, dynamic sampling), and by method: `_learn` (rows,
advantages, update), `_alarmed` (signs of collapse), `_offer` (a candidate on val), `_save` (a checkpoint).

A killed run restarts at its last checkpoint: what lies before counts as spent, and of the steps before only the
candidates are evaluated again, from the journal. From there on, rollouts come from the journal as far as the first run
came, and everything is computed as before.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workbench.errors import StoreError
from workbench.task import Example
from workbench_training.advantages import compute_advantages, update_multipliers
from workbench_training.learner import Learner, count_devices
from workbench_training.model.policy import Weights, is_digest, last_checkpoint, write_checkpoint
from workbench_training.rewards import Rollout
from workbench_training.role_exchange import exchange_roles
from workbench_training.rollouts.collector import Collected, Collector
from workbench_training.rollouts.rollout_source import RolloutSource
from workbench_training.rollouts.study_rollouts import describe_skipped, rewards_differ
from workbench_training.rollouts.token_rows import Row
from workbench_training.serving.policy_lm import wait_if_any
from workbench_training.settings import Course
from workbench_training.state.checkpoints import claim_weights, drop_weights, list_losers
from workbench_training.state.training_state import State

#: The parts of a policy in a checkpoint.
PARTS = (
    *("weights", "optimizer", "reference", "best"),
    *("critic", "critic_targets", "critic_optimizer", "critic_record"),
)


class Trainer:
    """One training, of one policy or of several by name. `log(message, **figures)` receives each step, reset and alarm;
    with several policies, the names of figures include the policy's."""

    def __init__(
        self,
        learners: Learner | Mapping[str, Learner],
        source: RolloutSource,
        tasks: Sequence[Example],
        course: Course,
        folder: Path,
        *,
        weights: Path,
        seed: int = 0,
        at: Callable[[int], Awaitable[None] | None] = lambda version: None,
        rest: Callable[[], Awaitable[None] | None] = lambda: None,
        rate: Callable[[int], float | None] = lambda step: None,
        trains: Callable[[int], Collection[str] | None] = lambda step: None,
        log: Callable[..., None] = lambda message, **figures: None,
    ):
        """Prepare a training.

        Args:
            learners: of one policy, or of several by name.
            source: of rollouts.
            tasks: training rows.
            course: steps, rollouts, candidates, alarms.
            folder: for checkpoints.
            weights: folder for candidates.
            seed: of the order of tasks.
            at: lets the engines draw a step with the current weights.
            rest: frees what drawing needs, until the next step is drawn.
            rate: the learning rate at a step; None for the learners' own.
            trains: the policies that learn at a step; None for all.
            log: receives messages.
        """
        self.learners = {"": learners} if isinstance(learners, Learner) else dict(learners)
        self.source, self.tasks, self.course = source, tasks, course
        self.folder, self.weights, self.rest, self.log = folder, weights, rest, log
        self.rate, self.trains = rate, trains
        self.state, self.seed, self.rng = State(), seed, random.Random(f"{seed}: order")
        self.collector = Collector(source, tasks, course, self.state, self.rng, at)
        self.best_weights: dict[str, Weights] = {}
        self.history: list[dict[str, float]] = []
        self._offered: set[int] = set()  # by this process

    async def train(self) -> None:
        """Train until the steps or the budget end. Raises BudgetSpent only if the end was not foreseeable."""
        self.folder.mkdir(parents=True, exist_ok=True)
        saved = await asyncio.to_thread(last_checkpoint, self.folder)
        if saved is not None:
            await self._resume(*saved)
        try:
            for step in range(self.state.step, self.course.steps):
                if self.state.ended or not (self.collector.is_ahead or self._affords(step)):
                    break
                await self._step(step)
            if dropped := await self.collector.drain():
                self.log(f"{dropped} rollouts that were drawn ahead are not learned from")
        finally:
            await self.collector.cancel()
        if self.state.step and self.state.step not in self._offered:
            await self._save()  # before the candidate: a resumed training must end here, even if a time limit ended it
            await self._offer()

    def _affords(self, step: int) -> bool:
        """Whether the course and the budget allow another step."""
        return not self._limited() and self.source.affords(self.course, step)

    async def _step(self, step: int) -> None:
        begun = time.monotonic()
        if self.course.swap_every and step and step % self.course.swap_every == 0:
            await asyncio.to_thread(exchange_roles, *self.learners.values())
        collected = await self.collector.take(step)
        self.state.step = step + 1
        if self.collector.overlaps(step + 1) and self._affords(step + 1):
            await self.collector.start(step + 1)
        else:
            await wait_if_any(self.rest())
        figures = await asyncio.to_thread(self._learn, collected, step)
        self.history.append(figures)
        silent = f"{figures['silent']:.0%} of the groups without differences"
        self.log(f"step {step + 1}: reward {figures['reward']:.3f}, {silent}", **figures)
        skipped = sum(value for key, value in figures.items() if key.rpartition(".")[2] == "skipped")
        if skipped:
            self.log(describe_skipped(skipped, f"step {step + 1}"), **figures)
        self.state.ended = self._alarmed(figures, step)
        self.state.gpu_seconds += (time.monotonic() - begun) * count_devices()
        if (step + 1) % self.course.evaluate_every == 0:
            await self._offer()
        if (step + 1) % self.course.save_every == 0:
            await self._save()

    async def _resume(self, ready: int, tensors: dict[str, Weights], saved: dict[str, Any]) -> None:
        """Proceed from a checkpoint after `ready` steps: their candidates become known again, their rollouts do not."""
        for step in range(ready):
            self.source.pass_over(self.course, step)
            if (step + 1) % self.course.evaluate_every == 0:
                await self._offer_again(str(step + 1), saved["state"])
        self.source.restore(saved["position"])
        await asyncio.to_thread(self._load, tensors, saved)

    def _limited(self) -> bool:
        """Whether a ceiling of the course forbids another step."""
        c, s = self.course, self.state
        samples = s.samples + c.rollouts * min(c.tasks, len(self.tasks))
        if c.samples is not None and samples > c.samples:
            self.log(f"training ends: {s.samples} of {c.samples} samples are drawn")
        elif c.gpu_seconds is not None and s.gpu_seconds >= c.gpu_seconds:
            self.log(f"training ends: it took {s.gpu_seconds:.0f} GPU seconds of {c.gpu_seconds:g}")
        else:
            return False
        return True

    # Learning

    def _learn(self, collected: Collected, step: int) -> dict[str, float]:
        groups, version, cut = collected
        rows = [row for group in groups for row in self._rows_of_group(group, step, version)]
        scored = [r for group in groups for r in group if r.reward is not None]
        figures = {
            "step": float(step),
            "rollouts": float(len(scored)),
            "rows": float(len(rows)),
            "reward": sum(r.reward or 0.0 for r in scored) / max(1, len(scored)),
            "silent": sum(not rewards_differ(group) for group in groups) / max(1, len(groups)),
            "guarded": float(sum(bool(r.guarded) for r in scored)),
            "tokens": float(sum(r.drawn for r in rows)),
        }
        if self.course.staleness:
            figures["stale"] = float(step - version)
        if self.course.straggler_cut is not None:
            figures["cut"] = float(cut)
        trains = self.trains(step)
        for name, learner in self.learners.items():
            if trains is not None and name not in trains:
                continue
            mine = [row for row in rows if row.policy == name and row.token_ids]
            found = self._learn_one(name, learner, mine, step, version)
            figures |= {_joined(name, key): value for key, value in found.items()}
        return figures

    def _learn_one(self, name: str, learner: Learner, rows: list[Row], step: int, version: int) -> dict[str, float]:
        """Update one policy with its own rows, drawn by this version but for replayed ones. Returns figures about the
        step."""
        objective, figures = learner.objective, dict[str, float]()
        weights, skipped = self.state.multipliers.get(name, {}), learner.skipped
        if rows:
            values = compute_advantages(rows, objective, weights)
            if values.any() or objective.beta or objective.critic is not None:
                # Without a correction only a row's own log-probabilities, as of an older version, make up for its age.
                current = version if learner.correction is not None else step
                figures |= learner.step(rows, values.tolist(), current, self.rate(step), done=step)
        if objective.constraints:
            weights = self.state.multipliers[name] = update_multipliers(weights, rows, objective.constraints)
            figures |= {f"multiplier_{cost}": value for cost, value in weights.items()}
        self.state.kl[name] = 0.9 * self.state.kl.get(name, 0.0) + 0.1 * figures.get("kl", 0.0)
        self.state.skipped[name] = learner.skipped
        if learner.skipped > skipped:
            figures["skipped"] = float(learner.skipped - skipped)
        return figures

    def _rows_of_group(self, group: list[Rollout], step: int, version: int) -> list[Row]:
        """The rows of a group. In a group that nearly fails, a stored success replaces the first rollout (ARPO). Its
        tokens keep the log-probabilities of their sampling, so that the ratio corrects for their age."""
        made = [self.source.rows(rollout, version) for rollout in group]
        if not self.course.replay or not group:
            return [row for rows in made for row in rows]
        rewards = [r.reward or 0.0 for r in group]
        stored = self.state.replay.setdefault(group[0].example.id, [])
        mean = sum(rewards) / len(rewards)
        if stored and mean < 0.2 and max(rewards) - min(rewards) < 0.1:
            chosen = random.Random(f"{self.seed}: replay {step}").choice(stored)
            made[0] = [Row.from_dict({**row, "rollout": group[0].replica}) for row in chosen]
        for rollout, rows in zip(group, made, strict=True):
            if (rollout.reward or 0.0) > 0.1 and rows and all(row.version == version for row in rows):
                stored.append([row.as_dict() for row in rows])
        del stored[: -self.course.replay]
        return [row for rows in made for row in rows]

    def _alarmed(self, figures: dict[str, float], step: int) -> bool:
        """Check for signs of collapse and react to them. Returns True if training should end."""
        found = [what for name in self.learners for what in self._signs(name, figures)]
        if not found:
            return False
        self.log(f"alarm at step {step + 1}: {'; '.join(found)}", **figures)
        if self.course.on_alarm == "rollback" and self.best_weights:
            for name, learner in self.learners.items():
                learner.go_back(self.best_weights[name])
            self.log(f"step {step + 1}: back to the best weights")
        return self.course.on_alarm == "stop"

    def _signs(self, name: str, figures: Mapping[str, float]) -> list[str]:
        (low, high), of = self.course.entropy, f" of {name}" if name else ""
        keys = ("entropy", "kl", "off_policy_gap", "off_policy_kl")
        entropy, kl, gap, apart = (figures.get(_joined(name, key)) for key in keys)
        found = []
        if entropy is not None and not low <= entropy <= high:
            found.append(f"entropy{of} {entropy:.3g} outside {low:g} to {high:g}")
        if kl is not None and not kl <= self.course.kl:
            found.append(f"divergence{of} {kl:.3g} above {self.course.kl:g}")
        if gap is not None and not gap <= self.course.off_policy_gap:
            found.append(f"log-probabilities{of} of sampling and training differ by {gap:.3g} on average")
        if apart is not None and not apart <= self.course.off_policy_kl:
            found.append(f"divergence of sampling{of} from training {apart:.3g} above {self.course.off_policy_kl:g}")
        return found

    # Candidates and checkpoints

    async def _offer(self) -> None:
        """Let the study evaluate the weights."""
        if not self.source.has_candidates:
            return
        key = str(self.state.step)
        self._offered.add(self.state.step)
        folders = await asyncio.to_thread(self._write)
        self.state.offered[key] = {name: folder.name for name, folder in folders.items()}
        score = await self.source.offer(folders, self.state.step, current=True)
        if score is None:
            self.state.unscored.append(key)
            return
        self.state.scores[key] = score
        if score > self.state.best:
            self.state.best, self.state.stale = score, 0
            if self.course.on_alarm == "rollback":  # nothing else reads them
                self.best_weights = {name: learner.snapshot() for name, learner in self.learners.items()}
        else:
            self.state.stale += 1
        self._reset_reference()
        if self.course.keep and self.source.remembers:
            offered = {step: folders.values() for step, folders in self.state.offered.items()}
            for name in list_losers(offered, self.state.scores, self.course.keep):
                await asyncio.to_thread(drop_weights, self.weights / name, self.folder.name)

    async def _offer_again(self, key: str, state: Mapping[str, Any]) -> None:
        """Let the study know a candidate of an earlier process. Its evaluation is stored, or else in the journal."""
        known = state["offered"].get(key)
        if known is None:
            return
        self._offered.add(int(key))
        if key in state["unscored"]:
            return
        if not all(map(is_digest, known.values())):
            raise StoreError(f"the record {self.folder} names weights that are not its own; start a new run")
        folders = {name: self.weights / folder for name, folder in known.items()}
        if await self.source.recall(folders, int(key)) is not None:
            return
        if gone := [folder for folder in folders.values() if not folder.exists()]:
            raise StoreError(f"the weights {gone[0]} of this run are gone; start a new run")
        await self.source.offer(folders, int(key), current=False)

    def _write(self) -> dict[str, Path]:
        """Write the weights of all policies."""
        folders = {name: learner.save(self.weights) for name, learner in self.learners.items()}
        for folder in folders.values():
            claim_weights(folder, self.folder.name)
        return folders

    def _reset_reference(self) -> None:
        """ProRL: a policy that stalls, or has moved far, becomes its own reference, with a fresh optimizer."""
        c, s = self.course, self.state
        due, kl = c.reset_after and s.step - s.last_reset >= c.reset_after, max(s.kl.values(), default=0.0)
        if due and (s.stale >= c.reset_patience or kl > c.reset_kl):
            why = f"{s.stale} candidates without a gain" if s.stale >= c.reset_patience else f"divergence {kl:.3g}"
            s.last_reset, s.stale, s.kl = s.step, 0, {}
            for learner in self.learners.values():
                learner.reset_reference()
                learner.renew()
            self.log(f"step {s.step}: the reference is reset ({why})", reset=s.step)

    async def _save(self) -> None:
        """Write a checkpoint. Nothing else runs meanwhile but the event loop."""
        self.state.rng = _plain(self.rng.getstate())
        state = {"state": asdict(self.state), "position": self.source.position()}
        await asyncio.to_thread(self._write_checkpoint, state)

    def _write_checkpoint(self, state: Mapping[str, Any]) -> None:
        tensors = {
            _joined(name, part): found
            for name, learner in self.learners.items()
            for part, found in learner.tensors().items()
        }
        tensors |= {_joined(name, "best"): weights for name, weights in self.best_weights.items()}
        write_checkpoint(self.folder, self.state.step, tensors, state)

    def _load(self, tensors: dict[str, Weights], saved: dict[str, Any]) -> None:
        self.state = self.collector.state = State(**saved["state"])
        for name, learner in self.learners.items():
            parts = {part: tensors[_joined(name, part)] for part in PARTS if _joined(name, part) in tensors}
            learner.load(parts)
            learner.skipped = self.state.skipped.get(name, 0)
            if "best" in parts and self.course.on_alarm == "rollback":
                self.best_weights[name] = parts["best"]
        version, numbers, gauss = self.state.rng
        self.rng.setstate((version, tuple(numbers), gauss))


def _joined(policy: str, name: str) -> str:
    """The name of a policy's figure or tensor; a single policy adds no prefix."""
    return f"{policy}.{name}" if policy else name


def _plain(state: tuple[Any, ...]) -> list[Any]:
    return [state[0], list(state[1]), state[2]]
