"""Environments: worlds in which an agent acts step by step, and which can be restored to any earlier state.

An environment is a class whose fields are its settings. Register it by the hook `register_environments`, or name it
`python:file.py:Class`. A node plays it through an `Episode`, which journals every transition: a resumed run reads them
from the journal and needs no environment.

An agent can undo every action here. So look-ahead is a privilege: a score reached with it is a score of search with
resets, not of an agent with a single attempt.

One file: the contract of an environment, and the episode that plays it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from workbench.base.concurrency import run_in_thread
from workbench.base.hashing import digest
from workbench.base.type_guards import copied
from workbench.errors import NodeError, PluginError, SpecError, placed_at, suggest
from workbench.plugins import plugins
from workbench.spec import PREFIX, load_python, load_user_code, parse_address
from workbench_kit.acting.results import cut_text

#: ctx.effect: (kind, content, run) -> JSON; it runs once at each place in an example.
Effect = Callable[[str, Any, Callable[[], Awaitable[Any]]], Awaitable[Any]]

#: (tool, arguments): raises NodeError("policy") for a forbidden action.
Check = Callable[[str, Mapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True)
class Step:
    """The outcome of an action. reward: on the environment's own scale; None: the change of the score."""

    observation: str
    done: bool = False
    reward: float | None = None


class Environment(BaseModel):
    """A world for one episode at a time. Subclasses implement reset, step and score.

    Keep everything that changes in `self.state`, as JSON, so that it can be stored, restored and compared. `reset` sets
    what the task fixes; it precedes every `restore`. An environment whose state is not accessible (a game in another
    process) overrides `snapshot` to return None. It is then restored by a reset and the same actions, and must be
    deterministic.

    Report an impossible or unreadable action in the observation. An exception is a fault of the environment.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    #: The form of actions, for the agent.
    help: ClassVar[str] = ""

    base: Path = Field(Path("."), exclude=True, description="folder of the workflow file; set by workbench")
    _state: Any = PrivateAttr(None)

    @property
    def state(self) -> Any:
        return self._state

    @state.setter
    def state(self, value: Any) -> None:
        self._state = value

    def reset(self, task: Mapping[str, Any]) -> str:
        """Begin an episode and return the first observation. task: fields of the example.

        Raises ValueError, with the missing fields, for a task that cannot be played.
        """
        raise NotImplementedError

    def step(self, action: str) -> Step:
        raise NotImplementedError

    def score(self) -> float:
        """Return the value of the state, in [0, 1]; 1 means that the task is done. The agent does not see it."""
        raise NotImplementedError

    @classmethod
    def call(cls, action: str) -> Mapping[str, Any]:
        """Return an action as arguments of a tool call, for the rules of `policy:`: its text, and its first word in
        lower case.

        Override it if an action can be written in several ways, or if rules should distinguish its arguments.
        """
        words = action.split(maxsplit=1)
        return {"action": action.strip(), "verb": words[0].lower() if words else ""}

    def calls(self, action: str) -> Sequence[Mapping[str, Any]]:
        """Return an action as several tool calls, each of which must be allowed. Override it if the effect of an action
        does not follow from its text alone. Each action then opens the environment a second time."""
        return [self.call(action)]

    def actions(self) -> Sequence[str] | None:
        """Return the possible actions in this state, as the agent writes them; None if there are too many to list."""
        return None

    def snapshot(self) -> Any:
        """Return the state as JSON, or None if the environment cannot export it."""
        return self.state

    def restore(self, snapshot: Any) -> None:
        """Restore a snapshot of the same task, taken by an object with the same settings."""
        self.state = json.loads(json.dumps(snapshot))

    def identity(self) -> Any:
        """Return a JSON value that is equal for states that a search may merge; by default the snapshot. Leave out
        whatever does not affect the reachable states, such as the number of steps."""
        return self.snapshot()

    def close(self) -> None:
        """Release resources."""


@dataclass(frozen=True)
class Position:
    """A position in an episode. key: equal for equal states. same: equal for states that a search may merge. hints: the
    possible actions, if known."""

    actions: tuple[str, ...]
    observation: str
    done: bool
    reward: float
    score: float
    hints: tuple[str, ...] | None
    key: str
    same: str
    snapshot: Any = None


class Episode:
    """Plays one task. Every transition is journalled by `effect`, usually `ctx.effect`.

    check: called before each action, also before actions of a look-ahead; usually `partial(check_policy, ctx)`. Its
    arguments are those of a tool call: the environment's name (for `python:file.py:Class` the last part), and the
    result of `Environment.call`.

    timeout: seconds for one step, including the steps that lead up to it.

    Faults of the environment are raised as NodeError("environment"), and also journalled.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any],
        base: Path,
        task: Mapping[str, Any],
        effect: Effect,
        check: Check,
        timeout: float = 300.0,
    ):
        self.name, self.settings, self.base, self.task, self.effect = name, dict(settings), base, dict(task), effect
        self.check, self.tool, self.timeout = check, tool_name(name), timeout

    async def start(self) -> Position:
        """Return the position after a reset."""
        return await self._run("reset", (), lambda environment: self._played(environment, ()))

    async def take(self, position: Position, action: str) -> Position:
        """Return the position after one more action. The given position does not change and can be continued again.

        The environment is restored from the position's snapshot; without one, it is reset, the actions are replayed,
        and the state is compared. Raises NodeError("policy") for a forbidden action.
        """
        if position.done:
            raise ValueError("the episode is over; no action can follow")
        for arguments in await self._calls(position, action):
            await self.check(self.tool, arguments)

        def play(environment: Environment) -> dict[str, Any]:
            self._go_to(environment, position)
            step = environment.step(action)
            observed = [position.key, action, step.observation, step.done]
            return _told(environment, step, observed, position.reward, position.score)

        return await self._run("step", (*position.actions, action), play)

    async def _calls(self, position: Position, action: str) -> Sequence[Mapping[str, Any]]:
        cls = environment_class(self.name, self.base)
        if cls.calls is Environment.calls:
            return [cls.call(action)]

        def play(environment: Environment) -> dict[str, Any]:
            self._go_to(environment, position)
            return {"calls": list(environment.calls(action))}

        return (await self._effect("calls", (*position.actions, action), play))["calls"]

    def _go_to(self, environment: Environment, position: Position) -> None:
        if position.snapshot is None:
            self._same(position, self._played(environment, position.actions))
        else:
            environment.reset(copied(self.task))
            environment.restore(position.snapshot)

    async def replay(self, position: Position) -> Position:
        """Replay a position: reset, then repeat its actions. Raises NodeError if the state differs."""

        def play(environment: Environment) -> dict[str, Any]:
            told = self._played(environment, position.actions)
            self._same(position, told)
            return told

        return await self._run("replay", position.actions, play)

    def _played(self, environment: Environment, actions: Sequence[str]) -> dict[str, Any]:
        step = Step(environment.reset(copied(self.task)), reward=0.0)
        told = _told(environment, step, [step.observation])
        for action in actions:
            step = environment.step(action)
            observed = [told["key"], action, step.observation, step.done]
            told = _told(environment, step, observed, told["reward"], told["score"])
        return told

    def _same(self, position: Position, told: Mapping[str, Any]) -> None:
        if told["key"] != position.key:
            raise NodeError(
                "environment",
                f"'{self.name}' is not deterministic: {len(position.actions)} replayed actions led to another state",
            )

    async def _run(
        self, what: str, actions: tuple[str, ...], play: Callable[[Environment], dict[str, Any]]
    ) -> Position:
        found = await self._effect(what, actions, play)
        hints = found.pop("hints")
        return Position(actions=actions, hints=None if hints is None else tuple(hints), **found)

    async def _effect(
        self, what: str, actions: tuple[str, ...], play: Callable[[Environment], dict[str, Any]]
    ) -> dict[str, Any]:
        def work() -> dict[str, Any]:
            with closing(open_environment(self.name, self.settings, self.base)) as environment:
                return play(environment)

        async def run() -> dict[str, Any]:
            try:
                return await run_in_thread(work, self.timeout)
            except SpecError:
                raise
            except NodeError as error:
                return {"failure": str(error)}
            except TimeoutError as error:
                return {"failure": f"{self.name}: {str(error) or f'no result within {self.timeout:g} s'}"}
            except Exception as error:
                return {"failure": f"{self.name}: {type(error).__name__}: {error}"}

        content = [what, self.name, self.settings, digest(self.task), list(actions)]
        found = await self.effect("environment", content, run)
        if "failure" in found:
            raise NodeError("environment", found["failure"])
        return found


