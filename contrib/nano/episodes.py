"""Episodes: a task with its examples, rendered as the workbench's `plain` adapter renders a prompt."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from random import Random

Message = dict[str, str]


def held_out(*parts: str, share: int = 8) -> bool:
    """Whether this combination is kept for measuring (one in `share`), decided by its text alone."""
    return zlib.crc32("|".join(parts).encode()) % share == 0


@dataclass
class Row:
    inputs: dict[str, str]
    outputs: dict[str, str]
    keys: set[str] = field(default_factory=set)  # what makes another row similar: shared nouns
    needs: set[str] = field(default_factory=set)  # the answer can be known only if earlier rows have shown these


@dataclass
class Episode:
    """Instructions, the allowed values (if told) and rows. The last row is the one to answer."""

    family: str
    instructions: str
    rows: list[Row]
    values: dict[str, list[str]] = field(default_factory=dict)

    def known(self) -> list[bool]:
        """For each row, whether its answer can be known from the rows before it. The others teach nothing."""
        shown: set[str] = set()
        found = []
        for row in self.rows:
            found.append(row.needs <= shown)
            shown |= row.needs
        return found


def system_text(instructions: str, values: dict[str, list[str]]) -> str:
    lines = [instructions] if instructions else []
    return "\n".join([*lines, *(f"{name}: one of {', '.join(allowed)}" for name, allowed in values.items())])


def user_text(row: Row) -> str:
    return "\n".join([*(f"{name}: {value}" for name, value in row.inputs.items()), f"{next(iter(row.outputs))}:"])


def assistant_text(row: Row) -> str:
    (_, first), *rest = row.outputs.items()
    return "\n".join([first, *(f"{name}: {value}" for name, value in rest)])


def render(episode: Episode, *, answer: bool = True) -> list[Message]:
    """The chat of an episode; without `answer` it ends with the user's last message."""
    system = system_text(episode.instructions, episode.values)
    chat = [{"role": "system", "content": system}] if system else []
    for row in episode.rows:
        chat.append({"role": "user", "content": user_text(row)})
        chat.append({"role": "assistant", "content": assistant_text(row)})
    return chat if answer else chat[:-1]


def pick(rng: Random, weights: dict[str, float]) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]


def demo_count(rng: Random, most: int = 8) -> int:
    """0 to `most` examples; none is common since zero-shot prompts must work too."""
    return 0 if rng.random() < 0.3 else min(rng.randint(1, most), rng.randint(1, most))
