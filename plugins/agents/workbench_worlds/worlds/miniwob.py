"""MiniWoB++: small tasks on web pages, in a real browser, seen as an accessibility tree.

Source: MiniWoB++ (Liu et al., arXiv 1802.08802) in BrowserGym (Le Sellier De Chezelles et al., arXiv 2412.05467),
packages `browsergym-miniwob` and `miniwob`, which ships the pages. It needs Chromium: this machine's if it is on PATH,
else Playwright's.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import miniwob

os.environ.setdefault("MINIWOB_URL", f"{Path(miniwob.__file__).parent.as_uri()}/html/miniwob/")

import gymnasium
from browsergym.miniwob import ALL_MINIWOB_TASKS  # registers its ids, too
from browsergym.utils.obs import flatten_axtree_to_str
from playwright.sync_api import BrowserType, TimeoutError

_launch = BrowserType.launch


def _launch_installed(self: Any, **settings: Any) -> Any:
    """Start this machine's browser if it has one: BrowserGym starts two browsers and names no program for either."""
    program = shutil.which("chromium")
    return _launch(self, **({"executable_path": program} if program else {}), **settings)


BrowserType.launch = _launch_installed


class World:
    """Task: `task`, e.g. click-test, and `seed`. Actions are BrowserGym's, e.g. click("13"). The page scores."""

    repeats = False  # a browser renders at its own pace

    def __init__(self):
        self.done, self.earned = False, 0.0

    def reset(self, task: dict[str, Any]) -> str:
        self.made = gymnasium.make(f"browsergym/miniwob.{task['task']}", headless=True)
        for attempt in range(3):  # a busy machine needs more than the 5 s in which a page must load
            try:
                self.seen, _ = self.made.reset(seed=int(task.get("seed") or 0))
                break
            except TimeoutError:
                if attempt == 2:
                    raise
        return self._tree()

    def step(self, action: str) -> str:
        self.seen, reward, ended, cut, _ = self.made.step(action)
        self.reward, self.done = float(reward), bool(ended or cut)
        self.earned += self.reward
        return "\n".join(part for part in (self.seen["last_action_error"], self._tree()) if part)

    def brief(self) -> str:
        return self.seen["goal"]

    def score(self) -> float:
        return float(self.earned > 0)

    def _tree(self) -> str:
        return flatten_axtree_to_str(self.seen["axtree_object"])


def list_tasks(task: str = "", seeds: int = 1) -> list[dict[str, Any]]:
    """List each page, or one, with this many seeds."""
    pages = [task] if task else [one.subdomain for one in ALL_MINIWOB_TASKS]
    return [{"task": page, "seed": seed} for page in pages for seed in range(seeds)]
