"""Environments of the library Gymnasium with observations that can be shown as text (extra `gymnasium`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import Field, PrivateAttr, model_validator

from workbench.base.distribution import pip_install
from workbench.base.type_guards import walk
from workbench.errors import SpecError, suggest
from workbench.spec import load_python, read_outside
from workbench_kit.acting import Environment, Step


class Gymnasium(Environment):
    """A Gymnasium environment, by id. Its state is not accessible, so it is restored by replaying from the seed.

    Task: `seed` (a number, default 0) and `options` (passed to its reset). Actions of a discrete space are numbers, or
    the words of `actions_named`; those of a text space are passed unchanged.
    """

    help: ClassVar[str] = "one of the actions that are listed"

    id: str = Field("FrozenLake-v1", description="id for gymnasium.make; module:Name-v0 imports the module first")
    settings: dict[str, Any] = Field(default_factory=dict, description="additional arguments of gymnasium.make")
    actions_named: list[str] = Field(default_factory=list, description="words for the actions 0, 1, 2, ...")
    show: str = Field("", description="render mode whose text is added to the observation, e.g. ansi")
    best: float = Field(1.0, gt=0, description="the sum of rewards that counts as a score of 1")
    limit: int = Field(200, ge=1, le=100_000, description="steps at most")
    _made: Any = PrivateAttr(None)
    _sum: float = PrivateAttr(0.0)
    _steps: int = PrivateAttr(0)

    @model_validator(mode="after")
    def _enter(self) -> Self:
        if ":" in self.id:
            load_python(self.id, self.base, "id")
        for text in walk(self.settings):
            if isinstance(text, str) and text:
                read_outside(text, self.base)
        return self

    def reset(self, task: Mapping[str, Any]) -> str:
        self.close()
        self._made, self._sum, self._steps = self._make(), 0.0, 0
        observation, _ = self._made.reset(seed=int(task.get("seed") or 0), options=task.get("options"))
        return self._text(observation)

    def _make(self) -> Any:
        try:
            import gymnasium
        except ImportError:
            raise SpecError(
                "the environment 'gymnasium' needs the library", hint=pip_install("agents[gymnasium]")
            ) from None
        more = {"render_mode": self.show} if self.show else {}
        try:
            return gymnasium.make(self.id, **{**self.settings, **more})
        except gymnasium.error.Error as error:
            hint = suggest(self.id, map(str, gymnasium.registry))
            raise SpecError(f"gymnasium cannot make '{self.id}': {error}", hint=hint) from None

    def step(self, action: str) -> Step:
        self._steps += 1
        over = self._steps >= self.limit
        given = self._read(action.strip())
        if given is None:
            return Step(f"There is no action '{action.strip()[:80]}'. Actions: {', '.join(self.actions() or ())}", over)
        observation, reward, terminated, truncated, _ = self._made.step(given)
        self._sum += float(reward)
        return Step(self._text(observation), bool(terminated or truncated or over), float(reward))

    def _read(self, action: str) -> Any:
        """Return the action in the library's form; None if it is invalid."""
        listed = self.actions()
        if listed is None:
            return action
        words = [a.lower() for a in listed]
        if action.lower() in words:
            return words.index(action.lower()) + int(getattr(self._made.action_space, "start", 0))
        return None

    def actions(self) -> Sequence[str] | None:
        size = getattr(self._made.action_space, "n", None)
        if size is None:
            return None
        return [self.actions_named[i] if i < len(self.actions_named) else str(i) for i in range(int(size))]

    def _text(self, observation: Any) -> str:
        if not self.show:
            return str(observation)
        marked = re.sub(r"\x1b\[4\dm(.*?)\x1b\[0m", r"[\1]", str(self._made.render()))  # where the agent is
        plain = re.sub(r"\x1b\[[0-9;]*m", "", marked)
        return f"{observation}\n{plain}"

    def score(self) -> float:
        return min(1.0, max(0.0, self._sum / self.best))

    def snapshot(self) -> None:
        return None

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
            self._made = None
