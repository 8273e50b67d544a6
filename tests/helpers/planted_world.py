"""A world for tests: lamps are answered by their colours, each of the task's, until all are.

Runs in the driver's process, so it imports nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import time
from pathlib import Path


class Lamps:
    """Task: `lamps`, the colours in order; `log`, a file to which each reset and step adds a line; `fault`, in place of
    that of the settings. settings: `fault`, what happens at the second step; `clock`, which makes observations differ
    from run to run."""

    disk = 1_000_000

    def __init__(self, fault: str = "", clock: bool = False):
        self.fault, self.clock, self.repeats = fault, clock, not clock

    def reset(self, task: dict) -> str:
        self.fault = task.get("fault", self.fault)
        self.lamps, self.log, self.right, self.number = task["lamps"], task.get("log"), 0, 0
        self.done, self.reward = False, None
        return self._told("reset")

    def step(self, action: str) -> str:
        self.number += 1
        self.reward = float(action == self.lamps[self.number - 1])
        self.right += int(self.reward)
        self.done = self.number == len(self.lamps)
        if self.fault and self.number == 2:
            getattr(self, self.fault)()
        return self._told(action)

    def score(self) -> float:
        return self.right / len(self.lamps)

    def actions(self) -> list[str]:
        return ["red", "green"]

    def _told(self, what: str) -> str:
        if self.log:
            with open(self.log, "a") as log:
                log.write(f"{what}\n")
        lamp = "none" if self.done else self.lamps[self.number]
        tick = f" at {time.time_ns()}" if self.clock else ""
        return f"lamp: {lamp}\nroom: {random.randrange(10**6)}{tick}"

    def hang(self) -> None:
        time.sleep(1000)

    def die(self) -> None:
        ctypes.string_at(0)

    def fail(self) -> None:
        raise ValueError("the lamp is broken")

    def fill(self) -> None:
        for number in range(1000):
            Path(f"part{number}").write_bytes(os.urandom(100_000))
            time.sleep(0.01)

    def chatter(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            for _ in range(500):
                stream.write("x" * 1_000_000)

    def speak(self) -> None:
        self.actions = lambda: ["x" * 10_000_000]

    def linger(self) -> None:
        """Start a program in a session of its own, which outlives what started it."""
        program = subprocess.Popen(["sh", "-c", "sleep 300 & sleep 300"], start_new_session=True)
        Path(self.log).write_text(str(program.pid))
        time.sleep(1000)


class Whispers:
    """Two players: `asker` sees a question and has the tool `open`, `knower` alone has the tool `look`; the asker's
    text goes to the knower, and its text back."""

    def reset(self, task: dict) -> str:
        self.secret, self.player, self.done, self.opened = task["secret"], "asker", False, ""
        return "a box with a word"

    def tools(self) -> list[dict]:
        name, takes = ("open", ["word"]) if self.player == "asker" else ("look", [])
        schema = {"type": "object", "properties": {n: {"type": "string"} for n in takes}, "required": takes}
        return [{"name": name, "description": f"To {name}.", "parameters": schema}]

    def step(self, action: str | dict) -> str:
        if isinstance(action, dict) and action["tool"] == "open":
            self.opened, self.done = action["arguments"]["word"], True
            return "open"
        if isinstance(action, dict):
            return f"the word is {self.secret}"
        self.player = "knower" if self.player == "asker" else "asker"
        return action

    def score(self) -> float:
        return float(self.opened == self.secret)