def _told(
    environment: Environment, step: Step, observed: list[Any], reward: float = 0.0, before: float = 0.0
) -> dict[str, Any]:
    """Return a position as JSON. reward: the sum so far. before: the score before the step. Without a snapshot, the key
    is a hash of all actions and observations."""
    snapshot, score, hints = environment.snapshot(), float(environment.score()), environment.actions()
    key = digest(observed if snapshot is None else [snapshot, step.done])
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"the score of a state must be a number in [0, 1], not {score!r}")
    reward += score - before if step.reward is None else step.reward
    return {
        "observation": cut_text(step.observation),
        "done": step.done,
        "reward": reward,
        "score": score,
        "hints": None if hints is None else list(hints),
        "snapshot": json.loads(json.dumps(snapshot)),
        "key": key,
        "same": key if snapshot is None else digest([environment.identity(), step.done]),
    }


def tool_name(name: str) -> str:
    """Return the tool name of an environment's actions in the rules of `policy:`."""
    return parse_address(name).name if name.startswith(PREFIX) else re.split(r"[.:]", name)[-1]


def environment_class(name: str, base: Path) -> type[Environment]:
    """Return the class of a registered name or of `python:file.py:Class`. Raise SpecError and PluginError."""
    if name.startswith(PREFIX):
        found = load_user_code(name, base)
    elif name in (known := plugins().names("environments")):
        found = plugins().get("environments", name)
    else:
        raise SpecError(f"there is no environment '{name}'", hint=f"{suggest(name, known)} Or python:file.py:Class.")
    if not (isinstance(found, type) and issubclass(found, Environment)):
        raise PluginError(f"'{name}' is not a subclass of workbench_kit.acting.environment.Environment")
    return found


def enter_environment(name: Any, settings: Mapping[str, Any], base: Path) -> None:
    """Pass the doors of an environment that a node names."""
    if name.startswith(PREFIX):
        load_python(name, base, "environment")
    elif name in plugins().names("environments"):
        with placed_at("settings"), suppress(SpecError, PluginError):
            open_environment(name, settings, base).close()


def open_environment(name: str, settings: Mapping[str, Any], base: Path) -> Environment:
    """Create an environment. Raise SpecError for invalid settings."""
    cls = environment_class(name, base)
    try:
        return cls(**{**settings, "base": base})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "settings"
        known = [f for f in cls.model_fields if f != "base"]
        hint = suggest(field, known) if first["type"] == "extra_forbidden" else None
        raise SpecError(f"environment '{name}': {field}: {first['msg']}", hint=hint, path=("settings",)) from None
