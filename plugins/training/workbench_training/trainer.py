"""The training loop: `collect; learn; submit; save`.

    rollouts    Collector.collect      runs of the workflow on training rows, in groups    rollouts/collector.py
    rewards     score                  of each rollout, when it is drawn                  rewards.py
    rows        source.rows            the tokens that a policy drew, in each rollout      rollouts/token_rows.py
    advantages  compute_advantages     how much better each row did than its group         advantages.py
    loss        policy_loss            of log-probabilities, advantages and a mask        loss.py
    step        Learner.step           gradients by micro-batches, then AdamW              learner.py
    candidate   source.submit          the weights, evaluated on val                      rollouts/study_rollouts.py
    checkpoint  write_checkpoint       weights, AdamW's memory, the state below            model/policy.py

A killed run restarts at its last checkpoint: what lies before counts as spent, and of the steps before only the
candidates are evaluated again, from the journal. From there on, rollouts come from the journal as far as the first run
came, and everything is computed as before.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from workbench.errors import StoreError
from workbench.task import Example
from workbench_training.advantages import update_multipliers
from workbench_training.alarms import find_alarms, name_figure
from workbench_training.batch import describe_figures, describe_step, find_advantages, replay_success
from workbench_training.learner import Learner
from workbench_training.model.policy import Weights, is_digest, last_checkpoint, write_checkpoint
from workbench_training.rewards import Rollout
from workbench_training.rollouts.collector import Collected, Collector
from workbench_training.rollouts.rollout_source import RolloutSource
from workbench_training.rollouts.study_rollouts import describe_skipped, scores_differ
from workbench_training.rollouts.token_rows import Row
from workbench_training.serving.policy_lm import wait_if_any
from workbench_training.settings import RESET_AFTER, RESET_KL, RESET_PATIENCE, TrainingSchedule
from workbench_training.state.checkpoints import claim_weights, drop_weights, list_losers
from workbench_training.state.training_state import State

#: The parts of a policy in a checkpoint.
PARTS = (
    *("weights", "optimizer", "reference", "best"),
    *("critic", "critic_targets", "critic_optimizer", "critic_record"),
)


class Trainer:
    """A training, of one policy or of several by name. `log(message, **figures)` receives each step, reset and alarm;
    with several policies, the names of figures include the policy's."""

    def __init__(
        self,
        learners: Learner | Mapping[str, Learner],
        source: RolloutSource,
        tasks: Sequence[Example],
        schedule: TrainingSchedule,
        folder: Path,
        *,
        weights: Path,
        seed: int = 0,
        at: Callable[[int], Awaitable[None] | None] = lambda version: None,
        rest: Callable[[], Awaitable[None] | None] = lambda: None,
        rate: Callable[[int], float | None] = lambda step: None,
        trains: Callable[[int], Collection[str] | None] = lambda step: None,
        before: Sequence[Callable[[int, Mapping[str, Learner]], None]] = (),
        log: Callable[..., None] = lambda message, **figures: None,
    ):
        """Prepare a training.

        Args:
            learners: of one policy, or of several by name.
            source: of rollouts.
            tasks: training rows.
            schedule: steps, rollouts, candidates, alarms.
            folder: for checkpoints.
            weights: folder for candidates.
            seed: of the order of tasks.
            at: lets the engines draw a step with the current weights.
            rest: frees what drawing needs, until the next step is drawn.
            rate: the learning rate at a step; None for the learners' own.
            trains: the policies that learn at a step; None for all.
            before: called before each step with its number and the learners.
            log: receives messages.
        """
        self.learners = {"": learners} if isinstance(learners, Learner) else dict(learners)
        self.source, self.tasks, self.schedule = source, tasks, schedule
        self.folder, self.weights, self.rest, self.log = folder, weights, rest, log
        self.rate, self.trains, self.before = rate, trains, before
        self.state, self.seed, self.rng = State(), seed, random.Random(f"{seed}: order")
        self.collector = Collector(source, tasks, schedule, self.state, self.rng, at)
        self.best_weights: dict[str, Weights] = {}
        self.history: list[dict[str, float]] = []
        self._submitted: set[int] = set()  # by this process

    async def train(self) -> None:
        """Train until the steps or the budget end. Raises BudgetSpent only if the end was not foreseeable."""
        self.folder.mkdir(parents=True, exist_ok=True)
        saved = await asyncio.to_thread(last_checkpoint, self.folder)
        if saved is not None:
            await self._resume(*saved)
        try:
            for step in range(self.state.step, self.schedule.steps):
                if self.state.ended or not (self.collector.is_ahead or self._affords(step)):
                    break
                await self._step(step)
            if dropped := await self.collector.drain():
                self.log(f"{dropped} rollouts that were drawn ahead are not learned from")
        finally:
            await self.collector.cancel()
        if self.state.step and self.state.step not in self._submitted:
            await self._save()  # before the candidate: a resumed training must end here, even if a time limit ended it
            await self._submit()

    def _affords(self, step: int) -> bool:
        """True if the budget allows another step."""
        return self.source.affords(self.schedule, step)

    async def _step(self, step: int) -> None:
        begun = time.monotonic()
        for call in self.before:
            await asyncio.to_thread(call, step, self.learners)
        collected = await self.collector.collect(step)
        self.state.step = step + 1
        await self._draw_ahead(step + 1)
        figures = await asyncio.to_thread(self._learn, collected, step)
        seconds = time.monotonic() - begun
        figures |= {"seconds": seconds, "tokens_per_second": figures["tokens"] / max(seconds, 1e-9)}
        self._report(figures, step)
        self.state.ended = self._alarmed(figures, step)
        if (step + 1) % self.schedule.evaluate_every == 0:
            await self._submit()
        if (step + 1) % self.schedule.save_every == 0:
            await self._save()

    async def _draw_ahead(self, step: int) -> None:
        """Begin to draw a step during the update before it, or let the engines rest."""
        if self.collector.overlaps(step) and self._affords(step):
            await self.collector.start(step)
        else:
            await wait_if_any(self.rest())

    def _report(self, figures: dict[str, float], step: int) -> None:
        self.history.append(figures)
        self.log(describe_figures(figures), **figures)
        skipped = sum(value for key, value in figures.items() if key.rpartition(".")[2] == "skipped")
        if skipped:
            self.log(describe_skipped(skipped, f"step {step + 1}"), **figures)

    async def _resume(self, ready: int, tensors: dict[str, Weights], saved: dict[str, Any]) -> None:
        """Proceed from a checkpoint after `ready` steps: their candidates become known again, their rollouts do not."""
        for step in range(ready):
            self.source.pass_over(self.schedule, step)
            if (step + 1) % self.schedule.evaluate_every == 0:
                await self._resubmit(str(step + 1), saved["state"])
        self.source.restore(saved["position"])
        await asyncio.to_thread(self._load, tensors, saved)

    def _learn(self, collected: Collected, step: int) -> dict[str, float]:
        """Update the policies that learn at this step. Returns figures about it."""
        groups, version, cut = collected
        rows = [row for group in groups for row in self._rows(group, step, version)]
        figures = describe_step(groups, rows, step)
        if self.schedule.staleness:
            figures["stale"] = float(step - version)
        if self.schedule.straggler_cut is not None:
            figures["cut"] = float(cut)
        trains = self.trains(step)
        for name, learner in self.learners.items():
            if trains is None or name in trains:
                own = [row for row in rows if row.policy == name and row.token_ids]
                found = self._update(name, learner, own, step, version)
                figures |= {name_figure(name, key): value for key, value in found.items()}
        return figures

    def _rows(self, group: list[Rollout], step: int, version: int) -> list[Row]:
        """The rows of a group of rollouts, with replay. With dynamic sampling, a group that the metric does not tell
        apart and that could not be replaced teaches nothing: penalties alone would push its answers."""
        drawn, replay = [self.source.rows(rollout, version) for rollout in group], self.state.replay
        found = drawn
        if self.schedule.replay and group:
            task, draw = group[0].example.id, f"{self.seed}: replay {step}"
            found, replay[task] = replay_success(
                group, found, replay.get(task, []), version=version, draw=draw, most=self.schedule.replay
            )
        silent = set[str]()
        if self.schedule.dynamic_sampling and all(a is b for a, b in zip(found, drawn, strict=True)):
            learning = [name for name, learner in self.learners.items() if learner.objective.critic is None]
            silent = {name for name in learning if not scores_differ(group, name)}
        return [replace(row, reward=None) if row.policy in silent else row for rows in found for row in rows]

    def _update(self, name: str, learner: Learner, rows: list[Row], step: int, version: int) -> dict[str, float]:
        """Update one policy with its own rows, drawn by this version but for replayed ones. Returns figures."""
        objective, figures, skipped = learner.objective, dict[str, float](), learner.skipped
        multipliers = self.state.multipliers.get(name, {})
        if (advantages := find_advantages(rows, objective, multipliers)) is not None:
            # Without a correction only a row's own log-probabilities, as of an older version, make up for its age.
            current = version if learner.corrected else step
            figures |= learner.step(rows, advantages, current, self.rate(step), done=step)
        if objective.constraints:
            multipliers = self.state.multipliers[name] = update_multipliers(multipliers, rows, objective.constraints)
            figures |= {f"multiplier_{cost}": value for cost, value in multipliers.items()}
        self.state.kl[name] = 0.9 * self.state.kl.get(name, 0.0) + 0.1 * figures.get("kl", 0.0)
        self.state.skipped[name] = learner.skipped
        if learner.skipped > skipped:
            figures["skipped"] = float(learner.skipped - skipped)
        return figures

    def _alarmed(self, figures: dict[str, float], step: int) -> bool:
        """Check for signs of collapse and react to them. Returns True if training should end."""
        found = [alarm for name in self.learners for alarm in find_alarms(figures, name)]
        if not found:
            return False
        self.log(f"alarm at step {step + 1}: {'; '.join(found)}", **figures)
        if self.schedule.on_alarm == "rollback" and self.best_weights:
            for name, learner in self.learners.items():
                learner.go_back(self.best_weights[name])
            self.log(f"step {step + 1}: back to the best weights")
        return self.schedule.on_alarm == "stop"

    # Candidates and checkpoints

    async def _submit(self) -> None:
        """Let the study evaluate the weights."""
        if not self.source.has_candidates:
            return
        key = str(self.state.step)
        self._submitted.add(self.state.step)
        folders = await asyncio.to_thread(self._write)
        self.state.submitted[key] = {name: folder.name for name, folder in folders.items()}
        score = await self.source.submit(folders, self.state.step, current=True)
        if score is None:
            self.state.unscored.append(key)
            return
        self.state.scores[key] = score
        if score > self.state.best:
            self.state.best, self.state.stale = score, 0
            if self.schedule.on_alarm == "rollback":  # nothing else reads them
                self.best_weights = {name: learner.snapshot() for name, learner in self.learners.items()}
        else:
            self.state.stale += 1
        self._reset_reference()
        if self.schedule.keep and self.source.remembers:
            submitted = {step: folders.values() for step, folders in self.state.submitted.items()}
            for name in list_losers(submitted, self.state.scores, self.schedule.keep):
                await asyncio.to_thread(drop_weights, self.weights / name, self.folder.name)

    async def _resubmit(self, key: str, state: Mapping[str, Any]) -> None:
        """Let the study know a candidate of an earlier process. Its evaluation is stored, or else in the journal."""
        known = state["submitted"].get(key)
        if known is None:
            return
        self._submitted.add(int(key))
        if key in state["unscored"]:
            return
        if not all(map(is_digest, known.values())):
            raise StoreError(f"the record {self.folder} names weights that are not its own; start a new run")
        folders = {name: self.weights / folder for name, folder in known.items()}
        if await self.source.recall(folders, int(key)) is not None:
            return
        if gone := [folder for folder in folders.values() if not folder.exists()]:
            raise StoreError(f"the weights {gone[0]} of this run are gone; start a new run")
        await self.source.submit(folders, int(key), current=False)

    def _write(self) -> dict[str, Path]:
        """Write the weights of all policies."""
        folders = {name: learner.save(self.weights) for name, learner in self.learners.items()}
        for folder in folders.values():
            claim_weights(folder, self.folder.name)
        return folders

    def _reset_reference(self) -> None:
        """ProRL: a policy that stalls, or has moved far, becomes its own reference, with a fresh optimizer."""
        s, kl = self.state, max(self.state.kl.values(), default=0.0)
        resets = any(learner.objective.resets for learner in self.learners.values())
        if resets and s.step - s.last_reset >= RESET_AFTER and (s.stale >= RESET_PATIENCE or kl > RESET_KL):
            why = f"{s.stale} candidates without a gain" if s.stale >= RESET_PATIENCE else f"divergence {kl:.3g}"
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
            name_figure(name, part): found
            for name, learner in self.learners.items()
            for part, found in learner.tensors().items()
        }
        tensors |= {name_figure(name, "best"): weights for name, weights in self.best_weights.items()}
        write_checkpoint(self.folder, self.state.step, tensors, state)

    def _load(self, tensors: dict[str, Weights], saved: dict[str, Any]) -> None:
        self.state = self.collector.state = State(**saved["state"])
        for name, learner in self.learners.items():
            parts = {part: tensors[name_figure(name, part)] for part in PARTS if name_figure(name, part) in tensors}
            learner.load(parts)
            learner.skipped = self.state.skipped.get(name, 0)
            if "best" in parts and self.schedule.on_alarm == "rollback":
                self.best_weights[name] = parts["best"]
        version, numbers, gauss = self.state.rng
        self.rng.setstate((version, tuple(numbers), gauss))


def _plain(state: tuple[Any, ...]) -> list[Any]:
    return [state[0], list(state[1]), state[2]]
