"""TextWorld: text games, generated or written, played in words.

Source: TextWorld (Côté et al., arXiv 1806.11532), package `textworld`. It plays its own games (.z8 with .json, .ulx)
and classics of the z-machine. The score is the game's own divided by its maximum.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import textworld


class World:
    """Task: `game`, a file, relative to the workflow file. listed: show the possible actions."""

    base = "."

    def __init__(self, listed: bool = True):
        self.listed, self.done, self.reward = listed, False, None

    def reset(self, task: dict[str, Any]) -> str:
        wanted = textworld.EnvInfos(
            admissible_commands=self.listed, objective=True, score=True, max_score=True, won=True
        )
        self.game = textworld.start(str(Path(self.base, task["game"])), wanted)
        self.state = self.game.reset()
        return self.state.feedback.strip()

    def step(self, action: str) -> str:
        before = self.state.score or 0
        self.state, _, self.done = self.game.step(action)
        self.reward = float((self.state.score or 0) - before)
        return self.state.feedback.strip()

    def brief(self) -> str:
        return self.state["objective"] or ""

    def actions(self) -> list[str] | None:
        return self.state["admissible_commands"] if self.listed else None

    def score(self) -> float:
        most = self.state.max_score or 1
        return 1.0 if self.state["won"] else max(0.0, min(1.0, (self.state.score or 0) / most))


def list_tasks(challenge: str, games: int = 20, seed: int = 1, **settings: Any) -> list[dict[str, Any]]:
    """List games, made once in the current folder: a challenge of tw-make, e.g. tw-treasure_hunter, with its settings,
    e.g. level: 3."""
    told = [text for name, value in settings.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    program, rows = str(Path(sys.executable).with_name("tw-make")), []
    for number in range(seed, seed + games):
        game = Path(f"{challenge}{''.join(told)}-{number}.z8").resolve()
        if not game.exists():
            command = [program, challenge, *told, "--seed", str(number), "--output", str(game), "-f", "--silent"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows.append({"game": str(game)})
    return rows
