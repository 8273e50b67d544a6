"""The `tree_search` node: an agent that tries actions in an environment before it commits to them.

Source: Tree Search for Language Model Agents (Koh et al., arXiv 2407.01476): of several sampled actions the most
frequent ones are kept, a model asked several times judges states, the frontier is ordered by the parent's value, the
budget counts judged states, and the best sequence is committed as a whole. With `order: mcts` the same parts are
searched by UCT with plain backup, as in SWE-Search and the search half of Agent Q. Departures, with reasons, are in the
README.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from workbench.base.type_guards import copied
from workbench.errors import NodeError
from workbench.runtime import Context
from workbench.spec import (
    PREFIX,
    LMSpec,
    is_collecting,
    lm_spec,
    load_python,
    load_user_code,
)
from workbench.workflow import NodeKind
from workbench_kit.acting import (
    Episode,
    Position,
    check_policy,
    enter_environment,
    environment_class,
    open_environment,
    tool_name,
)
from workbench_kit.searching import Node, Search, explore, grow, select, uct
from workbench_tree_search import learned_value as learned, prompts
from workbench_tree_search.settings import TreeSearchConfig


class TreeSearch(NodeKind):
    """An agent in an environment that looks ahead: it tries actions out, judges where they lead, and takes the best."""

    Config = TreeSearchConfig
    primary = "environment"
    learnable = {
        "instructions": "text",
        "order": "choice",
        "evaluations": "int",
        "depth": "int",
        "branching": "int",
        "lm": "lm",
    }
    config: TreeSearchConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.help, self.judge = "", None
        if is_collecting():
            enter_environment(config.environment, config.settings, base)
        if config.value.startswith(PREFIX):
            load_python(config.value, base, "value")
        if self.code != "loaded":
            return
        self.help = environment_class(config.environment, base).help
        open_environment(config.environment, config.settings, base).close()
        if config.value.startswith(PREFIX):
            self.judge = load_user_code(config.value, base)

    def tool_names(self) -> Collection[str]:
        return [tool_name(self.config.environment)]

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.config.show, *self.config.task.values())))

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("actions", "observation", "score")

    @property
    def max_calls(self) -> int:
        return self.config.max_calls

    @cached_property
    def lm(self) -> LMSpec | None:
        return lm_spec(self.config.lm) if self.config.lm is not None else None

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        """{actions: what was done, observation: the last one, score: the environment's own, of where it ended}."""
        ctx.span.agent = self.name
        task = {name: inputs[source] for name, source in self.config.task.items()}
        c = self.config
        timeout = ctx.program.runtime.timeout
        episode = Episode(c.environment, c.settings, self.base, task, ctx.effect, partial(check_policy, ctx), timeout)
        path = [await episode.start()]
        walk = _Walk(self, inputs, ctx, episode, path)
        try:
            for _ in range(c.max_steps):
                if path[-1].done:
                    break
                path += await (walk.greedy() if c.order == "greedy" else walk.search())
            if c.order != "greedy":
                await episode.replay(path[-1])  # what was found by restoring must be reached by just doing it
        finally:
            ctx.note(searches=walk.notes, states=walk.states(), unreadable=walk.unreadable)
        return {"actions": list(path[-1].actions), "observation": path[-1].observation, "score": path[-1].score}


@dataclass
class _Walk:
    """An episode. path: the positions that were committed to, the start first."""

    node: TreeSearch
    inputs: Mapping[str, Any]
    ctx: Context
    episode: Episode
    path: list[Position]
    values: dict[str, float | None] = field(default_factory=dict)  # of states by what tells them apart
    notes: list[dict[str, Any]] = field(default_factory=list)
    trees: list[Node[Position | None]] = field(default_factory=list)
    failures: list[NodeError] = field(default_factory=list)
    unreadable: int = 0  # answers that named no action, or no judgement

    async def greedy(self) -> list[Position]:
        """A step by the most frequent action that the policy allows."""
        actions = await self.candidates(self.path)
        if not actions:
            raise NodeError("unparsed", "no answer of the model names an action that can be done")
        for action in actions[:-1]:
            try:
                return [await self._taken(action)]
            except NodeError as error:
                if error.kind != "policy":
                    raise
        return [await self._taken(actions[-1])]

    async def _taken(self, action: str) -> Position:
        """Where an action leads. Of several answers none is the one that earned it, so credit needs a single one."""
        here = self.path[-1]
        there = await self.episode.take(here, action)
        if self.node.config.drawn == 1:
            self.ctx.step(here.same, there.reward - here.reward)
        return there

    async def search(self) -> list[Position]:
        """Look ahead from where the agent stands, and give the positions up to the best one that was found."""
        c, self.failures = self.node.config, []
        root: Node[Position | None] = Node(self.path[-1], reward=0.5, key=self.path[-1].same)
        limits = {"depth": c.depth, "evaluations": c.evaluations, "goal": lambda node: node.reward == 1.0}
        if c.order == "mcts":
            found = await grow(root, self.expand, self.value, lambda top: select(top, uct), **limits)
        else:
            order: Any = c.order
            found = await explore(root, self.expand, self.value, order=order, width=c.width, **limits)
        best = self._best(found)
        self.trees.append(root)
        self.notes.append(
            {
                "looked_at": [[_actions(n), n.reward] for n in found.visited[1:]],
                "evaluations": found.evaluations,
                "stopped": found.stopped,
                "value": best.reward,
                **({"failures": [str(e) for e in self.failures]} if self.failures else {}),
            }
        )
        return [n.state for n in best.path[1:] if n.state is not None]

    def _best(self, found: Search[Position | None]) -> Node[Position | None]:
        """The state of the highest value; where none could be valued, what the model would have done without."""
        there = [n for n in found.visited[1:] if n.state is not None]
        if not there:
            if self.failures:
                raise NodeError(self.failures[0].kind, str(self.failures[0]))
            raise NodeError("unparsed", "no answer of the model names an action that can be done")
        known = [n for n in there if n.reward is not None]
        return max(known, key=lambda n: n.reward or 0.0) if known else there[0]

    async def expand(self, node: Node[Position | None]) -> None:
        """Children for the most frequent actions; their states show when they are looked at."""
        assert node.state is not None
        if node.children or node.state.done:
            return
        for action in await self.candidates(self._path(node)):
            node.add(None, action=action)

    async def value(self, node: Node[Position | None]) -> float | None:
        """Take the action in the environment, and judge where it leads. A fault closes the branch."""
        assert node.parent is not None and node.parent.state is not None
        try:
            node.state = await self.episode.take(node.parent.state, node.action)
        except NodeError as error:
            node.closed = True
            self.failures.append(error)
            return None
        node.key = node.state.same
        if node.key not in self.values:
            self.values[node.key] = await self.judged(self._path(node))
        return self.values[node.key]

    def _path(self, node: Node[Position | None]) -> list[Position]:
        return [*self.path, *(n.state for n in node.path[1:] if n.state is not None)]

    async def candidates(self, path: list[Position]) -> list[str]:
        c, node = self.node.config, self.node
        messages = prompts.action_messages(c, node.help, self.inputs, path)
        answers = await self._asked(messages, node.lm, c.drawn)
        actions = [prompts.read_action(a, path[-1].hints) for a in answers]
        self.unreadable += actions.count(None)
        return prompts.most_frequent([a for a in actions if a is not None], c.branching)

    async def judged(self, path: list[Position]) -> float | None:
        """The value of the last position; None if unknown."""
        c, node = self.node.config, self.node
        if c.value == "learned":
            return learned.estimate_value(c.weights, self._text(path[-1]))
        if node.judge is not None:
            return await self.ctx.effect("value", [c.value, list(path[-1].actions)], partial(self._called, path[-1]))
        messages = prompts.value_messages(c, self.inputs, path)
        verdicts = [prompts.read_verdict(a) for a in await self._asked(messages, node.lm, c.judged)]
        known = [v for v in verdicts if v is not None]
        self.unreadable += len(verdicts) - len(known)
        return sum(known) / len(known) if known else None

    async def _called(self, here: Position) -> float | None:
        """The value by a function of the user's: (inputs, position) -> number in [0, 1], or None."""
        assert self.node.judge is not None
        found = self.node.judge(copied(dict(self.inputs)), here)
        found = await found if inspect.isawaitable(found) else found
        if found is None:
            return None
        if not 0.0 <= float(found) <= 1.0:
            raise NodeError("code", f"{self.node.config.value} must give a number in [0, 1] or None, not {found!r}")
        return float(found)

    async def _asked(self, messages: list[dict[str, str]], lm: LMSpec | None, count: int) -> list[str]:
        """So many answers; '' for a refusal, or one that was cut."""
        c = self.node.config
        responses = await self.ctx.samples(messages, count, lm=lm, temperature=c.temperature, max_tokens=c.max_tokens)
        return ["" if r.finish in ("refusal", "length") else r.text for r in responses]

    def _text(self, position: Position) -> str:
        shown = " ".join(str(self.inputs[name]) for name in self.node.config.show)
        return f"{shown} {position.observation}"

    def states(self) -> list[tuple[str, float]]:
        """Return training data of a value function: each state's text, and the best score seen from there on, less for
        each step that it takes: else a state from which the goal can be reached is worth as much as the goal."""
        found: dict[str, tuple[str, float]] = {}

        def add(position: Position, worth: float) -> None:
            text, before = found.get(position.same, (self._text(position), 0.0))
            found[position.same] = (text, max(worth, before))

        for i, position in enumerate(self.path):
            add(position, max(p.score * learned.DISCOUNT**n for n, p in enumerate(self.path[i:])))
        for node in (n for tree in self.trees for n in tree.walk()):
            if node.state is not None:
                below = ((n.depth - node.depth, n.state.score) for n in node.walk() if n.state is not None)
                add(node.state, max(score * learned.DISCOUNT**steps for steps, score in below))
        return list(found.values())


def _actions(node: Node[Position | None]) -> list[str]:
    """From the start of the episode; for a state that could not be reached the last one alone."""
    return list(node.state.actions) if node.state is not None else [str(node.action)]
