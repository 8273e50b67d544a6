"""A site whose pages are left by their links alone (webpilot.yaml), and the worth of pages (webnav.yaml)."""

from __future__ import annotations

import re
from typing import Any

from pydantic import PrivateAttr

from workbench_kit.acting import Environment, Step


class Site(Environment):
    """Task: `pages`, name: {text, links}; `page`, where one is. Action: click NAME."""

    help = "click NAME, one of the links"
    _pages: dict[str, Any] = PrivateAttr(default_factory=dict)

    def reset(self, task: Any) -> str:
        self._pages = task["pages"]
        self.state = {"at": task["page"]}
        return self._show()

    def step(self, action: str) -> Step:
        name = action.removeprefix("click ").strip()
        if name in self._pages[self.state["at"]]["links"]:
            self.state["at"] = name
        return Step(self._show())

    def actions(self) -> list[str]:
        return [f"click {name}" for name in self._pages[self.state["at"]]["links"]]

    def score(self) -> float:
        return float("receipt" in self._pages[self.state["at"]]["text"])

    def _show(self) -> str:
        return f"{self.state['at']}: {self._pages[self.state['at']]['text']}"


def nears(inputs: Any, position: Any) -> float:
    """What a page is worth for a subtask: 1 if it is that page, a half one link away, a third two links away."""
    pages, seen = inputs["pages"], {position.observation.partition(":")[0]}
    for links in range(3):
        if inputs["subtask"] in seen:
            return 1 / (1 + links)
        seen = {link for page in seen for link in pages[page]["links"]}
    return 0.0


def shares(inputs: Any, position: Any) -> float:
    """What a page is worth for a sentence: the share of its words that stand on the page; links do not count."""
    wanted = set(re.findall(r"\w+", str(inputs["question"]).lower()))
    page = set(re.findall(r"\w+", position.observation.partition("\nLinks:")[0].lower()))
    return len(wanted & page) / len(wanted)
