"""Rewards of rollouts: weighted terms, costs for constraints, and guards against simple reward hacking.

`tool_n1` is the binary rule of Tool-N1 (Zhang et al., arXiv 2505.00024), as its published code dispatches it
(`compute_score_v0` at f9b4849); `overlong` is DAPO's soft penalty as coded in verl.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from workbench.errors import FailureKind, SpecError, suggest
from workbench.study import Result
from workbench.task import Example
from workbench.workflow import CallRecord
from workbench_kit.answers import as_text, choose_scale, is_same, read_grade
from workbench_training.judge_calls import JudgeCalls
from workbench_training.objective import COSTS

#: Roles of those that a policy talks with.
OTHERS = ("user", "engine")

#: Kinds of terms that say whether an answer is right, the first that a reward has before the others.
VERDICTS = ("metric", "exact_match", "tool_n1", "judge", "format")

OutputScore = Callable[["Rollout", str, str], Awaitable[float | None]]
Kind = Literal["metric", "exact_match", "tool_n1", "format", "length", "overlong", "judge"]


class RewardTerm(BaseModel):
    """A term of a reward."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind = Field("metric", description="the workflow's metric, or one of the rules of this plugin")
    weight: float = Field(1.0, description="what its value is multiplied by; negative: a penalty")
    target: str = Field("label", description="field of the row with the right answer (exact_match, tool_n1, judge)")
    field: str = Field(
        "",
        description="field of the prediction that is compared; by default the text of the last call. metric: an output "
        "of any node, scored in place of the workflow's own",
    )
    metric: str = Field(
        "",
        exclude_if=lambda name: not name,
        description="metric: the name of another one of the file's list `metric:`, in place of the first",
    )
    tokens: int = Field(
        256,
        ge=1,
        description="length: the value is drawn tokens / tokens; overlong: the longest, by default the `max_tokens` of "
        "a call",
    )
    rubric: str = Field(
        "The answer must be correct.",
        description="judge: what counts, and maybe the scale, as in `from 1 to 5`; default: 0 to 10",
    )


#: An answer without text earns 0, as one that is cut at max_tokens (or it is not learned from), one of whose runs of
#: four words more than `MAX_REPEATED` repeat, and a run whose answers are all the same as in an earlier run of its
#: row: only for rows with many good answers.
Guard = Literal["empty", "truncated", "mask_truncated", "repeated", "duplicates"]
GUARDS: tuple[Guard, ...] = ("empty", "truncated", "repeated")
MAX_REPEATED = 0.6
#: DAPO's penalty (arXiv 2503.14476, section 3.4) grows over the last part of the longest answer. Theirs is a fifth.
OVERLONG = 0.25


@dataclass
class Rollout:
    """A run of the workflow on one example, with its reward.

    right: the value of the term that says whether it is right (`find_verdict`), at most 0 where a guard refused it.
    """

    example: Example
    result: Result
    replica: int
    reward: float | None = None
    parts: dict[str, float] = field(default_factory=dict)
    guarded: str = ""
    right: float | None = None

    @property
    def score(self) -> float | None:
        """The metric's score, which penalties and other terms of the reward do not move; None without a reward."""
        if self.reward is None or self.right is not None:
            return None if self.reward is None else self.right
        return self.reward if self.result.score is None else self.result.score

    @property
    def calls(self) -> list[CallRecord]:
        """The calls of the task, without what others said: simulated users and search engines."""
        return [c for c in self.result.trace.calls if c.role not in OTHERS] if self.result.trace else []

    @property
    def texts(self) -> list[str]:
        """All answers, without spaces around them."""
        return [c.response.text.strip() for c in self.calls]

    @property
    def text(self) -> str:
        return self.calls[-1].response.text if self.calls else ""

    @property
    def drawn(self) -> int:
        """Tokens of all answers."""
        return sum(c.response.completion_tokens for c in self.calls)

    @property
    def truncated(self) -> bool:
        return any(c.response.finish == "length" for c in self.calls)

    @property
    def costs(self) -> dict[str, float]:
        """The costs that constraints may limit, by name."""
        spans = self.result.trace.spans if self.result.trace else []
        tools = sum(len(span.notes.get("tools", [])) for span in spans)
        found = float(self.drawn), float(self.result.calls), float(tools), self.result.seconds
        return dict(zip(COSTS, found, strict=True))


