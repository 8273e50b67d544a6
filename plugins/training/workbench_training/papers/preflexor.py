"""PRefLexOR: what stands between markers of thoughts is shown, and only the rest is compared (Buehler, arXiv
2410.12375).

Read: the authors' code at github.com/lamm-mit/PRefLexOR (`active_trainer.py`): `mask_thinking_tokens`, with all tokens
between each pair of markers (theirs takes a share of them), the markers included. Its first stage is `loss:
odds_ratio`. Not here: `dynamic_answer_comparison`, which compares what follows the last end of a thought; its pairs by
retrieval from documents, its recursion between two models, and EXO's loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import Field

from workbench_training.extension import Paper, RecipeField
from workbench_training.recipe import Recipe
from workbench_training.rollouts.preference_pairs import split_sides
from workbench_training.rollouts.token_rows import Row


class Thinking(Recipe):
    """Markers of thoughts, which are left out of the comparison."""

    start: str = Field("<|thinking|>", min_length=1, description="text where a thought begins")
    end: str = Field("<|/thinking|>", min_length=1, description="text where it ends")

    def mask_pairs(self, pairs: Sequence[Sequence[Row]], tokenizer: Any) -> list[list[Row]]:
        return mask_pairs(pairs, self, tokenizer)


def mask_thoughts(row: Row, settings: Thinking, tokenizer: Any) -> Row:
    """The row without the tokens of thoughts that its policy drew."""
    places = [i for i, drawn in enumerate(row.mask) if drawn]
    texts = [tokenizer.decode([row.token_ids[i]]) for i in places]
    whole = "".join(texts)
    mask, at = list(row.mask), 0
    spans = find_thoughts(whole, settings)
    inside: list[list[int]] = [[] for _ in spans]
    for place, text in zip(places, texts, strict=True):
        for tokens, (start, end) in zip(inside, spans, strict=True):
            if at < end and at + len(text) > start:
                tokens.append(place)
        at += len(text)
    for tokens in inside:
        for place in tokens:
            mask[place] = 0
    return replace(row, mask=tuple(mask))


def find_thoughts(text: str, settings: Thinking) -> list[tuple[int, int]]:
    """The characters (from, to) that are left out. An end belongs to the last start before it; others count for
    nothing."""
    found, end = [], text.find(settings.end)
    while end >= 0:
        start = text.rfind(settings.start, 0, end)
        if start >= 0:
            found.append((start, end + len(settings.end)))
        end = text.find(settings.end, end + len(settings.end))
    return found


def mask_pairs(chosen: Sequence[Sequence[Row]], settings: Thinking, tokenizer: Any) -> list[list[Row]]:
    """All rows without their thoughts; comparisons of which one side has nothing left are left out."""
    found = []
    for rows in chosen:
        compared = split_sides([mask_thoughts(row, settings, tokenizer) for row in rows])
        kept = [
            row
            for sides in compared.values()
            if all(any(row.drawn for row in side) for side in sides)
            for side in sides
            for row in side
        ]
        found += [kept] if kept else []
    return found


PAPER = Paper(
    recipes=[
        RecipeField(
            "dpo",
            "thinking",
            Thinking,
            "compare answers without the thoughts in them (PRefLexOR); {} takes the defaults",
        )
    ]
)
