"""Instructions built from templates, without a model and without knowledge of the task."""

from __future__ import annotations

import random
import re

OPENINGS = ("", "You are an expert.", "You are careful and precise.", "Take the point of view of a specialist.")
TASKS = (
    "Read {inputs} and give {outputs}.",
    "Decide on {outputs} from {inputs}.",
    "Work out {outputs}. All you need stands in {inputs}.",
    "Look for what matters most in {inputs}, then give {outputs}.",
    "Compare {inputs} with what you know and state {outputs}.",
)
RULES = (
    "Answer with the value alone.",
    "Choose the one that fits best, even if none fits well.",
    "Use one of the allowed values, spelled exactly as given.",
    "Heed the examples if there are any.",
    "Think about it before you answer.",
    "Do not be misled by single words: the whole counts.",
    "Ignore what does not bear on the answer.",
    "Where two seem right, take the more specific one.",
)


def draw_instruction(draw: random.Random, old: str = "", inputs: str = "", outputs: str = "") -> str:
    """Edit an instruction by a sentence, or write one from a step's inputs and outputs."""
    sentences, kind = split_sentences(old), draw.random()
    if sentences and kind < 0.4:
        return " ".join([*sentences, draw.choice([r for r in RULES if r not in sentences] or ["Be exact."])])
    if len(sentences) > 1 and kind < 0.5:
        sentences.pop(draw.randrange(len(sentences)))
        return " ".join(sentences)
    parts = [
        draw.choice(OPENINGS),
        draw.choice(TASKS).format(
            inputs=f"the {inputs}" if inputs else "the input", outputs=f"the {outputs}" if outputs else "the answer"
        ),
        *draw.sample(RULES, draw.randrange(3)),
    ]
    return " ".join(part for part in parts if part)


def split_sentences(text: str) -> list[str]:
    return [s for s in re.split(r"(?<=[.!?])\s+", text.strip()) if s]