async def score(
    rollouts: Sequence[Rollout],
    parts: Sequence[RewardTerm],
    guards: Sequence[Guard],
    judge: JudgeCalls | None = None,
    output_score: OutputScore | None = None,
) -> None:
    """Set the reward and parts of each rollout. One that failed or could not be scored keeps None and is not used.

    rollouts: all rollouts of a row in one call, since guards may compare them. output_score: a metric's score
    of a rollout, by the field of any node that is scored in place of the output ("": the output) and the metric's name.
    """
    seen = set[tuple[str, ...]]()
    for rollout in rollouts:
        result = rollout.result
        lost = result.failure is not None and FailureKind(result.failure).no_result
        if lost or (result.score is None and any(p.kind == "metric" for p in parts)):
            continue
        found = [await _value(part, rollout, judge, output_score) for part in parts]
        values = [float(value) for value in found if value is not None and math.isfinite(value)]
        if len(values) < len(parts):
            continue
        rollout.parts = dict(zip(name_terms(parts), values, strict=True))
        earned = math.fsum(part.weight * value for part, value in zip(parts, values, strict=True))
        rollout.guarded = check_guards(rollout.text, rollout.truncated, guards)
        said = (rollout.example.id, *rollout.texts)
        if said in seen and not rollout.guarded and "duplicates" in guards:
            rollout.guarded = "duplicate"
        seen.add(said)
        if rollout.guarded == "mask":
            continue
        verdict = find_verdict(parts)
        right = earned if verdict is None else values[verdict]
        rollout.reward, rollout.right = (min(x, 0.0) if rollout.guarded else x for x in (earned, right))


def find_verdict(parts: Sequence[RewardTerm]) -> int | None:
    """The place of the term that says whether an answer is right: the metric of the workflow's output before others,
    and no penalty. None where all terms are penalties or about length: then their sum does."""
    ranked = [
        (VERDICTS.index(part.kind), bool(part.field or part.metric), place)
        for place, part in enumerate(parts)
        if part.kind in VERDICTS and part.weight > 0
    ]
    return min(ranked)[-1] if ranked else None


def limit_terms(parts: Sequence[RewardTerm], longest: int | None) -> list[RewardTerm]:
    """The terms, of which `overlong` takes the longest answer of the model where the file names none."""
    return [
        part.model_copy(update={"tokens": longest})
        if part.kind == "overlong" and "tokens" not in part.model_fields_set and longest is not None
        else part
        for part in parts
    ]


def check_targets(parts: Sequence[RewardTerm], rows: Sequence[Example]) -> None:
    """Raise SpecError if a part compares with a field that a row lacks. Its path is relative to the parts."""
    for index, part in enumerate(parts):
        missing = [row for row in rows if part.kind in ("exact_match", "tool_n1") and part.target not in row]
        if missing:
            raise SpecError(
                f"the reward {part.kind} compares with the field '{part.target}', which {len(missing)} of the "
                f"{len(rows)} "
                f"rows of train lack, first the row {missing[0].handle}; it has: {', '.join(missing[0]) or 'none'}",
                hint=suggest(part.target, missing[0]),
                path=(index, "target"),
            )
        for row in rows if part.kind == "tool_n1" else ():
            try:
                parse_wanted_calls(row[part.target])
            except ValueError as error:
                raise SpecError(
                    f"the field '{part.target}' of the row {row.handle} of train is of no use to the reward tool_n1: "
                    f"{error}",
                    hint='Write a list of {"name": ..., "arguments": {...}}.',
                    path=(index, "target"),
                ) from None


def name_terms(parts: Sequence[RewardTerm]) -> list[str]:
    """A unique name for each part: its kind; for several of one kind, with the distinguishing field or the index."""
    kinds = [part.kind for part in parts]
    fields = [
        part.metric or part.field or (part.target if part.kind in ("exact_match", "tool_n1", "judge") else "")
        for part in parts
    ]
    long = [f"{k}.{f}" if f and kinds.count(k) > 1 else k for k, f in zip(kinds, fields, strict=True)]
    return [name if long.count(name) == 1 else f"{name}.{i + 1}" for i, name in enumerate(long)]


def check_guards(text: str, truncated: bool, guards: Sequence[Guard]) -> str:
    """Why an answer earns nothing: `empty`, `truncated` or `repeated`; `mask` if it is left out; else ''."""
    if "empty" in guards and not text.strip():
        return "empty"
    if truncated and "mask_truncated" in guards:
        return "mask"
    if truncated and "truncated" in guards:
        return "truncated"
    return "repeated" if "repeated" in guards and measure_repetition(text) > MAX_REPEATED else ""


def measure_repetition(text: str, n: int = 4) -> float:
    """The share of a text's runs of n words that occurred in it before; 0 for short texts."""
    words = text.split()
    runs = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return 1.0 - len(set(runs)) / len(runs) if len(runs) >= 2 * n else 0.0


