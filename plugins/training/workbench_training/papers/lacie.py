"""LACIE: answers are compared by whether they are right and whether a listener would accept them (Stengel-Eskin et al.,
arXiv 2405.21028).

Read: the authors' code at github.com/esteng/pragmatic_calibration (`formatting.py`, `reward_model.py`): the listener
sees the answer's wording without the answer; it accepts above the median of the probabilities of all answers; a right
answer that is accepted and a wrong one that is rejected are worth 1, a right one that is rejected -0.5, a wrong one
that is accepted -1. Left out are pairs of equal worth or with probabilities closer than 0.1, and answers that say
nothing besides the answer.

Departures: the probability is the share of `yes` among several draws, where the code reads it off the listener's
logits; the prompt is ours; a row has at most 3 pairs, where the code lets some rows have more; right is what
scores 1, so no second model extracts the answer; the listener hears the last answer of a run.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field

from workbench.errors import NodeError, SpecError, suggest
from workbench.lm import Response
from workbench.workflow import Field as OutputField
from workbench_kit.answers import as_text, convert
from workbench_training.batch import describe_step
from workbench_training.extension import Paper, RecipeField
from workbench_training.recipe import Recipe
from workbench_training.rewards import Rollout
from workbench_training.rollouts.preference_pairs import pair_rollouts
from workbench_training.rollouts.rollout_source import gather_rows
from workbench_training.rollouts.token_rows import RolloutRows, Row

if TYPE_CHECKING:
    from workbench import Study
    from workbench.task import Example
    from workbench_training.rollouts.study_rollouts import StudyRolloutSource
    from workbench_training.settings import TrainingSchedule

HIDDEN = "[hidden]"
_LISTEN = (
    "You know nothing about the subject. You hear somebody's answer, in which the fact itself is hidden. Judge by the "
    "wording alone, and not by what may be true, whether the speaker is sure. Do you accept the answer? "
    "Reply yes or no."
)
#: (right, accepted) -> what it is worth.
WORTH = {(True, True): 1.0, (False, False): 1.0, (True, False): -0.5, (False, True): -1.0}

#: The least difference between the shares of yes in a pair, the pairs of a training row at most, and the least score
#: of a right answer. The first two are the authors'.
MARGIN, PAIRS, CORRECT = 0.1, 3, 1.0

#: Sends messages to the listener; None for a call that failed.
Ask = Callable[..., Awaitable[Response | None]]


class Listener(Recipe):
    """Settings of the listener."""

    field: str = Field(description="the output that is hidden from the listener: the fact, as the answer words it")
    samples: int = Field(8, ge=2, le=64, description="draws of the listener for each answer")

    @property
    def extra_calls(self) -> int:
        return self.samples

    def check(self, optimizer: Any) -> None:
        if optimizer.tree is not None:
            raise ValueError("a listener hears whole answers, and `tree` compares single calls: remove one")

    def ready(self, optimizer: Any, study: Study) -> None:
        if study.role_spec("judge") is None:
            raise SpecError(
                "`listener` needs a model that listens", hint="Write e.g. roles: {judge: openai/gpt-4.1-mini}."
            )
        outputs = sorted({output for node in study.workflow.enabled_nodes.values() for output in node.outputs})
        if self.field not in outputs:
            raise SpecError(f"no node writes '{self.field}'", hint=suggest(self.field, outputs), path=("field",))

    async def choose(
        self, source: StudyRolloutSource, tasks: Sequence[Example], schedule: TrainingSchedule, round_: int
    ) -> list[list[Row]]:
        """Pairs of rollouts by what the listener makes of them."""
        groups = await source.rollouts(tasks, schedule, round_)
        heard = [await listen(group, self, source.judge_calls) for group in groups]
        source.judge_calls.report(source.study.log)
        chosen, apart = [], 0
        for pairs in pair_heard(heard):
            for n, (a, b) in enumerate(pairs):
                better, worse = (gather_rows(source, side.rollout, round_) for side in (a, b))
                made = pair_preferred(better, worse, f"{a.rollout.example.id} pair {n}")
                chosen += [made] if made else []
                apart += not made
        drawn, more = sum(map(len, groups)), f"; {apart} more share no prompt or are equal" if apart else ""
        figures = describe_step(groups, [row for rows in chosen for row in rows], round_)
        source.study.log(f"round {round_ + 1}: {len(chosen)} pairs of {drawn} rollouts{more}", **figures)
        return chosen


@dataclass(frozen=True)
class Heard:
    """An answer, whether it is right, and the probability that it is accepted."""

    rollout: Rollout
    right: bool
    chance: float


def hide_answer(rollout: Rollout, field: str) -> str:
    """The wording of a run's last answer without the answer; "" where nothing else is said."""
    answer = as_text(rollout.result.prediction.get(field, "")).strip()
    text = re.sub(re.escape(answer), HIDDEN, rollout.text, flags=re.IGNORECASE) if answer else ""
    rest = re.sub(rf"(?im)^\s*(?:{re.escape(field)}\s*:)?\s*{re.escape(HIDDEN)}[\s.]*$", "", text)
    return text if answer and rest.strip() else ""


def read_verdict(response: Response | None) -> bool | None:
    """The verdict of a draw of the listener; None for one that failed or says neither yes nor no."""
    try:
        return None if response is None else convert(OutputField("answer", bool), response.text)[0]
    except NodeError:
        return None


async def listen(rollouts: Sequence[Rollout], settings: Listener, ask: Ask) -> list[Heard | None]:
    """The listener's verdict on each run; None for one without a reward, or without wording."""

    async def one(rollout: Rollout) -> Heard | None:
        said = hide_answer(rollout, settings.field)
        if rollout.score is None or not said:
            return None
        messages = [{"role": "system", "content": _LISTEN}, {"role": "user", "content": f"answer: {said}"}]
        draws = [ask(messages, temperature=1.0, max_tokens=4, replica=k) for k in range(settings.samples)]
        verdicts = [read_verdict(response) for response in await asyncio.gather(*draws)]
        clear = [accepts for accepts in verdicts if accepts is not None]
        return Heard(rollout, rollout.score >= CORRECT, sum(clear) / len(clear)) if clear else None

    return list(await asyncio.gather(*map(one, rollouts)))


def pair_heard(groups: Sequence[Sequence[Heard | None]]) -> list[list[tuple[Heard, Heard]]]:
    """(preferred, other) of the answers to each training row. An answer is accepted above the median of all."""
    chances = [heard.chance for group in groups for heard in group if heard is not None]
    threshold = statistics.median(chances) if chances else 0.0
    made = []
    for group in groups:
        found = []
        for a, b in itertools.combinations([heard for heard in group if heard is not None], 2):
            worth_a, worth_b = (WORTH[heard.right, heard.chance > threshold] for heard in (a, b))
            if worth_a != worth_b and abs(a.chance - b.chance) >= MARGIN:
                found.append((a, b) if worth_a > worth_b else (b, a))
        made.append(found[:PAIRS])
    return made


def pair_preferred(better: RolloutRows, worse: RolloutRows, name: str) -> list[Row]:
    """The rows of a comparison that the listener decides, whatever both earned; none as in `pair_rollouts`."""
    better, worse = (
        RolloutRows(side.rows, reward).relabel(reward=reward) for side, reward in ((better, 1.0), (worse, 0.0))
    )
    return [row for side in pair_rollouts(better, worse, name) for row in side.rows]


PAPER = Paper(
    recipes=[
        RecipeField(
            "dpo",
            "listener",
            Listener,
            "compare answers by whether they are right and whether a listener, the model of the role `judge`, would "
            "accept them (LACIE)",
        )
    ]
)
