"""Listener-aware pairs: answers are compared by whether they are right and whether a listener would accept them.

Source: LACIE (Stengel-Eskin et al., arXiv 2405.21028), as in the authors' code at
github.com/esteng/pragmatic_calibration (`formatting.py`, `reward_model.py`): the listener sees the answer's wording
without the answer; it accepts above the median of the probabilities of all answers; a right answer that is accepted and
a wrong one that is rejected are worth 1, a right one that is rejected -0.5, a wrong one that is accepted -1. Left out
are pairs of equal worth or with probabilities closer than 0.1, and answers that say nothing besides the answer.

Departures: the probability is the share of `yes` among several draws, where the code reads it off the listener's
logits; the prompt is ours; a row has at most `pairs` pairs, where the code lets some rows have more; right is what
earns enough, so no second model extracts the answer; the listener hears the last answer of a run.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench.errors import NodeError
from workbench.kit.answers import as_text, convert
from workbench.lm import Response
from workbench.workflow import Field as OutputField
from workbench_training.rewards import Rollout
from workbench_training.rollouts.token_rows import Row

HIDDEN = "[hidden]"
_LISTEN = (
    "You know nothing about the subject. You hear somebody's answer, in which the fact itself is hidden. Judge by the "
    "wording alone, and not by what may be true, whether the speaker is sure. Do you accept the answer? "
    "Reply yes or no."
)
#: (right, accepted) -> what it is worth.
WORTH = {(True, True): 1.0, (False, False): 1.0, (True, False): -0.5, (False, True): -1.0}

#: Sends messages to the listener; None for a call that failed.
Ask = Callable[..., Awaitable[Response | None]]


class Listener(BaseModel):
    """Who listens, and which pairs follow."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: str = Field(description="the output that is hidden from the listener: the fact, as the answer words it")
    samples: int = Field(8, ge=1, le=64, description="draws of the listener for each answer")
    threshold: float | None = Field(
        None, ge=0, le=1, description="an answer is accepted above this share of yes; null: the median of the round"
    )
    margin: float = Field(0.1, ge=0, le=1, description="least difference between the shares of yes in a pair")
    pairs: int = Field(3, ge=1, description="pairs of a training row at most")
    correct: float = Field(1.0, description="least reward of a right answer")

    @model_validator(mode="after")
    def _tells_apart(self) -> Self:
        if self.samples == 1 and self.threshold is None:
            raise ValueError("one draw is yes or no, and no median lies between them: give `threshold: 0.5` as well")
        return self


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
    """Whether a draw of the listener accepts; None for one that failed or says neither."""
    try:
        return None if response is None else convert(OutputField("answer", bool), response.text)[0]
    except NodeError:
        return None


async def listen(rollouts: Sequence[Rollout], settings: Listener, ask: Ask) -> list[Heard | None]:
    """What the listener makes of each run; None for one without a reward, or without wording."""

    async def one(rollout: Rollout) -> Heard | None:
        said = hide_answer(rollout, settings.field)
        if rollout.reward is None or not said:
            return None
        messages = [{"role": "system", "content": _LISTEN}, {"role": "user", "content": f"answer: {said}"}]
        draws = [ask(messages, temperature=1.0, max_tokens=4, replica=k) for k in range(settings.samples)]
        told = [accepts for response in await asyncio.gather(*draws) if (accepts := read_verdict(response)) is not None]
        if not told:
            return None
        return Heard(rollout, rollout.reward >= settings.correct, sum(told) / len(told))

    return list(await asyncio.gather(*map(one, rollouts)))


def pair_heard(groups: Sequence[Sequence[Heard | None]], settings: Listener) -> list[list[tuple[Heard, Heard]]]:
    """(preferred, other) of the answers to each training row."""
    chances = [heard.chance for group in groups for heard in group if heard is not None]
    threshold = settings.threshold
    if threshold is None:
        threshold = statistics.median(chances) if chances else 0.0
    made = []
    for group in groups:
        found = []
        for a, b in itertools.combinations([heard for heard in group if heard is not None], 2):
            worth_a, worth_b = (WORTH[heard.right, heard.chance > threshold] for heard in (a, b))
            if worth_a != worth_b and abs(a.chance - b.chance) >= settings.margin:
                found.append((a, b) if worth_a > worth_b else (b, a))
        made.append(found[: settings.pairs])
    return made


def pair_rows(better: Sequence[Row], worse: Sequence[Row], name: str) -> list[Row]:
    """The last rows of two runs as one pair for each agent that both have, under a name of its own."""
    last = {row.agent: row for row in better}, {row.agent: row for row in worse}
    return [
        replace(rows[agent], task=name, reward=reward)
        for agent in last[0]
        if agent in last[1]
        for rows, reward in zip(last, (1.0, 0.0), strict=True)
    ]
