"""Navigation on a small web of pages, given by the task: read, click a link, go back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import Field, PrivateAttr, model_validator

from workbench.spec import read_outside
from workbench_kit.acting import Environment, Step


class Web(Environment):
    """Pages with a text and links. The episode ends on the goal page of the task.

    Task: `pages` ({name: {text, links: {label: name}}}), `start` and `goal` (names of pages). With `site` the pages are
    those of a file, for all rows, as in WebNav (Nogueira & Cho, arXiv 1602.02261).
    """

    help: ClassVar[str] = "click LABEL (a link of the page), or back"

    site: str | None = Field(None, description="JSON file with the pages of all rows")
    limit: int = Field(30, ge=1, le=10_000, description="steps at most")
    text_chars: int = Field(1000, ge=20, description="characters of a page's text shown")
    _pages: Mapping[str, Any] = PrivateAttr(default_factory=dict)
    _goal: str = PrivateAttr("")

    @model_validator(mode="after")
    def _enter(self) -> Self:
        if self.site is not None:
            read_outside(self.site, self.base, "site")
        return self

    def reset(self, task: Mapping[str, Any]) -> str:
        pages = task.get("pages") if self.site is None else self._load_site()
        if not isinstance(pages, Mapping) or not pages:
            raise ValueError("the field 'pages' must hold {name: {text, links: {label: name}}}")
        for field in ("start", "goal"):
            if task.get(field) not in pages:
                raise ValueError(f"the field '{field}' must name one of the pages, not {task.get(field)!r}")
        for name, page in pages.items():
            for label, to in (page.get("links") or {}).items():
                if to not in pages:
                    raise ValueError(f"the link '{label}' of the page '{name}' leads to no page: {to!r}")
        self._pages, self._goal = pages, task["goal"]
        self.state = {"at": task["start"], "trail": [], "steps": 0}
        return self._seen()

    def _load_site(self) -> Any:
        assert self.site is not None
        try:
            return json.loads((self.base / self.site).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"the site {self.site} cannot be read: {error}") from None

    def step(self, action: str) -> Step:
        state = self.state
        state["steps"] += 1
        words, links = action.strip(), self._page.get("links") or {}
        verb, _, label = words.partition(" ")
        named = {k.lower(): k for k in links}
        found = named.get(label.strip().strip("'\"").lower()) if verb.lower() == "click" else None
        said = ""
        if words.lower() == "back" and state["trail"]:
            state["at"] = state["trail"].pop()
        elif found is not None:
            state["trail"].append(state["at"])
            state["at"] = links[found]
        else:
            said = "There is no page to go back to.\n" if words.lower() == "back" else "There is no such link.\n"
        done = state["at"] == self._goal
        return Step(said + self._seen(), done or state["steps"] >= self.limit)

    @property
    def _page(self) -> Mapping[str, Any]:
        return self._pages[self.state["at"]]

    def _seen(self) -> str:
        links = ", ".join(self._page.get("links") or {})
        return f"{self.state['at']}: {str(self._page.get('text', ''))[: self.text_chars]}\nLinks: {links or 'none'}"

    def identity(self) -> Any:
        return [self.state["at"], self.state["trail"][-1:]]

    def actions(self) -> Sequence[str]:
        back = ["back"] if self.state["trail"] else []
        return [*(f"click {label}" for label in self._page.get("links") or {}), *back]

    def score(self) -> float:
        return float(self.state["at"] == self._goal)
