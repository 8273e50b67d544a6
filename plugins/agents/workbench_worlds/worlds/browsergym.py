"""Any task of BrowserGym (Le Sellier De Chezelles et al., arXiv 2412.05467), in a browser, seen as an accessibility
tree: MiniWoB++ (Liu et al., arXiv 1802.08802), WebArena (Zhou et al., arXiv 2307.13854), and whatever registers an id.

The family before the first dot of an id is a package: `browsergym-miniwob`, whose pages come with `miniwob`,
`browsergym-webarena`, whose sites run elsewhere and are named by variables (`env:`), and so on. `openended` is part of
BrowserGym itself. It needs Chromium: this machine's if it is on PATH, else Playwright's.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

if found := importlib.util.find_spec("miniwob"):
    os.environ.setdefault("MINIWOB_URL", f"{Path(str(found.origin)).parent.as_uri()}/html/miniwob/")

import gymnasium
from browsergym.utils.obs import flatten_axtree_to_str
from playwright.sync_api import BrowserType, TimeoutError

_launch = BrowserType.launch


def _launch_installed(self: Any, **settings: Any) -> Any:
    """Start this machine's browser if it has one: BrowserGym starts two browsers and names no program for either."""
    program = shutil.which("chromium")
    return _launch(self, **({"executable_path": program} if program else {}), **settings)


BrowserType.launch = _launch_installed


def _register(family: str) -> None:
    """Import the package of a family, which registers its ids."""
    if importlib.util.find_spec(f"browsergym.{family}"):
        importlib.import_module(f"browsergym.{family}")


class World:
    """Task: `id`, e.g. miniwob.click-test or webarena.310, and `seed`; other fields are arguments of the task, as
    `start_url` and `goal` of openended. Actions are BrowserGym's, e.g. click("13"). The task scores."""

    repeats = False  # a browser renders at its own pace

    def __init__(self):
        self.done, self.earned = False, 0.0

    def reset(self, task: dict[str, Any]) -> str:
        given = {name: value for name, value in task.items() if name not in ("id", "seed") and value is not None}
        _register(str(task["id"]).partition(".")[0])
        settings = {"task_kwargs": given} if given else {}
        self.made = gymnasium.make(f"browsergym/{task['id']}", headless=True, **settings)
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


def list_tasks(family: str = "miniwob", task: str = "", seeds: int = 1) -> list[dict[str, Any]]:
    """List each task of a family, or one, with this many seeds."""
    _register(family)
    ids = [name.removeprefix("browsergym/") for name in gymnasium.registry if name.startswith(f"browsergym/{family}.")]
    chosen = [id_ for id_ in ids if task in ("", id_.partition(".")[2])]
    return [{"id": id_, "seed": seed} for id_ in chosen for seed in range(seeds)]
