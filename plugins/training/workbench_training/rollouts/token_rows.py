"""Records of what a policy did, token by token, and how calls of a trace become rows that training can use."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence to learn from: a prompt, and what followed it.

    token_ids: what followed, tokens of tools and users between the policy's turns included. mask: 1 for tokens that the
    policy drew, 0 for others. logprobs: of the drawn tokens when they were drawn, 0.0 elsewhere. reward: that of the
    rollout (for this agent), None where it could not be scored: such a row teaches nothing. score: the metric's,
    without the other terms of the reward. step_reward: what the step itself earned; None: the rollout's reward at its
    last step, 0 before. costs: of the whole rollout, by name. anchor: equal for steps that began in the same state.
    policy, version: what drew the tokens.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    reward: float | None
    task: str
    rollout: int = 0
    agent: str = ""
    turn: int = 0
    anchor: str | None = None
    step_reward: float | None = None
    costs: Mapping[str, float] = field(default_factory=dict)
    version: int = 0
    truncated: bool = False
    text: str = ""
    policy: str = ""
    score: float | None = None

    def __post_init__(self) -> None:
        lengths = {len(self.token_ids), len(self.mask), len(self.logprobs)}
        if len(lengths) > 1:
            raise ValueError(f"token_ids, mask and logprobs of a row differ in length: {sorted(lengths)}")

    @property
    def drawn(self) -> int:
        """Tokens that the policy drew."""
        return sum(self.mask)

    @property
    def unit(self) -> tuple[str, int, int, float | None]:
        """The name of its rollout within a step, for this agent: a rollout of several rows counts once."""
        return self.task, self.rollout, self.version, self.reward

    @property
    def scored(self) -> bool:
        """True if the rollout has a reward; a row without one teaches nothing."""
        return self.reward is not None and math.isfinite(self.reward)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; `Row(**row.as_dict())` gives an equal row."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Row:
        lists = {"prompt_ids", "token_ids", "mask", "logprobs"}
        plain: dict[str, Any] = {k: tuple(v) if k in lists else v for k, v in values.items()}
        return cls(**plain)


@dataclass(frozen=True)
class RolloutRows:
    """All token rows of one rollout, in order, with its one reward.

    reward: None for a rollout that could not be scored. score: the metric's score alone; by default the reward.
    origin: (task, number) under which it was drawn, by default those of its rows; a new label keeps it.

    Raises:
        ValueError: the rows are those of several rollouts.
    """

    rows: tuple[Row, ...]
    reward: float | None
    score: float | None = None
    origin: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(self.rows))
        if self.score is None:
            object.__setattr__(self, "score", self.reward)
        if len(names := {(row.task, row.rollout) for row in self.rows}) > 1:
            raise ValueError(f"these are rows of {len(names)} rollouts, not of one: {sorted(names)}")
        if self.origin is None and names:
            object.__setattr__(self, "origin", names.pop())

    @property
    def scored(self) -> bool:
        return self.reward is not None and math.isfinite(self.reward)

    @property
    def drawn(self) -> int:
        """Tokens that the policy drew."""
        return sum(row.drawn for row in self.rows)

    @property
    def turns(self) -> list[tuple[str, tuple[int, ...]]]:
        """(agent, prompt) of each row: the states in which the policy was asked."""
        return [(row.agent, row.prompt_ids) for row in self.rows]

    def relabel(self, **changes: Any) -> RolloutRows:
        """The same tokens with another task, rollout number or reward."""
        rows = tuple(replace(row, **changes) for row in self.rows)
        return RolloutRows(rows, changes.get("reward", self.reward), self.score, self.origin)


def hash_prompt(prompt_ids: Sequence[int]) -> str:
    """The name of a state: equal prompts are equal states."""
    return hashlib.sha256(",".join(map(str, prompt_ids)).encode()).hexdigest()[:16]


def _tokens_of(step: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
    """The tokens that a step was asked with, those that were drawn, and their log-probabilities."""
    drawn = tuple(step["token_ids"])
    return tuple(step["prompt_ids"] or ()), drawn, tuple(step["logprobs"] or (0.0,) * len(drawn))


def _appended(row: Row, step: Mapping[str, Any], earned: float | None) -> Row | None:
    """The row with the step behind it, or None if the step's prompt does not begin with all of the row."""
    prompt, drawn, logprobs = _tokens_of(step)
    so_far = row.prompt_ids + row.token_ids
    if prompt[: len(so_far)] != so_far:
        return None
    between = prompt[len(so_far) :]
    return replace(
        row,
        token_ids=row.token_ids + between + drawn,
        mask=row.mask + (0,) * len(between) + (1,) * len(drawn),
        logprobs=row.logprobs + (0.0,) * len(between) + logprobs,
        reward=earned,
        step_reward=None,
        truncated=bool(step.get("truncated")),
        text=row.text + str(step.get("text", "")),
    )


