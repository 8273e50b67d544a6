"""Mails of which two have each body."""

from __future__ import annotations

import random

WORDS = "alpha bravo copper delta ember fjord garnet hazel indigo jasper kettle lumen mosaic nectar onyx pebble".split()


def mails(count: int, seed: int = 0) -> list[dict[str, str]]:
    """Mails of which two have each body, with subjects of six other words."""
    draw = random.Random(seed)
    bodies = [" ".join(f"{draw.choice(WORDS)}{draw.randrange(99)}" for _ in range(25)) for _ in range(count // 2)]
    return [
        {
            "Subject": " ".join(f"{draw.choice(WORDS)}{draw.randrange(999)}" for _ in range(6)) + f" {label}-thing",
            "Body": bodies[number // 2],
            "label": label,
        }
        for number, label in enumerate(draw.choices("ab", k=count))
    ]
