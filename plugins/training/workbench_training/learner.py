"""A step of learning: from rows and advantages to updated weights, independent of the source of rows."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from workbench_training.advantages import compute_token_advantages
from workbench_training.correction import Drift, compute_log_ratio, gather_drift, is_corrected, weigh_tokens
from workbench_training.model.micro_batches import CudaMeter, MicroTokens, split_rows
from workbench_training.model.policy import Policy, Weights
from workbench_training.model.split_pass import SplitPass
from workbench_training.objective import Objective
from workbench_training.rollouts.token_rows import Batch, Row, collate
from workbench_training.settings import BETAS, MAX_NORM, WEIGHT_DECAY, Learning
from workbench_training.step_loss import StepLoss, Terms


@dataclass(frozen=True)
class _Step:
    """A step: its rows; by row and token advantages, log-probabilities before and of the reference; which rows an older
    version sampled."""

    rows: Sequence[Row]
    batch: Batch
    spread: torch.Tensor
    stale: torch.Tensor
    old: torch.Tensor | None
    ref: torch.Tensor | None


class Learner:
    """AdamW on a policy's trained weights.

    shared: every process of torch.distributed has a learner and receives the same steps. Each computes its share of the
    rows, and gradients are summed: since losses are divided by the counts of the whole step, the sum is the whole
    gradient. Where the policy is sharded, all methods must be called in all processes, and FSDP reduces the gradients.
    """

    def __init__(self, policy: Policy, objective: Objective, learning: Learning, *, shared: bool = False):
        self.rank, self.processes = (dist.get_rank(), dist.get_world_size()) if shared else (0, 1)
        self.policy, self.objective, self.learning = policy, objective, learning
        self.rate = learning.rate or (1e-5 if policy.lora else 1e-6)
        self.reference: Weights | None = policy.snapshot() if objective.beta else None
        self.skipped = 0
        self.corrected = is_corrected(objective, learning)
        meter = CudaMeter(policy.device) if policy.device.type == "cuda" else None
        self.micro = MicroTokens(learning, meter, fixed=policy.sharded, hint=self._memory_hint())
        self.renew()

    def renew(self) -> None:
        """Reset the optimizer, without state of earlier gradients."""
        self.optimizer = torch.optim.AdamW(
            list(self.policy.trained.values()),
            lr=self.rate,
            betas=BETAS,
            weight_decay=WEIGHT_DECAY,
            # Else a step takes, for a moment, the memory of a third tensor of each weight.
            fused=self.policy.device.type == "cuda",
        )

    def reset_reference(self) -> None:
        self.reference = self.policy.snapshot()

    def go_back(self, weights: Weights) -> None:
        """Restore these weights, with a new optimizer."""
        self.policy.restore(weights)
        self.renew()

    def snapshot(self) -> Weights:
        """A copy of the complete trained weights, in the host's memory."""
        return self.policy.host_copy()

    def save(self, parent: Path) -> Path:
        """Write the policy as a checkpoint of its own; returns the folder."""
        return self.policy.save(parent)

    def close(self) -> None:
        """Release the learner; no steps may follow."""

    def step(
        self,
        rows: Sequence[Row],
        advantages: Sequence[float],
        version: int,
        rate: float | None = None,
        done: int | None = None,
    ) -> dict[str, float]:
        """Update the weights and return figures about the step. A step whose gradient is not finite changes nothing and
        is counted.

        Args:
            rows, advantages: the rows of the step, and one advantage for each.
            version: of the policy now. Rows of an older version are clipped against their own log-probabilities, the
                sampler's, and so need no other weight. Rows of this version are clipped against the trainer's at the
                start of the step, and weighted where the sampler's differ (`correction.py`).
            rate: replaces the learning rate.
            done: the number of earlier updates, for the warm-up, where that is not the version.
        """
        s, figures = self.learning, defaultdict[str, list[float]](list)
        batch = collate(rows, self.policy.device)
        values = torch.tensor(np.asarray(advantages), dtype=torch.float, device=self.policy.device)
        stale = torch.tensor([r.version < version for r in rows], device=self.policy.device)
        several = s.epochs * s.minibatches > 1
        old = self._log_probabilities(batch, rows) if several or self.objective.kl_place == "reward" else None
        ref = None
        if self.reference is not None and (self.objective.beta or self.objective.surrogate == "pairs"):
            with self.policy.having(self.reference):
                ref = self._log_probabilities(batch, rows)
        spread = self._spread(values, batch, rows, old, ref)
        drift = Drift()
        if not several:
            old = None  # for a single update, the old policy is the current one, exactly
        elif old is not None:
            self._note_drift(drift, old, batch, ~stale)
        for group in self.optimizer.param_groups:
            group["lr"] = (rate or self.rate) * min(1.0, ((version if done is None else done) + 1) / max(1, s.warmup))
        shuffle = random.Random(version)
        for _ in range(s.epochs):
            order = self._inseparable(rows, range(len(rows)))
            if s.minibatches > 1:
                shuffle.shuffle(order)
            for k in range(s.minibatches):
                chosen = [i for some in order[k :: s.minibatches] for i in some]
                if chosen:
                    self._update(_Step(rows, batch, spread, stale, old, ref), chosen, figures, drift)
        self.policy.changed()
        figures = self._of_all_processes(figures)
        drift = drift if several else gather_drift(drift, self.processes)
        return {name: math.fsum(found) / len(found) for name, found in figures.items()} | drift.figures()

    def _spread(
        self,
        values: torch.Tensor,
        batch: Batch,
        rows: Sequence[Row],
        old: torch.Tensor | None,
        ref: torch.Tensor | None,
    ) -> torch.Tensor:
        """The advantages of rows on their tokens."""
        return compute_token_advantages(values, batch.mask, self.objective, old, ref, rows)

    def _update(self, step: _Step, chosen: list[int], figures: dict[str, list[float]], drift: Drift) -> None:
        """Make a step of the optimizer on some rows."""
        self.micro.resize(self._gradient_bytes())
        # Once, however many attempts this process makes: the others take part.
        most, found = self._most(len(self._micro_batches(step.rows, chosen, step.spread))), None
        while found is None:
            self.optimizer.zero_grad(set_to_none=True)  # also what an attempt left that ran out of memory
            found = self.micro.attempt(lambda: self._accumulate(step, chosen, most))
        total, noted, apart = found
        drift.merge(apart)
        if most:  # otherwise no process has gradients, and the step changes nothing
            total = self._share_gradients(total)
        norm = torch.nn.utils.clip_grad_norm_(list(self.policy.trained.values()), MAX_NORM)
        if most and self.policy.sharded:
            norm = norm.full_tensor()  # type: ignore[attr-defined]
        if math.isfinite(total) and torch.isfinite(norm):
            self.optimizer.step()
            figures["grad_norm"].append(float(norm))
        else:
            self.skipped += 1
        self.optimizer.zero_grad(set_to_none=True)
        for name, values in noted.items():
            figures[name] += values
        figures["loss"].append(total)

    def _accumulate(self, step: _Step, chosen: list[int], most: int) -> tuple[float, dict[str, list[float]], Drift]:
        """Add up the gradients of some rows, in micro-batches; most: of a process. Returns (loss, figures, drift of a
        single update)."""
        total, figures, drift = 0.0, defaultdict[str, list[float]](list), Drift()
        of_rows = StepLoss(self.objective, step.rows, chosen)
        mine = self._micro_batches(step.rows, chosen, step.spread)
        for number, indices in enumerate(mine):
            part = step.batch.part(indices)
            width = part.mask.shape[1]
            old, ref = (None if t is None else t[indices, :width] for t in (step.old, step.ref))
            fresh = ~step.stale[indices]
            gradients = 0 if number else self._gradient_bytes()
            # The backward pass computes layers again: until its end no other adapter may take the place of ours.
            with self.policy.active(), self.micro.measured(part.ids.numel(), gradients):
                logp, entropy, split = self._pass(part)
                before = torch.where(fresh[:, None], logp.detach() if old is None else old, part.sampled)
                weight = self._weigh(before, part)
                terms = Terms(logp, step.spread[indices, :width], part.mask, before, ref, weight, indices)
                loss, found = of_rows.compute(terms)
                loss.backward()
                if split is not None:
                    split.backward()
            total += float(loss.detach())
            for name, value in found.items():
                figures[name].append(value)
            figures["entropy"].append(float(entropy.sum() / part.mask.sum().clamp(min=1.0)))
            if old is None:
                self._note_drift(drift, before, part, fresh)
        if self.policy.sharded:
            for _ in range(most - len(mine)):
                self._accompany(step.batch, chosen)
        return total, figures, drift

    def _weigh(self, before: torch.Tensor, part: Batch) -> torch.Tensor | None:
        """The weights that correct the sampling of a micro-batch; exactly 1 for rows of an older version."""
        if not self.corrected:
            return None
        return weigh_tokens(compute_log_ratio(before, part.sampled, part.mask), part.mask)[0]

    def _note_drift(self, drift: Drift, before: torch.Tensor, part: Batch, fresh: torch.Tensor) -> None:
        if self.learning.temperature == 1.0:  # otherwise the sampler's log-probabilities are of another distribution
            log_ratio = compute_log_ratio(before, part.sampled, part.mask)
            drift.add(log_ratio, part.mask, fresh, self.corrected)

    def _pass(self, part: Batch) -> tuple[torch.Tensor, torch.Tensor, SplitPass | None]:
        """(log-probabilities, entropies, what takes the gradient on from the former if the pass was split)."""
        if self.micro.takes(part.ids.numel()):
            return *self.policy.log_probabilities(part, self.learning.temperature), None
        split = SplitPass(self.policy, part, self.learning.temperature, self.micro.limit)
        return *split.log_probabilities(), split

    def _memory_hint(self) -> str:
        """The setting that makes a row fit."""
        if not self.policy.checkpointing:
            return "Write `learning: {checkpointing: true}`."
        if self.policy.lora is None:
            return "Train an adapter: `lora: {}`."
        return "Write a smaller max_tokens for its node, or leave a server less: `server: {memory: 0.3}`."

    def _gradient_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self.policy.trained.values())

    def _accompany(self, batch: Batch, chosen: list[int]) -> None:
        """Run a micro-batch without effect while other processes still have some, since all must gather the layers."""
        shortest = min(chosen, key=lambda i: int(batch.attention[i].sum()))
        logp, _ = self.policy.log_probabilities(batch.part([shortest]), self.learning.temperature)
        (0.0 * logp.sum()).backward()

    def _micro_batches(self, rows: Sequence[Row], chosen: list[int], spread: torch.Tensor) -> list[list[int]]:
        """Micro-batches of rows of similar length. Rows without effect are left out, though they are counted."""
        if self.objective.surrogate == "pairs":
            return self._inseparable(rows, chosen)[self.rank :: self.processes]
        silent = self.objective.beta == 0.0
        moving = [i for i in chosen if rows[i].drawn and rows[i].scored and not (silent and not bool(spread[i].any()))]
        lengths = [len(row.prompt_ids) + len(row.token_ids) for row in rows]
        mine = sorted(moving, key=lambda i: (lengths[i], i))[self.rank :: self.processes]
        return split_rows(lengths, mine, self.micro.limit)

    def _inseparable(self, rows: Sequence[Row], chosen: Iterable[int]) -> list[list[int]]:
        """Sets of rows that must share an update: the rows of a rollout, single rows where each is a decision, or whole
        groups if the loss compares pairs in them."""
        groups = defaultdict[Any, list[int]](list)
        for i in chosen:
            row = rows[i]
            pairs, together = self.objective.surrogate == "pairs", self.objective.counts_rollouts
            groups[row.task if pairs else row.unit if together else i].append(i)
        return list(groups.values())

    @torch.no_grad()
    def _log_probabilities(self, batch: Batch, rows: Sequence[Row]) -> torch.Tensor:
        """The log-probabilities of all rows with the current weights: (rows, longest)."""
        found, start = torch.zeros_like(batch.mask), 0
        while start < len(rows):
            end = start + max(1, self.micro.limit // batch.ids.shape[1])
            part = batch.part(range(start, min(end, len(rows))))
            scored = self.micro.attempt(lambda part=part: self._pass(part))
            if scored is not None:
                found[start : min(end, len(rows)), : part.mask.shape[1]] = scored[0].detach()
                start = end
        return found

    def _most(self, count: int) -> int:
        """The maximum of a count over all processes."""
        if self.processes == 1:
            return count
        most = torch.tensor(count, device=self.policy.device)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        return int(most)

    def _share_gradients(self, loss: float) -> float:
        """Sum gradients over all processes; returns the sum of their losses."""
        if self.processes == 1:
            return loss
        for p in self.policy.trained.values() if not self.policy.sharded else ():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad)
        total = torch.tensor(loss, dtype=torch.double, device=self.policy.device)
        dist.all_reduce(total)
        return float(total)

    def _of_all_processes(self, figures: Mapping[str, list[float]]) -> dict[str, list[float]]:
        """Figures of the micro-batches of all processes, in the order of their ranks."""
        if self.processes == 1:
            return dict(figures)
        found: list[Any] = [None] * self.processes
        dist.all_gather_object(found, dict(figures))
        names = dict.fromkeys(name for each in found for name in each)
        return {name: [value for each in found for value in each.get(name, [])] for name in names}

    # State, as plain tensors and numbers

    def tensors(self) -> dict[str, Weights]:
        """The tensors of a checkpoint: weights, reference, and the optimizer's state."""
        names = list(self.policy.trained)
        memory = {
            f"{names[index]}|{key}": value
            for index, state in self.optimizer.state_dict()["state"].items()
            for key, value in state.items()
        }
        found = {"weights": dict(self.policy.trained), "optimizer": memory or {"empty": torch.zeros(1)}}
        found |= {"reference": self.reference} if self.reference is not None else {}
        return {part: self.policy.whole(weights) for part, weights in found.items()}

    def load(self, tensors: Mapping[str, Weights]) -> None:
        """Restore a checkpoint."""
        self.policy.restore(tensors["weights"])
        if "reference" in tensors:
            self.reference = self.policy.part(tensors["reference"])
        self.renew()
        names, state = list(self.policy.trained), defaultdict[int, dict[str, Any]](dict)
        for name, value in self.policy.part(tensors["optimizer"]).items():
            if "|" in name:
                parameter, key = name.rsplit("|", 1)
                state[names.index(parameter)][key] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": dict(state), "param_groups": groups})


def count_devices() -> int:
    """The number of processes of this training, each with its own device; a CPU counts as one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