def build_rows(
    steps: Iterable[Mapping[str, Any]],
    *,
    reward: float | Mapping[str, float] | None,
    score: float | None = None,
    task: str,
    rollout: int,
    version: int,
    merge: bool = True,
    costs: Mapping[str, float] | None = None,
    policy: str = "",
) -> list[Row]:
    """The rows of one rollout. steps: `workbench.workflow.Trace.rollout`. reward: one for all, or one for each agent.
    score: the metric's alone.

    A step whose prompt begins with all tokens of the agent's row so far is appended to that row, with what stands
    between (a tool's result, the next question) masked out. Any other step starts a row of its own: text is never
    tokenized again to make it fit, so every row holds exactly the tokens that the policy saw and drew. merge: False
    gives each step its own row, which step-level credit (GiGPO) needs. A step's `anchor` names the state that it was
    taken in; without one, that is its whole prompt.
    """
    rows: list[Row] = []
    last: dict[str, int] = {}  # the row that an agent wrote last
    for step in steps:
        agent = str(step["agent"])
        earned = reward.get(agent) if isinstance(reward, Mapping) else reward
        index = last.get(agent) if merge else None
        longer = None if index is None else _appended(rows[index], step, earned)
        if index is not None and longer is not None:
            rows[index] = longer
            continue
        prompt, drawn, logprobs = _tokens_of(step)
        last[agent] = len(rows)
        made = Row(prompt, drawn, (1,) * len(drawn), logprobs, earned, task, rollout, agent, int(step["turn"]))
        rows.append(
            replace(
                made,
                anchor=step.get("anchor") or hash_prompt(prompt),
                step_reward=None if merge else step.get("step_reward"),
                costs=costs or {},
                version=version,
                truncated=bool(step.get("truncated")),
                text=str(step.get("text", "")),
                policy=policy,
                score=score,
            )
        )
    return rows


@dataclass
class Batch:
    """Rows as tensors: ids and attention (rows, width), and what belongs to the tokens after the prompts, aligned to
    the right edge of the prompts: tokens, mask, sampled (rows, longest completion). mask: 1.0 on tokens to learn from;
    a row that was not scored has none."""

    ids: Any
    attention: Any
    tokens: Any
    mask: Any
    sampled: Any
    starts: Any  # (rows,): length of the prompt
    prompts: Any  # (rows,): a number; rows with one number have one prompt

    def part(self, indices: Sequence[int]) -> Batch:
        """Some of the rows, without the padding that only the others needed."""
        index = list(indices)
        width = int(self.attention[index].sum(-1).max())
        longest = max(1, width - int(self.starts[index].min()))
        longest = min(longest, self.tokens.shape[1])
        ids, attention = self.ids[index, :width], self.attention[index, :width]
        tokens, mask, sampled = (t[index, :longest] for t in (self.tokens, self.mask, self.sampled))
        return Batch(ids, attention, tokens, mask, sampled, self.starts[index], self.prompts[index])


def collate(rows: Sequence[Row], device: Any = "cpu") -> Batch:
    """Rows as one batch, filled up on the right, where no real token looks: padding changes nothing."""
    import torch

    width = max(len(r.prompt_ids) + len(r.token_ids) for r in rows)
    longest = max(1, max(len(r.token_ids) for r in rows))
    ids = torch.zeros((len(rows), width), dtype=torch.long)
    attention = torch.zeros((len(rows), width), dtype=torch.long)
    tokens = torch.zeros((len(rows), longest), dtype=torch.long)
    mask = torch.zeros((len(rows), longest))
    sampled = torch.zeros((len(rows), longest))
    for i, row in enumerate(rows):
        whole = row.prompt_ids + row.token_ids
        ids[i, : len(whole)] = torch.tensor(whole)
        attention[i, : len(whole)] = 1
        n = len(row.token_ids)
        tokens[i, :n] = torch.tensor(row.token_ids, dtype=torch.long)
        if row.scored:
            mask[i, :n] = torch.tensor(row.mask, dtype=torch.float)
        sampled[i, :n] = torch.tensor(row.logprobs)
    starts = torch.tensor([len(r.prompt_ids) for r in rows])
    known: dict[tuple[int, ...], int] = {}
    prompts = torch.tensor([known.setdefault(tuple(r.prompt_ids), len(known)) for r in rows])
    return Batch(*(t.to(device) for t in (ids, attention, tokens, mask, sampled, starts, prompts)))