async def _value(
    part: RewardTerm, rollout: Rollout, judge: JudgeCalls | None, output_score: OutputScore | None
) -> float | None:
    result, example = rollout.result, rollout.example
    if part.kind == "metric" and not part.field and not part.metric:
        return result.score
    if part.kind == "metric":
        if output_score is None:
            raise ValueError(f"the score of the output '{part.field}' needs the study's metric")
        return await output_score(rollout, part.field, part.metric)
    if part.kind == "format":
        return score_format(result)
    if part.kind == "length":
        return rollout.drawn / part.tokens
    if part.kind == "overlong":
        return score_overlong(rollout.drawn, part.tokens)
    answer = result.prediction.get(part.field, "") if part.field else rollout.text
    if part.kind == "judge":
        return await ask_judge(as_text(answer), part, example, judge)
    wanted = example[part.target]
    if part.kind == "tool_n1":
        return tool_n1(as_text(answer), wanted)
    choices = [*wanted, wanted] if isinstance(wanted, list) else [wanted]
    right = any(is_same(answer, one) for one in choices)
    # Where no field of the prediction is named, a list or an object is a text.
    return float(right or (isinstance(answer, str) and isinstance(wanted, list | dict) and is_same(wanted, answer)))


def score_format(result: Result) -> float:
    """1 if every answer had the requested form: nothing failed to parse or was extracted from prose; else 0."""
    if result.failure is not None or result.trace is None:
        return 0.0
    return float(
        not any(span.error or span.notes.get("fallback") or span.notes.get("cut") for span in result.trace.spans)
    )


def score_overlong(length: int, longest: int) -> float:
    """0 up to the last quarter of the longest answer, then down a line to -1 at its end. Never below -1 (verl's goes
    on)."""
    part = OVERLONG * longest
    return max(min((longest - part - length) / part, 0.0), -1.0)


def tool_n1(text: str, wanted: Any) -> float:
    """1 if the last tool_call block of a text with thinking names exactly the wanted calls, in any order; else 0.

    wanted: a list of {"name", "arguments"}, or its JSON. Where thinking stands is not checked, nothing is partly right,
    and an answer without a block is wrong even where no call is wanted. Departure: where the published code would
    raise (a block that is a bare number), the answer is wrong.
    """
    marker = text.rfind("<|im_start|>assistant")
    text = text[marker:] if marker != -1 else text
    calls = _json(_blocks(text)[-1].strip()) if _blocks(text) else None
    calls = _json(calls) if isinstance(calls, str) else calls
    calls = [calls] if isinstance(calls, dict) else calls
    if not isinstance(calls, list) or "<think>" not in text or "</think>" not in text:
        return 0.0
    wanted = parse_wanted_calls(wanted)
    if not all(isinstance(call, Mapping) and "name" in call and "arguments" in call for call in calls):
        return 0.0
    if not calls or not wanted:
        return float(len(calls) == len(wanted))
    try:
        return float(_counted(calls) == _counted(wanted))
    except TypeError:  # a name that is a list
        return 0.0


def parse_wanted_calls(value: Any) -> list[Mapping[str, Any]]:
    """The calls of a row, given as a list or as its JSON, maybe written twice. Raises ValueError for anything else."""
    for _ in range(2):
        value = json.loads(value) if isinstance(value, str) else value
    calls = [] if value is None else value
    if not isinstance(calls, list) or not all(
        isinstance(c, Mapping) and "name" in c and "arguments" in c for c in calls
    ):
        raise ValueError(f"no list of calls: {json.dumps(value, default=str)[:100]}")
    return calls


def _blocks(text: str) -> list[str]:
    ended = text[: text.rfind("</tool_call>") + len("</tool_call>")] if "</tool_call>" in text else ""
    return re.findall(r"<tool_call>(.*?)</tool_call>", ended, flags=re.DOTALL)


def _counted(calls: Sequence[Mapping[str, Any]]) -> Counter[tuple[Any, str]]:
    return Counter((call["name"], json.dumps(call["arguments"], sort_keys=True)) for call in calls)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return None


async def ask_judge(answer: str, part: RewardTerm, example: Example, judge: JudgeCalls | None) -> float | None:
    """Ask the model of the role `judge`, which sees what the workflow reads of the row, for a grade in [0, 1]. None if
    it gave none on the scale that the rubric states, by default 0 to 10.

    Raises:
        ValueError: there is no judge.
        LMError: it cannot be asked at all.
    """
    if judge is None:
        raise ValueError("a judge's reward needs the study's language model")
    shown = [f"{name}: {as_text(value)}" for name, value in judge.show(example).items()]
    if part.target in example:
        shown.append(f"Reference: {as_text(example[part.target])}")
    scale = choose_scale(part.rubric)
    messages = [
        {
            "role": "system",
            "content": f"You grade an answer. Rubric: {part.rubric}\nReply with one sentence, and then a "
            f"last line `score: N`, where {scale.describe()}.",
        },
        {"role": "user", "content": "\n".join([*shown, f"Answer: {answer}"])},
    ]
    response = await judge(messages, max_tokens=200)
    grade = None if response is None or response.finish == "length" else read_grade(response.text, scale)
    return None if grade is None else grade[0]
