"""A model of outcomes: it reads a task and what was answered, and says whether that is right (WebRL, arXiv 2411.02337).

It is trained on the solver's runs of labelled rows, whose outcome the metric knows, to say yes or no; and judges runs
of rows that have no label: right if yes is more probable than no. Departures: it reads the task's inputs and the texts
that the model answered, not pages of a browser; both outcomes weigh the same in its training, however rare one is; and
it is used only if it tells the two apart on rows that it did not learn.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from workbench.workflow import Trace
from workbench_training.learner import Learner
from workbench_training.objective import Objective
from workbench_training.rollouts.sft_data import ChatTokenizer, SFTExample, tokenize_example
from workbench_training.rollouts.token_rows import Row, collate
from workbench_training.scale.distributed import learner_for
from workbench_training.self_play.settings import Verdicts

if TYPE_CHECKING:
    from workbench_training.model.policy import Policy

QUESTION = "Is the task solved? Answer yes or no."
LONGEST = 4000  # characters of a run: its beginning says what the task is, its end what was answered


@dataclass(frozen=True)
class JudgedRun:
    """A run of a row, as text, and whether it was right."""

    task: str
    text: str
    right: bool


@dataclass(frozen=True)
class Fit:
    """How a model of outcomes does on rows that it did not learn: its balanced accuracy, and of how many runs."""

    accuracy: float
    runs: int


class OutcomeModel:
    """Says whether a run solved its task. Each `fit` begins with the weights that it was made with."""

    def __init__(self, policy: Policy, settings: Verdicts, seed: int):
        self.policy, self.settings, self.seed = policy, settings, seed
        self.start = policy.host_copy()
        generator = policy.generator
        self.tokens = ChatTokenizer(generator.tokenizer, generator.ends, generator.encode)

    def fit(self, runs: Sequence[JudgedRun]) -> Fit:
        """Train on the runs of three quarters of the rows. Returns how it does on the others; 0 of 0 without both
        outcomes on either side."""
        rng = random.Random(f"{self.seed}: rows of the outcome model")
        tasks = sorted({run.task for run in runs})
        held = {*rng.sample(tasks, max(1, len(tasks) // 4))} if tasks else set[str]()
        learned, others = [r for r in runs if r.task not in held], [r for r in runs if r.task in held]
        if any(len({run.right for run in side}) < 2 for side in (learned, others)):
            return Fit(0.0, 0)
        self.policy.restore(self.start)
        learner = learner_for(
            self.policy,
            Objective.model_validate({"surrogate": "likelihood", "aggregate": "token"}),
            self.settings.learning,
        )
        try:
            self._train(learner, learned, rng)
        finally:
            learner.close()
        return Fit(self._measure(others), len(others))

    def _train(self, learner: Learner, runs: Sequence[JudgedRun], rng: random.Random) -> None:
        """Passes over the runs; both outcomes weigh the same."""
        rights, update = sum(run.right for run in runs), 0
        weights = {True: len(runs) / (2 * rights), False: len(runs) / (2 * (len(runs) - rights))}
        for _ in range(self.settings.epochs):
            order = rng.sample([*runs], len(runs))
            for start in range(0, len(order), self.settings.batch):
                batch = order[start : start + self.settings.batch]
                rows = [self._row(run.text, run.right) for run in batch]
                learner.step(rows, [weights[run.right] for run in batch], 0, None, update)
                update += 1

    def _measure(self, runs: Sequence[JudgedRun]) -> float:
        found = {
            right: [(self.judge(r.text) > 0.5) == right for r in runs if r.right == right] for right in (True, False)
        }
        return sum(sum(hits) / len(hits) for hits in found.values()) / 2

    def judge(self, text: str) -> float:
        """The probability that a run was right: that of yes, beside that of no."""
        rows = [self._row(text, right) for right in (True, False)]
        batch = collate(rows, self.policy.device)
        with torch.no_grad():
            found = self.policy.log_probabilities(batch)[0]
        yes, no = ((found * batch.mask).sum(-1)).tolist()
        return 1.0 / (1.0 + math.exp(min(no - yes, 700.0)))

    def _row(self, text: str, right: bool) -> Row:
        chat = [
            {"role": "user", "content": f"{text}\n\n{QUESTION}"},
            {"role": "assistant", "content": "yes" if right else "no"},
        ]
        (row,) = tokenize_example(SFTExample(chat, frozenset({1}), "outcome"), self.tokens)
        return row


def describe_run(fields: Mapping[str, Any], trace: Trace | None) -> str:
    """A task's inputs and what was answered, at most `LONGEST` characters, the middle left out."""
    said = [call.response.text.strip() for call in trace.calls] if trace else []
    text = "\n".join([*(f"{name}: {value}" for name, value in fields.items()), "", *said])
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}\n...\n{text[-LONGEST // 2 :]}"
