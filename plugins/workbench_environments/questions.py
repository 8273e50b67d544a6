"""Twenty questions: identify a secret thing by asking about properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field, PrivateAttr

from workbench.kit.acting import Environment, Step


class TwentyQuestions(Environment):
    """A game about things with properties. A guess ends the episode, right or wrong.

    Task: `things` ({name: [properties that hold]}) and `secret` (the name of one).
    """

    powers = {}

    help: ClassVar[str] = "ask PROPERTY, or guess NAME; a guess ends the game"

    limit: int = Field(
        20, ge=1, le=1000, description="maximum number of questions; after the last one only a guess counts"
    )
    _things: Mapping[str, Sequence[str]] = PrivateAttr(default_factory=dict)
    _secret: str = PrivateAttr("")

    def reset(self, task: Mapping[str, Any]) -> str:
        things = task.get("things")
        if not isinstance(things, Mapping) or not things:
            raise ValueError("the field 'things' must hold {name: [properties]}")
        if task.get("secret") not in things:
            raise ValueError(f"the field 'secret' must name one of the things, not {task.get('secret')!r}")
        self._things, self._secret = things, task["secret"]
        self.state = {"asked": {}, "questions": 0, "guess": None}
        return f"Things: {', '.join(things)}\nProperties: {', '.join(self._properties)}"

    @property
    def _properties(self) -> list[str]:
        return list(dict.fromkeys(p for properties in self._things.values() for p in properties))

    def step(self, action: str) -> Step:
        state = self.state
        verb, _, rest = action.strip().partition(" ")
        name = rest.strip().strip("?.'\"").lower()
        thing = next((t for t in self._things if t.lower() == name), None)
        asked = next((p for p in self._properties if p.lower() == name), None)
        if verb.lower() == "guess" and thing is not None:
            state["guess"] = thing
            right = thing == self._secret
            return Step("Right." if right else "Wrong.", True)
        state["questions"] += 1
        left = self.limit - state["questions"]
        if left < 0:
            return Step("No question is left, and that was no guess.", True)
        if verb.lower() != "ask" or asked is None:
            return Step(f"Ask for one of: {', '.join(self._properties)}. {left} questions left.")
        state["asked"][asked] = asked in self._things[self._secret]
        return Step(f"{asked}: {'yes' if state['asked'][asked] else 'no'}. {left} questions left.")

    def identity(self) -> Any:
        return [sorted(self.state["asked"].items()), self.state["guess"]]

    def actions(self) -> Sequence[str]:
        open_questions = [p for p in self._properties if p not in self.state["asked"]]
        asks = [f"ask {p}" for p in open_questions] if self.state["questions"] < self.limit else []
        return [*asks, *(f"guess {t}" for t in self._things)]

    def score(self) -> float:
        return float(self.state["guess"] == self._secret)
