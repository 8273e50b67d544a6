"""Masked thinking: what stands between markers of thoughts is shown, and only the rest is compared.

Source: PRefLexOR (Buehler, arXiv 2410.12375), as in the authors' code at github.com/lamm-mit/PRefLexOR
(`active_trainer.py`): `mask_thinking_tokens`, with a share of the tokens between each pair of markers, the markers
included, and `dynamic_answer_comparison`, which compares what follows the last end of a thought. Its first stage is
`loss: odds_ratio`. Not here: its pairs by retrieval from documents, its recursion between two models, and EXO's loss.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from workbench_training.rollouts.token_rows import Row


class Thinking(BaseModel):
    """Markers of thoughts, and what of them is left out of the comparison."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: str = Field("<|thinking|>", min_length=1, description="text where a thought begins")
    end: str = Field("<|/thinking|>", min_length=1, description="text where it ends")
    mask: Literal["thoughts", "before_answer"] = Field(
        "thoughts",
        description="left out: what stands between the markers, or everything up to the last end of a thought",
    )
    share: float = Field(
        1.0, gt=0, le=1, description="share of each thought's tokens that is left out, drawn at random"
    )

    @model_validator(mode="after")
    def _share_counts(self) -> Self:
        if self.mask == "before_answer" and "share" in self.model_fields_set:
            raise ValueError(
                "`share` has no effect: `mask: before_answer` leaves out all that stands before the answer"
            )
        return self


def mask_thoughts(row: Row, settings: Thinking, tokenizer: Any) -> Row:
    """The row without the tokens of thoughts that its policy drew."""
    places = [i for i, drawn in enumerate(row.mask) if drawn]
    texts = [tokenizer.decode([row.token_ids[i]]) for i in places]
    whole = "".join(texts)
    mask, rng, at = list(row.mask), random.Random(f"{row.task} {row.token_ids}"), 0
    spans = find_thoughts(whole, settings)
    inside: list[list[int]] = [[] for _ in spans]
    for place, text in zip(places, texts, strict=True):
        for tokens, (start, end) in zip(inside, spans, strict=True):
            if at < end and at + len(text) > start:
                tokens.append(place)
        at += len(text)
    for tokens in inside:
        for place in rng.sample(tokens, int(len(tokens) * settings.share)):
            mask[place] = 0
    return replace(row, mask=tuple(mask))


def find_thoughts(text: str, settings: Thinking) -> list[tuple[int, int]]:
    """The characters (from, to) that are left out. An end belongs to the last start before it; others count for
    nothing."""
    if settings.mask == "before_answer":
        last = text.rfind(settings.end)
        return [(0, last + len(settings.end))] if last >= 0 else []
    found, end = [], text.find(settings.end)
    while end >= 0:
        start = text.rfind(settings.start, 0, end)
        if start >= 0:
            found.append((start, end + len(settings.end)))
        end = text.find(settings.end, end + len(settings.end))
    return found


def mask_pairs(chosen: Sequence[Sequence[Row]], settings: Thinking, tokenizer: Any) -> list[list[Row]]:
    """All rows without their thoughts; groups in which one has nothing left are left out."""
    masked = [[mask_thoughts(row, settings, tokenizer) for row in rows] for rows in chosen]
    return [rows for rows in masked if all(row.drawn for row in rows)]
