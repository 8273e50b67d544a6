"""A planted world of routing: a small model that is right with probability 1 - x, a large one with 0.95, where x is how
hard a row is; and a proxy of the answers, as good as is asked for."""

from __future__ import annotations

import random
from typing import Any

from workbench_route.outcomes import Candidate, Row, Sample

SMALL, LARGE = Candidate("small"), Candidate("large")
WORDS = "alder birch cedar maple pine rowan willow yew".split()


def hardness(number: int, count: int) -> float:
    """Evenly spread over the rows, in no order."""
    return ((number * 7919) % count) / count


def task_text(x: float, rng: random.Random, visible: bool = True) -> str:
    """A text that shows how hard it is by its words, among others that say nothing."""
    level = f"stage{'abcdefgh'[int(x * 8)]}" if visible else "stage"
    return " ".join([level, *rng.sample(WORDS, 4)])


def planted_rows(
    seed: int, count: int, *, visible: bool = True, draws: int = 1, proxy: str = "none", cost: float = 1.0
) -> list[Row]:
    """Rows with `draws` answers of the small model and one of the large.

    visible: whether the text shows how hard a row is. proxy: whether an answer's text shows if it is right: `perfect`,
    or `none`.
    """
    rng, rows = random.Random(f"rows:{seed}"), []
    for number in range(count):
        x = hardness(number, count)
        text = task_text(x, rng, visible)

        def answer(score: float) -> str:
            kind = {1.0: "sound", 0.0: "doubtful"}[score] if proxy == "perfect" else rng.choice(["sound", "doubtful"])
            return f"{kind} {rng.choice(WORDS)} {rng.randrange(1000)}"

        scores = [float(rng.random() < 1 - x) for _ in range(draws)]
        small = tuple(Sample(score, cost * rng.uniform(0.9, 1.1), answer(score)) for score in scores)
        right = float(rng.random() < 0.95)
        large = (Sample(right, 10 * cost * rng.uniform(0.9, 1.1), answer(right)),)
        rows.append(Row(f"{seed}:{number}", text, {"small": small, "large": large}))
    return rows


def row_of(scores: dict[str, list[float]], **settings: Any) -> Row:
    """A row with these scores; an answer is its own number."""
    samples = {m: tuple(Sample(s, 1.0, f"{i}") for i, s in enumerate(found)) for m, found in scores.items()}
    return Row("row", "text", samples, **settings)
